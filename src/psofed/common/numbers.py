"""Numbers: decibels, and what JSON cannot hold."""

import math
from collections.abc import Mapping
from typing import Any, overload

import numpy as np

from psofed.common.types import FloatArray


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
