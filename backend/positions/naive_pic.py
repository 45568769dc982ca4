"""Naive position-id compression (004 §3.1, eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy


@dataclass(frozen=True)
class NaivePic(PositionPolicy):
    """Positions t/s and j/s."""

    ratio: float = 1.0

    name = "naive"
    label = "Naive"
    title = "Naive PIC"
    summary = "Every position divided by the ratio."
    paper = "PIC, eq. 7"
    order = 1

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        return np.asarray(t, dtype=np.float64) / self.ratio

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.asarray(j, dtype=np.float64) / self.ratio

    def describe(self, tokens: int) -> str:
        return f"Every distance is divided by {self.ratio:g}"
