"""Any model's parameters as one vector and back, and what a node keeps of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.federation.client.state import ClientState, NodeMemory
from psofed.federation.protocol.archive import read_archive
from psofed.federation.protocol.layout import ModelLayout

pytestmark = pytest.mark.federation

shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
some_arrays = st.dictionaries(
    st.text(min_size=1, max_size=4),
    st.one_of(
        hnp.arrays(np.float32, shapes, elements=st.floats(-1e6, 1e6, width=32)),
        hnp.arrays(np.float64, shapes, elements=st.floats(-1e6, 1e6)),
        hnp.arrays(np.int64, shapes),
        hnp.arrays(np.bool_, shapes),
    ),
    min_size=1,
    max_size=4,
).filter(lambda named: any(array.dtype.kind == "f" and array.size for array in named.values()))


@given(arrays=some_arrays)
def test_flattening_and_restoring_gives_the_model_back(arrays):
    layout = ModelLayout.of(arrays)
    assert ModelLayout.from_text(layout.text) == layout
    vector = layout.flatten(arrays)
    assert vector.shape == (layout.dimension,)
    restored = layout.restore(vector, layout.kept(arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(restored[name], array)
        assert restored[name].dtype == array.dtype


@pytest.mark.parametrize("model", [{}, {"n": np.array(3)}, {"c": np.zeros(2, complex)}, {"e": np.zeros(0)}])
def test_a_model_without_floating_numbers_is_refused(model):
    with pytest.raises(InvalidValueError, match="initial model"):
        ModelLayout.of(model)


@pytest.mark.parametrize("text", ["", "{", "[[1]]", '[["a", [-1], "float32"]]', '[["a", [1], "no"]]', "[" * 5000])
def test_a_bad_layout_is_a_value_error(text):
    with pytest.raises(ValueError, match="not a layout"):
        ModelLayout.from_text(text)


def test_training_that_changes_the_shape_is_told_so():
    layout = ModelLayout.of({"0": np.zeros(3)})
    with pytest.raises(ValueError, match="shape"):
        layout.flatten({"0": np.zeros(4)})
    with pytest.raises(ValueError, match="named"):
        layout.flatten({"other": np.zeros(3)})


def test_all_records_of_a_state_survive_the_disk():
    records = {
        "arrays": {"a": np.arange(3.0), "b": np.array(7), "slash/ed": np.zeros(2, np.float32)},
        "none": {},
        "metrics": {"x": 1, "y": [1.5, float("inf")]},
        "config": {"s": "t", "l": [1, "2"], "t": True, "f": 0.1},
    }
    state = ClientState(0, 1, ModelLayout.of({"0": np.zeros(1)}), np.zeros(1), {}, 1, {}, records)
    memory = NodeMemory("s", "pump", {"": state})
    again = NodeMemory.from_bytes(memory.to_bytes(), "here").clients[""].records
    assert (again["config"], again["metrics"], again["none"]) == (records["config"], records["metrics"], {})
    assert list(again) == list(records)
    for name, array in records["arrays"].items():
        np.testing.assert_array_equal(again["arrays"][name], array)
        assert again["arrays"][name].dtype == array.dtype


def test_a_compressed_archive_is_refused_since_it_may_expand_to_any_size(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", model=np.zeros(10**6))
    with pytest.raises(PsofedError, match="compressed"):
        read_archive(tmp_path / "bomb.npz", "checkpoint", 4)
