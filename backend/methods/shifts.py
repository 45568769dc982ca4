"""The random lead that a countdown is trained with, so that its end is an upper bound (000 §3.4, Max New Tokens++)."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.refused import Refused

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class MntSettings:
    """How far countdowns were lengthened in training.

    sigma_start, sigma_max: scale of the half-normal shift at the first and at the last step, in tokens.
    shift_max: largest shift, in tokens. nearest: shifts are rounded to the nearest number, as 000 eq. 7 is read, and
    not up, which is the lab's own way. ValueError for scales that are not positive and ordered.
    """

    sigma_start: float = 0.1
    sigma_max: float = 2048.0
    shift_max: int = 4096
    nearest: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.sigma_start <= self.sigma_max < math.inf):
            raise Refused("Max New Tokens++ needs 0 < sigma_start <= sigma_max, both finite")
        if self.shift_max < 1:
            raise Refused("Max New Tokens++ needs a largest shift of at least one token")


def sigma(step: int, steps: int, settings: MntSettings) -> float:
    """σ_t = σ0 · exp((t/T) · ln(σmax/σ0)) at training step t of T (000 eq. 8)."""
    if not 0 <= step <= steps or steps < 1:
        raise Refused(f"training step {step} is outside 0 to {steps}")
    return settings.sigma_start * (settings.sigma_max / settings.sigma_start) ** (step / steps)


def shifts(scale: float, most: Tensor, generator: torch.Generator | None = None, nearest: bool = False) -> Tensor:
    """Whole-token shifts from half-normal distributions cut off at `most` (000 eq. 7), one a training sample.

    nearest: to the nearest whole number, which is how 000 is read: a shift of 0 has the chance erf(1 / (2√2 · scale)),
    so all are 0 at σ = 0.1 and the model sees the count itself. Without, rounded up, the lab's own way: no shift is 0,
    because a model that learnt to end on the very count is a token over its limit whenever it errs.

    Drawn by inverting the truncated distribution function, so that no mass piles up at the cut-off. A shift is added to
    every count of its sample: train with target + shift in the target's place, and at inference put the limit there.
    most: [samples], from 0. Returns [samples] in int64, each from 1 (from 0 to the nearest) to its `most`.
    """
    import torch

    reach = scale * math.sqrt(2)
    drawn = torch.rand(len(most), dtype=torch.float64, generator=generator) * torch.erf(most.double() / reach)
    far = torch.erfinv(drawn) * reach
    return (far.round() if nearest else far.ceil()).long()
