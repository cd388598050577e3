"""Teaches Numba the words of :mod:`psofed.parts.vectors`: loops that sum in order and need no memory of their own.

All are inlined, so that where the number of entries is known (one, mostly) their loops over entries vanish. Random
numbers cannot be foreseen, so what looks for low ones does so without branching on them.
"""

import math

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, overload, register_jitable
from numba.np.arrayobj import populate_array

from psofed.parts import vectors

# Up to so many values, bringing the lowest to the front one by one beats sorting.
_FEW = 24

_INLINED = {"forceinline": True}


def _word(meaning):
    """Teach Numba a word."""
    return overload(meaning, jit_options=_INLINED)


# A slice would look where the numbers end and forget a length of 1. Without counting references no overload may return
# an array that it was not given, so this one is no overload.
@infer_global(vectors.part_of)
class _PartOf(AbstractTemplate):
    def generic(self, args, keywords):
        numbers, start, shape = args
        lengths = types.UniTuple(types.intp, shape.count)
        return signature(types.Array(numbers.dtype, shape.count, "C"), numbers, types.intp, lengths)


@lower_builtin(vectors.part_of, types.Array, types.Integer, types.BaseTuple)
def _part_of(context, builder, sig, args):
    numbers = context.make_array(sig.args[0])(context, builder, args[0])
    part = context.make_array(sig.return_type)(context, builder)
    element = context.get_data_type(sig.return_type.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(element))
    lengths, strides, step = cgutils.unpack_tuple(builder, args[2]), [], size
    for length in reversed(lengths):
        strides.insert(0, step)
        step = builder.mul(step, length)
    data = cgutils.gep_inbounds(builder, numbers.data, args[1])
    populate_array(part, data, lengths, strides, size, None, None)
    return part._getvalue()


@_word(vectors.squared_distance)
def _squared_distance(first, second):
    def body(first, second):
        total = 0.0
        for i in range(first.size):
            difference = first[i] - second[i]
            total += difference * difference
        return total

    return body


@_word(vectors.distance)
def _distance(first, second):
    def body(first, second):
        if first.size == 1:
            return abs(first[0] - second[0])
        return math.sqrt(vectors.squared_distance(first, second))

    return body


@_word(vectors.length)
def _length(vector):
    def body(vector):
        if vector.size == 1:
            return abs(vector[0])
        total = 0.0
        for i in range(vector.size):
            total += vector[i] * vector[i]
        return math.sqrt(total)

    return body


@_word(vectors.inner)
def _inner(first, second):
    def body(first, second):
        total = 0.0
        for i in range(first.size):
            total += first[i] * second[i]
        return total

    return body


@_word(vectors.add_scaled)
def _add_scaled(factor, vector, out):
    def body(factor, vector, out):
        for i in range(out.size):
            out[i] += factor * vector[i]

    return body


@_word(vectors.scale)
def _scale(factor, out):
    def body(factor, out):
        for i in range(out.size):
            out[i] *= factor

    return body


@_word(vectors.clear)
def _clear(out):
    def body(out):
        for i in range(out.size):
            out[i] = 0.0

    return body


@_word(vectors.keep_where)
def _keep_where(vector, mask, out):
    def body(vector, mask, out):
        for i in range(out.size):
            out[i] = vector[i] if mask[i] else 0.0

    return body


@_word(vectors.middle)
def _middle(values):
    def body(values):
        half = values.size // 2
        _bring_lowest(values, half + 1)
        return values[half] if values.size % 2 else 0.5 * (values[half - 1] + values[half])

    return body


@_word(vectors.middle_of_each)
def _middle_of_each(changes, room, out):
    def body(changes, room, out):
        count = changes.shape[0]
        for i in range(out.size):
            for p in range(count):
                room[p] = changes[p, i]
            out[i] = vectors.middle(room)

    return body


@_word(vectors.sum_of_lowest)
def _sum_of_lowest(values, count):
    def body(values, count):
        _bring_lowest(values, count)
        total = 0.0
        for j in range(count):
            total += values[j]
        return total

    return body


@_word(vectors.mean_of_inner)
def _mean_of_inner(values, cut):
    def body(values, cut):
        _bring_lowest(values, values.size - cut)
        total = 0.0
        for j in range(cut, values.size - cut):
            total += values[j]
        return total / (values.size - 2 * cut)

    return body


@_word(vectors.ranks)
def _ranks(first, second, out):
    def body(first, second, out):
        size, total = out.size, 0.0
        for p in range(size):
            rank = 0.0
            for other in range(size):
                rank += 1.0 if first[other] < first[p] else 0.0
            out[p] = rank
            total += rank
        if total != 0.5 * size * (size - 1):
            # Some are equal, which is rare.
            for p in range(size):
                for other in range(size):
                    if first[other] == first[p] and (
                        second[other] < second[p] or (second[other] == second[p] and other < p)
                    ):
                        out[p] += 1.0

    return body


@register_jitable(**_INLINED)
def _bring_lowest(out, count):
    """Bring the `count` lowest values to the front, in order."""
    if out.size <= 8:
        _sort_eight(out)
    elif out.size > _FEW:
        _sort(out)
    else:
        for j in range(count):
            low, others = out[j], vectors.part_of(out, j + 1, (out.size - j - 1,))
            for i in range(others.size):
                value = others[i]
                others[i] = max(low, value)
                low = min(low, value)
            out[j] = low


@register_jitable
def _sort_eight(out):
    """Sort up to eight values in place, in the machine's registers."""
    size = out.size
    if size < 2:
        return
    a, b, c, d, e, f, g, h = out[0], out[1], math.inf, math.inf, math.inf, math.inf, math.inf, math.inf
    if size > 2:
        c = out[2]
    if size > 3:
        d = out[3]
    if size > 4:
        e = out[4]
    if size > 5:
        f = out[5]
    if size > 6:
        g = out[6]
    if size > 7:
        h = out[7]
    a, c, b, d = min(a, c), max(a, c), min(b, d), max(b, d)
    e, g, f, h = min(e, g), max(e, g), min(f, h), max(f, h)
    a, e, b, f = min(a, e), max(a, e), min(b, f), max(b, f)
    c, g, d, h = min(c, g), max(c, g), min(d, h), max(d, h)
    a, b, c, d = min(a, b), max(a, b), min(c, d), max(c, d)
    e, f, g, h = min(e, f), max(e, f), min(g, h), max(g, h)
    c, e, d, f = min(c, e), max(c, e), min(d, f), max(d, f)
    b, e, d, g = min(b, e), max(b, e), min(d, g), max(d, g)
    b, c, d, e, f, g = min(b, c), max(b, c), min(d, e), max(d, e), min(f, g), max(f, g)
    out[0], out[1] = a, b
    if size > 2:
        out[2] = c
    if size > 3:
        out[3] = d
    if size > 4:
        out[4] = e
    if size > 5:
        out[5] = f
    if size > 6:
        out[6] = g
    if size > 7:
        out[7] = h


@register_jitable
def _sort(out):
    """Sort in place (Shell's method: short to compile, no memory)."""
    gap = 1
    while gap < out.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, out.size):
            value, j = out[i], i
            while j >= gap and out[j - gap] > value:
                out[j] = out[j - gap]
                j -= gap
            out[j] = value
        gap //= 3
