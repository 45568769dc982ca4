"""What lies between the products of many rows, norm and gate, each element read once and written once.

Roundings are those of transformers' modules: a norm is cast before it is weighted, a gate before it multiplies.
"""

from __future__ import annotations

import math

import numpy as np

from backend.inference.kernels.compiled import compiled, entry
from backend.inference.kernels.number import exp, stored, wide
from backend.inference.kernels.product import share
from backend.inference.kernels.team import in_team, member_number, team_size

ONE = np.float32(1)


@entry
def normed(members, x, weight, epsilon, out):
    """RMS norm of x [n, d], weighted by weight [d], into out [n, d]; bfloat16 as uint16, or float32."""
    in_team(members, _normed, (x, weight, epsilon, out))


@entry
def gated(members, both, out):
    """silu(gate) · up of both [n, 2m], gates first, into out [n, m]; bfloat16 as uint16, or float32."""
    in_team(members, _gated, (both, out))


@compiled
def rms(x, weight, epsilon, out):
    """RMS norm of one row in float32."""
    square = np.float32(0)
    for i in range(len(x)):
        square += x[i] * x[i]
    factor = ONE / np.sqrt(square / np.float32(len(x)) + epsilon)
    for i in range(len(x)):
        out[i] = x[i] * factor * weight[i]


@compiled
def _normed(x, weight, epsilon, out):
    lo, hi = share(x.shape[0], member_number(), team_size())
    for row in range(lo, hi):
        source, target = x[row], out[row]
        total = np.float32(0)
        for i in range(len(source)):
            value = wide(source[i])
            total += value * value
        by = ONE / np.float32(math.sqrt(total / np.float32(len(source)) + epsilon))
        for i in range(len(source)):
            target[i] = stored(wide(stored(wide(source[i]) * by, out)) * wide(weight[i]), out)


@compiled
def _gated(both, out):
    lo, hi = share(both.shape[0], member_number(), team_size())
    half = out.shape[1]
    for row in range(lo, hi):
        gate, up, target = both[row, :half], both[row, half:], out[row]
        for i in range(half):
            value = wide(gate[i])
            target[i] = stored(wide(stored(value / (ONE + exp(-value)), out)) * wide(up[i]), out)
