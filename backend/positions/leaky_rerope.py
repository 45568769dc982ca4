"""Leaky ReRoPE (Su 2023, kexue.fm/archives/9708): beyond the recent tokens, distances grow more slowly.

Its distances are those of contiguous dynamic PIC without initial tokens; the logits are multiplied as in ReRoPE.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span, recent_apart
from backend.positions.rerope import log_scale

NEAR, LEAKY = "near", "leaky"


@dataclass(frozen=True)
class LeakyReRoPE(PositionPolicy):
    """Distances t − j, and W + (t − j − W) / ratio beyond W = recent."""

    ratio: float = 1.0
    recent: int = 200

    name = "leaky_rerope"
    label = "Leaky ReRoPE"
    summary = "Beyond the recent tokens, distances divided by the ratio: dynamic PIC without initial tokens."
    paper = "Su 2023, kexue.fm/archives/9708"
    order = 6
    groups = (NEAR, LEAKY)

    def spans(self, t: IntArray) -> list[Span]:
        return recent_apart(t, self.recent, NEAR, LEAKY)

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        frame = np.asarray(t, dtype=np.float64)
        return self.recent + (frame - self.recent) / self.ratio if group == LEAKY else frame

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.asarray(j, dtype=np.float64) / (self.ratio if group == LEAKY else 1.0)

    def logit_scale(self, t: IntArray, trained: int) -> FloatArray:
        return log_scale(t, trained)

    def describe(self, tokens: int) -> str:
        return f"Distances beyond {self.recent:,} are compressed by {self.ratio:g}"
