"""The joint rate as Markdown: answers of the length asked for that end as a reader would accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.evaluation.markdown import UNKNOWN, Part, Results, decimal, percent, table

NAMES = (
    "none", "prompted", "prompted_landing", "prompted_tuned", "ldpe", "ldpe_landing", "orpe", "orpe_landing", "pre",
    "lrpe", "mnt_ldpe", "mnt_orpe",
)  # fmt: skip
FOLDER = "joint_rate/validation/"
WORDS = """
Every answer counts. Condition 1: the length is within 3 tokens or 5 % of the target (a limit is not passed). 2: the
model drew EOS itself. 3: the answer ends as a sentence, by a mark that the base model, which knows of no target, gives
a probability of 0.05. A row that repeats itself more than 1.1 times as much as the base model's text of as many tokens,
or is less than 0.97 times as similar to the prompt, has no joint rate: its share of 1 to 3 stands in brackets. Greedy
decoding, one target from 10 to 200 a prompt, validation prompts of four kinds; shares with their 95 % interval.
"""
COLUMNS = (
    "method", "answers", "joint rate", "1 length", "2 own EOS", "3 real end", "base model would end too", "mean error"
)  # fmt: skip


def joint(results: Results) -> str:
    """A row a method, and what the base model's own ends and random cuts give."""
    rows, counted = [], 0
    for name, found in results.items():
        summary = found["summary"]["validation"]
        counted = max(counted, summary["counted"])
        shown = _share(summary["all_three"])
        rows.append(
            [
                name.removeprefix(FOLDER).removesuffix(".json").replace("_", " "),
                f"{summary['counted']} of {summary['asked']}",
                shown if summary["about_the_prompt"] else f"none ({shown})",
                *(_share(summary[key]) for key in ("length", "own_end", "real_end", "answer_end")),
                decimal(summary["mae"]),
            ]
        )
    few = " Fewer than 100 prompts were asked, so that none of this is a headline." if counted < 100 else ""
    return "\n\n".join([WORDS.strip() + few, table(COLUMNS, rows), _beside(results)])


def _beside(results: Results) -> str:
    base = results.get(f"{FOLDER}none.json")
    if not base:
        return ""
    summary: Mapping[str, Any] = base["summary"]["validation"]
    return (
        f"Ceiling, the base model's own complete answers that meet condition 3: {_share(summary['ceiling'])}; it ended "
        f"{_share(summary['base_ended'])} of its answers within 60 tokens beyond the target. Chance, conditions 1 and "
        f"3 at a random cut of its text: {_share(summary['chance'])}."
    )


def _share(found: list[float] | None) -> str:
    return UNKNOWN if not found else f"{percent(found[0])} ({percent(found[1])} to {percent(found[2])})"


PARTS = {
    "joint": Part(
        "Answers that have the length asked for and end well",
        tuple(f"{FOLDER}{name}.json" for name in NAMES),
        "python -m backend evaluate joint_rate --method none --data FOLDER --prompts 36",
        joint,
    )
}
