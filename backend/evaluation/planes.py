"""Fixes the plane of first-layer states anew, on the text that Read far opens with.

    python -m backend.evaluation.planes
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from backend.engine import Lab
from backend.inference.chunks import CHUNK
from backend.measures.plane import Plane, fixed, save
from backend.positions import policy_of
from backend.record.provenance import provenance
from backend.settings import RunSettings

TEXT = Path(__file__).parents[2] / "assets" / "texts" / "dombey_and_son.txt"


def plane(lab: Lab, settings: RunSettings, ids: torch.Tensor) -> Plane:
    """The plane of the first layer's states of a text, ids [n]."""
    runner = lab.runner(settings)
    cache, probe, states = runner.cache(policy_of(settings), len(ids)), runner.probe(settings.watch), []
    for chunk in ids.split(CHUNK):
        runner.read(chunk, cache, probe)
        states.append(probe.states())
    return fixed(np.concatenate(states).astype(np.float32))


def main() -> None:
    lab, settings = Lab(), RunSettings(prompt="-")
    ids = torch.tensor(lab.models.load(settings.model).tokenizer.encode(TEXT.read_text("utf-8")))
    made = plane(lab, settings, ids)
    about = provenance(0) | {"model": settings.model, "text": TEXT.name}
    print(f"{save(made, settings.model, about)}: {made.explained}, by position {made.by_position:.4f}")


if __name__ == "__main__":
    main()
