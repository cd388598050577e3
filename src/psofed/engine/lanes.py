"""Vectors of sixteen numbers for the step, in the machine's vector registers, written in LLVM IR.

LLVM makes vector code of a loop only if it likes the loop; a vector asked for by name it always does. Every operation
is that of a single number and rounds as IEEE 754 says. Functions that use these operations take a number or a vector.
"""

import math
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, overload, register_model

from psofed.engine.compiling import instruction

# More than a register holds: the machine works on several registers at a time, and with 16 lanes it has enough to do
# while the long polynomials of a normal wait for each other.
WIDTH = 16

# Vectors that begin on this boundary never straddle two cache lines.
_ALIGNMENT = 64

# A vector or a single number; Numba alone knows which.
Vector = Any


def empty_lanes(*shape: int, dtype: Any = np.float64) -> Any:
    """Return an array whose vectors are aligned, which saves 5–10 % of the time of a step."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def filled(value: Any, *shape: int, dtype: Any = np.float64) -> Any:
    """Return an array of a value whose vectors are aligned."""
    out = empty_lanes(*shape, dtype=dtype)
    out[:] = value
    return out


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


def _element(kind):
    return kind.element if isinstance(kind, Lanes) else kind


def _like(kind, element):
    return Lanes(element) if isinstance(kind, Lanes) else element


def _as(context, builder, value, kind, wanted):
    """Return a number or vector as `wanted`; a number is repeated."""
    if isinstance(kind, Lanes) or not isinstance(wanted, Lanes):
        return value if kind == wanted else context.cast(builder, value, kind, wanted)
    value = context.cast(builder, value, kind, wanted.element)
    vector = ir.VectorType(value.type, WIDTH)
    undefined, index = ir.Constant(vector, ir.Undefined), ir.IntType(32)
    one = builder.insert_element(undefined, value, ir.Constant(index, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(index, WIDTH), [0] * WIDTH))


def _define(symbol, of_floats, of_signed, of_unsigned):
    @instruction
    def operate(typing_context, a, b):
        result = a if isinstance(a, Lanes) else b
        element: Any = result.element
        name = of_floats if isinstance(element, types.Float) else of_signed if element.signed else of_unsigned

        def emit(context, builder, sig, args):
            values = (_as(context, builder, v, t, result) for v, t in zip(args, sig.args, strict=True))
            return getattr(builder, name)(*values)

        return result(a, b), emit

    @overload(symbol, inline="always")
    def _of_lanes(a, b):
        if isinstance(a, Lanes) or isinstance(b, Lanes):
            return lambda a, b: operate(a, b)
        return None


for _names in (
    (operator.add, "fadd", "add", "add"),
    (operator.sub, "fsub", "sub", "sub"),
    (operator.mul, "fmul", "mul", "mul"),
    (operator.xor, None, "xor", "xor"),
    (operator.lshift, None, "shl", "shl"),
    (operator.rshift, None, "ashr", "lshr"),
):
    _define(*_names)


def _pointer(context, builder, sig, args):
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    start = builder.gep(data, [args[1]], inbounds=True)
    return builder.bitcast(start, ir.VectorType(start.type.pointee, WIDTH).as_pointer())


@instruction
def load(typing_context, array, index):
    """Return the vector that begins at a flat index of a contiguous array."""

    def emit(context, builder, sig, args):
        return builder.load(_pointer(context, builder, sig, args), align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), emit


@instruction
def store(typing_context, array, index, vector):
    """Write a vector, from a flat index of a contiguous array on."""

    def emit(context, builder, sig, args):
        builder.store(args[2], _pointer(context, builder, sig, args), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), emit


@instruction
def spread(typing_context, x):
    """Return a vector with the same number in all lanes."""
    return Lanes(x)(x), lambda c, b, sig, args: _as(c, b, args[0], x, Lanes(x))


def _call_llvm(builder, name, values):
    kind = values[0].type
    element = "f32" if isinstance(getattr(kind, "element", kind), ir.FloatType) else "f64"
    name = f"llvm.{name}.{f'v{WIDTH}' if isinstance(kind, ir.VectorType) else ''}{element}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(kind, [kind] * len(values)), name)
    return builder.call(function, values)


@instruction
def fma(typing_context, x, y, z):
    """Return x·y + z, rounded once."""
    result = next((kind for kind in (x, y, z) if isinstance(kind, Lanes)), z)

    def emit(context, builder, sig, args):
        values = [_as(context, builder, v, t, result) for v, t in zip(args, sig.args, strict=True)]
        return _call_llvm(builder, "fma", values)

    return result(x, y, z), emit


def polynomial(*coefficients):
    """Return a function that evaluates Σ_i c_i xⁱ by Horner's rule, with one rounding in each step."""

    @instruction
    def evaluate(typing_context, x):
        def emit(context, builder, sig, args):
            constants = [context.get_constant_generic(builder, _element(x), c) for c in coefficients]
            terms = [_as(context, builder, c, _element(x), x) for c in constants]
            total = terms.pop()
            while terms:
                total = _call_llvm(builder, "fma", [args[0], total, terms.pop()])
            return total

        return x(x), emit

    return evaluate


@instruction
def square_root(typing_context, x):
    """Return √x."""
    return x(x), lambda c, b, sig, args: _call_llvm(b, "sqrt", args)


@instruction
def convert(typing_context, x, kind):
    """Return the numbers as another type; integers that become floats are below 2⁶³."""
    old, new = _element(x), kind.instance_type
    result = _like(x, new)
    if old == new:
        name = None
    elif isinstance(new, types.Float) and isinstance(old, types.Float):
        name = "fpext"
    elif isinstance(new, types.Float):
        name = "sitofp" if old.signed or old.bitwidth == 64 else "uitofp"
    else:
        name = "trunc" if old.bitwidth > new.bitwidth else "bitcast"

    def emit(context, builder, sig, args):
        return getattr(builder, name)(args[0], context.get_value_type(result)) if name else args[0]

    return result(x, kind), emit


@instruction
def view_bits(typing_context, x, kind):
    """Return the bits as another type."""
    result = _like(x, kind.instance_type)
    return result(x, kind), lambda c, b, sig, args: b.bitcast(args[0], c.get_value_type(result))


@instruction
def pick(typing_context, condition, yes, no):
    """Return `yes` in the lanes where the condition, an integer, is not 0, and `no` in the others."""

    def emit(context, builder, sig, args):
        is_set = builder.icmp_unsigned("!=", args[0], ir.Constant(args[0].type, None))
        return builder.select(is_set, args[1], args[2])

    return yes(condition, yes, no), emit
