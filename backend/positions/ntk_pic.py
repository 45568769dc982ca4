"""NTK position-id compression (004 §3.1, eq. 8): the base times s, not s^(d/(d−2))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.positions.base import PositionPolicy
from backend.positions.rope import Rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True)
class NtkPic(PositionPolicy):
    """Distances as they are, RoPE's base multiplied."""

    ratio: float = 1.0

    name = "ntk"
    label = "NTK"
    title = "NTK PIC"
    summary = "The rotation slowed by the ratio on RoPE's base."
    paper = "PIC, eq. 8"
    order = 2
    needs = "ntk"

    def rope(self, config: PreTrainedConfig) -> Rope:
        return Rope.of(config, self.ratio)

    def describe(self, tokens: int) -> str:
        return f"NTK leaves distances as they are and slows the rotation: RoPE base × {self.ratio:g}"
