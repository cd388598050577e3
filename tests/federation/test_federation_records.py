"""Flower's records filled without its checks, and arrays without parsing: the same values and bytes as Flower's own."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_to_proto
from hypothesis import given
from hypothesis import strategies as st

from psofed.federation.flower import records_from_bytes, records_to_bytes
from psofed.federation.protocol.npy import HeldArray, array_of, values_of

pytestmark = pytest.mark.federation

WHOLE = st.integers(-(2**63), 2**64 - 1)
NUMBERS = (st.floats(), WHOLE, st.floats(0, 1).map(np.float64))
SCALARS = (*NUMBERS, st.booleans(), st.text(max_size=5), st.binary(max_size=5))


def values(kinds):
    """Return a strategy of what a record holds: values of these kinds, and lists of one kind."""
    lists = [st.lists(kind, max_size=3) for kind in kinds]
    return st.dictionaries(st.text(max_size=5), st.one_of(*kinds, *lists), max_size=4)


SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
DTYPES = st.sampled_from(["float16", "float32", "float64", "int64", "uint8", ">f4"])
ARRAYS = st.builds(
    lambda shape, dtype: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape), SHAPES, DTYPES
)
RECORDS = st.one_of(
    values(SCALARS).map(ConfigRecord),
    values(NUMBERS).map(MetricRecord),
    st.dictionaries(st.text(max_size=5), ARRAYS.map(Array), max_size=2).map(ArrayRecord),
)


@given(content=st.dictionaries(st.text(max_size=5), RECORDS, max_size=3).map(RecordDict))
def test_records_become_the_bytes_that_flower_makes_and_are_read_again(content):
    try:
        expected = recorddict_to_proto(content).SerializeToString(deterministic=True)
    except ValueError:  # a list of numbers that no one type of protobuf holds
        with pytest.raises(ValueError, match="out of range"):
            records_to_bytes(content)
        return
    assert records_to_bytes(content) == expected
    read = records_from_bytes(expected)
    assert read.object_id == content.object_id
    assert [type(record) for record in read.values()] == [type(record) for record in content.values()]


@given(data=st.binary(max_size=80))
def test_bytes_that_are_no_records_are_refused(data):
    with contextlib.suppress(ValueError):  # the one error there is
        assert isinstance(records_from_bytes(data), RecordDict)


@given(array=ARRAYS, fortran=st.booleans())
def test_arrays_are_written_and_read_as_numpy_does(array, fortran):
    array = np.asfortranarray(array) if fortran and array.ndim else array
    written = array_of(array)
    assert written.object_id == Array(np.ascontiguousarray(array).reshape(array.shape)).object_id
    for given_array in (written, Array(array)):
        read = values_of(given_array, array.dtype, array.shape)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(values_of(written, np.dtype("float64"), (7,)), array)


@given(values=ARRAYS)
def test_a_held_array_is_for_everybody_else_one_of_flowers(values):
    plain, held = Array(values), HeldArray(values)
    assert held.object_id == plain.object_id
    assert held == plain
    assert plain == held
    for copied in (copy.deepcopy(held), pickle.loads(pickle.dumps(held)), ArrayRecord({"a": held})["a"]):
        assert type(copied) is Array
        assert copied == plain


def test_a_held_array_gives_copies_and_follows_its_bytes():
    held = HeldArray(np.zeros(2))
    held.numpy()[0] = 5.0
    np.testing.assert_array_equal(held.numpy(), np.zeros(2))
    held.data = Array(np.ones(2)).data
    np.testing.assert_array_equal(held.numpy(), np.ones(2))
    np.testing.assert_array_equal(values_of(held, np.dtype(float), (2,)), np.ones(2))


def test_a_held_array_that_can_be_had_again_is_given_away_once():
    values = np.zeros(3)
    held = HeldArray(values, again=lambda: np.zeros(3))
    given = held.numpy()
    assert given is values
    given[:] = 5.0  # as training does in place
    np.testing.assert_array_equal(held.numpy(), np.zeros(3))
    held.numpy()[:] = 6.0
    assert held == Array(np.zeros(3))
