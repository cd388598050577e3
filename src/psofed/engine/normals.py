"""The Gaussian source: compiled draws from counter-based words, two normals for each 64-bit word.

Box–Muller in single precision: the upper 32 bits of a word give the radius √(−2 ln u), the lower 32 the
angle πt. Logarithm, sine and cosine are polynomials, so that they are computed for many lanes at once; fused
multiply-adds are asked for by name, so the bits are the same wherever it runs. Draws reach 6.76 standard
deviations, where the true distribution has a mass of 1.4e-11 beyond.

Functions that are inlined take a number, or a vector of lanes (:mod:`psofed.engine.lanes`).
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.lanes import (
    WIDTH,
    Vector,
    bits_of,
    exponent_bits,
    exponent_of,
    float_of,
    fma,
    halves,
    load,
    square_root,
    store,
    subtract_bits,
    to_float32,
    to_float64,
)
from psofed.engine.streams import _MIX_1, _MIX_2, WordArray

_f32 = np.float32

# −2 ln(1+f)/f for f from √½−1 to √2−1: Chebyshev fit of degree 8, largest error 6.0e-8.
_LN_0, _LN_1, _LN_2 = _f32(-2.0), _f32(0.9999997615814209), _f32(-0.6666836738586426)
_LN_3, _LN_4, _LN_5 = _f32(0.5000430941581726), _f32(-0.39913955330848694), _f32(0.33121392130851746)
_LN_6, _LN_7, _LN_8 = _f32(-0.2989819049835205), _f32(0.2875466048717499), _f32(-0.17487891018390656)
# sin(πt/2)/t and cos(πt/2) in t² for |t| ≤ 1: Chebyshev fits of degree 4, errors 6.7e-9 and 4.7e-8.
_SIN_0, _SIN_1, _SIN_2 = _f32(1.5707963705062866), _f32(-0.6459637880325317), _f32(0.07968991994857788)
_SIN_3, _SIN_4 = _f32(-0.004674150608479977), _f32(0.0001516751217423007)
_COS_0, _COS_1, _COS_2 = _f32(0.9999999403953552), _f32(-1.2336982488632202), _f32(0.2536506950855255)
_COS_3, _COS_4 = _f32(-0.020810570567846298), _f32(0.0008581625297665596)

_ONE, _MINUS_ONE, _TWO, _MINUS_2_LN2 = _f32(1), _f32(-1), _f32(2), _f32(-2) * _f32(np.log(2))
_2_POW_M31, _2_POW_M32, _2_POW_M33 = _f32(2.0**-31), _f32(2.0**-32), _f32(2.0**-33)
_SQRT_HALF_BITS = _f32(2**-0.5).view(np.int32)
_11, _27, _30, _31, _32 = (np.uint64(bits) for bits in (11, 27, 30, 31, 32))

# Words that are hashed ahead of the normals made of them.
WORDS_AHEAD = 8


@kernel_part(inline=True)
def mix_word(word: Vector) -> Vector:
    """:func:`psofed.engine.streams.mix` for kernels."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@kernel_part(inline=True)
def normal_pair(word: Vector) -> tuple[Vector, Vector]:
    """Two independent standard normals, float32, from a hashed word."""
    high, low = halves(word)
    bits = bits_of(fma(to_float32(high), _2_POW_M32, _2_POW_M33))
    exponent = exponent_of(subtract_bits(bits, _SQRT_HALF_BITS))
    f = float_of(subtract_bits(bits, exponent_bits(exponent))) - _ONE
    p = fma(f, _LN_8, _LN_7)
    p = fma(f, p, _LN_6)
    p = fma(f, p, _LN_5)
    p = fma(f, p, _LN_4)
    p = fma(f, p, _LN_3)
    p = fma(f, p, _LN_2)
    p = fma(f, p, _LN_1)
    p = fma(f, p, _LN_0)
    radius = square_root(fma(to_float32(exponent), _MINUS_2_LN2, f * p))

    # Half-angle: sine and cosine of πt/2 need no reduction to quadrants.
    t = to_float32(low) * _2_POW_M31
    q = t * t
    sine = fma(q, _SIN_4, _SIN_3)
    sine = fma(q, sine, _SIN_2)
    sine = fma(q, sine, _SIN_1)
    sine = t * fma(q, sine, _SIN_0)
    cosine = fma(q, _COS_4, _COS_3)
    cosine = fma(q, cosine, _COS_2)
    cosine = fma(q, cosine, _COS_1)
    cosine = fma(q, cosine, _COS_0)
    twice = radius * (_TWO * sine)
    return fma(twice, _MINUS_ONE * sine, radius), twice * cosine


@kernel_part(inline=True)
def normals_at(key: np.uint64, gamma: np.uint64, number: int) -> tuple[Vector, Vector]:
    """Return the two standard normals of word number `number` of a stream."""
    return normal_pair(mix_word(key + np.uint64(number) * gamma))


@kernel_part(inline=True)
def half_uniform_at(key: np.uint64, gamma: np.uint64, number: int) -> np.float64:
    """Return a float64 in [0, 1), a multiple of 2⁻³², from word number `number` of a stream."""
    return np.float64(mix_word(key + np.uint64(number) * gamma) >> _32) * 2.0**-32


@kernel_part(inline=True)
def bounded(word: np.uint64, limit: int) -> np.int64:
    """Return an integer from 0 to limit − 1, uniform to within limit/2³²."""
    return np.int64(((word >> _32) * np.uint64(limit)) >> _32)


@kernel_part(inline=True)
def unit_uniform(word: Vector) -> float:
    """Return a float64 in [0, 1), a multiple of 2⁻⁵³, from a hashed word."""
    uniform: float = to_float64(word >> _11) * 2.0**-53
    return uniform


@kernel_part(inline=True)
def unit_uniform_at(key: np.uint64, gamma: np.uint64, number: int) -> float:
    """Return a float64 in [0, 1) from word number `number` of a stream; frames that run as Python may call it too."""
    return unit_uniform(mix_word(key + np.uint64(number) * gamma))


@kernel_part
def fill_uniforms(key: WordArray, gamma: WordArray, first: int, count: int, out: FloatArray) -> None:
    """Fill `count` rows of ``out`` (rows, lanes) with uniforms, from word number `first` of each lane's stream."""
    lanes = key.size
    for lane in range(0, lanes - lanes % WIDTH, WIDTH):
        step = load(gamma, lane)
        word = load(key, lane) + np.uint64(first) * step
        for j in range(count):
            store(out, j * lanes + lane, unit_uniform(mix_word(word)))
            word = word + step
    for lane in range(lanes - lanes % WIDTH, lanes):
        for j in range(count):
            out[j, lane] = unit_uniform(mix_word(key[lane] + np.uint64(first + j) * gamma[lane]))


@kernel_part(inline=True)
def next_normals(
    lane: int, counter: WordArray, gamma: WordArray, scratch: WordArray, out: NDArray[np.float32]
) -> None:
    """Fill ``out`` (2·words, lanes) from the words at ``counter`` (lanes,), and advance the counter.

    Only the vector of lanes that begins at `lane` is filled. ``scratch`` (WORDS_AHEAD, lanes) holds hashed words:
    hashing and polynomials are separate loops, because one loop for both would run out of registers.
    """
    lanes = counter.size
    words = out.shape[0] // 2
    word, step = load(counter, lane), load(gamma, lane)
    for first in range(0, words, WORDS_AHEAD):
        last = min(first + WORDS_AHEAD, words)
        for j in range(last - first):
            store(scratch, j * lanes + lane, mix_word(word))
            word = word + step
        for j in range(first, last):
            x, y = normal_pair(load(scratch, (j - first) * lanes + lane))
            store(out, 2 * j * lanes + lane, x)
            store(out, (2 * j + 1) * lanes + lane, y)
    store(counter, lane, word)


@compiled(allocates=False)
def fill_standard_normal(key: WordArray, gamma: WordArray, first: int, out: NDArray[np.float32]) -> None:
    """Fill ``out`` (2·words, lanes) with the normals of words `first`, `first` + 1, … of each lane's stream.

    Any number of lanes will do.
    """
    for j in range(out.shape[0] // 2):
        for lane in range(out.shape[1]):
            x, y = normal_pair(mix_word(key[lane] + np.uint64(first + j) * gamma[lane]))
            out[2 * j, lane] = x
            out[2 * j + 1, lane] = y
