"""What weights rounded to int4 change in the length of an adapter's answers.

    python -m backend evaluate rounding

The same prompts are asked for the same targets in bf16 and in int4, greedily, as a user's run does, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, Flags, Plan, Results, Row, Say
from backend.evaluation.markdown import decimal, estimate, table
from backend.inference.side_by_side import side_by_side
from backend.measures.bootstrap import difference
from backend.methods.signal import signal_methods
from backend.record.results import counted
from backend.settings import Method, Precision, RunSettings, Watch
from backend.sweep import finished
from backend.training.data import QUESTIONS

TARGETS = (10, 20, 60, 100, 150)
PRECISIONS: tuple[Precision, ...] = ("bf16", "int4")


def _tokens(lab: Lab, method: Method, precision: Precision, asked: Sequence[str]) -> list[int]:
    """Tokens of each answer, prompt by prompt and target by target."""

    def length(case: tuple[str, int]) -> int:
        prompt, target = case
        settings = RunSettings(
            prompt=prompt, method=method, target=target, limit=target, precision=precision, watch=Watch(enabled=False)
        )
        return finished(lab, settings).tokens

    return list(side_by_side(length, [(prompt, target) for prompt in asked for target in TARGETS]))


class Rounding(Experiment):
    name = "rounding"
    title = "Lengths at int4"
    question = "What do weights rounded to 4 bits change in the length of an adapter's answers?"
    order = 91
    files = ("rounding.json",)
    key = ("method", "prompts")

    class Options(Flags):
        method: tuple[Method, ...] = Field((), description="length methods, or all with a signal")
        prompts: int = Field(40, ge=1, description="questions asked")

    def plan(self, options: Options, say: Say) -> Plan:
        lab, asked = Lab(), QUESTIONS.read_text("utf-8").splitlines()[: options.prompts]

        def measured(method: Method) -> Iterator[Row]:
            ends: Row = {precision: _tokens(lab, method, precision, asked) for precision in PRECISIONS}
            say(counted(method, "answers", len(asked) * len(TARGETS), len(ends["bf16"]), "not written"))
            yield {"method": method, "prompts": len(asked), **ends}

        chosen = options.method or [method.name for method in signal_methods()]
        cases = [Case((method, len(asked)), partial(measured, method)) for method in chosen]
        return Plan({"targets": TARGETS}, cases)

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        words = (
            "The same questions and targets ("
            + ", ".join(map(str, result["targets"]))
            + " tokens) in bf16 and with weights rounded to 4 bits, greedily; the adapter stays beside them as it is. "
            "Errors in tokens; 'apart' is how far the errors of an answer's two precisions lie from each other. It "
            "says nothing of where sentences end."
        )
        columns = ["method", "mean error, bf16", "int4", "int4 less bf16", "apart: median", "95th percentile"]
        return Card(f"{words}\n\n{table(columns, [_rounded(row, result['targets']) for row in result['rows']])}")


def _rounded(row: Mapping[str, Any], targets: Sequence[int]) -> list[str]:
    wanted = np.tile(targets, row["prompts"])
    plain, rounded = (np.abs(np.array(row[name]) - wanted) for name in ("bf16", "int4"))
    by_prompt = [each.reshape(-1, len(targets)).mean(1) for each in (rounded, plain)]
    apart = np.abs(rounded - plain)
    return [
        f"`{row['method']}`",
        decimal(float(plain.mean())),
        decimal(float(rounded.mean())),
        estimate(difference(*by_prompt), row["prompts"], "prompts"),
        decimal(float(np.median(apart))),
        decimal(float(np.percentile(apart, 95))),
    ]
