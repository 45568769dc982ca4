"""What a position policy decides: which keys a query sees, and at which perceived distance.

The query of token t is rotated to its frame a(t) and the key of token j to its own, b(j); the perceived distance is
a(t) − b(j). Where one frame a token is not enough, keys stand in groups: a key is born in the first one, may pass to
later ones in their order, and never comes back. Within a group its frame is fixed for ever; when it changes group it is
rotated anew from its raw value. Frames are position ids in float64, tokens are counted from 0.

A policy is a frozen dataclass whose fields are the settings it heeds, by their names. What it leaves out is plain RoPE.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from backend.positions.rope import Rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Span(NamedTuple):
    """Keys lo ≤ j < hi of one group, for each query [n]; empty where hi ≤ lo."""

    lo: IntArray
    hi: IntArray
    group: str


def recent_apart(t: IntArray, recent: int, near: str, far: str) -> list[Span]:
    """All keys of queries t [n]: the last `recent`, the query included, in the group near, those before in far."""
    start = np.maximum(0, t + 1 - recent)
    return [Span(np.zeros_like(t), start, far), Span(start, t + 1, near)]


class PositionPolicy:
    """Every token where it stands; a policy overrides what it bends.

    name: in settings, links and traces. label, summary: for the page; title: the label where it stands alone. paper:
    what to read. order: among the others.
    needs: the key of `Capabilities.unsupported` under which a model says that it cannot do this.
    groups: in the order in which a key passes through them.
    window, sinks: all that later queries see are the last `window` tokens and the first `sinks`; None: every key.
    limitable: whether a Λ window may limit its distances; one that bounds them itself is only masked.
    """

    name: str
    label: str
    title: str = ""
    summary: str
    paper: str = ""
    order: int = 100
    needs: Literal["", "pic", "ntk", "window"] = "pic"
    groups: tuple[str, ...] = ("near",)
    window: int | None = None
    sinks: int = 0
    limitable: bool = True

    @property
    def limit(self) -> float:
        """The largest perceived distance."""
        return math.inf

    @classmethod
    def heeds(cls) -> list[str]:
        """Names of the settings that steer it."""
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def of(cls, settings: Any) -> Self:
        """The policy with the settings that it heeds, those that there are."""
        return cls(**{name: getattr(settings, name) for name in cls.heeds() if hasattr(settings, name)})

    def beside(self, sinks: int) -> PositionPolicy:
        """The same where a Λ window always shows so many first tokens."""
        return self

    def spans(self, t: IntArray) -> list[Span]:
        """What queries t [n] see: disjoint spans in the order of the keys, as many for every t. Bounds never fall with
        t, and where distances may be limited, key frames never fall within a span."""
        return [Span(np.zeros_like(t), t + 1, self.groups[0])]

    def query_frame(self, t: IntArray, group: str) -> FloatArray:
        """a(t) of queries t [n] for the keys of a group."""
        return np.asarray(t, dtype=np.float64)

    def key_frame(self, j: IntArray, group: str) -> FloatArray:
        """b(j) of keys j [n] in a group."""
        return np.asarray(j, dtype=np.float64)

    @property
    def rerotated(self) -> int | None:
        """How many of the first keys may ever change their frame; None: any may."""
        return 0 if len(self.groups) == 1 else None

    def rope(self, config: PreTrainedConfig) -> Rope:
        """The rotation, of a model's config. Raises ValueError for rope types that cannot keep keys."""
        return Rope.of(config)

    def logit_scale(self, t: IntArray, trained: int) -> FloatArray | None:
        """Factors [n] on the attention logits of queries t; trained: the model's training length. None: 1."""
        return None

    def prompt_frame(self, j: IntArray, n: int) -> FloatArray | None:
        """The one frame that tokens j of a prompt of n may share (004's own prefill); None: each row has its own."""
        return None

    def least_limit(self, window: int) -> float:
        """The nearest distance limit that a Λ window may set: under a nearer one, clipped keys would come back."""
        return 0

    def describe(self, tokens: int) -> str:
        """What it does to a text of so many tokens, without a full stop."""
        return "Distances are left as they are"

    def distance(self, t: IntArray, j: IntArray) -> FloatArray:
        """Perceived distances [queries, keys] of queries t to keys j; nan where t does not see j."""
        t, j = np.asarray(t, dtype=np.int64), np.asarray(j, dtype=np.int64)
        out = np.full((len(t), len(j)), np.nan)
        for lo, hi, group in self.spans(t):
            seen = (j >= lo[:, None]) & (j < hi[:, None])
            delta = self.query_frame(t, group)[:, None] - self.key_frame(j, group)
            out[seen] = delta[seen]
        return out
