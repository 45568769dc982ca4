"""Products of stored weights and one vector: whole rows for each member of a team.

The weights of all layers lie in one array. `multiply` knows each way of storing them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from backend.kernels.compiled import OPTIONS, compiled, entry
from backend.kernels.lanes import filled, fma, high_nibbles, load, low_nibbles, total
from backend.kernels.number import stored, wide
from backend.kernels.team import in_team, member_number, team_size

GROUP = 32


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
    """Products of rows lo ≤ row < hi of a layer's weights and x [in], plus bias, into the same places of out."""
    raise NotImplementedError


@overload(multiply, jit_options=OPTIONS)
def _multiply(w, layer, lo, hi, x, out):
    return {Plain: _plain, Int8: _int8, Int4: _int4}[w.instance_class]


def _plain(w, layer, lo, hi, x, out):
    for row in range(lo, hi):
        out[row] = _sum(w.weight[layer, row], x) + w.bias[layer, row]


def _int8(w, layer, lo, hi, x, out):
    for row in range(lo, hi):
        out[row] = _sum(w.weight[layer, row], x) * w.scale[layer, row] + w.bias[layer, row]


def _int4(w, layer, lo, hi, x, out):
    groups = w.scale.shape[2]
    inputs, sums = _grouped(x, groups)
    scale, weight = np.empty(groups, np.float32), w.weight[layer]
    for row in range(lo, hi):
        for group in range(groups):
            scale[group] = wide(w.scale[layer, row, group])
        found = filled(np.float32(0))
        for group in range(groups):
            byte = group * GROUP // 2
            steps = fma(low_nibbles(weight, row, byte), load(inputs, group, 0), filled(np.float32(0)))
            steps = fma(high_nibbles(weight, row, byte), load(inputs, group, GROUP // 2), steps)
            found = fma(filled(scale[group]), steps, found)
        out[row] = total(found) + _sum(w.offset[layer, row], sums) + w.bias[layer, row]


@compiled
def _sum(weights, x):
    found = np.float32(0)
    for i in range(len(x)):
        found += wide(weights[i]) * x[i]
    return found


@compiled
def _grouped(x, groups):
    """x [groups, 32], filled up with zeros, a sixteenth of it where it meets high nibbles; and sums of x [groups]."""
    inputs, sums = np.zeros((groups, GROUP), np.float32), np.zeros(groups, np.float32)
    for group in range(groups):
        first = group * GROUP
        for i in range(first, min(len(x), first + GROUP)):
            inputs[group, i - first] = x[i] if i - first < GROUP // 2 else x[i] / np.float32(16)
            sums[group] += x[i]
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
