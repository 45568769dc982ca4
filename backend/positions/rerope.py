"""ReRoPE, rectified RoPE (Su 2023, kexue.fm/archives/9708): a distance limit without a mask.

Logits are multiplied by max(1, ln t / ln L) with t the tokens read so far and L the training length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span, recent_apart

NEAR, RECTIFIED = "near", "rectified"


def log_scale(t: IntArray, trained: int) -> FloatArray:
    """max(1, ln(t + 1) / ln L) of queries t, counted from 0 [n]."""
    return np.maximum(1.0, np.log(np.asarray(t, dtype=np.float64) + 1) / math.log(trained))


@dataclass(frozen=True)
class ReRoPE(PositionPolicy):
    """Distances up to min(t − j, recent)."""

    recent: int = 200

    name = "rerope"
    label = "ReRoPE"
    summary = "No distance beyond that of the recent tokens; every token is seen."
    paper = "Su 2023, kexue.fm/archives/9708"
    order = 5
    groups = (NEAR, RECTIFIED)

    @property
    def limit(self) -> float:
        return self.recent

    def spans(self, t: IntArray) -> list[Span]:
        return recent_apart(t, self.recent, NEAR, RECTIFIED)

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        return np.full(np.shape(t), float(self.recent)) if group == RECTIFIED else np.asarray(t, dtype=np.float64)

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.zeros(np.shape(j)) if group == RECTIFIED else np.asarray(j, dtype=np.float64)

    def logit_scale(self, t: IntArray, trained: int) -> FloatArray:
        return log_scale(t, trained)

    def describe(self, tokens: int) -> str:
        return f"Distances beyond {self.recent:,} are seen as {self.recent:,}"
