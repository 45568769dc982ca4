"""One query against a framed cache: scores, softmax, weighted mean and entropy, reading each key and value once.

The keys of all heads, laid end to end, are dealt out evenly to the team; each member leaves what it found of each head
as a partial softmax, and `merged` joins them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backend.inference.kernels.compiled import compiled
from backend.inference.kernels.lanes import LANES, filled, fma, load, prefetch, save, total
from backend.inference.kernels.number import exp, stored, wide
from backend.inference.kernels.product import share

BLOCK = 64
ROWS = 4
LEAST, FAINT = np.float32(-1e38), np.float32(-100)


class Past(NamedTuple):
    """keys, values [layers, kv heads, slots, width], as stored; raw: unrotated keys of the first slots, or none."""

    keys: np.ndarray
    values: np.ndarray
    raw: np.ndarray


class Place(NamedTuple):
    """Where a token and the keys it sees stand.

    slot: its own. pieces [pieces, 3]: first slot, end, and which of `turned` the query takes.
    born [2, rotary width]: cosines and signed sines of the key. turned [groups, 2, rotary width]: of the query.
    moved [moves]: slots whose keys change to the frames `frames` [moves, 2, rotary width].
    """

    slot: int
    pieces: np.ndarray
    born: np.ndarray
    turned: np.ndarray
    moved: np.ndarray
    frames: np.ndarray


class Partial(NamedTuple):
    """Softmax over the keys one member saw: [members, heads], `mean` [members, heads, width], all float32.

    top: largest score. total: sum of e^(score − top). heat: sum of e^(score − top)·(score − top).
    """

    top: np.ndarray
    total: np.ndarray
    heat: np.ndarray
    mean: np.ndarray


@compiled
def rotated(x, phases, out):
    """Rotate x [width] by phases [2, rotary width] into out, pairs half the rotary width apart."""
    rotary = phases.shape[1]
    half = rotary // 2
    for i in range(half):
        out[i] = x[i] * phases[0, i] + x[i + half] * phases[1, i]
        out[i + half] = x[i + half] * phases[0, i + half] + x[i] * phases[1, i + half]
    for i in range(rotary, len(x)):
        out[i] = x[i]


@compiled
def copied(rows, out):
    """Copy as many rows as both have."""
    for row in range(min(len(rows), len(out))):
        for i in range(out.shape[1]):
            out[row, i] = rows[row, i]


@compiled
def keep(x, row):
    """Store x [width] in a row of the cache."""
    for i in range(len(x)):
        row[i] = stored(x[i], row)


@compiled
def take(row, x):
    """A row of the cache as float32 [width]."""
    for i in range(len(x)):
        x[i] = wide(row[i])


@compiled
def write(layer, k, v, past, place):
    """Store the token's key and value [kv heads, width], and bring the keys that change group into their frames."""
    heads, width = k.shape
    key, turned = np.empty(width, np.float32), np.empty(width, np.float32)
    for head in range(heads):
        keep(v[head], past.values[layer, head, place.slot])
        rotated(k[head], place.born, turned)
        keep(turned, past.keys[layer, head, place.slot])
        if place.slot < past.raw.shape[2]:
            keep(k[head], past.raw[layer, head, place.slot])
        for move in range(len(place.moved)):
            slot = place.moved[move]
            take(past.raw[layer, head, slot], key)
            rotated(key, place.frames[move], turned)
            keep(turned, past.keys[layer, head, slot])


@compiled
def attend(member, members, queries, keys, values, pieces, partial):
    """Partial softmaxes of this member's share: queries [groups, heads, width], keys and values [kv heads, …]."""
    kv_heads, width = keys.shape[0], keys.shape[2]
    each, scale = queries.shape[1] // kv_heads, np.float32(1 / np.sqrt(width))
    count = 0
    for piece in range(len(pieces)):
        count += pieces[piece, 1] - pieces[piece, 0]
    first, last = share(kv_heads * count, member, members)
    rows = -(-each // ROWS) * ROWS
    query, scores = np.zeros((rows, width), np.float32), np.zeros((rows, BLOCK), np.float32)
    for head in range(kv_heads):
        heads = slice(head * each, (head + 1) * each)
        top, total, heat = partial.top[member, heads], partial.total[member, heads], partial.heat[member, heads]
        for row in range(each):
            top[row], total[row], heat[row] = LEAST, 0, 0
        mean = np.zeros((rows, width), np.float32)
        before = head * count
        for piece in range(len(pieces)):
            lo, hi, group = pieces[piece]
            copied(queries[group, heads], query)
            end = min(hi, lo + last - before)
            for block in range(max(lo, lo + first - before), end, BLOCK):
                seen = min(BLOCK, end - block)
                _score(query, keys[head], values[head], block, seen, scale, scores)
                _weigh(scores, seen, top, total, heat, mean)
                _add(scores, values[head], block, seen, mean)
            before += hi - lo
        copied(mean, partial.mean[member, heads])


@compiled
def _score(queries, keys, values, first, count, scale, scores):
    """Scores [heads, count] of queries [heads, width] against keys first … of [slots, width], ROWS heads at a time.

    The values are read soon after, which no processor guesses: they are asked for meanwhile.
    """
    for head in range(0, len(queries), ROWS):
        for key in range(count):
            for i in range(0, queries.shape[1], 2 * LANES):
                prefetch(values, first + key, i)
            a = b = c = d = filled(np.float32(0))
            for i in range(0, queries.shape[1], LANES):
                k = load(keys, first + key, i)
                a = fma(load(queries, head, i), k, a)
                b = fma(load(queries, head + 1, i), k, b)
                c = fma(load(queries, head + 2, i), k, c)
                d = fma(load(queries, head + 3, i), k, d)
            scores[head, key] = total(a) * scale
            scores[head + 1, key] = total(b) * scale
            scores[head + 2, key] = total(c) * scale
            scores[head + 3, key] = total(d) * scale


@compiled
def _weigh(scores, count, top, total, heat, mean):
    """Turn scores [heads, count] into weights, and bring what was summed before to the new largest score."""
    for head in range(len(top)):
        most = top[head]
        for key in range(count):
            most = max(most, scores[head, key])
        drop = top[head] - most
        fade = exp(drop)
        sums, heats = np.float32(0), np.float32(0)
        for key in range(count):
            below = scores[head, key] - most
            weight = exp(below)
            scores[head, key] = weight
            sums += weight
            heats += weight * below
        heat[head] = fade * (heat[head] + total[head] * max(drop, FAINT)) + heats
        total[head] = fade * total[head] + sums
        top[head] = most
        for i in range(mean.shape[1]):
            mean[head, i] *= fade


@compiled
def _add(weights, values, first, count, mean):
    """Add values first … of [slots, width] by weights [heads, count] to mean [heads, width], ROWS heads at a time."""
    for head in range(0, len(mean), ROWS):
        for i in range(0, mean.shape[1], LANES):
            a, b, c, d = load(mean, head, i), load(mean, head + 1, i), load(mean, head + 2, i), load(mean, head + 3, i)
            for key in range(count):
                v = load(values, first + key, i)
                a = fma(filled(weights[head, key]), v, a)
                b = fma(filled(weights[head + 1, key]), v, b)
                c = fma(filled(weights[head + 2, key]), v, c)
                d = fma(filled(weights[head + 3, key]), v, d)
            save(mean, head, i, a)
            save(mean, head + 1, i, b)
            save(mean, head + 2, i, c)
            save(mean, head + 3, i, d)


@compiled
def _joined(partial, members, head):
    """Largest score, total and heat of one head over all members."""
    top, total, heat = LEAST, np.float32(0), np.float32(0)
    for member in range(members):
        top = max(top, partial.top[member, head])
    for member in range(members):
        drop = max(partial.top[member, head] - top, FAINT)
        fade = exp(drop)
        total += fade * partial.total[member, head]
        heat += fade * (partial.heat[member, head] + partial.total[member, head] * drop)
    return top, total, heat


@compiled
def merged(partial, members, out):
    """The members' weighted means as one: out [heads, width]."""
    heads, width = out.shape
    for head in range(heads):
        top, total, _ = _joined(partial, members, head)
        for i in range(width):
            out[head, i] = 0
        for member in range(members):
            part = exp(partial.top[member, head] - top) / total
            for i in range(width):
                out[head, i] += part * partial.mean[member, head, i]


@compiled
def spread(partial, members, entropy, lse):
    """Of the softmax, in nats: its entropy [heads], ln Σe^s − Σp·s, and ln Σe^s [heads]."""
    for head in range(len(entropy)):
        top, total, heat = _joined(partial, members, head)
        whole = np.float32(np.log(total))
        entropy[head] = max(whole - heat / total, np.float32(0))
        lse[head] = top + whole
