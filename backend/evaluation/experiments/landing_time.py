"""What landing costs: a run that tries endings near its target, beside the same run without.

    python -m backend evaluate landing_time
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from pydantic import Field

from backend.engine import Lab
from backend.evaluation.bench.throughput import times
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say
from backend.evaluation.markdown import estimate, table
from backend.settings import MAX_LANDING, RunSettings, Watch
from backend.splits import prompts
from backend.sweep import finished


class LandingTime(Experiment):
    name = "landing_time"
    title = "What landing costs"
    question = "How many times as long does an answer take whose endings are tried?"
    order = 56
    files = ("landing_time.json",)
    rows = "runs"

    class Options(ModelFlags):
        target: int = Field(100, ge=1, description="tokens of each answer")
        landing: int = Field(8, ge=1, le=MAX_LANDING, description="endings to try near the target")
        prompts: int = Field(16, ge=1, description="of the lab's own, each once with and once without")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, asked = options.lab(), prompts("validation")[: options.prompts]
        settings = RunSettings(
            prompt=asked[0].text, method="ldpe", target=options.target, landing=options.landing, in_prompt=True,
            model=options.model, watch=Watch(enabled=False),
        )  # fmt: skip
        _seconds(lab, settings)

        def measured(number: int) -> Iterator[Row]:
            one = settings.model_copy(update={"prompt": asked[number].text})
            ways = {"landed": one, "unlanded": one.model_copy(update={"landing": 0})}
            order = [*ways][:: -1 if number % 2 else 1]
            row: dict[str, Any] = {name: _seconds(lab, ways[name]) for name in order}
            say(", ".join(f"{name} {value:.2f} s" for name, value in row.items()))
            yield row

        common = {"model": options.model, "target": options.target, "landing": options.landing}
        return Plan(common, [Case(number, partial(measured, number)) for number in range(len(asked))])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        both = ([run[name] for run in result["runs"]] for name in ("landed", "unlanded"))
        words = (
            f"Answers of {result['target']} tokens by LDPE, as Try it steers them, with {result['landing']} endings "
            "tried at first and without, by turns on the same prompts: medians over them, in bf16."
        )
        rows = [["seconds of a landed answer, times an unlanded one's", estimate(*times(*both), "prompts")]]
        return Card(f"{words}\n\n{table(['what', 'how much (95 %)'], rows)}")


def _seconds(lab: Lab, settings: RunSettings) -> float:
    """What a run takes."""
    started = time.perf_counter()
    finished(lab, settings)
    return time.perf_counter() - started
