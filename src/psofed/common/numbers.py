"""Numbers: decibels, quantiles of Student's t, and what JSON cannot hold."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, overload

import numpy as np

from psofed.common.types import FloatArray

# Above this number of degrees of freedom the expansion in their inverse is accurate to 1e-10.
_MANY = 300


def json_object(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values ready for JSON: what is not finite becomes None."""
    return {key: finite_or_none(value) for key, value in values.items()}


def finite_or_none(value: Any) -> Any:
    """Return None for a float that is not finite, any other value as it is; lists and dicts member by member.

    Examples
    --------
    >>> finite_or_none({"mean": 1.0, "error": [math.nan, 2]})
    {'mean': 1.0, 'error': [None, 2]}
    """
    if isinstance(value, dict):
        return {key: finite_or_none(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@overload
def to_decibels(value: float) -> float: ...
@overload
def to_decibels(value: FloatArray) -> FloatArray: ...
def to_decibels(value: float | FloatArray) -> float | FloatArray:
    """Return 10 log₁₀ of a power: −∞ for zero and below, ∞ and NaN as they are.

    Examples
    --------
    >>> to_decibels(0.01), to_decibels(0.0), to_decibels(np.array([1.0, 0.1, np.inf]))
    (-20.0, -inf, array([  0., -10.,  inf]))
    """
    if isinstance(value, np.ndarray):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(10 * np.log10(np.where(value <= 0, 0.0, value)), dtype=np.float64)
    return 10 * math.log10(value) if value > 0 else (-math.inf if value <= 0 else math.nan)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t for a probability from 0.5 up to, not including, 1.

    SciPy has it too, but loading SciPy takes longer than simulating the paper's scenario.

    Examples
    --------
    >>> round(student_quantile(0.975, 9), 6)
    2.262157
    """
    if degrees > _MANY:
        return _expand_normal_quantile(probability, degrees)
    # P(|T| < t) grows with θ = atan(t / √ν).
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = 0.5 * (low + high)
        if _student_within(angle, degrees) < 2 * probability - 1:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _student_within(angle: float, degrees: int) -> float:
    """Return P(|T| < √ν tan θ), a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    cosine, odd = math.cos(angle), degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for j in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (j - 1) / j
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _expand_normal_quantile(probability: float, degrees: int) -> float:
    """Return the normal quantile z and its corrections in 1/ν (Abramowitz and Stegun, 26.7.5)."""
    from statistics import NormalDist

    z = NormalDist().inv_cdf(probability)
    corrections = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(g / degrees**power for power, g in enumerate(corrections, start=1)))
