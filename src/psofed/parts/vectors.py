"""Vector operations for the bodies of rules: NumPy here, loops without allocation where compiled.

Bodies may use all of NumPy that Numba knows; these are for what a rule does very often. Those that look for low and
high values (:func:`middle`, :func:`sum_of_lowest`, :func:`mean_of_inner`, :func:`mean_near`) may leave them in another
order.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

# The smallest number with all its digits: dividing by no less than this needs no exception for 0.
TINY = float(np.finfo(np.float64).tiny)


def part_of(numbers: NDArray[Any], start: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the part of ``numbers`` that begins at `start`, as a vector or matrix of the given shape.

    It must lie within them: where compiled, nothing looks.

    Examples
    --------
    >>> part_of(np.arange(7), 1, (2, 3))
    array([[1, 2, 3],
           [4, 5, 6]])
    """
    return numbers[start : start + math.prod(shape)].reshape(shape)


def squared_distance(first: FloatArray, second: FloatArray) -> float:
    """Return ‖first − second‖².

    Examples
    --------
    >>> squared_distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    9.0
    """
    return float(np.sum((first - second) ** 2))


def distance(first: FloatArray, second: FloatArray) -> float:
    """Return ‖first − second‖.

    Examples
    --------
    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    3.0
    """
    return math.sqrt(np.sum((first - second) ** 2))


def length(vector: FloatArray) -> float:
    """Return ‖vector‖.

    Examples
    --------
    >>> length(np.array([3.0, 4.0]))
    5.0
    """
    return math.sqrt(np.sum(vector**2))


def inner(first: FloatArray, second: FloatArray) -> float:
    """Return the inner product, summed in order.

    Examples
    --------
    >>> inner(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.sum(first * second))


def add_scaled(factor: float, vector: FloatArray, out: FloatArray) -> None:
    """Add factor · vector to ``out``.

    Examples
    --------
    >>> total = np.ones(2)
    >>> add_scaled(2.0, np.array([1.0, 3.0]), total)
    >>> total
    array([3., 7.])
    """
    out += factor * vector


def scale(factor: float, out: FloatArray) -> None:
    """Multiply ``out`` by a factor.

    Examples
    --------
    >>> vector = np.array([1.0, 3.0])
    >>> scale(2.0, vector)
    >>> vector
    array([2., 6.])
    """
    out *= factor


def clear(out: FloatArray) -> None:
    """Set ``out`` to 0.

    Examples
    --------
    >>> vector = np.ones(2)
    >>> clear(vector)
    >>> vector
    array([0., 0.])
    """
    out[:] = 0.0


def middle(values: FloatArray) -> float:
    """Return the median; compiled, it may leave `values` in another order.

    Examples
    --------
    >>> middle(np.array([9.0, 1.0, 4.0, 2.0]))
    3.0
    """
    return float(np.median(values))


def sum_of_lowest(values: FloatArray, count: int) -> float:
    """Return the sum of the `count` lowest values.

    Examples
    --------
    >>> sum_of_lowest(np.array([9.0, 1.0, 4.0, 2.0]), 2)
    3.0
    """
    return float(np.sum(np.sort(values)[:count]))


def ranks(first: FloatArray, second: FloatArray, out: FloatArray) -> None:
    """Write each one's rank, from 0, into ``out``: by the first values, of equal ones by the second, then by place.

    Examples
    --------
    >>> out = np.empty(4)
    >>> ranks(np.array([2.0, 1.0, 2.0, 1.0]), np.array([5.0, 7.0, 4.0, 7.0]), out)
    >>> out
    array([3., 0., 2., 1.])
    """
    out[np.lexsort((second, first))] = np.arange(out.size)


def mean_of_inner(values: FloatArray, cut: int) -> float:
    """Return the mean of the values without the `cut` lowest and highest.

    Examples
    --------
    >>> mean_of_inner(np.array([9.0, 1.0, 4.0, 2.0]), 1)
    3.0
    """
    return float(np.mean(np.sort(values)[cut : values.size - cut]))


def mean_near(values: FloatArray, centre: float, count: int) -> float:
    """Return the mean of the `count` values nearest to a centre; of two that are equally near, the lower counts.

    Distances count as equal if they differ by a rounding error, 10⁻¹² of the range of the values that are left.

    Examples
    --------
    >>> mean_near(np.array([9.0, 1.0, 4.0, 2.0]), 3.0, 3)
    2.3333333333333335
    >>> mean_near(np.array([0.1, 0.7, 0.4]), 0.4 + 1e-16, 2), mean_near(np.array([0.0, 2.0, 3.0, 1e30]), 2.0, 2)
    (0.25, 2.5)
    """
    ordered = np.sort(values)
    first, end = 0, ordered.size
    while end - first > count:
        # Relative to what is left, so that a distant value does not make all others equal.
        least = 1e-12 * (ordered[end - 1] - ordered[first])
        if (centre - ordered[first]) - (ordered[end - 1] - centre) > least:
            first += 1
        else:
            end -= 1
    return float(np.mean(ordered[first:end]))


def middle_of_each(changes: FloatArray, scratch: FloatArray, out: FloatArray) -> None:
    """Write the median of every column of ``changes`` (count, E) into ``out`` (E,), working in ``scratch`` (count,).

    Examples
    --------
    >>> out = np.empty(2)
    >>> middle_of_each(np.array([[1.0, 5.0], [2.0, 4.0], [9.0, 0.0]]), np.empty(3), out)
    >>> out
    array([2., 4.])
    """
    out[:] = np.median(changes, axis=0)


def keep_where(vector: FloatArray, mask: NDArray[np.bool_], out: FloatArray) -> None:
    """Write ``vector`` where ``mask`` is true, else 0, into ``out``.

    Examples
    --------
    >>> out = np.empty(2)
    >>> keep_where(np.array([1.0, 2.0]), np.array([False, True]), out)
    >>> out
    array([0., 2.])
    """
    out[:] = np.where(mask, vector, 0.0)
