"""Which layers and what rank an adapter needs, by what the same little training makes of each.

    python -m backend evaluate lora_ablation --data CORPUS

Every shape is trained with LDPE on the same
samples in the same order; what it costs is the size of its file, what it gives the loss of its EOS and how near it
comes to short targets. Those of rank above 6 on all layers pass the 4 MB that an adapter may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Case, Experiment, ModelFlags, Plan, Results, Row, Say
from backend.evaluation.experiments import length_control as length
from backend.evaluation.markdown import figure, table
from backend.models.adapters import Adapter
from backend.models.pool import Models
from backend.record import jsonlines
from backend.record.results import counted
from backend.training.budget import LOG
from backend.training.data import corpus, samples
from backend.training.settings import TrainSettings
from backend.training.train import train

ATTENTION = "q_proj,k_proj,v_proj,o_proj"
SHAPES: tuple[tuple[str, int], ...] = (("all-linear", 6), (ATTENTION, 16), ("q_proj,v_proj", 32), ("all-linear", 16))
# Targets that so little training reaches, in tokens; steps over whose log lines the losses are averaged.
NEAR, LAST = 40, 5


def _found(models: Models, model: str, adapter: Path, prompts: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Bytes of an adapter's weights, its last losses in nats, and errors in tokens where targets are near."""
    log = jsonlines.read(adapter / LOG)[-LAST:]
    asked = [case for case in length.cases(length.prompts(prompts), ("range",)) if case.target <= NEAR]
    written = length.answers(Lab(models, Adapter.load(adapter)), model, "ldpe", asked, 0, report)
    errors = [abs(one.answer.count - one.answer.target) for one in written]
    return {
        "asked": len(asked),
        "bytes": (adapter / "adapter_model.safetensors").stat().st_size,
        "loss_end": float(np.mean([line["loss_end"] for line in log])),
        "loss_text": float(np.mean([line["loss_text"] for line in log])),
        "mae": float(np.mean(errors)),
        "median": float(np.median(errors)),
        "answers": len(errors),
    }


class LoraAblation(Experiment):
    name = "lora_ablation"
    title = "Which layers and what rank an adapter needs"
    question = "Which layers and which rank of an adapter end nearest to short targets for their size?"
    files = ("shapes.json",)
    key = ("targets", "rank")
    withdrawn = "24 answers, of which only the mean was kept, so that it has no interval"

    class Options(ModelFlags):
        data: Path = Field(description="a corpus of `python -m backend distill`")
        samples: int = Field(2500, ge=1, description="responses that each is trained on")
        prompts: int = Field(6, ge=1, description="questions that each is measured with")
        work: Path = Field(Path(".cache/shapes"), description="folder for adapters and checkpoints")

    def plan(self, options: Options, say: Say) -> Plan:
        settings = TrainSettings(
            method="ldpe", model=options.model, samples=options.samples, longest_prompt=76
        )
        tokenizer = options.lab().models.load(options.model).tokenizer
        found = samples(corpus([options.data]), tokenizer, settings.longest_prompt, settings.longest)
        common = {"samples": settings.samples, "texts": len(found), "prompts": options.prompts, "model": options.model}

        def trained(targets: str, rank: int) -> Iterator[Row]:
            shaped = replace(settings, targets=targets, rank=rank, alpha=2 * rank)
            out = options.work / f"{targets}-{rank}"
            # Fresh models each time: adapters stay attached to those that they were trained on.
            train(options.lab().models.load(options.model), found, shaped, out, say)
            row: Row = {"targets": targets, "rank": rank}
            row |= _found(options.lab().models, options.model, out, options.prompts, say)
            say(f"{targets}, rank {rank}: {row}")
            say(counted(f"{targets}, rank {rank}", "answers", row["asked"], row["answers"], "not written"))
            yield row

        return Plan(common, [Case(shape, partial(trained, *shape)) for shape in SHAPES])

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows = [
            [row["targets"], f"{row['rank']}", f"{row['bytes'] / 2**20:.1f} MiB", figure(row["mae"])]
            for row in result["rows"]
        ]
        return Card(table(["layers", "rank", "size", "mean error, tokens"], rows))
