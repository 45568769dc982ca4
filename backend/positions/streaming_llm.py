"""StreamingLLM (Xiao et al., arXiv 2309.17453, §3.2): sinks and a window, with positions counted within the cache.

Where the Λ window has its sinks at the distance limit, here the tokens between sinks and window are as if they had
never been: the query stands right behind the keys that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span

NEAR, SINKS = "near", "sinks"


@dataclass(frozen=True)
class StreamingLLM(PositionPolicy):
    """The first `sinks` tokens and the last `window`, the query included, at their slots; without a window, plain."""

    window: int | None = None
    sinks: int = 10

    name = "streaming_llm"
    label = "StreamingLLM"
    summary = "The sinks of the Λ window right before the window, as if nothing lay between."
    paper = "Xiao et al. 2023, arXiv 2309.17453"
    order = 4
    needs = "window"
    groups = (NEAR, SINKS)
    rerotated = 0

    def spans(self, t: IntArray) -> list[Span]:
        local = np.zeros_like(t) if self.window is None else np.maximum(0, t + 1 - self.window)
        return [Span(np.zeros_like(t), np.minimum(self.sinks, local), SINKS), Span(local, t + 1, NEAR)]

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        """Under the sinks' group the slot of the query in a full cache."""
        frame = np.asarray(t, dtype=np.float64)
        return np.minimum(frame, self.sinks + self.window - 1) if group == SINKS and self.window else frame

    def describe(self, tokens: int) -> str:
        if self.window is None:
            return "Without a Λ window nothing is left out, and distances are left as they are"
        return f"Distances are counted within the {self.sinks} sinks and the window of {self.window:,}"
