"""Sixteen float32 at once, for loops whose running sums must stay in registers.

LLVM lays them out as the processor can: one, two or four registers.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils, codegen
from numba.extending import intrinsic, models, register_model

LANES = 16
# Of 2^x over −1/2 … 1/2: the polynomial of fourth degree whose largest relative error, 2.6e-6, is least.
POWERS = (0.99999926, 0.69312181, 0.24024745, 0.05591786, 0.0095701)


def compiled_for(*wanted: str) -> bool:
    """Whether code is compiled for a processor that has these: this one, unless numba was set otherwise."""
    features = codegen.get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    named = (config.CPU_NAME or binding.get_host_cpu_name()) != "generic"
    return named and {f"+{feature}" for feature in wanted} <= set(features.split(","))


# Whether the processor multiplies pairs of bfloat16.
PAIRED = compiled_for("avx512bf16")
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


class _Brain(ir.Type):
    """LLVM's bfloat16, which llvmlite has no name for."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _Brain)

    def __hash__(self):
        return hash(_Brain)


_PAIRS = ir.VectorType(_Brain(), 2 * LANES)


class Lanes(types.Type):
    """The type of such a value inside compiled code."""

    def __init__(self):
        super().__init__(name="Lanes")


_KIND = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def address(context, builder, kind, arguments, vector):
    """Of an element of a stored array, inside an intrinsic; arguments: array, row, first."""
    array, row, first = arguments
    made = context.make_array(kind)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, kind, made, [row, first])
    return builder.bitcast(pointer, vector.as_pointer())


@intrinsic
def load(typing, array, row, first):
    """Elements first … first + 15 of a row of a stored array [rows, n], widened: float32, bfloat16 or int8."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        if kind.dtype == types.float32:
            return builder.load(address(context, builder, kind, arguments, _VECTOR), align=4)
        if kind.dtype == types.int8:
            narrow = ir.VectorType(ir.IntType(8), LANES)
            value = builder.load(address(context, builder, kind, arguments, narrow), align=1)
            return builder.sitofp(builder.sext(value, ir.VectorType(ir.IntType(32), LANES)), _VECTOR)
        halves = ir.VectorType(ir.IntType(16), LANES)
        words = ir.VectorType(ir.IntType(32), LANES)
        value = builder.load(address(context, builder, kind, arguments, halves), align=2)
        shift = ir.Constant(words, [16] * LANES)
        return builder.bitcast(builder.shl(builder.zext(value, words), shift), _VECTOR)

    return _KIND(array, types.intp, types.intp), generate


def _masked(array, mask: int):
    def generate(context, builder, signature, arguments):
        narrow = ir.VectorType(ir.IntType(8), LANES)
        value = builder.load(address(context, builder, signature.args[0], arguments, narrow), align=1)
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
        place = address(context, builder, signature.args[0], arguments[:3], _VECTOR)
        builder.store(arguments[3], place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _KIND), generate


@intrinsic
def save_halves(typing, array, row, first, lanes):
    """Put lanes into a row of a uint16 array [rows, n] as bfloat16, rounded to nearest. Only where PAIRED."""

    def generate(context, builder, signature, arguments):
        halves = ir.VectorType(_Brain(), LANES)
        function = ir.FunctionType(halves, [_VECTOR])
        made = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.avx512bf16.cvtneps2bf16.512")
        place = address(context, builder, signature.args[0], arguments[:3], halves)
        builder.store(builder.call(made, [arguments[3]]), place, align=2)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, _KIND), generate


@intrinsic
def power_of_two(typing, lanes):
    """2 to the power of each lane, to 3e-6; 0 for far negative ones. Only where PAIRED."""

    def generate(context, builder, signature, arguments):
        def constant(value):
            return ir.Constant(_VECTOR, [value] * LANES)

        (x,) = arguments
        nearest = ir.FunctionType(_VECTOR, [_VECTOR])
        made = cgutils.get_or_insert_function(builder.module, nearest, f"llvm.roundeven.v{LANES}f32")
        steps = builder.call(made, [x])
        rest, sum_ = builder.fsub(x, steps), constant(POWERS[-1])
        for factor in reversed(POWERS[:-1]):
            sum_ = builder.fadd(builder.fmul(sum_, rest, flags=("contract",)), constant(factor), flags=("contract",))
        mask, rounding = ir.IntType(LANES), ir.IntType(32)
        scaled = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, _VECTOR, mask, rounding])
        made = cgutils.get_or_insert_function(builder.module, scaled, "llvm.x86.avx512.mask.scalef.ps.512")
        return builder.call(made, [sum_, steps, sum_, mask(-1), rounding(4)])

    return _KIND(_KIND), generate


@intrinsic
def filled(typing, value):
    """The same value in all lanes."""

    def generate(context, builder, signature, arguments):
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)

    return _KIND(types.float32), generate


@intrinsic
def times(typing, a, b):
    """a · b, by lane."""
    return _KIND(_KIND, _KIND), lambda context, builder, signature, arguments: builder.fmul(*arguments)


@intrinsic
def plus(typing, a, b):
    """a + b, by lane."""
    return _KIND(_KIND, _KIND), lambda context, builder, signature, arguments: builder.fadd(*arguments)


@intrinsic
def fma(typing, a, b, c):
    """a · b + c, by lane, or of three float32."""
    kind = types.float32 if isinstance(a, types.Float) else _KIND

    def generate(context, builder, signature, arguments):
        product = builder.fmul(*arguments[:2], flags=("contract",))
        return builder.fadd(product, arguments[2], flags=("contract",))

    return kind(kind, kind, kind), generate


@intrinsic
def dot(typing, a, b, c):
    """c + the products of bfloat16 pairs, by lane: each lane of a and b holds two. Only where PAIRED."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(_VECTOR, [_VECTOR, _PAIRS, _PAIRS])
        made = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.avx512bf16.dpbf16ps.512")
        left, right = (builder.bitcast(argument, _PAIRS) for argument in arguments[:2])
        return builder.call(made, [arguments[2], left, right])

    return _KIND(_KIND, _KIND, _KIND), generate


@intrinsic
def any_above(typing, a, b):
    """Whether a is larger than b in any lane."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(LANES)
        return builder.icmp_unsigned("!=", builder.bitcast(builder.fcmp_ordered(">", *arguments), word), word(0))

    return types.boolean(_KIND, _KIND), generate


@intrinsic
def larger(typing, a, b):
    """The larger of two, by lane; none may be NaN."""

    def generate(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _KIND(_KIND, _KIND), generate


def _folded(builder, value, join):
    """One number of sixteen lanes, by halves; join: of two vectors."""
    width = LANES
    while width > 1:
        width //= 2
        index = ir.VectorType(ir.IntType(32), width)
        halves = (ir.Constant(index, list(range(at, at + width))) for at in (0, width))
        value = join(*(builder.shuffle_vector(value, value, half) for half in halves))
    return builder.extract_element(value, ir.IntType(32)(0))


@intrinsic
def largest(typing, lanes):
    """The largest of sixteen lanes."""

    def generate(context, builder, signature, arguments):
        return _folded(builder, arguments[0], lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))

    return types.float32(_KIND), generate


@intrinsic
def total(typing, lanes):
    """The sum of sixteen lanes, by halves."""

    def generate(context, builder, signature, arguments):
        return _folded(builder, arguments[0], builder.fadd)

    return types.float32(_KIND), generate


@intrinsic
def prefetch(typing, array, row, first):
    """Ask for the cache line of an element [row, first], which may lie beyond the array."""

    def generate(context, builder, signature, arguments):
        kind, pointer, number = signature.args[0], cgutils.voidptr_t, ir.IntType(32)
        line = address(context, builder, kind, arguments, ir.IntType(8))
        function = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
        builder.call(ask, [builder.bitcast(line, pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate
