"""The joint rate as Markdown: answers of the length asked for that end as a reader would accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import binomtest

from backend.evaluation.blind import KINDS
from backend.evaluation.joint_rate import Answer
from backend.evaluation.markdown import UNKNOWN, Part, Results, decimal, estimate, figure, percent, points, table
from backend.measures.bootstrap import Bounded, difference
from backend.methods import methods

NAMES = [f"{method}{landing}" for method in methods.names() for landing in ("", "_landing")]
FOLDER = "joint_rate/validation/"
WORDS = """
Every answer counts; one that still goes on 60 tokens beyond its target is cut there and counts as so long. Condition 1:
the length is within 3 tokens or 5 % of the target. For the two `mnt` rows the target is a limit that is not passed,
which is easier, so that they have no error. 2: the model drew EOS itself. 3: the answer ends as a sentence, by a mark
that the base model, which knows of no target, gives a probability of 0.05. A row that repeats itself more than 1.1
times as much as the base model's text of as many tokens, or is less than 0.97 times as similar to the prompt, has no
joint rate: its share of 1 to 3 stands in brackets. Greedy decoding, one target from 10 to 200 a prompt, validation
prompts of four kinds; shares with their 95 % interval.
"""
COLUMNS = (
    "method", "answers", "joint rate", "1 length", "2 own EOS", "3 real end", "base model would end too", "mean error"
)  # fmt: skip
APART = 0.05
BLIND = (
    "Does the text come to an end there? Answers of the method were shuffled with answers that the base model ended "
    "itself and with random cuts of these, and read by someone who did not know which is which."
)


class Beside(NamedTuple):
    """Conditions 1 to 3 of a row and of the base model on the same prompts.

    gain: difference of shares. only, base_only: prompts where one alone meets them. p: McNemar's exact test. prompts:
    how many.
    """

    gain: Bounded
    only: int
    base_only: int
    p: float
    prompts: int

    def apart(self, tests: int) -> str:
        """Whether the two are distinguished where so many tests are made at once (Bonferroni)."""
        if self.p * tests >= APART:
            return "not distinguished"
        return "more" if self.only > self.base_only else "fewer"


def joint(results: Results) -> str:
    """A row a method, and what the base model's own ends and random cuts give."""
    rows, counted = [], 0
    for name, found in results.items():
        summary = found["summary"]["validation"]
        counted = max(counted, summary["counted"])
        shown = share_of(summary["all_three"])
        rows.append(
            [
                _named(name),
                f"{summary['counted']} of {summary['asked']}",
                shown if summary["about_the_prompt"] else f"{UNKNOWN} ({shown})",
                *(share_of(summary[key]) for key in ("length", "own_end", "real_end", "answer_end")),
                UNKNOWN if found["answers"][0]["limit"] else decimal(summary["mae"]),
            ]
        )
    few = " Fewer than 100 prompts were asked: none of this is a headline." if counted < 100 else ""
    return "\n\n".join([WORDS.strip() + few, table(COLUMNS, rows), _ends(results), _pairs(results)])


def beside(found: Mapping[str, Any], base: Mapping[str, Any]) -> Beside:
    """A result beside the base model's, which is held to a limit where the row is."""
    theirs = {(row["prompt"], row["target"]): Answer(**row) for row in base["answers"]}
    own = [Answer(**row) for row in found["answers"]]
    both = [(one, replace(theirs[key], limit=one.limit)) for one in own if (key := (one.prompt, one.target)) in theirs]
    met = [(one.joint(), other.joint()) for one, other in both]
    only, base_only = met.count((True, False)), met.count((False, True))
    p = float(binomtest(only, only + base_only).pvalue) if only + base_only else 1.0
    ours, base_met = zip(*met, strict=True)
    return Beside(difference(ours, base_met), only, base_only, p, len(met))


def _pairs(results: Results) -> str:
    """Every row beside the base model."""
    base = results.get(f"{FOLDER}none.json")
    others = {name: found for name, found in results.items() if found is not base}
    if not base or not others:
        return ""
    tests = len(others)
    rows = []
    for name, found in others.items():
        pair = beside(found, base)
        gain = estimate(pair.gain, pair.prompts, "prompts", points)
        rows.append([_named(name), gain, f"{pair.only}", f"{pair.base_only}", figure(pair.p), pair.apart(tests)])
    words = (
        "Conditions 1 to 3 beside `none`, the base model, on the same prompts, in points; an `mnt` row beside the base "
        f"model held to the same limit. Of {tests} tests at once a row is distinguished where McNemar's exact p is "
        f"below {APART} / {tests}. Adapters are not compared with one another: they were trained on unequal numbers of "
        "texts and from unequal starts."
    )
    columns = ["beside none", "points", "only this row", "only none", "p", "distinguished"]
    return f"{words}\n\n{table(columns, rows)}"


def _ends(results: Results) -> str:
    base = results.get(f"{FOLDER}none.json")
    if not base:
        return ""
    summary: Mapping[str, Any] = base["summary"]["validation"]
    complete = sum(row["own_end"] for row in base["answers"])
    return (
        f"Ceiling, the base model's own complete answers that meet condition 3: {share_of(summary['ceiling'])} of the "
        f"{complete} that it ended by 60 tokens beyond the target, {share_of(summary['base_ended'])} of all "
        f"{summary['counted']}. Chance, conditions 1 and 3 at a random cut of its text: {share_of(summary['chance'])}."
    )


def _named(file: str) -> str:
    return file.removeprefix(FOLDER).removesuffix(".json").replace("_", " ")


def share_of(found: list[float] | None, prompts: int = 0) -> str:
    """A share with its interval, and the prompts that it rests on where they are given."""
    if not found:
        return UNKNOWN
    rests = f"; {prompts} prompts" if prompts else ""
    return f"{percent(found[0])} ({percent(found[1])} to {percent(found[2])}{rests})"


def read_blind(results: Results) -> str:
    """How many of each kind of text ended, by a reader who did not know which is which."""
    rows = []
    for name, found in results.items():
        method = Path(name).stem.replace("_", " ")
        shares = [share_of(found["summary"][kind], _count(found, kind)) for kind in KINDS]
        rows.append([method, found["options"]["reader"], *shares])
    return "\n\n".join([BLIND, table(["method", "reader", "of the method", "complete", "cut at random"], rows)])


def _count(found: Mapping[str, Any], kind: str) -> int:
    return sum(row["is"] == kind for row in found["rows"])


PARTS = {
    "joint": Part(
        "Answers that have the length asked for and end well",
        tuple(f"{FOLDER}{name}.json" for name in NAMES),
        "python -m backend evaluate joint_rate --method none --data FOLDER",
        joint,
    ),
    "blind": Part(
        "Ends, read blind",
        tuple(f"joint_rate/blind/{name}.json" for name in NAMES),
        "python -m backend.evaluation.blind",
        read_blind,
    ),
}
