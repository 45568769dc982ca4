"""Position policies as segments: in a segment the perceived distance of query t to key j is a(t) − b(j).

A key belongs to one of three groups, and moves through them in this order:

  NEAR      the frame it is born in: recent tokens, or all of them for plain, naive and NTK
  COMPRESSED  the compressed middle of dynamic PIC (004 eq. 9); the initial tokens share its query frame
  CLIPPED    distance limit of Λ (002 §4.2): whatever is farther than the limit is seen at the limit

Frames are position ids in float64. Sources: 002 (LM-Infinite) §4, 004 (PIC) §3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backend.refused import Refused
from backend.settings import RunSettings

NEAR, COMPRESSED, CLIPPED = 0, 1, 2


class Segment(NamedTuple):
    """Keys lo ≤ j < hi of one group, for each query t given (ints, or int arrays of t's shape)."""

    lo: Any
    hi: Any
    group: int


class Bounds(NamedTuple):
    """Where the groups change, for each query t: tokens initial ≤ j < near are compressed, j ≥ near are near;
    the first tokens of each part, up to head/middle/tail, are clipped. All nondecreasing in t."""

    near: Any
    head: Any
    middle: Any
    tail: Any


@dataclass(frozen=True)
class Policy:
    """Frames and visibility of every (query, key) pair.

    kind: none, naive, ntk or dynamic. ratio s; initial, recent: token counts of dynamic PIC.
    window L, sinks n_global and limit (perceived distance, inf: none) of Λ; window None: every key is seen.
    Under Λ the sinks count as initial context of dynamic PIC, so that they are never compressed.
    """

    kind: str = "none"
    ratio: float = 1.0
    initial: int = 4
    recent: int = 200
    literal: bool = False
    window: int | None = None
    sinks: int = 10
    limit: float = math.inf

    def __post_init__(self) -> None:
        if self.kind == "dynamic" and self.literal and self.ratio < 1 and self.limit < self._narrow:
            raise Refused(
                f"the literal reading with a ratio below 1 brings clipped tokens near again: give a distance limit of "
                f"at least {self._narrow}, or choose the contiguous reading"
            )

    @property
    def _narrow(self) -> int:
        """Length of the near part that a query can see at most."""
        return self.recent if self.window is None else min(self.recent, self.window)

    @classmethod
    def of(cls, settings: RunSettings) -> Policy:
        """The policy a run's settings ask for; a ratio of 1 compresses nothing and is plain."""
        limit = math.inf
        if settings.window is not None and settings.distance_limit != "off":
            limit = settings.window if settings.distance_limit == "window" else settings.distance_limit
        kind = "none" if settings.ratio == 1 else settings.pic
        return cls(
            kind=kind,
            ratio=settings.ratio if kind != "none" else 1.0,
            initial=max(settings.initial, settings.sinks if settings.window is not None else 0),
            recent=settings.recent,
            literal=settings.reading == "literal",
            window=settings.window,
            sinks=settings.sinks if settings.window is not None else 0,
            limit=float(limit),
        )

    @property
    def base_factor(self) -> float:
        """Factor on the RoPE base (004 eq. 8)."""
        return self.ratio if self.kind == "ntk" else 1.0

    @property
    def moves(self) -> bool:
        """Whether a key can ever change its group, and so must be kept unrotated as well."""
        return self.kind == "dynamic" or math.isfinite(self.limit)

    @property
    def plain(self) -> bool:
        """Whether every key is seen where it stands."""
        return self.kind == "none" and self.window is None

    def near_start(self, t: Any) -> Any:
        """First token of the recent part for query t (004 eq. 9, 0-based): max(initial, t + 1 − recent)."""
        if self.kind != "dynamic":
            return np.zeros_like(t)
        return np.maximum(self.initial, t + 1 - self.recent)

    def query_frame(self, t: Any, group: int) -> Any:
        """a(t) for queries t (int array) against keys of one group."""
        t = np.asarray(t, dtype=np.float64)
        if group == CLIPPED:
            return np.full_like(t, self.limit)
        if self.kind == "naive":
            return t / self.ratio
        if group == COMPRESSED and not self.literal:
            near = self.near_start(t)
            return self.initial + (near - self.initial) / self.ratio + (t - near)
        return t

    def key_frame(self, j: Any, group: int) -> Any:
        """b(j) for keys j (int array) of one group."""
        j = np.asarray(j, dtype=np.float64)
        if group == CLIPPED:
            return np.zeros_like(j)
        if self.kind == "naive":
            return j / self.ratio
        if group == COMPRESSED:
            compressed = j / self.ratio if self.literal else self.initial + (j - self.initial) / self.ratio
            return np.where(j < self.initial, j, compressed)
        return j

    def bounds(self, t: Any) -> Bounds:
        """Group boundaries for queries t (int or int array)."""
        t = np.asarray(t)
        near = self.near_start(t)
        start = np.minimum(self.initial, near) if self.kind == "dynamic" else np.zeros_like(t)
        if math.isinf(self.limit):
            return Bounds(near, np.zeros_like(t), start, near)
        reach = self.query_frame(t, COMPRESSED) - self.limit
        if self.kind != "dynamic":
            scale = self.ratio if self.kind == "naive" else 1.0
            tail = _count(t - scale * self.limit)
            return Bounds(near, np.zeros_like(t), start, np.clip(tail, 0, t + 1))
        compressed = self.ratio * reach if self.literal else self.initial + self.ratio * (reach - self.initial)
        return Bounds(
            near,
            np.clip(_count(reach), 0, start),
            np.clip(_count(compressed), start, near),
            np.clip(_count(t - self.limit), near, np.maximum(near, t + 1)),
        )

    def segments(self, t: Any) -> list[Segment]:
        """What queries t (int or int array) see: disjoint segments in the order of the keys, some empty."""
        t = np.asarray(t)
        bounds = self.bounds(t)
        start = np.minimum(self.initial, bounds.near) if self.kind == "dynamic" else np.zeros_like(t)
        end = t + 1
        start, near, head, middle, tail = (np.minimum(x, end) for x in (start, *bounds))
        parts = [
            Segment(np.zeros_like(t), head, CLIPPED),
            Segment(head, start, COMPRESSED),
            Segment(start, middle, CLIPPED),
            Segment(middle, near, COMPRESSED),
            Segment(near, tail, CLIPPED),
            Segment(tail, end, NEAR),
        ]
        if self.kind != "dynamic":
            parts = parts[4:] if math.isfinite(self.limit) else [Segment(np.zeros_like(t), end, NEAR)]
        if self.window is None:
            return parts
        local = np.maximum(0, end - self.window)
        sinks = np.minimum(self.sinks, local)
        clipped = [Segment(s.lo, np.minimum(s.hi, sinks), s.group) for s in parts]
        return clipped + [Segment(np.maximum(s.lo, local), s.hi, s.group) for s in parts]

    def distance(self, t: Any, j: Any) -> np.ndarray:
        """Perceived distances [queries, keys] of queries t [m] to keys j [n]; nan where t does not see j."""
        t, j = np.asarray(t, dtype=np.int64), np.asarray(j, dtype=np.int64)
        out = np.full((len(t), len(j)), np.nan)
        for lo, hi, group in self.segments(t):
            seen = (j >= lo[:, None]) & (j < hi[:, None])
            delta = self.query_frame(t, group)[:, None] - self.key_frame(j, group)
            out[seen] = delta[seen]
        return out

    def whole_prompt_frame(self, j: Any, n: int) -> Any:
        """g(j): the one frame that the prefill mode `paper` gives a prompt of n tokens (004 eq. 9, Algorithm 1)."""
        j = np.asarray(j, dtype=np.float64)
        if self.kind != "dynamic":
            return self.key_frame(j, NEAR)
        near = max(self.initial, n - self.recent)
        recent = j if self.literal else self.initial + (near - self.initial) / self.ratio + (j - near)
        return np.where(j < near, self.key_frame(j, COMPRESSED), recent)


def _count(last: Any) -> Any:
    """Number of tokens 0 … ⌊last⌋."""
    return np.floor(last).astype(np.int64) + 1
