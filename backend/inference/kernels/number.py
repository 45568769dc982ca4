"""Elements as float32: widening of stored types, rounding back, and an exponential that vectorises."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

LOG2E = np.float32(math.log2(math.e))
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(math.log(2) - 0.693359375)
TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(8))
LEAST, MOST = np.float32(-87), np.float32(88)


@intrinsic
def _cast(typing, value, to):
    """The bits of a 32-bit value as another type."""
    target = to.dtype

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(target))

    return target(value, to), generate


def wide(value):
    """A stored element (bfloat16 as uint16, or float32) as float32."""
    raise NotImplementedError


@overload(wide)
def _wide(value):
    if value == types.uint16:
        return lambda value: _cast(np.uint32(np.uint32(value) << 16), np.float32)
    return lambda value: np.float32(value)


def stored(value, array):
    """float32 as an element of the array's type: bfloat16 rounded to nearest, ties to even."""
    raise NotImplementedError


@overload(stored)
def _stored(value, array):
    if array.dtype == types.uint16:

        def rounded(value, array):
            bits = _cast(value, np.uint32)
            return np.uint16(np.uint32(bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)

        return rounded
    return lambda value, array: value


@njit(error_model="numpy")
def exp(x):
    """e^x in float32 to 1e-7, x clipped to the range of normal numbers."""
    x = min(max(x, LEAST), MOST)
    power = np.float32(math.floor(x * LOG2E + np.float32(0.5)))
    rest = (x - power * LN2_HIGH) - power * LN2_LOW
    total = TAYLOR[7]
    for n in (6, 5, 4, 3, 2, 1, 0):
        total = total * rest + TAYLOR[n]
    return total * _cast(np.int32((np.int32(power) + 127) << 23), np.float32)
