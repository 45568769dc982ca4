"""YaRN (Peng et al., arXiv 2309.00071, §3): slow dimensions are compressed, fast ones left alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from backend.positions.base import PositionPolicy
from backend.positions.rope import Rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Turns within the training length above which a dimension is left alone, and below which it is compressed whole.
FAST, SLOW = 32, 1


@dataclass(frozen=True)
class Yarn(PositionPolicy):
    """Distances as they are; each frequency divided by the ratio as far as its wavelength exceeds what was trained.

    inv′ = inv · (m + (1 − m) / s) with m falling from 1 to 0 between the dimensions that turn FAST and SLOW times
    within the training length; queries and keys are multiplied by 0.1 · ln s + 1 each.
    """

    ratio: float = 1.0

    name = "yarn"
    label = "YaRN"
    summary = "Slow rotations slowed further by the ratio, fast ones left alone."
    paper = "Peng et al. 2023, arXiv 2309.00071"
    order = 8
    needs = "ntk"

    def rope(self, config: PreTrainedConfig) -> Rope:
        own = Rope.of(config)
        low, high = max(math.floor(own.turning(FAST)), 0), min(math.ceil(own.turning(SLOW)), own.width - 1)
        # The type is always named: while another thread loads a model, the default is that model's.
        ramp = (torch.arange(len(own.inv_freq), dtype=torch.float32) - low) / (high - low or 0.001)
        left = 1 - ramp.clamp(0, 1)
        return replace(
            own,
            inv_freq=own.inv_freq * (left + (1 - left) / self.ratio),
            scaling=own.scaling * (0.1 * max(0.0, math.log(self.ratio)) + 1),
        )

    def describe(self, tokens: int) -> str:
        return f"YaRN leaves distances as they are and slows the slow rotations by {self.ratio:g}"
