"""Many queries against keys and values, without keeping their scores (Dao et al. 2022), by products of bfloat16 pairs.

Tiles of four queries and 64 keys: sums stay in registers, in float32; weights are rounded to bfloat16, as torch's own
kernel rounds them. The processor must multiply pairs (AVX-512 BF16); for others torch's kernel remains.
"""

from __future__ import annotations

import math

import numpy as np

from backend.kernels.compiled import compiled, entry
from backend.kernels.lanes import (
    LANES,
    any_above,
    dot,
    filled,
    fma,
    larger,
    largest,
    load,
    plus,
    power,
    save,
    save_halves,
    times,
)
from backend.kernels.lanes import total as summed
from backend.kernels.number import exp, stored
from backend.kernels.team import in_team, member_number, team_size

ROWS, KEYS, WIDTH = 4, 64, 4 * LANES
UNSEEN = np.float32(-1e38)


@entry
def attended(members, queries, keys, values, spans, scale, mean, lse):
    """Softmax-weighted means of values, each query over its own span of keys.

    Pairs of bfloat16 stand as float32. queries [kv heads, heads of each, rows, width / 2]: pairs along the width.
    keys [kv heads, blocks, width / 2, KEYS]: likewise, KEYS to a block. values [kv heads, blocks · KEYS / 2, width]:
    pairs along the keys. spans [rows, 2]: first key and end. mean [kv heads, heads of each, rows, width]: bfloat16 as
    uint16. lse [kv heads, heads of each, rows]: log-sum-exp, −inf where a span is empty.
    """
    in_team(members, _attended, (queries, keys, values, spans, scale, mean, lse))


@compiled
def _attended(queries, keys, values, spans, scale, mean, lse):
    kv_heads, each, rows = lse.shape
    width = values.shape[2]
    sums, total = _aligned(each * KEYS, width), _aligned(each * KEYS, LANES)
    top, scores, pairs = np.empty(each * KEYS, np.float32), _aligned(ROWS, KEYS), _aligned(ROWS, KEYS // 2)
    halves, blocks = pairs.view(np.uint16), -(-rows // KEYS)
    me, team = member_number(), team_size()
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
                    _score(queries[kv_head, head], row, last - 1, keys[kv_head, block], scores)
                    for i in range(min(ROWS, last - row)):
                        a = max(spans[row + i, 0] - block * KEYS, 0)
                        b = min(spans[row + i, 1] - block * KEYS, KEYS)
                        _weigh(scores, halves, i, a, b, scale, place + i, sums, top, total)
                    _add(pairs, values[kv_head], block * (KEYS // 2), place, sums)
        for head in range(each):
            for row in range(first, last):
                place = head * KEYS + row - first
                whole = summed(load(total, place, 0))
                lse[kv_head, head, row] = top[place] + np.float32(math.log(whole))
                by = np.float32(1) / max(whole, np.float32(1e-30))
                out = mean[kv_head, head, row]
                for i in range(width):
                    out[i] = stored(sums[place, i] * by, out)


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
def _score(queries, row, end, keys, scores):
    """Scores [ROWS, KEYS] of queries row … (the one at `end` in the place of those beyond) against a block of keys."""
    r, s, t = min(row + 1, end), min(row + 2, end), min(row + 3, end)
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = filled(np.float32(0))
    for i in range(keys.shape[0]):
        k0, k1, k2, k3 = load(keys, i, 0), load(keys, i, LANES), load(keys, i, 2 * LANES), load(keys, i, 3 * LANES)
        q = filled(queries[row, i])
        a0, a1, a2, a3 = dot(q, k0, a0), dot(q, k1, a1), dot(q, k2, a2), dot(q, k3, a3)
        q = filled(queries[r, i])
        b0, b1, b2, b3 = dot(q, k0, b0), dot(q, k1, b1), dot(q, k2, b2), dot(q, k3, b3)
        q = filled(queries[s, i])
        c0, c1, c2, c3 = dot(q, k0, c0), dot(q, k1, c1), dot(q, k2, c2), dot(q, k3, c3)
        q = filled(queries[t, i])
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
def _weigh(scores, halves, i, lo, hi, scale, place, sums, top, total):
    """Turn row i of scores into bfloat16 weights, ≈ 0 beyond lo … hi, and bring what was summed to the new top."""
    if lo >= hi:
        halves[i] = 0
        return
    for key in range(lo):
        scores[i, key] = UNSEEN
    for key in range(hi, KEYS):
        scores[i, key] = UNSEEN
    by = filled(scale)
    a, b, c, d = _take(scores, i, 0)
    highest = times(larger(larger(a, b), larger(c, d)), by)
    if any_above(highest, filled(top[place])):
        most = largest(highest)
        fade = exp(top[place] - most)
        for j in range(sums.shape[1]):
            sums[place, j] *= fade
        for j in range(LANES):
            total[place, j] *= fade
        top[place] = most
    down = filled(-top[place])
    a, b, c, d = power(fma(a, by, down)), power(fma(b, by, down)), power(fma(c, by, down)), power(fma(d, by, down))
    save(total, place, 0, plus(plus(load(total, place, 0), plus(a, b)), plus(c, d)))
    save_halves(halves, i, 0, a)
    save_halves(halves, i, LANES, b)
    save_halves(halves, i, 2 * LANES, c)
    save_halves(halves, i, 3 * LANES, d)


@compiled
def _add(weights, values, first, place, sums):
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
