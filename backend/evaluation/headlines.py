"""What the lab shows, in a table: of what rests on at least 100 prompts, or six long texts or rounds of a timing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend.evaluation.computation import spared, whole
from backend.evaluation.markdown import UNKNOWN, Results, figure, fine, percent, table, told
from backend.evaluation.report_reading import NOVELS, lengths, over_fresh, over_lambda
from backend.evaluation.report_speed import over_first, times
from backend.evaluation.report_writing import best_readers, finding, largest

WINDOW, PROMPTS = 2048, 100


def headlines(results: Results) -> str:
    """The table, and a sentence on what does not hold on this model."""
    rows = [row for row in _rows(results) if row[1] != UNKNOWN]
    shown = table(["what", "how much (95 %)", "command"], [[what, much, f"`{how}`"] for what, much, how in rows])
    long = largest(results)
    few = f" Fewer than {PROMPTS} prompts: no headline." if long and len(long["prompts"]) < PROMPTS else ""
    words = f"{finding(long)}{few}" if long else ""
    return "\n\n".join(filter(None, [shown, words]))


def _rows(results: Results) -> Iterator[tuple[str, str, str]]:
    if novels := results.get(NOVELS):
        yield from _reading(novels)
    if computed := results.get("computation.json"):
        texts = len({row["document"] for row in whole(computed["rows"])})
        found = spared(computed["rows"]).get(WINDOW)
        yield (
            f"Truncation's operations for the perplexity of a Λ window of {WINDOW:,}, over Λ's",
            told(found, texts, "novels") if found else UNKNOWN,
            "python -m backend evaluate computation",
        )
    if flat := results.get("flatness.json"):
        far = max(row["context"] for row in flat["rows"])
        for way, words in (("reading", "prefill"), ("writing", "decode")):
            time = told(*over_first(flat, WINDOW, far, way), "rounds")
            yield f"Time of a Λ token after {far:,} tokens over after 4,096, {words}", time, "make bench-flat"
    if bench := results.get("bench.json"):
        rates = {(rate["case"], rate["context"]): rate["decode_rounds"] for rate in bench["short"]}
        ours, theirs = (rates.get((case, WINDOW), []) for case in ("engine bf16", "transformers bf16"))
        what = f"Decode throughput after {WINDOW:,} tokens over transformers', bf16, two cores"
        yield what, told(*times(ours, theirs), "rounds", figure), "make bench"
    if ends := results.get("endmark.json"):
        for signal, found in best_readers(ends).items():
            what = f"Ends that a small reader finds in the signal of `{signal}` alone"
            yield what, told(found, ends["lengths"], "lengths", percent), "python -m backend evaluate endmark"


def _reading(novels: Any) -> Iterator[tuple[str, str, str]]:
    command = "python -m backend evaluate perplexity"
    plain = [at for at in lengths(novels) if over_lambda(novels, "plain", at)[0].known]
    if plain:
        found = told(*over_lambda(novels, "plain", plain[-1]), "novels", figure)
        yield f"Perplexity of plain attention after {plain[-1]:,} tokens, over Λ's", found, command
    far = lengths(novels)[-1]
    found = told(*over_fresh(novels, far), "novels", fine)
    yield f"Λ's perplexity after {far:,} tokens, over the same tokens of a text begun 8,192 before", found, command
