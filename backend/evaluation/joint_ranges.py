"""The joint rate by ranges of targets, the answers far off their target, and how much of a limit is used."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from backend.evaluation.joint import Answer, rate, share_of
from backend.evaluation.markdown import UNKNOWN, percent, table

# Targets in tokens, both ends included.
RANGES = ((10, 30), (30, 200))
FAR = 20
WORDS = (
    f"Conditions 1 to 3 by ranges of targets, both ends included; answers more than {FAR} tokens off their target; and "
    "of a limit, the median share that is used where the base model's own answer is longer than it."
)
COLUMNS = ("by range", *(f"{least} to {most} tokens" for least, most in RANGES), f"> {FAR} off", "limit used")


def ranges(results: Mapping[str, Mapping[str, Any]], split: str) -> str:
    """A table of one folder's results by their names. split: of its summaries."""
    base = {row["prompt"]: Answer(**row) for row in results.get("none", {}).get("answers", [])}
    rows = []
    for name, found in results.items():
        answers = [Answer(**row) for row in found["answers"]]
        about = found["summary"][split]["about_the_prompt"]
        met = [_met(answers, *each) for each in RANGES]
        shown = [each if about else f"{UNKNOWN} ({each})" for each in met]
        far = f"{sum(abs(one.produced - one.target) > FAR for one in answers)} of {len(answers)}"
        limited = answers[0].limit
        rows.append([name.replace("_", " "), *shown, UNKNOWN if limited else far, _used(answers, base)])
    return f"{WORDS}\n\n{table(COLUMNS, rows)}"


def _met(answers: Sequence[Answer], least: int, most: int) -> str:
    met = [one.joint() for one in answers if least <= one.target <= most]
    return f"{sum(met)} of {len(met)}, {share_of(rate(met))}"


def _used(answers: Sequence[Answer], base: Mapping[str, Answer]) -> str:
    """The median of the length over the limit, where the base model goes beyond it."""
    shares = [
        one.produced / one.target
        for one in answers
        if one.limit and one.prompt in base and base[one.prompt].produced > one.target
    ]
    return f"{percent(statistics.median(shares))} ({len(shares)} answers)" if shares else UNKNOWN
