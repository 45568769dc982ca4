"""Sections of the report on speed: decode and prefill throughput, whether Λ's cost is flat, llama.cpp, a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from backend.evaluation.markdown import Part, Results, decimal, estimate, figure, table
from backend.measures.bootstrap import LEAST, Bounded, bounded

PLAIN = "transformers bf16"
# When decoding's products came to sum in one order for any number of sequences. What was timed before is named so.
KERNELS = "2026-11-25T17:00:00+00:00"
OLDER = (
    "Timed before decoding's products came to sum in one order for any number of sequences, by which one sequence "
    "alone may take longer; being measured again."
)
ROUNDS = "rounds"
Rate = Mapping[str, Any]


def current(result: Mapping[str, Any]) -> bool:
    """Whether it was timed with the kernels that are in use."""
    return result.get("date", KERNELS) >= KERNELS


def speed(results: Results) -> str:
    """Throughput by context, on each machine, and ratios to transformers where there are enough rounds."""
    parts = []
    for name, result in results.items():
        machine = result.get("machine") or {}
        parts.append(f"**{name}**, {machine.get('processor', '')}, {machine.get('cores', '')} cores:")
        parts.append("" if current(result) else OLDER)
        parts.append(_rates([*result.get("short", ()), *result.get("long", ())]))
        for left in result.get("left_out", ()):
            parts.append(f"Left out after {left['context']:,} tokens: {left['case']} ({left['why']}).")
        parts.append(_page(result.get("page")))
    words = (
        "Tokens per second after a context of so many tokens. Speeds of two files are of two machines or two hours and "
        f"do not compare. Ratios are medians over rounds of all cases by turns, of at least {LEAST} rounds."
    )
    return "\n\n".join(filter(None, [words, *parts]))


def flat(results: Results) -> str:
    """What a token costs under Λ by how far into a text it is."""
    result = results["flatness.json"]
    first = {row["window"]: row for row in reversed(result["rows"])}
    rows = [
        [
            f"{row['window']:,}", f"{row['context']:,}",
            *(cell for way in ("reading", "writing") for cell in _cost(row, first[row["window"]], way)),
            f"{row['cache'] / 2**20:.1f} MiB",
        ]
        for row in result["rows"]
    ]  # fmt: skip
    columns = [
        "window", "tokens before", "prefill, ms a token", "over the first", "decode, ms a token", "over the first",
        "cache",
    ]  # fmt: skip
    words = "Λ, all lengths by turns; medians over rounds."
    return "\n\n".join([*([] if current(result) else [OLDER]), words, table(columns, rows)])


def at_once(results: Results) -> str:
    """Many visitors' runs together beside the same one by one."""
    result = results["visitors.json"]
    waits = times(*([each[name] for each in result["rounds"]] for name in ("last_first", "lone_first")))
    rows = [
        ["tokens per second of all, times one by one", estimate(*throughput(result), ROUNDS)],
        ["seconds until the last has its first token, times a lone visitor's", estimate(*waits, ROUNDS)],
    ]
    words = (
        f"{result['visitors']} runs of {result['written']} tokens in bf16, each of another question, methods, windows "
        "and position policies mixed, probes on: all at once, and one after another, by turns; medians over rounds."
    )
    return f"{words}\n\n{table(['what', 'how much (95 %)'], rows)}"


def throughput(result: Mapping[str, Any]) -> tuple[Bounded, int]:
    """How many times as many tokens a second all runs at once write as one by one, and over how many rounds."""
    return times(*([each[name] for each in result["rounds"]] for name in ("together", "alone")))


def by_shape(results: Results) -> str:
    """Throughput of models of random weights on a GPU, by their shape."""
    shapes = results["bench_gpu.json"]["shapes"]
    return "\n\n".join(f"{shape}:\n\n{_rates(rates)}" for shape, rates in shapes.items())


def over_first(result: Mapping[str, Any], window: int, context: int, way: str) -> tuple[Bounded, int]:
    """How many times as long a token takes as after the shortest context, and over how many rounds."""
    rows = {row["context"]: row for row in result["rows"] if row["window"] == window}
    return times(rows[context][way], rows[min(rows)][way])


def times(ours: Sequence[float], theirs: Sequence[float]) -> tuple[Bounded, int]:
    """The median over rounds of one over the other, and how many rounds; unknown unless both tell the same ones."""
    if len(ours) != len(theirs):
        return Bounded(None), 0
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return bounded(np.median, ratios), len(ratios)


def _cost(row: Rate, first: Rate, way: str) -> tuple[str, str]:
    if row is first:
        return figure(median(row[way])), "1"
    found, count = times(row[way], first[way])
    return figure(median(row[way])), estimate(found, count, ROUNDS)


def _rates(rates: Sequence[Rate]) -> str:
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
            cells.append(estimate(found, count, ROUNDS))
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


PARTS = {
    "speed": Part(
        "Speed", ("bench.json", "bench_long.json", "bench_llama_cpp.json"), "make bench bench-long bench-llama", speed
    ),
    "flatness": Part("A token's cost far into a text", ("flatness.json",), "make bench-flat", flat),
    "visitors": Part(
        "Many visitors at once", ("visitors.json",), "python -m backend.evaluation.visitors", at_once
    ),
    "gpu": Part("Speed on a GPU, random weights", ("bench_gpu.json",), "make bench-gpu", by_shape),
}
