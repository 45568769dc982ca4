"""Which LoRA to ship: its layers and its rank, by what the same little training makes of each.

    python -m backend evaluate shapes --data CORPUS

Writes assets/results/shapes.json and goes on where an earlier run stopped. Every shape is trained with LDPE on the same
samples in the same order; what it costs is the size of its file, what it gives the loss of its EOS and how near it
comes to short targets. Those of rank above 6 on all layers pass the 4 MB that an adapter may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.engine import Lab
from backend.evaluation import length
from backend.models.adapters import Adapter
from backend.models.pool import Models
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.training.data import Sample
from backend.training.settings import TrainSettings
from backend.training.train import LOG, train

ATTENTION = "q_proj,k_proj,v_proj,o_proj"
SHAPES: tuple[tuple[str, int], ...] = (("all-linear", 6), (ATTENTION, 16), ("q_proj,v_proj", 32), ("all-linear", 16))
# Targets that so little training reaches, in tokens; steps over whose log lines the losses are averaged.
NEAR, LAST = 40, 5


def made(settings: TrainSettings, samples: Sequence[Sample], prompts: int) -> dict[str, Any]:
    """What the rows of one document have in common."""
    return {"samples": settings.samples, "texts": len(samples), "prompts": prompts, "model": settings.model}


def earlier(found: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """A result to go on from, checked. ValueError for one that was made otherwise."""
    if any(found.get(name) != value for name, value in common.items()):
        raise Refused("it was trained or measured otherwise")
    return found


def evaluate(
    fresh: Callable[[], Models],
    samples: Sequence[Sample],
    settings: TrainSettings,
    folder: Path,
    prompts: int,
    before: dict[str, Any] | None,
    report: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """The result document after each shape, the last one whole.

    fresh: models that nothing was attached to. settings: of every training but for targets, rank and alpha, which is
    twice the rank. folder: where adapters and checkpoints lie. before: a document to go on from.
    """
    rows: list[dict[str, Any]] = list(before["rows"]) if before else []
    done = {(row["targets"], row["rank"]) for row in rows}
    for targets, rank in SHAPES:
        if (targets, rank) in done:
            continue
        shaped = replace(settings, targets=targets, rank=rank, alpha=2 * rank)
        out = folder / f"{targets}-{rank}"
        train(fresh().load(settings.model), samples, shaped, out, report)
        rows.append({"targets": targets, "rank": rank} | _found(fresh(), settings.model, out, prompts, report))
        report(f"{targets}, rank {rank}: {rows[-1]}")
        report(counted(f"{targets}, rank {rank}", "answers", rows[-1]["asked"], rows[-1]["answers"], "not written"))
        yield provenance(seed=settings.seed) | made(settings, samples, prompts) | {"rows": rows}


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
