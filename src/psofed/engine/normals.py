"""The Gaussian source: compiled draws from counter-based words, two normals for each 64-bit word.

Box–Muller in single precision: the upper 32 bits of a word give the radius √(−2 ln u), the lower 32 the
angle πt. Logarithm, sine and cosine are polynomials, so that they are computed for many lanes at once; fused
multiply-adds are asked for by name, so the bits are the same wherever it runs. Draws reach 6.76 standard
deviations, where the true distribution has a mass of 1.4e-11 beyond.

A stream is an array (2, trials): keys and increments (:mod:`psofed.engine.streams`). Word number c of trial l is
``mix(stream[0, l] + c · stream[1, l])``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.lanes import WIDTH, Vector, convert, fma, load, polynomial, square_root, store, view_bits
from psofed.engine.streams import _MIX_1, _MIX_2, WordArray

# A Python integer or one of NumPy; kernels know which.
Index = Any

_f32, _i32, _u32, _f64 = np.float32, np.int32, np.uint32, np.float64

# −2 ln(1+f)/f for f from √½−1 to √2−1: Chebyshev fit of degree 8, largest error 6.0e-8.
_LN = polynomial(
    -2.0, 0.9999997615814209, -0.6666836738586426, 0.5000430941581726, -0.39913955330848694, 0.33121392130851746,
    -0.2989819049835205, 0.2875466048717499, -0.17487891018390656,
)  # fmt: skip
# sin(πt/2)/t and cos(πt/2) in t² for |t| ≤ 1: Chebyshev fits of degree 4, errors 6.7e-9 and 4.7e-8.
_SINE = polynomial(
    1.5707963705062866, -0.6459637880325317, 0.07968991994857788, -0.004674150608479977, 0.0001516751217423007
)
_COSINE = polynomial(
    0.9999999403953552, -1.2336982488632202, 0.2536506950855255, -0.020810570567846298, 0.0008581625297665596
)

_ONE, _MINUS_ONE, _TWO, _MINUS_2_LN2 = _f32(1), _f32(-1), _f32(2), _f32(-2) * _f32(np.log(2))
_2_POW_M31, _2_POW_M32, _2_POW_M33 = _f32(2.0**-31), _f32(2.0**-32), _f32(2.0**-33)
_SQRT_HALF_BITS = _f32(2**-0.5).view(np.int32)
_11, _27, _30, _31, _32 = (np.uint64(bits) for bits in (11, 27, 30, 31, 32))
_23 = np.int32(23)


@kernel_part
def mix_word(word: Vector) -> Vector:
    """:func:`psofed.engine.streams.mix` for kernels."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@kernel_part
def normal_pair(word: Vector) -> tuple[Vector, Vector]:
    """Two independent standard normals, float32, from a hashed word."""
    high, low = convert(word >> _32, _u32), convert(word, _i32)
    bits = view_bits(fma(convert(high, _f32), _2_POW_M32, _2_POW_M33), _i32)
    exponent = convert(convert(bits - _SQRT_HALF_BITS, _i32) >> _23, _i32)
    f = view_bits(convert(bits - (exponent << _23), _i32), _f32) - _ONE
    radius = square_root(fma(convert(exponent, _f32), _MINUS_2_LN2, f * _LN(f)))

    # Half-angle: sine and cosine of πt/2 need no reduction to quadrants.
    t = convert(low, _f32) * _2_POW_M31
    q = t * t
    sine = t * _SINE(q)
    twice = radius * (_TWO * sine)
    return fma(twice, _MINUS_ONE * sine, radius), twice * _COSINE(q)


@kernel_part
def unit_uniform(word: Vector) -> Vector:
    """Return a float64 in [0, 1), a multiple of 2⁻⁵³, from a hashed word."""
    return convert(word >> _11, _f64) * 2.0**-53


@kernel_part
def counter_at(stream: WordArray, trial: int, number: Index) -> np.uint64:
    """Return what word number `number` of a trial's stream is hashed from."""
    return stream[0, trial] + np.uint64(number) * stream[1, trial]  # type: ignore[no-any-return]


@kernel_part
def word_at(stream: WordArray, trial: int, number: Index) -> np.uint64:
    """Return word number `number` of a trial's stream."""
    word: np.uint64 = mix_word(counter_at(stream, trial, number))
    return word


@kernel_part
def uniform_at(stream: WordArray, trial: int, number: Index) -> float:
    """Return a float64 in [0, 1) from word number `number` of a trial's stream."""
    uniform: float = unit_uniform(word_at(stream, trial, number))
    return uniform


@kernel_part
def half_uniform_at(stream: WordArray, trial: int, number: Index) -> float:
    """Return a float64 in [0, 1), a multiple of 2⁻³², from word number `number` of a trial's stream."""
    return np.float64(np.int64(word_at(stream, trial, number) >> _32)) * 2.0**-32


@kernel_part
def normals_at(stream: WordArray, trial: int, number: Index) -> tuple[float, float]:
    """Return the two standard normals of word number `number` of a trial's stream."""
    x, y = normal_pair(word_at(stream, trial, number))
    return np.float64(x), np.float64(y)


@kernel_part
def normal_at(stream: WordArray, trial: int, first: Index, entry: Index) -> float:
    """Return one entry of the standard normals that begin at word number `first`, two in each word."""
    x, y = normal_pair(word_at(stream, trial, np.uint64(first) + np.uint64(entry // 2)))
    return np.float64(y) if entry % 2 else np.float64(x)


@kernel_part
def bounded(word: np.uint64, limit: Index) -> np.int64:
    """Return an integer from 0 to limit − 1, uniform to within limit/2³²."""
    return np.int64(((word >> _32) * np.uint64(limit)) >> _32)


@kernel_part
def fill_draws(is_normal: bool, words: WordArray, count: int, out: FloatArray) -> None:
    """Draw one number from each of `count` words that are not yet hashed; both arrays hold whole vectors."""
    for c in range(0, count, WIDTH):
        word = mix_word(load(words, c))
        if is_normal:
            x, _ = normal_pair(word)
            store(out, c, convert(x, _f64))
        else:
            store(out, c, unit_uniform(word))


@compiled
def fill_standard_normal(key: WordArray, gamma: WordArray, first: Index, out: NDArray[np.float32]) -> None:
    """Fill ``out`` (2·words, trials) with the normals of words `first`, `first` + 1, … of each trial's stream."""
    for j in range(out.shape[0] // 2):
        for lane in range(out.shape[1]):
            x, y = normal_pair(mix_word(key[lane] + np.uint64(first + j) * gamma[lane]))
            out[2 * j, lane] = x
            out[2 * j + 1, lane] = y
