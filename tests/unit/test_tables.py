"""What compiled code reads from a table is what stands in the object."""

from typing import NamedTuple

import numpy as np
import pytest

from psofed.engine.compiling import compiled
from psofed.engine.tables import KernelTable, TableData

pytestmark = pytest.mark.engine


class Inner(NamedTuple):
    """Numbers and an array."""

    is_set: bool
    count: int
    values: np.ndarray


class Outer(TableData):
    """A tuple between numbers."""

    def __init__(self, inner: Inner, first: float = -0.1) -> None:
        self.first, self.inner = first, inner
        self.table = np.arange(6.0).reshape(2, 3)
        self.last = float("inf")


@compiled
def _read(outer, out):
    inner, table = outer.inner, outer.table
    out[0], out[1], out[2], out[3] = outer.first, inner.is_set, inner.count, inner.values[-1]
    out[4], out[5], out[6] = table.size, table[1, 2], outer.last
    table[0, 1] = 7.0


def _make() -> Outer:
    values = np.array([3, -4], np.int32)
    return Outer(Inner(True, -5, values))


def test_fields_are_read_and_arrays_are_shared() -> None:
    outer, out = _make(), np.zeros(7)
    _read(KernelTable(outer), out)
    np.testing.assert_array_equal(out, [-0.1, 1.0, -5.0, -4.0, 6.0, 5.0, np.inf])
    assert outer.table[0, 1] == 7.0


def test_objects_that_have_not_changed_are_used_again() -> None:
    outer = _make()
    before = KernelTable(outer)
    after = KernelTable(Outer(outer.inner, first=2.0), before)
    assert after.kind == before.kind
    assert after._parts[1] is before._parts[1]
    changed = KernelTable(Outer(outer.inner._replace(count=8)), before)
    out = np.zeros(7)
    _read(changed, out)
    assert out[2] == 8.0


def test_arrays_with_gaps_are_refused() -> None:
    outer = _make()
    outer.table = np.zeros((4, 6))[:, ::2]
    with pytest.raises(AssertionError, match="contiguous"):
        KernelTable(outer)
