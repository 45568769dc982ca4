"""Many queries against keys and values, without keeping their scores (Dao et al. 2022), by products of bfloat16 pairs.

Blocks of a few queries and 64 keys: sums in float32; weights are rounded to bfloat16, as torch's own kernel rounds
them. The processor must multiply pairs (AVX-512 BF16), better whole tiles (AMX); for others torch's kernel remains.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from backend.inference.kernels import tiles
from backend.inference.kernels.compiled import compiled, entry
from backend.inference.kernels.lanes import (
    LANES,
    PAIRED,
    any_above,
    dot,
    filled,
    fma,
    larger,
    largest,
    load,
    plus,
    power_of_two,
    save,
    save_halves,
    times,
)
from backend.inference.kernels.lanes import total as summed
from backend.inference.kernels.number import LOG2E, exp, stored
from backend.inference.kernels.team import in_team, member_number, team_size
from backend.inference.kernels.tiles import TILE, TILED

ROWS = 2 * TILE if TILED else 4
KEYS, WIDTH = 64, 4 * LANES
UNSEEN, LN2 = np.float32(-1e38), np.float32(math.log(2))


def serves(dtype: torch.dtype, device: torch.device, width: int) -> bool:
    """Whether this kernel serves heads of such a width. It passes over keys beyond a row's span at no cost."""
    return PAIRED and device.type == "cpu" and dtype == torch.bfloat16 and width % WIDTH == 0


@entry
def attended(members, queries, keys, values, spans, scale, mean, lse):
    """Softmax-weighted means of values, each query over its own span of keys.

    Pairs of bfloat16 stand as float32.
    queries [kv heads, heads of each, rows, width / 2]: pairs along the width, rows filled up to a multiple of ROWS.
    keys [kv heads, blocks, width / 2, KEYS]: likewise, KEYS to a block. spans [rows, 2]: first key and end.
    values [kv heads, blocks · KEYS / 2, width]: pairs along the keys.
    mean [kv heads, heads of each, rows, width]: bfloat16 as uint16. lse [kv heads, heads of each, rows]: log-sum-exp,
    −inf where a span is empty.
    """
    in_team(members, _attended, (queries, keys, values, spans, scale, mean, lse))


@compiled
def _attended(queries, keys, values, spans, scale, mean, lse):
    kv_heads, each, rows = lse.shape
    width = values.shape[2]
    sums, total = _aligned(each * KEYS, width), _aligned(each * KEYS, LANES)
    top, scores, pairs = np.empty(each * KEYS, np.float32), _aligned(ROWS, KEYS), _aligned(ROWS, KEYS // 2)
    halves, blocks = pairs.view(np.uint16), -(-rows // KEYS)
    me, team, shapes = member_number(), team_size(), np.empty(64, np.uint8)
    _begin(shapes)
    for turn in range(-(-kv_heads * blocks // team)):
        # Later rows see more: members change places every turn, so that all get as much.
        task = turn * team + (me if turn % 2 == 0 else team - 1 - me)
        if task >= kv_heads * blocks:
            continue
        kv_head, first = task // blocks, task % blocks * KEYS
        last = min(first + KEYS, rows)
        sums[:], top[:], total[:] = 0, UNSEEN, 0
        start, end = _reach(spans, first, last)
        for block in range(start // KEYS, -(-end // KEYS)):
            for head in range(each):
                for row in range(first, last, ROWS):
                    lo, hi = _reach(spans, row, min(row + ROWS, last))
                    if lo >= (block + 1) * KEYS or hi <= block * KEYS:
                        continue
                    place = head * KEYS + row - first
                    _score(queries[kv_head, head], row, keys[kv_head, block], scores)
                    _weigh(scores, halves, spans[row:last], block * KEYS, scale, place, sums, top, total)
                    _add(pairs, values[kv_head], block * (KEYS // 2), place, sums)
        for head in range(each):
            for row in range(first, last):
                place = head * KEYS + row - first
                whole = summed(load(total, place, 0))
                lse[kv_head, head, row] = top[place] * LN2 + np.float32(math.log(whole))
                by = np.float32(1) / max(whole, np.float32(1e-30))
                out = mean[kv_head, head, row]
                for i in range(width):
                    out[i] = stored(sums[place, i] * by, out)
    _end(shapes)


@compiled
def _aligned(rows, columns):
    """Room for float32 [rows, columns] that starts at a cache line: lanes across two are slow to read after a write."""
    room = np.empty(rows * columns + LANES, np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + rows * columns].reshape(rows, columns)


@compiled
def _reach(spans, first, last):
    """The keys that some of the rows see lie between these."""
    lo, hi = spans[first, 0], spans[first, 1]
    for row in range(first + 1, last):
        lo, hi = min(lo, spans[row, 0]), max(hi, spans[row, 1])
    return lo, hi


@compiled
def _score_by_lanes(queries, row, keys, scores):
    """Scores [ROWS, KEYS] of queries row … against a block of keys."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = filled(np.float32(0))
    for i in range(keys.shape[0]):
        k0, k1, k2, k3 = load(keys, i, 0), load(keys, i, LANES), load(keys, i, 2 * LANES), load(keys, i, 3 * LANES)
        q = filled(queries[row, i])
        a0, a1, a2, a3 = dot(q, k0, a0), dot(q, k1, a1), dot(q, k2, a2), dot(q, k3, a3)
        q = filled(queries[row + 1, i])
        b0, b1, b2, b3 = dot(q, k0, b0), dot(q, k1, b1), dot(q, k2, b2), dot(q, k3, b3)
        q = filled(queries[row + 2, i])
        c0, c1, c2, c3 = dot(q, k0, c0), dot(q, k1, c1), dot(q, k2, c2), dot(q, k3, c3)
        q = filled(queries[row + 3, i])
        d0, d1, d2, d3 = dot(q, k0, d0), dot(q, k1, d1), dot(q, k2, d2), dot(q, k3, d3)
    _put(scores, 0, 0, a0, a1, a2, a3)
    _put(scores, 1, 0, b0, b1, b2, b3)
    _put(scores, 2, 0, c0, c1, c2, c3)
    _put(scores, 3, 0, d0, d1, d2, d3)


@compiled
def _put(array, row, first, a, b, c, d):
    save(array, row, first, a)
    save(array, row, first + LANES, b)
    save(array, row, first + 2 * LANES, c)
    save(array, row, first + 3 * LANES, d)


@compiled
def _take(array, row, first):
    return (
        load(array, row, first),
        load(array, row, first + LANES),
        load(array, row, first + 2 * LANES),
        load(array, row, first + 3 * LANES),
    )


@compiled
def _weigh(scores, halves, spans, key, scale, place, sums, top, total):
    """Turn scores of keys from `key` on into bfloat16 weights, ≈ 0 beyond a row's span, and bring what was summed to
    the new top, which is in powers of two. Rows may be fewer than ROWS."""
    by = filled(scale * LOG2E)
    for i in range(min(ROWS, len(spans))):
        lo, hi = max(spans[i, 0] - key, 0), min(spans[i, 1] - key, KEYS)
        if lo >= hi:
            halves[i] = 0
            continue
        for unseen in range(lo):
            scores[i, unseen] = UNSEEN
        for unseen in range(hi, KEYS):
            scores[i, unseen] = UNSEEN
        a, b, c, d = _take(scores, i, 0)
        highest = times(larger(larger(a, b), larger(c, d)), by)
        if any_above(highest, filled(top[place + i])):
            most = largest(highest)
            fade = exp((top[place + i] - most) * LN2)
            for j in range(sums.shape[1]):
                sums[place + i, j] *= fade
            for j in range(LANES):
                total[place + i, j] *= fade
            top[place + i] = most
        down = filled(-top[place + i])
        a, b = power_of_two(fma(a, by, down)), power_of_two(fma(b, by, down))
        c, d = power_of_two(fma(c, by, down)), power_of_two(fma(d, by, down))
        save(total, place + i, 0, plus(plus(load(total, place + i, 0), plus(a, b)), plus(c, d)))
        save_halves(halves, i, 0, a)
        save_halves(halves, i, LANES, b)
        save_halves(halves, i, 2 * LANES, c)
        save_halves(halves, i, 3 * LANES, d)


@compiled
def _add_by_lanes(weights, values, first, place, sums):
    """Add values of a block, weighted by pairs of weights [ROWS, KEYS / 2], to sums of rows place …"""
    for i in range(0, sums.shape[1], WIDTH):
        a0, a1, a2, a3 = _take(sums, place, i)
        b0, b1, b2, b3 = _take(sums, place + 1, i)
        c0, c1, c2, c3 = _take(sums, place + 2, i)
        d0, d1, d2, d3 = _take(sums, place + 3, i)
        for key in range(KEYS // 2):
            v0, v1, v2, v3 = _take(values, first + key, i)
            p = filled(weights[0, key])
            a0, a1, a2, a3 = dot(p, v0, a0), dot(p, v1, a1), dot(p, v2, a2), dot(p, v3, a3)
            p = filled(weights[1, key])
            b0, b1, b2, b3 = dot(p, v0, b0), dot(p, v1, b1), dot(p, v2, b2), dot(p, v3, b3)
            p = filled(weights[2, key])
            c0, c1, c2, c3 = dot(p, v0, c0), dot(p, v1, c1), dot(p, v2, c2), dot(p, v3, c3)
            p = filled(weights[3, key])
            d0, d1, d2, d3 = dot(p, v0, d0), dot(p, v1, d1), dot(p, v2, d2), dot(p, v3, d3)
        _put(sums, place, i, a0, a1, a2, a3)
        _put(sums, place + 1, i, b0, b1, b2, b3)
        _put(sums, place + 2, i, c0, c1, c2, c3)
        _put(sums, place + 3, i, d0, d1, d2, d3)


@compiled
def _score_by_tiles(queries, row, keys, scores):
    """As `_score_by_lanes`."""
    for key in range(0, KEYS, 2 * TILE):
        tiles.zero(0)
        tiles.zero(1)
        tiles.zero(2)
        tiles.zero(3)
        for i in range(0, keys.shape[0], TILE):
            _multiply(queries, row, i, keys, i, key)
        _save(scores, 0, key)


@compiled
def _add_by_tiles(weights, values, first, place, sums):
    """As `_add_by_lanes`."""
    for i in range(0, sums.shape[1], 2 * TILE):
        tiles.load(0, sums, place, i)
        tiles.load(1, sums, place, i + TILE)
        tiles.load(2, sums, place + TILE, i)
        tiles.load(3, sums, place + TILE, i + TILE)
        for key in range(0, KEYS // 2, TILE):
            _multiply(weights, 0, key, values, first + key, i)
        _save(sums, place, i)


@compiled
def _multiply(a, row, column, b, first, i):
    """Add to tiles 0 to 3, two by two, products of two tiles down a and two along b."""
    tiles.load(4, a, row, column)
    tiles.load(5, a, row + TILE, column)
    tiles.load(6, b, first, i)
    tiles.load(7, b, first, i + TILE)
    tiles.dot(0, 4, 6)
    tiles.dot(1, 4, 7)
    tiles.dot(2, 5, 6)
    tiles.dot(3, 5, 7)


@compiled
def _save(array, row, first):
    """Put tiles 0 to 3 there, two by two."""
    tiles.save(0, array, row, first)
    tiles.save(1, array, row, first + TILE)
    tiles.save(2, array, row + TILE, first)
    tiles.save(3, array, row + TILE, first + TILE)


@compiled
def _nothing(shapes):
    """Lanes need no preparation."""


_score, _add = (_score_by_tiles, _add_by_tiles) if TILED else (_score_by_lanes, _add_by_lanes)
_begin, _end = (tiles.shape, tiles.restore) if TILED else (_nothing, _nothing)
