"""Attention of PIC-SFT (004 §3.2): a text is cut into segments of equal length from its end backwards, and each segment
reads all that precedes it at the position ids that decoding gives them when the segment's last token is written.

004 runs the model once for every segment. Here one pass serves all of them, because the cache at inference keeps keys
unrotated as well: a key's hidden state is computed once, at its own time, and only its rotation differs by segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backend.positions import PositionPolicy
from backend.positions.rope import Rope

Phases = Tensor


def segments(n: int, size: int) -> Iterator[tuple[int, int]]:
    """(first, end) of the segments of n tokens in order; the first one is what is left over."""
    first = n % size
    yield from ([(0, first)] if first else [])
    yield from ((start, start + size) for start in range(first, n, size))


@dataclass
class Segmented:
    """Attention of whole texts under a position policy, for gradients; `attention.framed` puts it in place.

    segment: tokens that share position ids under a policy whose prompts share a frame; under the others a token keeps
    its own.
    """

    policy: PositionPolicy
    rope: Rope
    segment: int
    probe: None = None
    _phases: dict[int, Phases] = field(default_factory=dict)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [b, heads, n, width], k and v [b, kv heads, n, width], all unrotated → [b, n, heads, width]."""
        n = q.shape[2]
        cuts = segments(n, self.segment) if self._frames(n) is not None else [(0, n)]
        return torch.cat([self._segment(q, k, v, scale, *cut) for cut in cuts], 2).transpose(1, 2)

    def _segment(self, q: Tensor, k: Tensor, v: Tensor, scale: float, first: int, end: int) -> Tensor:
        phases = self._turned(end, q)
        turned = self.rope.rotate(q[:, :, first:end], phases[:, first:])
        keys = self.rope.rotate(k[:, :, :end], phases)
        seen = torch.ones(end - first, end, dtype=torch.bool, device=q.device).tril(first) if first else None
        return scaled_dot_product_attention(
            turned, keys, v[:, :, :end], seen, is_causal=not first, scale=scale, enable_gqa=True
        )

    def _turned(self, end: int, q: Tensor) -> Phases:
        """Cosines and sines [2, end, width] of the position ids of `end` tokens when the last of them is written."""
        if end not in self._phases:
            frames = self._frames(end)
            if frames is None:
                frames = self.policy.key_frame(np.arange(end), self.policy.groups[0])
            self._phases[end] = self.rope.phases(frames, q.dtype, q.device)
        return self._phases[end]

    def _frames(self, n: int) -> np.ndarray | None:
        return self.policy.prompt_frame(np.arange(n), n)
