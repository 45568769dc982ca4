"""Products of tiles, by the processor's own matrix unit (Intel AMX): eight registers of 16 rows of 64 bytes.

A program must ask the system for the unit once, and each thread must shape the registers before it uses them.
"""

from __future__ import annotations

import ctypes
import platform
import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from backend.inference.kernels.lanes import PAIRED, address, compiled_for

# Rows of a tile, and float32 (or pairs of bfloat16) in a row.
TILE = 16
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
# The table of shapes (Intel's manual of the instruction LDTILECFG): palette, bytes of rows, counts of rows.
_SHAPES = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[TILE] * 8, *[0] * 8])


def _granted() -> bool:
    """Whether the system lets this program use the unit."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0


TILED = PAIRED and compiled_for("amx-tile", "amx-bf16") and _granted()
_WORD, _BYTE = ir.IntType(64), ir.IntType(8)


def _call(builder, name, *arguments):
    kinds = [argument.type for argument in arguments]
    function = ir.FunctionType(ir.VoidType(), kinds)
    builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.x86.{name}"), arguments)


def _place(context, builder, signature, arguments):
    """Address of an element of a stored array [rows, n], and the bytes from a row to the next."""
    kind = signature.args[1]
    made = context.make_array(kind)(context, builder, arguments[1])
    stride = cgutils.unpack_tuple(builder, made.strides, 2)[0]
    return address(context, builder, kind, arguments[1:], _BYTE), stride


@intrinsic
def shape(typing, before):
    """Shape this thread's registers; `before` (uint8 [64]) takes the shapes they had, for `restore`."""

    def generate(context, builder, signature, arguments):
        kept = context.make_array(signature.args[0])(context, builder, arguments[0])
        _call(builder, "sttilecfg", builder.bitcast(kept.data, cgutils.voidptr_t))
        shapes = cgutils.global_constant(builder, "tile_shapes", cgutils.make_bytearray(_SHAPES))
        _call(builder, "ldtilecfg", builder.bitcast(shapes, cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(before), generate


@intrinsic
def restore(typing, before):
    """Give this thread's registers the shapes back that they had."""

    def generate(context, builder, signature, arguments):
        kept = context.make_array(signature.args[0])(context, builder, arguments[0])
        _call(builder, "ldtilecfg", builder.bitcast(kept.data, cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(before), generate


@intrinsic(prefer_literal=True)
def zero(typing, tile):
    """Fill a register with zeros; its number must be a literal, here and below."""
    number = tile.literal_value

    def generate(context, builder, signature, arguments):
        _call(builder, "tilezero", _BYTE(number))
        return context.get_dummy_value()

    return types.void(tile), generate


def _moved(name, tile, array):
    number = tile.literal_value

    def generate(context, builder, signature, arguments):
        _call(builder, name, _BYTE(number), *_place(context, builder, signature, arguments))
        return context.get_dummy_value()

    return types.void(tile, array, types.intp, types.intp), generate


@intrinsic(prefer_literal=True)
def load(typing, tile, array, row, first):
    """Fill a register with elements first … first + 15 of sixteen rows of a float32 array [rows, n]."""
    return _moved("tileloadd64", tile, array)


@intrinsic(prefer_literal=True)
def save(typing, tile, array, row, first):
    """Put a register there."""
    return _moved("tilestored64", tile, array)


@intrinsic(prefer_literal=True)
def dot(typing, sums, a, b):
    """Add to register `sums` (float32) the product of `a` (rows of pairs of bfloat16) and `b` (pairs by rows)."""
    numbers = [tile.literal_value for tile in (sums, a, b)]

    def generate(context, builder, signature, arguments):
        _call(builder, "tdpbf16ps", *map(_BYTE, numbers))
        return context.get_dummy_value()

    return types.void(sums, a, b), generate
