"""What weights rounded to int4 change in the length of an adapter's answers.

`python -m backend.evaluation.rounding` asks the same prompts for the same targets in bf16 and in int4, greedily, as a
user's run does, many runs at a time. Writes assets/results/rounding.json; goes on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backend.engine import Lab
from backend.evaluation.length import QUESTIONS
from backend.inference.side_by_side import side_by_side
from backend.methods import methods
from backend.methods.signal import signal_methods
from backend.record.provenance import provenance
from backend.record.results import RESULTS, counted, keep, resumed, writable
from backend.refused import Refused
from backend.settings import Method, Precision, RunSettings, Watch
from backend.steps import Finish
from backend.terminal import say

OUT = RESULTS / "rounding.json"
TARGETS = (10, 20, 60, 100, 150)
PRECISIONS: tuple[Precision, ...] = ("bf16", "int4")


def evaluate(lab: Lab, methods: Sequence[Method], asked: Sequence[str], before: dict[str, Any] | None) -> Iterator[Any]:
    """The result document after each method."""
    rows = [row for row in (before or {}).get("rows", ()) if row["prompts"] == len(asked)]
    for method in methods:
        if any(row["method"] == method for row in rows):
            continue
        ends = [_tokens(lab, method, precision, asked) for precision in PRECISIONS]
        rows.append({"method": method, "prompts": len(asked), **dict(zip(PRECISIONS, ends, strict=True))})
        say(counted(method, "answers", len(asked) * len(TARGETS), len(ends[0]), "not written"))
        yield provenance(seed=0) | {"targets": TARGETS, "rows": rows}


def _tokens(lab: Lab, method: Method, precision: Precision, asked: Sequence[str]) -> list[int]:
    """Tokens of each answer, prompt by prompt and target by target."""

    def length(case: tuple[str, int]) -> int:
        prompt, target = case
        settings = RunSettings(
            prompt=prompt, method=method, target=target, limit=target, precision=precision, watch=Watch(enabled=False)
        )
        *_, finish = lab.stream(settings)
        assert isinstance(finish, Finish)
        if finish.reason == "error":
            raise Refused(finish.message)
        return finish.tokens

    return list(side_by_side(length, [(prompt, target) for prompt in asked for target in TARGETS]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=methods.names(), action="append", help="may repeat (all with a signal)")
    parser.add_argument("--prompts", type=int, default=40, help="questions asked (40)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    asked = QUESTIONS.read_text("utf-8").splitlines()[: given.prompts]
    chosen = given.method or [method.name for method in signal_methods()]
    for result in evaluate(Lab(), chosen, asked, resumed(given.out, dict)):
        keep(given.out, result)


if __name__ == "__main__":
    main()
