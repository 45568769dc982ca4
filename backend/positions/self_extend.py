"""Self-Extend (Jin et al., arXiv 2401.01325, §3): far tokens share the positions of their groups.

Choose the ratio so that W + (N − W) / ratio stays below half to two thirds of the training length for a text of N
tokens, with W the recent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span, recent_apart

NEAR, GROUPED = "near", "grouped"


@dataclass(frozen=True)
class SelfExtend(PositionPolicy):
    """Distances t − j below W = recent; beyond, ⌊t/G⌋ − ⌊j/G⌋ + W − ⌊W/G⌋ with groups of G = ratio tokens."""

    ratio: float = 1.0
    recent: int = 200

    name = "self_extend"
    label = "Self-Extend"
    summary = "Beyond the recent tokens, groups of as many tokens as the ratio share one position."
    paper = "Jin et al. 2024, arXiv 2401.01325"
    order = 7
    groups = (NEAR, GROUPED)

    def spans(self, t: IntArray) -> list[Span]:
        return recent_apart(t, self.recent, NEAR, GROUPED)

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        frame = np.asarray(t, dtype=np.float64)
        # Not //, which is off by one where a ratio is no binary fraction: 1 // 0.05 is 19.
        ahead = self.recent - math.floor(self.recent / self.ratio)
        return np.floor(frame / self.ratio) + ahead if group == GROUPED else frame

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        frame = np.asarray(j, dtype=np.float64)
        return np.floor(frame / self.ratio) if group == GROUPED else frame

    def describe(self, tokens: int) -> str:
        return f"Beyond the last {self.recent:,} tokens, groups of {self.ratio:g} share one position"
