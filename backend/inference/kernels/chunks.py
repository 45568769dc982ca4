"""Attention of short chunks of some sequences over their framed caches: every row as a token's query, all rows of a
layer in one parallel region. A row's numbers do not depend on the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend.inference.chunk_plan import by_row
from backend.inference.kernels.attention import Partial, Place, attend, merged, rotated, spread, write
from backend.inference.kernels.compiled import compiled, entry
from backend.inference.kernels.number import stored, wide
from backend.inference.kernels.place import one_past
from backend.inference.kernels.product import share
from backend.inference.kernels.rows import rms
from backend.inference.kernels.team import barrier, in_team, member_number, team_size
from backend.inference.kv_cache import FramedCache

# Keys beyond which a kernel that reads each of them for many rows at once is faster.
MOST = 1024


class Rows(NamedTuple):
    """Where the rows of some chunks stand.

    row [n]: among those of the products. cache [n]: whose they are. slot [n]: their own. pieces [n, pieces, 3]: as in
    `Place`, the group always 0. born, turned [n, 2, rotary width]: cosines and signed sines of keys and queries.
    moved, frames: empty.
    """

    row: np.ndarray
    cache: np.ndarray
    slot: np.ndarray
    pieces: np.ndarray
    born: np.ndarray
    turned: np.ndarray
    moved: np.ndarray
    frames: np.ndarray


class Norms(NamedTuple):
    """Of queries and keys [layers, width], or [layers, 0] where there are none."""

    q: np.ndarray
    k: np.ndarray
    epsilon: float


def serves(cache: FramedCache) -> bool:
    """Whether the chunk that the cache has opened is short, and all its keys are and stay in their own frame."""
    chunk = cache.chunk
    assert chunk is not None
    still = set(chunk.pieces) == {chunk.groups[0]} and not chunk.unframed and not any(chunk.moves.values())
    return still and chunk.write + len(chunk.rows) <= MOST


def rows(caches: Sequence[FramedCache], starts: Sequence[int]) -> Rows:
    """The rows of the chunks that the caches have opened, which start at `starts` among those of the products."""
    chunks = [chunk for cache in caches if (chunk := cache.chunk)]
    born = [by_row(chunk.born) for chunk in chunks if chunk.born is not None]
    counts = [len(chunk.rows) for chunk in chunks]
    most = max(len(chunk.pieces[chunk.groups[0]]) for chunk in chunks)
    pieces = np.zeros((sum(counts), most, 3), np.int64)
    first = 0
    for chunk, count in zip(chunks, counts, strict=True):
        for place, piece in enumerate(chunk.pieces[chunk.groups[0]]):
            seen = pieces[first : first + count, place]
            if piece.spans is not None:
                seen[:, :2] = piece.lo + piece.spans
            else:
                seen[:, 0] = piece.lo
                seen[:, 1] = piece.lo + 1 + np.arange(count) if piece.causal else piece.hi
        first += count
    turned = [by_row(chunk.turned[chunk.groups[0]], chunk.scale) for chunk in chunks]
    within = np.concatenate([np.arange(count) for count in counts])
    return Rows(
        np.repeat(starts, counts) + within,
        np.repeat(np.arange(len(caches)), counts),
        np.repeat([chunk.write for chunk in chunks], counts) + within,
        pieces,
        np.concatenate(born),
        np.concatenate(turned),
        np.empty(0, np.int64),
        np.empty((0, *turned[0].shape[1:]), np.float32),
    )


@entry
def attended(members, layer, norms, pasts, rows, qkv, queries, out, entropy, lse):
    """Put keys and values of the rows into their caches, and attend.

    qkv [all, heads + 2·kv heads, width]: the joined product, as stored. queries [n, 1, heads, width], entropy and lse
    [n, heads] get the rotated queries, and of their scores the entropies and log-sum-exps in nats, in float32; out
    [all, heads, width] the means, as stored.
    """
    in_team(members, _attended, (layer, norms, pasts, rows, qkv, queries, out, entropy, lse))


@compiled
def _attended(layer, norms, pasts, rows, qkv, queries, out, entropy, lse):
    member, members = member_number(), team_size()
    n, heads, width = len(rows.row), out.shape[1], out.shape[2]
    lo, hi = share(n, member, members)
    for i in range(lo, hi):
        _enter(layer, norms, pasts, rows, i, qkv[rows.row[i]], queries[i, 0])
    barrier()
    found = np.empty((1, heads), np.float32), np.empty((1, heads), np.float32), np.empty((1, heads), np.float32)
    partial, mean = Partial(*found, np.empty((1, heads, width), np.float32)), np.empty((heads, width), np.float32)
    # Later rows see more keys: dealt out in turn, the members have alike many.
    for i in range(member, n, members):
        past = one_past(pasts, rows.cache[i])
        attend(0, 1, queries[i], past.keys[layer], past.values[layer], rows.pieces[i], partial)
        merged(partial, 1, mean)
        spread(partial, 1, entropy[i], lse[i])
        target = out[rows.row[i]]
        for head in range(heads):
            for j in range(width):
                target[head, j] = stored(mean[head, j], out)


@compiled
def _enter(layer, norms, pasts, rows, i, qkv, queries):
    """One row: its rotated queries, and its key and value into the cache."""
    heads, width = queries.shape
    kv_heads = pasts.shape[1]
    found = np.empty((heads + 2 * kv_heads, width), np.float32)
    for head in range(len(found)):
        for j in range(width):
            found[head, j] = wide(qkv[head, j])
    for head in range(heads + kv_heads):
        norm = norms.q[layer] if head < heads else norms.k[layer]
        if len(norm):
            rms(found[head], norm, norms.epsilon, found[head])
    for head in range(heads):
        rotated(found[head], rows.turned[i], queries[head])
    place = Place(rows.slot[i], rows.pieces[i], rows.born[i], rows.turned[i : i + 1], rows.moved, rows.frames)
    write(layer, found[heads : heads + kv_heads], found[heads + kv_heads :], one_past(pasts, rows.cache[i]), place)
