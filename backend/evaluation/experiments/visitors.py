"""What a class pays for writing at once: many runs of several kinds together, beside the same one by one.

    python -m backend evaluate visitors
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from typing import Any

from pydantic import Field

from backend.engine import Lab
from backend.evaluation.bench.throughput import times
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, Flags, Plan, Results, Row, Say
from backend.evaluation.markdown import estimate, table
from backend.settings import RunSettings
from backend.steps import Finish
from backend.training.data import QUESTIONS

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


class Visitors(Experiment):
    name = "visitors"
    title = "Many visitors at once"
    question = "How much faster do many runs write at once than one after another?"
    order = 55
    files = ("visitors.json",)
    rows = "rounds"
    command = "python -m backend evaluate visitors --written 40"

    class Options(Flags):
        visitors: int = Field(30, ge=1, description="that write at once")
        written: int = Field(100, ge=1, description="tokens of each")
        rounds: int = Field(6, ge=1, description="of both by turns")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, asked = Lab(), runs(options.visitors, options.written)
        for settings in asked:
            _written(lab, settings.model_copy(update={"max_new_tokens": 1}))

        def measured(number: int) -> Iterator[Row]:
            order = ((1, "alone"), (len(asked), "together"))
            found = {name: _round(lab, asked, workers) for workers, name in order[:: -1 if number % 2 else 1]}
            alone, together = found["alone"], found["together"]
            row = {
                "alone": alone["rate"],
                "together": together["rate"],
                "lone_first": sum(alone["firsts"]) / len(asked),
                "last_first": max(together["firsts"]),
            }
            say(", ".join(f"{name} {value:.3f}" for name, value in row.items()))
            yield row

        common = {"visitors": len(asked), "written": options.written}
        return Plan(common, [Case(number, partial(measured, number)) for number in range(options.rounds)])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        faster, waits = (
            estimate(*times(*([each[name] for each in result["rounds"]] for name in pair)), "rounds")
            for pair in (("together", "alone"), ("last_first", "lone_first"))
        )
        rows = [
            ["tokens per second of all, times one by one", faster],
            ["seconds until the last has its first token, times a lone visitor's", waits],
        ]
        words = (
            f"{result['visitors']} runs of {result['written']} tokens in bf16, each of another question, methods, "
            "windows and position policies mixed, probes on: all at once, and one after another, by turns; medians "
            "over rounds."
        )
        what = (
            f"Tokens per second of {result['visitors']} visitors' runs of {result['written']} tokens at once over "
            "one by one, bf16, two cores"
        )
        return Card(f"{words}\n\n{table(['what', 'how much (95 %)'], rows)}", headlines=[(what, faster)])
