"""What a class pays for writing at once: many runs of several kinds together, beside the same one by one.

`python -m backend.evaluation.visitors` takes both by turns. Writes assets/results/visitors.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from backend.engine import Lab
from backend.evaluation.length import QUESTIONS
from backend.record.provenance import provenance
from backend.record.results import RESULTS, keep, writable
from backend.settings import RunSettings
from backend.steps import Finish
from backend.terminal import say

OUT = RESULTS / "visitors.json"
VISITORS, WRITTEN, ROUNDS = 30, 100, 6
# What the visitors choose, in turn; probes are on. Targets are far off, so that no count ends an answer.
CHOICES: tuple[dict[str, Any], ...] = (
    {"method": "ldpe", "target": 400},
    {},
    {"method": "pre", "target": 400},
    {"window": 64, "sinks": 10},
    {"method": "orpe", "target": 400},
    {"pic": "dynamic", "ratio": 4.0},
)


def runs(count: int, written: int) -> list[RunSettings]:
    """The settings of so many visitors, each of which asks another question, where there are as many."""
    questions = cycle(QUESTIONS.read_text("utf-8").splitlines())
    return [
        RunSettings(prompt=question, max_new_tokens=written, **choice)
        for question, choice in islice(zip(questions, cycle(CHOICES), strict=False), count)
    ]


def evaluate(lab: Lab, asked: Sequence[RunSettings], rounds: int) -> Iterator[dict[str, Any]]:
    """The result document after each round."""
    for settings in asked:
        _written(lab, settings.model_copy(update={"max_new_tokens": 1}))
    found: list[dict[str, Any]] = []
    for number in range(rounds):
        order = ((1, "alone"), (len(asked), "together"))
        measured = {name: _round(lab, asked, workers) for workers, name in order[:: -1 if number % 2 else 1]}
        alone, together = measured["alone"], measured["together"]
        found.append(
            {
                "alone": alone["rate"],
                "together": together["rate"],
                "lone_first": sum(alone["firsts"]) / len(asked),
                "last_first": max(together["firsts"]),
            }
        )
        say(", ".join(f"{name} {value:.3f}" for name, value in found[-1].items()))
        yield provenance(seed=0) | {"visitors": len(asked), "written": asked[0].max_new_tokens, "rounds": found}


def _round(lab: Lab, asked: Sequence[RunSettings], workers: int) -> dict[str, Any]:
    """Tokens per second of all, `workers` at once, and seconds until each had its first token."""
    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        times = list(pool.map(lambda settings: _written(lab, settings), asked))
    seconds = time.perf_counter() - started
    return {"rate": sum(count for count, _ in times) / seconds, "firsts": [first for _, first in times]}


def _written(lab: Lab, settings: RunSettings) -> tuple[int, float]:
    """How many tokens a run wrote, and the seconds until the first."""
    started, first = time.perf_counter(), 0.0
    for event in lab.stream(settings):
        first = first or time.perf_counter() - started
        if isinstance(event, Finish) and event.reason == "error":
            raise RuntimeError(event.message)
    assert isinstance(event, Finish)
    return event.tokens, first


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.visitors", description=__doc__)
    parser.add_argument("--visitors", type=int, default=VISITORS, help=f"that write at once ({VISITORS})")
    parser.add_argument("--written", type=int, default=WRITTEN, help=f"tokens of each ({WRITTEN})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of both by turns ({ROUNDS})")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    writable(given.out)
    for result in evaluate(Lab(), runs(given.visitors, given.written), given.rounds):
        keep(given.out, result)


if __name__ == "__main__":
    main()
