"""Equality by value of results, which hold arrays and NaN."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def same_values(first: Any, second: Any) -> bool:
    """Whether two values of one type hold the same: arrays, dicts and dataclasses member by member, NaN equal to NaN.

    Fields with ``compare=False`` do not count. A dataclass with ``eq=False`` that defines ``__eq__`` decides by itself.

    Examples
    --------
    >>> same_values({"a": np.array([1.0, np.nan])}, {"a": np.array([1.0, np.nan])}), same_values((1, 2), [1, 2])
    (True, False)
    """
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_values(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same_values, first, second))
    if is_dataclass(first) and not _decides_itself(type(first)):
        names = (field.name for field in fields(first) if field.compare)
        return all(same_values(getattr(first, name), getattr(second, name)) for name in names)
    return bool(first == second) or (first != first and second != second)


def _decides_itself(kind: Any) -> bool:
    return not kind.__dataclass_params__.eq and "__eq__" in vars(kind)
