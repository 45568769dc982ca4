"""Dynamic position-id compression (004 §3.1, eq. 9): the middle of the text is compressed.

Contiguous is the default reading of the equation: it alone gives smaller distances for s > 1, and none below 0 for
s < 1. The literal reading is kept to be compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span

NEAR, COMPRESSED = "near", "compressed"


@dataclass(frozen=True)
class DynamicPic(PositionPolicy):
    """The first `initial` and the last `recent` tokens keep their distances; between, they are divided by the ratio.

    The initial tokens are seen from the same frame as the compressed ones and stand among them.
    """

    ratio: float = 1.0
    initial: int = 4
    recent: int = 200
    reading: Literal["contiguous", "literal"] = "contiguous"

    name = "dynamic"
    label = "Dynamic"
    title = "Dynamic PIC"
    summary = "Only the middle is compressed; start and recent tokens keep their distance."
    paper = "PIC, eq. 9"
    order = 3
    groups = (NEAR, COMPRESSED)

    def beside(self, sinks: int) -> DynamicPic:
        """Sinks are among the initial tokens, so that they are never compressed."""
        return replace(self, initial=max(self.initial, sinks))

    def near_start(self, t: IntArray) -> IntArray:
        """First token of the recent part for queries t (counted from 0): max(initial, t + 1 − recent)."""
        return np.maximum(self.initial, t + 1 - self.recent)

    def spans(self, t: IntArray) -> list[Span]:
        end = t + 1
        near = np.minimum(self.near_start(t), end)
        start = np.minimum(self.initial, end)
        return [
            Span(np.zeros_like(t), start, COMPRESSED),
            Span(start, near, COMPRESSED),
            Span(near, end, NEAR),
        ]

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        frame = np.asarray(t, dtype=np.float64)
        if group == COMPRESSED and self.reading == "contiguous":
            near = self.near_start(np.asarray(t))
            return self.initial + (near - self.initial) / self.ratio + (frame - near)
        return frame

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        frame = np.asarray(j, dtype=np.float64)
        if group == NEAR:
            return frame
        literal = self.reading == "literal"
        compressed = frame / self.ratio if literal else self.initial + (frame - self.initial) / self.ratio
        return np.where(frame < self.initial, frame, compressed)

    def prompt_frame(self, j: IntArray, n: int) -> FloatArray:
        frame = np.asarray(j, dtype=np.float64)
        near = max(self.initial, n - self.recent)
        moved = self.initial + (near - self.initial) / self.ratio + (frame - near)
        recent = frame if self.reading == "literal" else moved
        return np.where(frame < near, self.key_frame(j, COMPRESSED), recent)

    def least_limit(self, window: int) -> float:
        return min(self.recent, window) if self.reading == "literal" and self.ratio < 1 else 0

    def describe(self, tokens: int) -> str:
        return (
            f"The middle is compressed by {self.ratio:g}, "
            f"the first {self.initial} and last {self.recent} tokens are not"
        )
