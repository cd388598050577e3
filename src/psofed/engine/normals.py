"""The Gaussian source: compiled draws from counter-based words, two normals for each 64-bit word.

Box–Muller in single precision: the upper 32 bits of a word give the radius √(−2 ln u), the lower 32 the
angle πt. Logarithm, sine and cosine are polynomials, so that a loop over lanes becomes vector code; fused
multiply-adds are asked for by name, so the bits are the same wherever it runs. Draws reach 6.76 standard
deviations, where the true distribution has a mass of 1.4e-11 beyond.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from psofed.engine.compiling import compiled
from psofed.engine.streams import _MIX_1, _MIX_2

_f32 = np.float32

# ln(1+f)/f for f from √½−1 to √2−1: Chebyshev fit of degree 8, largest error 3.0e-8.
_LN_0, _LN_1, _LN_2 = _f32(1.0), _f32(-0.49999988079071045), _f32(0.3333418369293213)
_LN_3, _LN_4, _LN_5 = _f32(-0.2500215470790863), _f32(0.19956977665424347), _f32(-0.16560696065425873)
_LN_6, _LN_7, _LN_8 = _f32(0.14949095249176025), _f32(-0.14377330243587494), _f32(0.08743945509195328)
# sin(πt/2)/t and cos(πt/2) in t² for |t| ≤ 1: Chebyshev fits of degree 4, errors 6.7e-9 and 4.7e-8.
_SIN_0, _SIN_1, _SIN_2 = _f32(1.5707963705062866), _f32(-0.6459637880325317), _f32(0.07968991994857788)
_SIN_3, _SIN_4 = _f32(-0.004674150608479977), _f32(0.0001516751217423007)
_COS_0, _COS_1, _COS_2 = _f32(0.9999999403953552), _f32(-1.2336982488632202), _f32(0.2536506950855255)
_COS_3, _COS_4 = _f32(-0.020810570567846298), _f32(0.0008581625297665596)

_ONE, _TWO, _MINUS_TWO, _LN2 = _f32(1), _f32(2), _f32(-2), _f32(np.log(2))
_2_POW_M31, _2_POW_M32, _2_POW_M33 = _f32(2.0**-31), _f32(2.0**-32), _f32(2.0**-33)
_SQRT_HALF_BITS = _f32(2**-0.5).view(np.int32)
_MANTISSA_BITS = np.int32(23)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


@intrinsic
def _bits_of(typing_context, value):
    return types.int32(types.float32), lambda _c, b, _s, args: b.bitcast(args[0], ir.IntType(32))


@intrinsic
def _float_of(typing_context, bits):
    return types.float32(types.int32), lambda _c, b, _s, args: b.bitcast(args[0], ir.FloatType())


@intrinsic
def _fma(typing_context, a, b, c):
    """Return a·b + c rounded once."""
    return types.float32(types.float32, types.float32, types.float32), lambda _c, b, _s, args: b.fma(*args)


@compiled(inline=True)
def mix_word(word):
    """:func:`psofed.engine.streams.mix` for kernels."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@compiled(inline=True)
def split_word(word):
    """Return the upper and the lower half of a word, for :func:`normal_pair`."""
    return np.uint32(word >> _32), np.int32(word)


@compiled(inline=True)
def normal_pair(high, low):
    """Two independent standard normals, float32, from 32 bits for the radius and 32 for the angle."""
    u = _fma(np.float32(high), _2_POW_M32, _2_POW_M33)
    bits = _bits_of(u)
    exponent = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
    f = _float_of(np.int32(bits - np.int32(exponent << _MANTISSA_BITS))) - _ONE
    p = _fma(f, _LN_8, _LN_7)
    p = _fma(f, p, _LN_6)
    p = _fma(f, p, _LN_5)
    p = _fma(f, p, _LN_4)
    p = _fma(f, p, _LN_3)
    p = _fma(f, p, _LN_2)
    p = _fma(f, p, _LN_1)
    p = _fma(f, p, _LN_0)
    radius = np.sqrt(_MINUS_TWO * _fma(np.float32(exponent), _LN2, f * p))

    # Half-angle: sine and cosine of πt/2 need no reduction to quadrants.
    t = np.float32(low) * _2_POW_M31
    q = t * t
    sine = _fma(q, _SIN_4, _SIN_3)
    sine = _fma(q, sine, _SIN_2)
    sine = _fma(q, sine, _SIN_1)
    sine = t * _fma(q, sine, _SIN_0)
    cosine = _fma(q, _COS_4, _COS_3)
    cosine = _fma(q, cosine, _COS_2)
    cosine = _fma(q, cosine, _COS_1)
    cosine = _fma(q, cosine, _COS_0)
    twice = _TWO * radius * sine
    return _fma(-twice, sine, radius), twice * cosine


@compiled(inline=True)
def bounded(word, limit):
    """Return an integer from 0 to limit − 1, uniform to within limit/2³²."""
    return np.int64(((word >> _32) * np.uint64(limit)) >> _32)


@compiled(inline=True)
def unit_uniform(word):
    """Return a float64 in [0, 1), a multiple of 2⁻⁵³."""
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@compiled(inline=True)
def next_normals(lanes, counter, gamma, high, low, out):
    """Fill ``out`` (2·words, lanes) from the words at ``counter`` (lanes,), and move the counter on.

    ``high`` and ``low`` (words, lanes) are room for the halves: with the 64-bit hashing in a loop of its own,
    the 32-bit arithmetic of the other fills twice as many vector lanes.
    """
    for j in range(high.shape[0]):
        for lane in range(lanes):
            word = counter[lane]
            counter[lane] = word + gamma[lane]
            high[j, lane], low[j, lane] = split_word(mix_word(word))
    for j in range(high.shape[0]):
        for lane in range(lanes):
            x, y = normal_pair(high[j, lane], low[j, lane])
            out[2 * j, lane] = x
            out[2 * j + 1, lane] = y


@compiled
def fill_standard_normal(key, gamma, first, out):
    """Fill ``out`` (2·words, lanes) with the normals of words `first`, `first` + 1, … of each lane's stream."""
    for j in range(out.shape[0] // 2):
        for lane in range(out.shape[1]):
            high, low = split_word(mix_word(key[lane] + np.uint64(first + j) * gamma[lane]))
            x, y = normal_pair(high, low)
            out[2 * j, lane] = x
            out[2 * j + 1, lane] = y
