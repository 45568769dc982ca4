"""A cache's plan for one token, and its buffers, as the kernels take them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from backend.cache import FramedCache, Phases
from backend.kernels.attention import Past, Place
from backend.positions import CAPPED, NEAR, SQUEEZED


def stored(tensor: Tensor) -> np.ndarray:
    """A tensor's own memory as an array; bfloat16 as uint16."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def past(cache: FramedCache) -> Past:
    """The buffers of all layers."""
    return Past(*map(stored, cache.buffers))


def place(cache: FramedCache) -> Place:
    """Where the one row of the cache's chunk stands."""
    chunk = cache.chunk
    assert chunk is not None and cache.rope is not None and len(chunk.rows) == 1
    groups = chunk.groups
    pieces = [(p.lo, p.hi, index) for index, group in enumerate(groups) for p in chunk.pieces.get(group, ())]
    moves = [move for group in (NEAR, SQUEEZED, CAPPED) for move in chunk.moves.get(group, ())]
    # The type is always named: while another thread loads a model, the default is that model's.
    none = torch.empty(0, 2, cache.rope.width, dtype=torch.float32)
    still = none.new_ones(1, cache.rope.width), none.new_zeros(1, cache.rope.width)
    frames = [_stacked(move.phases or still).expand(move.hi - move.lo, -1, -1) for move in moves]
    return Place(
        chunk.write,
        np.array(pieces, dtype=np.int64),
        torch.cat([_stacked(chunk.turned[group]) for group in groups]).numpy(),
        np.concatenate([np.arange(0), *(np.arange(move.lo, move.hi) for move in moves)]),
        torch.cat([none, *frames]).numpy(),
    )


def _stacked(phases: Phases) -> Tensor:
    """[n, 2, rotary width] in float32."""
    return torch.stack(phases, 1).float()
