"""What the lab shows, in a table: of what rests on at least 100 prompts, or six long texts or rounds of a timing."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from backend.evaluation.computation import spared, whole
from backend.evaluation.markdown import UNKNOWN, Results, estimate, figure, fine, percent, table
from backend.evaluation.report_joint import FOLDER as JOINT
from backend.evaluation.report_joint import share_of
from backend.evaluation.report_reading import NOVELS, lengths, over_fresh, over_lambda
from backend.evaluation.report_speed import current, over_first, throughput, times
from backend.evaluation.report_writing import best_readers, finding, largest

# The Λ window that is shown, how many prompts make a headline, and the tokens that the model was trained on.
WINDOW, PROMPTS, TRAINED = 2048, 100, 8192
ADAPTERS = ("ldpe", "orpe")


def headlines(results: Results) -> str:
    """The table, and in words what rests on too few prompts for it."""
    rows = [row for row in _rows(results) if row[1] != UNKNOWN]
    shown = table(["what", "how much (95 %)", "command"], [[what, much, f"`{how}`"] for what, much, how in rows])
    found = [finding(long)] if (long := largest(results)) and len(long["prompts"]) < PROMPTS else []
    found += filter(None, [_few(results)])
    few = f"No headlines, as they rest on fewer than {PROMPTS} prompts:\n\n" + "\n".join(f"- {each}" for each in found)
    return f"{shown}\n\n{few}" if found else shown


def _ends(results: Results, least: int, most: float = inf) -> list[tuple[str, str]]:
    """Shares of a shipped adapter's answers that meet their length, and that end well too, of rows of least ≤ answers <
    most."""
    found = []
    for name in ADAPTERS:
        row = results.get(f"{JOINT}{name}.json", {}).get("summary", {}).get("validation")
        if row and least <= row["counted"] < most:
            length, well = (share_of(row[key], row["counted"]) for key in ("length", "all_three"))
            found.append((f"`{name}` {length}", well))
    return found


def _few(results: Results) -> str:
    """The same of too few prompts, in words."""
    each = [f"{length} of the length, {well} that end well too" for length, well in _ends(results, 1, PROMPTS)]
    return f"The shipped adapters cut, shares of their answers: {'; '.join(each)}." if each else ""


def _rows(results: Results) -> Iterator[tuple[str, str, str]]:
    if cut := _ends(results, PROMPTS):
        chance = share_of(results[f"{JOINT}{ADAPTERS[0]}.json"]["summary"]["validation"]["chance"])
        yield (
            f"Answers of the length asked for, and those that end as a reader accepts too (a cut at random: {chance})",
            ", ".join(f"{length}, ended {well}" for length, well in cut),
            "python -m backend evaluate joint_rate",
        )
    if novels := results.get(NOVELS):
        yield from _reading(novels)
    if computed := results.get("computation.json"):
        texts = len({row["document"] for row in whole(computed["rows"])})
        found = spared(computed["rows"]).get(WINDOW)
        yield (
            f"Truncation's operations for the perplexity of a Λ window of {WINDOW:,}, over Λ's",
            estimate(found, texts, "novels") if found else UNKNOWN,
            "python -m backend evaluate computation",
        )
    if (flat := results.get("flatness.json")) and current(flat):
        far = max(row["context"] for row in flat["rows"])
        ways = {"prefill": "reading", "decode": "writing"}
        ratios = (f"{name} {estimate(*over_first(flat, WINDOW, far, way), 'rounds')}" for name, way in ways.items())
        yield f"Time of a Λ token after {far:,} tokens over after 4,096", ", ".join(ratios), "make bench-flat"
    if visitors := results.get("visitors.json"):
        what = (
            f"Tokens per second of {visitors['visitors']} visitors' runs of {visitors['written']} tokens at once over "
            "one by one, bf16, two cores"
        )
        yield what, estimate(*throughput(visitors), "rounds"), visitors["command"]
    if (bench := results.get("bench.json")) and current(bench):
        rates = {(rate["case"], rate["context"]): rate["decode_rounds"] for rate in bench["short"]}
        ours, theirs = (rates.get((case, WINDOW), []) for case in ("engine bf16", "transformers bf16"))
        what = f"Decode throughput after {WINDOW:,} tokens over transformers', bf16, two cores"
        yield what, estimate(*times(ours, theirs), "rounds", figure), "make bench"
    if ends := results.get("endmark.json"):
        found_ends = [
            f"`{signal}` {estimate(found, ends['lengths'], 'lengths', percent)}"
            for signal, found in best_readers(ends).items()
        ]
        what = "Ends that the best of four small readers finds in a length signal alone"
        yield what, ", ".join(found_ends), "python -m backend evaluate endmark"


def _reading(novels: Any) -> Iterator[tuple[str, str, str]]:
    command = "python -m backend evaluate perplexity"
    plain = [at for at in lengths(novels) if over_lambda(novels, "plain", at)[0].known]
    for at in plain[-2:]:
        beyond = f"{at // TRAINED} times what it was trained on" if at > TRAINED else "as many as it was trained on"
        found = estimate(*over_lambda(novels, "plain", at), "novels", figure)
        yield f"Perplexity of plain attention after {at:,} tokens, {beyond}, over Λ's", found, command
    far = lengths(novels)[-1]
    found = estimate(*over_fresh(novels, far), "novels", fine)
    yield f"Λ's perplexity after {far:,} tokens, over the same tokens of a text begun 8,192 before", found, command
