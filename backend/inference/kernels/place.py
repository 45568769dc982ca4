"""The plans of some caches for a token each, and their buffers, as the kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from backend.inference.kernels.attention import Past, Place
from backend.inference.kernels.compiled import compiled
from backend.inference.kv_cache import FramedCache


class Pasts(NamedTuple):
    """The buffers of n caches of one shape, however long each is.

    address [n, 3]: of keys, values and unrotated keys; slots [n, 2]: of the first two and of the last. shape: layers,
    kv heads, width. like: an empty array of their elements.
    """

    address: np.ndarray
    slots: np.ndarray
    shape: tuple[int, int, int]
    like: np.ndarray


class Places(NamedTuple):
    """The `Place` of each of n tokens, one after another: those of the i-th from each [i] to [i + 1]."""

    slot: np.ndarray
    pieces: np.ndarray
    pieces_from: np.ndarray
    born: np.ndarray
    turned: np.ndarray
    turned_from: np.ndarray
    moved: np.ndarray
    frames: np.ndarray
    moved_from: np.ndarray


def stored(tensor: Tensor) -> np.ndarray:
    """A tensor's own memory as an array; bfloat16 as uint16."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def pasts(caches: Sequence[FramedCache]) -> Pasts:
    """The buffers of all layers."""
    buffers = [cache.buffers for cache in caches]
    shape = caches[0].shape
    return Pasts(
        np.array([[each.data_ptr() for each in three] for three in buffers], np.int64),
        np.array([(keys.shape[2], raw.shape[2]) for keys, _, raw in buffers], np.int64),
        (shape.layers, shape.heads, shape.width),
        stored(torch.empty(0, dtype=shape.dtype)),
    )


def places(caches: Sequence[FramedCache]) -> Places:
    """Where the one row of each cache's chunk stands."""
    each = [place(cache) for cache in caches]
    return Places(
        np.array([one.slot for one in each]),
        np.concatenate([one.pieces for one in each]),
        _from([len(one.pieces) for one in each]),
        np.stack([one.born for one in each]),
        np.concatenate([one.turned for one in each]),
        _from([len(one.turned) for one in each]),
        np.concatenate([one.moved for one in each]),
        np.concatenate([one.frames for one in each]),
        _from([len(one.moved) for one in each]),
    )


def place(cache: FramedCache) -> Place:
    """Where the one row of the cache's chunk stands."""
    chunk = cache.chunk
    assert chunk is not None and chunk.born is not None and len(chunk.rows) == 1
    wide = chunk.wide
    pieces = [(p.lo, p.hi, index) for index, group in enumerate(chunk.groups) for p in chunk.pieces.get(group, ())]
    moves = [move for group in cache.policy.groups[1:] for move in chunk.moves.get(group, ())]
    moved = [slot for move in moves for slot in range(move.lo, move.hi)]
    return Place(
        chunk.write,
        np.array(pieces, dtype=np.int64),
        wide.born,
        wide.turned,
        np.array(moved, dtype=np.int64),
        wide.moved,
    )


def _from(counts: list[int]) -> np.ndarray:
    return np.array([*accumulate(counts, initial=0)])


@intrinsic
def pointer(typing, address):
    """A number as the address it is."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@compiled
def one_past(pasts, row):
    """The buffers of one cache."""
    layers, heads, width = pasts.shape
    kind, (slots, raw) = pasts.like.dtype, pasts.slots[row]
    return Past(
        carray(pointer(pasts.address[row, 0]), (layers, heads, slots, width), kind),
        carray(pointer(pasts.address[row, 1]), (layers, heads, slots, width), kind),
        carray(pointer(pasts.address[row, 2]), (layers, heads, raw, width), kind),
    )


@compiled
def one_place(places, row):
    """Where one token stands."""
    moved = slice(places.moved_from[row], places.moved_from[row + 1])
    return Place(
        places.slot[row],
        places.pieces[places.pieces_from[row] : places.pieces_from[row + 1]],
        places.born[row],
        places.turned[places.turned_from[row] : places.turned_from[row + 1]],
        places.moved[moved],
        places.frames[moved],
    )
