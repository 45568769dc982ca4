"""Sixteen float32 at once, for loops whose running sums must stay in registers.

LLVM lays them out as the processor can: one, two or four registers.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


class Lanes(types.Type):
    """The type of such a value inside compiled code."""

    def __init__(self):
        super().__init__(name="Lanes")


_KIND = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _address(context, builder, kind, arguments, vector):
    array, row, first = arguments
    made = context.make_array(kind)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, kind, made, [row, first])
    return builder.bitcast(pointer, vector.as_pointer())


@intrinsic
def load(typing, array, row, first):
    """Elements first … first + 15 of a row of a stored array [rows, n], widened."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        if kind.dtype == types.float32:
            return builder.load(_address(context, builder, kind, arguments, _VECTOR), align=4)
        halves = ir.VectorType(ir.IntType(16), LANES)
        words = ir.VectorType(ir.IntType(32), LANES)
        value = builder.load(_address(context, builder, kind, arguments, halves), align=2)
        shift = ir.Constant(words, [16] * LANES)
        return builder.bitcast(builder.shl(builder.zext(value, words), shift), _VECTOR)

    return _KIND(array, types.intp, types.intp), generate


def _masked(array, mask: int):
    def generate(context, builder, signature, arguments):
        narrow = ir.VectorType(ir.IntType(8), LANES)
        value = builder.load(_address(context, builder, signature.args[0], arguments, narrow), align=1)
        value = builder.and_(value, ir.Constant(narrow, [mask] * LANES))
        return builder.sitofp(builder.zext(value, ir.VectorType(ir.IntType(32), LANES)), _VECTOR)

    return _KIND(array, types.intp, types.intp), generate


@intrinsic
def low_nibbles(typing, array, row, first):
    """The low halves of bytes first … first + 15 of a row of a uint8 array [rows, n]."""
    return _masked(array, 0x0F)


@intrinsic
def high_nibbles(typing, array, row, first):
    """Likewise their high halves, times 16: where they stand."""
    return _masked(array, 0xF0)


@intrinsic
def save(typing, array, row, first, lanes):
    """Put lanes into a row of a float32 array [rows, n] from `first` on."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], arguments[:3], _VECTOR)
        builder.store(arguments[3], address, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _KIND), generate


@intrinsic
def filled(typing, value):
    """The same value in all lanes."""

    def generate(context, builder, signature, arguments):
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)

    return _KIND(types.float32), generate


@intrinsic
def fma(typing, a, b, c):
    """a · b + c, by lane."""

    def generate(context, builder, signature, arguments):
        product = builder.fmul(*arguments[:2], flags=("contract",))
        return builder.fadd(product, arguments[2], flags=("contract",))

    return _KIND(_KIND, _KIND, _KIND), generate


@intrinsic
def total(typing, lanes):
    """The sum of sixteen lanes, by halves."""

    def generate(context, builder, signature, arguments):
        value, width = arguments[0], LANES
        while width > 1:
            width //= 2
            index = ir.VectorType(ir.IntType(32), width)
            halves = (ir.Constant(index, list(range(at, at + width))) for at in (0, width))
            value = builder.fadd(*(builder.shuffle_vector(value, value, half) for half in halves))
        return builder.extract_element(value, ir.IntType(32)(0))

    return types.float32(_KIND), generate


@intrinsic
def prefetch(typing, array, row, first):
    """Ask for the cache line of an element [row, first], which may lie beyond the array."""

    def generate(context, builder, signature, arguments):
        kind, pointer, number = signature.args[0], cgutils.voidptr_t, ir.IntType(32)
        line = _address(context, builder, kind, arguments, ir.IntType(8))
        function = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
        builder.call(ask, [builder.bitcast(line, pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate
