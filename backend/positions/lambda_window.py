"""The Λ window (002, LM-Infinite, §4): a mask in the shape of Λ around any policy, and a limit on its distances."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from backend.positions.base import FloatArray, IntArray, PositionPolicy, Span
from backend.positions.plain import Plain
from backend.positions.rope import Rope
from backend.refused import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

CLIPPED = "clipped"


@dataclass(frozen=True)
class LambdaWindow(PositionPolicy):
    """Of what a policy shows, the first `sinks` tokens and the last `window`, the query included (002 §4.1).

    limit: keys perceived farther are seen at it: they pass into a group of their own, all at frame 0.
    """

    policy: PositionPolicy = field(default_factory=Plain)
    window: int = 512
    sinks: int = 10
    limit: float = math.inf

    def __post_init__(self) -> None:
        if self.limit < (least := self.policy.least_limit(self.window)):
            raise Refused(
                f"the literal reading with a ratio below 1 brings clipped tokens near again: give a distance limit of "
                f"at least {least}, or choose the contiguous reading"
            )
        clips = (CLIPPED,) if math.isfinite(self.limit) else ()
        object.__setattr__(self, "groups", self.policy.groups + clips)

    def spans(self, t: IntArray) -> list[Span]:
        parts = [part for span in self.policy.spans(t) for part in self._parts(t, span)]
        local = np.maximum(0, t + 1 - self.window)
        sinks = np.minimum(self.sinks, local)
        first = [Span(part.lo, np.minimum(part.hi, sinks), part.group) for part in parts]
        return first + [Span(np.maximum(part.lo, local), part.hi, part.group) for part in parts]

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        return np.full(np.shape(t), self.limit) if group == CLIPPED else self.policy.query_frame(t, group)

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        return np.zeros(np.shape(j)) if group == CLIPPED else self.policy.key_frame(j, group)

    @property
    def rerotated(self) -> int | None:
        if math.isinf(self.limit) or self.policy.rerotated is None:
            return self.policy.rerotated
        farthest = self.policy.distance(np.array([self.window - 1]), np.array([0]))
        return self.sinks if len(self.policy.groups) == 1 and farthest < self.limit else None

    def rope(self, config: PreTrainedConfig) -> Rope:
        return self.policy.rope(config)

    def logit_scale(self, t: IntArray, trained: int) -> FloatArray | None:
        return self.policy.logit_scale(t, trained)

    def prompt_frame(self, j: IntArray, n: int) -> FloatArray | None:
        return self.policy.prompt_frame(j, n)

    def describe(self, tokens: int) -> str:
        cap = f"; no distance exceeds the cap of {self.limit:,.0f}" if math.isfinite(self.limit) else ""
        return self.policy.describe(tokens) + cap

    def _parts(self, t: IntArray, span: Span) -> list[Span]:
        """The span's keys beyond the limit, and the others."""
        if math.isinf(self.limit):
            return [span]
        cut = self._cut(t, span)
        return [Span(span.lo, cut, CLIPPED), Span(cut, span.hi, span.group)]

    def _cut(self, t: IntArray, span: Span) -> IntArray:
        """The end of those keys of a span that queries t perceive at the limit or farther, by halving."""
        frame = self.policy.query_frame(t, span.group)
        lo, hi = span.lo, np.maximum(span.lo, span.hi)
        while (open_ := lo < hi).any():
            middle = (lo + hi) // 2
            far = frame - self.policy.key_frame(middle, span.group) >= self.limit
            lo, hi = np.where(open_ & far, middle + 1, lo), np.where(open_ & ~far, middle, hi)
        return lo
