"""The words that parts are written in mean the same compiled as they say in Python.

What Numba is taught of each word is a plain function too: run as it is written, nothing is compiled.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from psofed.engine import vocabulary
from psofed.parts import vectors

pytestmark = pytest.mark.engine

SIZES = (1, 2, 3, 7, 8, 9, 12, 24, 25, 26, 60)


def values_of(size: int) -> Iterator[np.ndarray]:
    """Numbers in any order, in order, and many that are equal."""
    rng = np.random.default_rng(size)
    drawn = rng.normal(size=size)
    yield from (drawn, np.sort(drawn), -np.sort(-drawn), np.zeros(size))
    for different in (2, 3, 6):
        yield rng.integers(0, different, size).astype(float)


@pytest.mark.parametrize("size", SIZES)
def test_vectors_are_measured_and_changed_alike(size: int) -> None:
    rng = np.random.default_rng(size)
    a, b, mask = rng.normal(size=size), rng.normal(size=size), rng.random(size) < 0.5
    for name in ("squared_distance", "distance", "inner"):
        assert getattr(vocabulary, f"_{name}")(a, b) == pytest.approx(getattr(vectors, name)(a, b))
    assert vocabulary._length(a) == pytest.approx(vectors.length(a))
    for name, given in (("add_scaled", (0.7, b)), ("scale", (0.7,)), ("clear", ()), ("keep_where", (b, mask))):
        found, expected = a.copy(), a.copy()
        getattr(vocabulary, f"_{name}")(*given, found)
        getattr(vectors, name)(*given, expected)
        assert np.allclose(found, expected, rtol=1e-14), name


@pytest.mark.parametrize("size", SIZES)
def test_values_are_put_in_order_alike(size: int) -> None:
    for values in values_of(size):
        assert vocabulary._middle(values.copy()) == np.median(values)
        for count in range(1, size + 1):
            found = vocabulary._sum_of_lowest(values.copy(), count)
            assert found == pytest.approx(vectors.sum_of_lowest(values.copy(), count))
        for cut in range((size + 1) // 2):
            found = vocabulary._mean_of_inner(values.copy(), cut)
            assert found == pytest.approx(vectors.mean_of_inner(values.copy(), cut))


@pytest.mark.parametrize("size", SIZES[:-2])
def test_means_of_near_values_and_ranks_are_alike(size: int) -> None:
    for values in values_of(size):
        for centre in (-0.2, 0.0, 1.0, 9.0):
            for count in range(1, size + 1):
                found = vocabulary._mean_near(values.copy(), centre, count)
                assert found == pytest.approx(vectors.mean_near(values.copy(), centre, count))
        for second in values_of(size):
            found, expected = np.empty(size), np.empty(size)
            vocabulary._ranks(values, second, found)
            vectors.ranks(values, second, expected)
            assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("count", [1, 2, 5, 8, 11])
def test_middles_of_columns_are_alike(count: int) -> None:
    changes, found = np.random.default_rng(count).normal(size=(count, 3)), np.empty(3)
    vocabulary._middle_of_each(changes, np.empty(count), found)
    assert np.array_equal(found, np.median(changes, axis=0))


@pytest.mark.parametrize("size", [2, 9, 25, 60])
def test_the_middle_of_many_leaves_the_next_lower_one_beside_it(size: int) -> None:
    """The median of an even number needs both."""
    for values in values_of(size):
        for half in range(1, size):
            found = values.copy()
            vocabulary._split_at(found, half)
            assert np.array_equal(np.sort(found), np.sort(values))
            assert found[half - 1 : half + 1].tolist() == np.sort(values)[half - 1 : half + 1].tolist()
