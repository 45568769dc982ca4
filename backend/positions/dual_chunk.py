"""Dual Chunk Attention (An et al., arXiv 2402.17463, §3): positions within chunks, and three distances between them.

As in the paper, a chunk is three quarters of the c positions in use, and the nearest quarter keeps its distances:
c = 4 · recent and s = 3 · recent. Choose c no greater than the training length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span

OWN, PREVIOUS, OLDER = "own", "previous", "older"


@dataclass(frozen=True)
class DualChunk(PositionPolicy):
    """Keys at j mod s; queries at t mod s for their own chunk, min(t mod s + s, c) for the chunk before, and
    min(2s − 1, c) for older ones."""

    recent: int = 200

    name = "dual_chunk"
    label = "Dual chunk"
    summary = "Positions within chunks of three times the recent tokens; older chunks all at one distance."
    paper = "An et al. 2024, arXiv 2402.17463"
    order = 9
    groups = (OWN, PREVIOUS, OLDER)
    rerotated = 0
    limitable = False

    @property
    def chunk(self) -> int:
        """s, in tokens."""
        return 3 * self.recent

    @property
    def limit(self) -> float:
        return min(2 * self.chunk - 1, 4 * self.recent)

    def spans(self, t: IntArray) -> list[Span]:
        own = t // self.chunk * self.chunk
        previous = np.maximum(0, own - self.chunk)
        return [Span(np.zeros_like(t), previous, OLDER), Span(previous, own, PREVIOUS), Span(own, t + 1, OWN)]

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        within = np.asarray(t % self.chunk, dtype=np.float64)
        if group == OWN:
            return within
        farthest = 4.0 * self.recent
        return np.minimum(within + self.chunk, farthest) if group == PREVIOUS else np.full(np.shape(t), self.limit)

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.asarray(j % self.chunk, dtype=np.float64)

    def describe(self, tokens: int) -> str:
        return (
            f"Distances are counted in chunks of {self.chunk:,}: the last {self.recent:,} tokens keep theirs, "
            f"and none exceeds {self.limit:,}"
        )
