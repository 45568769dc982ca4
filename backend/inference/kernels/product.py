"""Products of stored weights and some vectors: whole rows of weights for each member of a team.

The weights of all layers lie in one array. `multiply` knows each way of storing them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from backend.inference.kernels import tiled
from backend.inference.kernels.compiled import OPTIONS, compiled, entry, inlined
from backend.inference.kernels.lanes import LANES, filled, fma, high_nibbles, load, low_nibbles, total
from backend.inference.kernels.number import stored, wide
from backend.inference.kernels.team import in_team, member_number, team_size
from backend.inference.kernels.tiles import TILED

GROUP = 32
# Rows of weights that stay near while they meet all vectors, and sums that are made at a time.
BLOCK, FOUR = 32, 4


class Plain(NamedTuple):
    """weight [layers, out, in] of bfloat16 as uint16 or of float32; bias [layers, out] of float32."""

    weight: np.ndarray
    bias: np.ndarray


class Int8(NamedTuple):
    """weight [layers, out, in] of int8, to be multiplied by scale [layers, out]; bias [layers, out]."""

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray


class Int4(NamedTuple):
    """weight [layers, out, 16·groups] of uint8: each 32 inputs in 16 bytes, the first 16 of them in the low halves.

    A weight is its step times scale plus offset [layers, out, groups], bfloat16 as uint16; bias [layers, out].
    """

    weight: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    bias: np.ndarray


Weights = Plain | Int8 | Int4


def multiply(w, layer, lo, hi, x, out):
    """Products of rows lo ≤ row < hi of a layer's weights and each of x [n, in], plus bias, into the same places of
    out [n, out].

    Weights are read once for all n. A sum runs in one order however many are made beside it, so it is the same to the
    last bit.
    """
    raise NotImplementedError


@overload(multiply, jit_options=OPTIONS)
def _multiply(w, layer, lo, hi, x, out):
    return {Plain: _plain, Int8: _int8, Int4: _int4}[w.instance_class]


def _plain(w, layer, lo, hi, x, out):
    weight, bias = w.weight[layer], w.bias[layer]
    _all_sums(weight, lo, hi, x, out)
    for index in range(len(x)):
        for row in range(lo, hi):
            out[index, row] += bias[row]


def _all_sums(weight, lo, hi, x, out):
    """Rows lo ≤ row < hi of weights [out, in] times each of x [n, in] into out [n, out], by the best way there is."""
    raise NotImplementedError


@overload(_all_sums, jit_options=OPTIONS)
def _all_sums_of(weight, lo, hi, x, out):
    return _by_tiles if TILED and weight.dtype == types.uint16 else _by_lanes


def _by_lanes(weight, lo, hi, x, out):
    for start in range(lo, hi, BLOCK):
        _sums(weight, start, min(start + BLOCK, hi), x, out)


def _by_tiles(weight, lo, hi, x, out):
    if tiled.serves(weight):
        tiled.sums(weight, lo, hi, x, out)
    else:
        for start in range(lo, hi, BLOCK):
            _sums(weight, start, min(start + BLOCK, hi), x, out)


def _int8(w, layer, lo, hi, x, out):
    weight, scale, bias = w.weight[layer], w.scale[layer], w.bias[layer]
    for start in range(lo, hi, BLOCK):
        stop = min(start + BLOCK, hi)
        _sums(weight, start, stop, x, out)
        for index in range(len(x)):
            for row in range(start, stop):
                out[index, row] = fma(out[index, row], scale[row], bias[row])


def _int4(w, layer, lo, hi, x, out):
    weight, scales, offset, bias = w.weight[layer], w.scale[layer], w.offset[layer], w.bias[layer]
    groups = scales.shape[1]
    inputs, sums = _grouped(x, groups)
    scale = np.empty(groups, np.float32)
    for start in range(lo, hi, BLOCK):
        stop = min(start + BLOCK, hi)
        _sums(offset, start, stop, sums, out)
        for row in range(start, stop):
            for group in range(groups):
                scale[group] = wide(scales[row, group])
            fours = len(x) - len(x) % FOUR
            for first in range(0, fours, FOUR):
                _steps(weight, row, scale, inputs, first, out)
            for index in range(fours, len(x)):
                _steps_once(weight, row, scale, inputs, index, out)
        for index in range(len(x)):
            for row in range(start, stop):
                out[index, row] += bias[row]


@compiled
def _sums(weight, lo, hi, x, out):
    """Rows lo ≤ row < hi of weights [rows, in] times each of x [n, in] into out [n, rows], four at a time."""
    fours = len(x) - len(x) % FOUR
    for first in range(0, fours, FOUR):
        for row in range(lo, hi):
            _across(weight, row, x, first, out)
    for index in range(fours, len(x)):
        for row in range(lo, hi):
            out[index, row] = one_sum(weight, row, x, index)


@inlined
def _across(weight, row, x, first, out):
    """One row of weights times four of x."""
    a = b = c = d = filled(np.float32(0))
    whole = x.shape[1] - x.shape[1] % LANES
    for i in range(0, whole, LANES):
        w = load(weight, row, i)
        a, b = fma(w, load(x, first, i), a), fma(w, load(x, first + 1, i), b)
        c, d = fma(w, load(x, first + 2, i), c), fma(w, load(x, first + 3, i), d)
    out[first, row] = _rest(weight, row, x, first, whole, a)
    out[first + 1, row] = _rest(weight, row, x, first + 1, whole, b)
    out[first + 2, row] = _rest(weight, row, x, first + 2, whole, c)
    out[first + 3, row] = _rest(weight, row, x, first + 3, whole, d)


@inlined
def one_sum(weight, row, x, index):
    """One row of weights times one of x."""
    found = filled(np.float32(0))
    whole = x.shape[1] - x.shape[1] % LANES
    for i in range(0, whole, LANES):
        found = fma(load(weight, row, i), load(x, index, i), found)
    return _rest(weight, row, x, index, whole, found)


@inlined
def _rest(weight, row, x, index, first, lanes):
    """The sum of `lanes` and of the products from `first` on."""
    while first + LANES <= x.shape[1]:
        lanes = fma(load(weight, row, first), load(x, index, first), lanes)
        first += LANES
    found = total(lanes)
    for i in range(first, x.shape[1]):
        found = fma(wide(weight[row, i]), x[index, i], found)
    return found


@inlined
def _steps(weight, row, scale, inputs, first, out):
    """Add the steps of a row of 4-bit weights times four of inputs [n, groups, 32] to out."""
    a = b = c = d = none = filled(np.float32(0))
    p, q, r, s, half = inputs[first], inputs[first + 1], inputs[first + 2], inputs[first + 3], GROUP // 2
    for group in range(len(scale)):
        low, high = low_nibbles(weight, row, group * half), high_nibbles(weight, row, group * half)
        by = filled(scale[group])
        a = fma(by, fma(high, load(p, group, half), fma(low, load(p, group, 0), none)), a)
        b = fma(by, fma(high, load(q, group, half), fma(low, load(q, group, 0), none)), b)
        c = fma(by, fma(high, load(r, group, half), fma(low, load(r, group, 0), none)), c)
        d = fma(by, fma(high, load(s, group, half), fma(low, load(s, group, 0), none)), d)
    out[first, row] += total(a)
    out[first + 1, row] += total(b)
    out[first + 2, row] += total(c)
    out[first + 3, row] += total(d)


@inlined
def _steps_once(weight, row, scale, inputs, index, out):
    """The same of one of inputs."""
    found = none = filled(np.float32(0))
    each, half = inputs[index], GROUP // 2
    for group in range(len(scale)):
        low, high = low_nibbles(weight, row, group * half), high_nibbles(weight, row, group * half)
        steps = fma(high, load(each, group, half), fma(low, load(each, group, 0), none))
        found = fma(filled(scale[group]), steps, found)
    out[index, row] += total(found)


@compiled
def _grouped(x, groups):
    """x [n, groups, 32], filled up with zeros, a sixteenth of it where it meets high nibbles; sums of x [n, groups]."""
    inputs, sums = np.zeros((len(x), groups, GROUP), np.float32), np.empty((len(x), groups), np.float32)
    half = GROUP // 2
    for index in range(len(x)):
        each = inputs[index]
        for group in range(groups):
            first, last = group * GROUP, min(x.shape[1], (group + 1) * GROUP)
            for i in range(first, min(first + half, last)):
                each[group, i - first] = x[index, i]
            for i in range(first + half, last):
                each[group, i - first] = x[index, i] / np.float32(16)
            sums[index, group] = total(fma(load(each, group, half), filled(np.float32(16)), load(each, group, 0)))
    return inputs, sums


@compiled
def share(count, member, members):
    """The first and the end of a member's part of `count` things."""
    return count * member // members, count * (member + 1) // members


@entry
def restore(members, w, layer, out):
    """The weights of an Int4 layer into out [out, 32·groups], bfloat16 as uint16 or float32."""
    in_team(members, _restore, (w, layer, out))


@compiled
def _restore(w, layer, out):
    lo, hi = share(out.shape[0], member_number(), team_size())
    half = GROUP // 2
    for row in range(lo, hi):
        for group in range(w.scale.shape[2]):
            scale, offset = wide(w.scale[layer, row, group]), wide(w.offset[layer, row, group])
            weights, restored = w.weight[layer, row], out[row, group * GROUP : (group + 1) * GROUP]
            for i in range(half):
                byte = weights[group * half + i]
                restored[i] = stored(np.float32(byte & 15) * scale + offset, out)
                restored[half + i] = stored(np.float32(byte >> 4) * scale + offset, out)
