"""Vectors of lanes for kernels: one number of each of WIDTH trials, in the machine's vector registers.

LLVM makes vector code of a loop over lanes only if it likes the loop; a vector asked for by name it always does,
and splits it into registers as wide as the machine has. Every operation is that of a single lane and rounds as
IEEE 754 says, so a lane's bits do not depend on those beside it. Operations take numbers as well as vectors: one
source serves both.

Arrays hold lanes on their last axis and are addressed flat: entry (i, lane) of an array (D, lanes) is
``i * lanes + lane``.
"""

import math
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from psofed.engine.compiling import instruction

# Lanes in a vector; the lanes of a run are a multiple of it. More than a register holds: the machine works on several
# registers at a time, and with 16 lanes it has enough to do while the long polynomials of a normal wait for each other
# (a client update with 5 entries: 9.5 ns with 8 lanes, 7.2 with 16, 6.1 with 32, which would leave more lanes idle).
WIDTH = 16

# A vector of lanes or a single number; Numba alone knows which.
Vector = Any


# Vectors that begin on this boundary never straddle two cache lines.
_ALIGNMENT = 64


def empty_lanes(*shape: int, dtype: Any = np.float64) -> Any:
    """Return an array whose vectors are aligned, which saves 5–10 % of the time of an LMS step."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class Lanes(types.Type):
    """The type of a vector with elements of a given type."""

    def __init__(self, element: types.Type) -> None:
        self.element = element
        super().__init__(name=f"Lanes({element})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        element = manager.lookup(lanes.element).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, WIDTH))


def _like(shape, element):
    """Return the type `element` has where `shape` is a vector or a number."""
    return Lanes(element) if isinstance(shape, Lanes) else element


def _element(kind):
    return kind.element if isinstance(kind, Lanes) else kind


def _spread(context, builder, value, kind, wanted):
    """Return a number or vector as a vector of the `wanted` type."""
    if isinstance(kind, Lanes) or not isinstance(wanted, Lanes):
        return context.cast(builder, value, kind, wanted) if kind != wanted else value
    value = context.cast(builder, value, kind, wanted.element)
    vector = ir.VectorType(value.type, WIDTH)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), zeros)


_OPERATIONS = {
    operator.add: ("fadd", "add"),
    operator.sub: ("fsub", "sub"),
    operator.mul: ("fmul", "mul"),
    operator.xor: (None, "xor"),
    operator.rshift: (None, "lshr"),
}


class _Arithmetic(AbstractTemplate):
    def generic(self, args, keywords):
        vectors = [arg for arg in args if isinstance(arg, Lanes)]
        return signature(vectors[0], *args) if vectors and len(args) == 2 else None


def _define(symbol, names):
    infer_global(symbol)(type(f"_Arithmetic_{symbol.__name__}", (_Arithmetic,), {"key": symbol}))

    def emit(context, builder, sig, args):
        both = [_spread(context, builder, a, t, sig.return_type) for a, t in zip(args, sig.args, strict=True)]
        return getattr(builder, names[isinstance(sig.return_type.element, types.Integer)])(*both)

    for kinds in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(symbol, *kinds)(emit)


for _symbol, _names in _OPERATIONS.items():
    _define(_symbol, _names)


@instruction
def load(typing_context, array, index):
    """Return the vector that begins at a flat index of an array."""

    def emit(context, builder, sig, args):
        return builder.load(_pointer(context, builder, sig, args), align=_alignment(context, sig))

    return Lanes(array.dtype)(array, types.intp), emit


@instruction
def store(typing_context, array, index, vector):
    """Write a vector into an array, from a flat index on."""

    def emit(context, builder, sig, args):
        builder.store(args[2], _pointer(context, builder, sig, args), align=_alignment(context, sig))
        return context.get_dummy_value()

    return types.void(array, types.intp, Lanes(array.dtype)), emit


def _pointer(context, builder, sig, args):
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    start = builder.gep(data, [args[1]], inbounds=True)
    element = context.get_data_type(sig.args[0].dtype)
    return builder.bitcast(start, ir.VectorType(element, WIDTH).as_pointer())


def _alignment(context, sig):
    return context.get_abi_sizeof(context.get_data_type(sig.args[0].dtype))


def _call_llvm(builder, name, values):
    kind = values[0].type
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    suffix = "f32" if isinstance(element, ir.FloatType) else "f64"
    if kind is not element:
        suffix = f"v{WIDTH}{suffix}"
    function = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(
        cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}"), values
    )


@instruction
def fma(typing_context, a, b, c):
    """Return a·b + c rounded once."""
    kinds = [a, b, c]
    result = next((kind for kind in kinds if isinstance(kind, Lanes)), c)

    def emit(context, builder, sig, args):
        values = [_spread(context, builder, v, t, result) for v, t in zip(args, sig.args, strict=True)]
        return _call_llvm(builder, "fma", values)

    return result(*kinds), emit


@instruction
def square_root(typing_context, x):
    """Return √x."""
    return x(x), lambda c, b, s, args: _call_llvm(b, "sqrt", args)


@instruction
def bits_of(typing_context, x):
    """Return the bits of a float32 as int32."""
    result = _like(x, types.int32)
    return result(x), lambda c, b, s, args: b.bitcast(args[0], c.get_value_type(result))


@instruction
def float_of(typing_context, bits):
    """Return the float32 that has the bits of an int32."""
    result = _like(bits, types.float32)
    return result(bits), lambda c, b, s, args: b.bitcast(args[0], c.get_value_type(result))


@instruction
def to_float32(typing_context, x):
    """Return an integer as float32."""
    result = _like(x, types.float32)

    def emit(context, builder, sig, args):
        convert = builder.sitofp if _element(x).signed else builder.uitofp
        return convert(args[0], context.get_value_type(result))

    return result(x), emit


@instruction
def to_float64(typing_context, x):
    """Return a float32 or an integer below 2⁶³ as float64; a float64 as it is."""
    result = _like(x, types.float64)

    def emit(context, builder, sig, args):
        if result == x:
            return args[0]
        # Integers stay below 2⁶³, where the conversion of signed ones is the faster one.
        convert = builder.sitofp if isinstance(_element(x), types.Integer) else builder.fpext
        return convert(args[0], context.get_value_type(result))

    return result(x), emit


@instruction
def subtract_bits(typing_context, a, b):
    """Return a − b of int32, modulo 2³²."""
    result = _like(a, types.int32)

    def emit(context, builder, sig, args):
        return builder.sub(
            *(_spread(context, builder, v, t, result) for v, t in zip(args, sig.args, strict=True))
        )

    return result(a, b), emit


@instruction
def exponent_of(typing_context, bits):
    """Return the exponent of a float32's bits, rounding down."""

    def emit(context, builder, sig, args):
        shift = _spread(context, builder, ir.Constant(ir.IntType(32), 23), types.int32, bits)
        return builder.ashr(args[0], shift)

    return bits(bits), emit


@instruction
def exponent_bits(typing_context, exponent):
    """Return the difference in bits of two float32 numbers whose ratio is a power of two."""

    def emit(context, builder, sig, args):
        shift = _spread(context, builder, ir.Constant(ir.IntType(32), 23), types.int32, exponent)
        return builder.shl(args[0], shift)

    return exponent(exponent), emit


@instruction
def halves(typing_context, word):
    """Return the upper half of a 64-bit word as uint32 and the lower as int32."""
    high, low = _like(word, types.uint32), _like(word, types.int32)

    def emit(context, builder, sig, args):
        shift = _spread(context, builder, ir.Constant(ir.IntType(64), 32), types.uint64, word)
        parts = [
            builder.trunc(builder.lshr(args[0], shift), context.get_value_type(high)),
            builder.trunc(args[0], context.get_value_type(low)),
        ]
        return cgutils.pack_struct(builder, parts)

    return types.Tuple((high, low))(word), emit


@instruction
def spread(typing_context, x):
    """Return a vector with the same number in all lanes."""
    result = Lanes(x)
    return result(x), lambda c, b, s, args: _spread(c, b, args[0], x, result)


@instruction
def pick_if_equal(typing_context, a, b, yes, no):
    """Return `yes` in the lanes where two integers are equal, `no` in the others."""

    def emit(context, builder, sig, args):
        return builder.select(builder.icmp_unsigned("==", args[0], args[1]), args[2], args[3])

    return yes(a, b, yes, no), emit
