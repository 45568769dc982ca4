"""Timed ways as tables: tokens per second by context, and ratios where there are enough rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.evaluation.experiment import Result, Results
from backend.evaluation.markdown import decimal, estimate, figure, table
from backend.measures.bootstrap import LEAST, Bounded, bounded

PLAIN = "transformers bf16"
# When decoding's products came to sum in one order for any number of sequences. What was timed before is named so.
KERNELS = "2026-11-25T17:00:00+00:00"
OLDER = (
    "Timed before decoding's products came to sum in one order for any number of sequences, by which one sequence "
    "alone may take longer; being measured again."
)
WORDS = (
    "Tokens per second after a context of so many tokens. Speeds of two files are of two machines or two hours and do "
    f"not compare. Ratios are medians over rounds of all cases by turns, of at least {LEAST} rounds."
)
Rate = Mapping[str, Any]


def current(result: Result) -> bool:
    """Whether it was timed with the kernels that are in use."""
    return result.get("date", KERNELS) >= KERNELS


def throughput(results: Results) -> str:
    """Throughput by context, on each machine, and ratios to transformers where there are enough rounds."""
    parts = []
    for name, result in results.items():
        machine = result.get("machine") or {}
        parts.append(f"**{name}**, {machine.get('processor', '')}, {machine.get('cores', '')} cores:")
        parts.append("" if current(result) else OLDER)
        parts.append(rate_tables([*result.get("short", ()), *result.get("long", ())]))
        for left in result.get("left_out", ()):
            parts.append(f"Left out after {left['context']:,} tokens: {left['case']} ({left['why']}).")
        parts.append(_page(result.get("page")))
    return "\n\n".join(filter(None, [WORDS, *parts]))


def times(ours: Sequence[float], theirs: Sequence[float]) -> tuple[Bounded, int]:
    """The median over rounds of one over the other, and how many rounds; unknown unless both tell the same ones."""
    if len(ours) != len(theirs):
        return Bounded(None), 0
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return bounded(np.median, ratios), len(ratios)


def rate_tables(rates: Sequence[Rate]) -> str:
    contexts = sorted({rate["context"] for rate in rates})
    cases = dict.fromkeys(rate["case"] for rate in rates)
    by_place = {(rate["case"], rate["context"]): rate for rate in rates}
    parts = []
    for title, key in (("decode", "decode"), ("prefill", "prefill")):
        rows = [
            [case, *(figure((by_place.get((case, context)) or {}).get(key)) for context in contexts)]
            for case in cases
        ]
        parts.append(table([title, *(f"{context:,}" for context in contexts)], rows))
    return "\n\n".join([*parts, _over_transformers(by_place, list(cases), contexts)]).strip()


def _over_transformers(rates: Mapping[tuple[str, int], Rate], cases: Sequence[str], contexts: Sequence[int]) -> str:
    rows = []
    for case in cases:
        cells = []
        for context in contexts:
            ours, theirs = rates.get((case, context)), rates.get((PLAIN, context))
            both = ours and theirs and case != PLAIN
            found, count = times(ours["decode_rounds"], theirs["decode_rounds"]) if both else (Bounded(None), 0)  # type: ignore[index]
            cells.append(estimate(found, count, "rounds"))
        if any(cell != "–" for cell in cells):
            rows.append([case, *cells])
    if not rows:
        return f"No case has {LEAST} rounds beside {PLAIN}: rows are not compared."
    return table([f"decode, times {PLAIN}", *(f"{context:,}" for context in contexts)], rows)


def _page(page: Mapping[str, Any] | None) -> str:
    if not page:
        return ""
    runs = [page, *page.get("further", ())]
    rows = [
        [way, figure(run.get("prompt_tokens")), figure(run["written"]), decimal(rate)]
        for run in runs
        for way, rate in run["tokens_per_second"].items()
    ]
    words = "The same run alone and behind the page; without intervals, and not compared:"
    return f"{words}\n\n{table(['way', 'prompt tokens', 'tokens', 'tokens per second'], rows)}"
