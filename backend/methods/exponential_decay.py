"""Exponential decay: past the target the end's score is raised more and more (transformers' own penalty)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.methods.base import LengthMethod

if TYPE_CHECKING:
    from torch import Tensor

FACTOR = 1.05
# A start of the penalty that no run reaches.
NEVER = 2**62


class Penalty:
    """transformers' ExponentialDecayLengthPenalty with a start that moves. prompt: tokens of it; ends: ids."""

    def __init__(self, prompt: int, ends: Sequence[int]):
        from transformers import ExponentialDecayLengthPenalty

        self._prompt = prompt
        self._penalty = ExponentialDecayLengthPenalty((NEVER, FACTOR), list(ends), prompt)

    def aim(self, target: int | None) -> None:
        self._penalty.regulation_start = NEVER if target is None else self._prompt + target

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        return self._penalty(ids, scores)


class ExponentialDecay(LengthMethod):
    name = "exp_decay"
    label = "Push the end"
    summary = "Past the target, each token makes the end likelier."
    order = 30
    retargets = True
    writes_end = True

    def processor(self, prompt: int, ends: Sequence[int]) -> Penalty:
        return Penalty(prompt, ends)
