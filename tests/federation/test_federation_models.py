"""Any model's parameters as one vector and back."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from psofed.common.errors import InvalidValueError
from psofed.federation import PSOFed, Sharing, arrays_of, load_into, partial_sharing
from psofed.federation.client.state import ClientMemory, NodeMemory
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.testing import InProcessGrid

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


@given(named=some_arrays)
def test_flattening_and_restoring_gives_the_model_back(named):
    record = arrays_of(named)
    layout = ModelLayout.of(record)
    assert ModelLayout.from_text(layout.to_text()) == layout
    vector = layout.flatten(record)
    assert vector.shape == (layout.dimension,)
    restored = layout.restore(vector, layout.kept(record))
    for name, array in named.items():
        np.testing.assert_array_equal(restored[name].numpy(), array)
        assert restored[name].dtype == str(array.dtype)


@pytest.mark.parametrize("model", [{}, {"n": np.array(3)}, {"c": np.zeros(2, complex)}, {"e": np.zeros(0)}])
def test_a_model_without_floating_numbers_is_refused(model):
    with pytest.raises(InvalidValueError, match="initial_arrays"):
        ModelLayout.of(arrays_of(model))


@pytest.mark.parametrize(
    "text", ["", "{", "[[1]]", '[["a", [-1], "float32"]]', '[["a", [1], "no"]]', "[" * 5000]
)
def test_a_bad_layout_is_a_value_error(text):
    with pytest.raises(ValueError, match="not a layout"):
        ModelLayout.from_text(text)


def test_training_that_changes_the_shape_is_told_so():
    layout = ModelLayout.of(arrays_of([np.zeros(3)]))
    with pytest.raises(ValueError, match="shape"):
        layout.flatten(arrays_of([np.zeros(4)]))
    with pytest.raises(ValueError, match="named"):
        layout.flatten(arrays_of({"other": np.zeros(3)}))


def test_numpy_models_are_written_in_place_or_returned():
    vector = np.zeros(3)
    assert load_into(vector, ArrayRecord([np.ones(3)])) is vector
    assert vector.tolist() == [1, 1, 1]
    (first, second) = load_into([vector, vector], ArrayRecord([np.ones(2), np.zeros(1)]))
    assert (len(first), len(second)) == (2, 1)
    assert list(load_into({}, ArrayRecord({"a": Array(np.ones(2))}))) == ["a"]


def test_a_scikit_learn_regressor_learns_in_a_federation():
    linear_model = pytest.importorskip("sklearn.linear_model")
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    truth = np.array([1.0, -2.0, 0.5])

    def make_app(k):
        app, rng = ClientApp(), np.random.default_rng(k)

        @app.train(mods=[partial_sharing()])
        def train(message, context):
            model = blank()
            load_into(model, message.content["arrays"])
            x = rng.standard_normal((40, 3))
            model.partial_fit(x, x @ truth + 3.0)
            content = {"arrays": arrays_of(model), "metrics": MetricRecord({"num-examples": 40})}
            return Message(RecordDict(content), reply_to=message)

        return app

    def blank():
        model = linear_model.SGDRegressor(eta0=0.05, learning_rate="constant")
        model.coef_, model.intercept_ = np.zeros(3), np.zeros(1)
        return model

    model = blank()
    strategy = PSOFed(Sharing(2, coordinated=False), num_participants=2)
    result = strategy.start(InProcessGrid({k: make_app(k) for k in (1, 2, 3)}), model, num_rounds=40)
    load_into(model, result.arrays)
    np.testing.assert_allclose(model.coef_, truth, atol=0.1)
    np.testing.assert_allclose(model.intercept_, 3.0, atol=0.1)
    assert not strategy.conduct.counts


def test_lists_of_layers_as_scikit_learns_perceptrons_have_them():
    class Perceptron:
        coefs_ = [np.ones((2, 3)), np.ones((3, 1))]  # noqa: RUF012
        intercepts_ = [np.zeros(3), np.zeros(1)]  # noqa: RUF012

    record = arrays_of(Perceptron())
    assert list(record) == ["coefs_.0", "coefs_.1", "intercepts_.0", "intercepts_.1"]
    again = load_into(Perceptron(), record)
    assert [layer.shape for layer in again.coefs_] == [(2, 3), (3, 1)]


def test_a_thing_that_is_no_model_is_named():
    with pytest.raises(InvalidValueError, match="model"):
        arrays_of(object())


def test_all_records_of_a_state_survive_the_disk():
    from flwr.app import ConfigRecord, MetricRecord, RecordDict

    records = RecordDict(
        {
            "arrays": ArrayRecord({"a": Array(np.arange(3.0)), "b": Array(np.array(7))}),
            "none": ArrayRecord({}),
            "metrics": MetricRecord({"x": 1, "y": [1.5, float("inf")]}),
            "config": ConfigRecord({"s": "t", "b": b"\x00\xff", "l": [b"1", b"2"], "t": True, "f": 0.1}),
        }
    )
    memory = NodeMemory("s", 7, {"": ClientMemory(None, dict(records)), "other": ClientMemory()})
    again = NodeMemory.from_bytes(memory.to_bytes(), "here").of("").records
    assert dict(again["config"]) == dict(records["config"])
    assert dict(again["metrics"]) == dict(records["metrics"])
    assert again["arrays"]["a"].numpy().tolist() == [0, 1, 2]
    assert list(again) == list(records)


@pytest.mark.parametrize(
    ("name", "library", "good"),
    [
        ("federation_sklearn", "sklearn", lambda value: value > 0.93),
        ("federation_torch", "torch", lambda value: value < 0.4),
    ],
)
def test_the_examples_learn(name, library, good):
    pytest.importorskip(library)
    import importlib.util
    from pathlib import Path

    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert good(module.main())


def test_training_reads_the_same_model_again_after_it_has_changed_the_first():
    seen = []

    def train(message, context):
        record = message.content["arrays"]
        first = record.to_numpy_ndarrays()
        begun = [array.copy() for array in first]
        for array in first:
            array += 1.0
        seen.append(all(np.array_equal(a, b) for a, b in zip(begun, record.to_numpy_ndarrays(), strict=True)))
        content = {"arrays": ArrayRecord(first), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    app = ClientApp()
    app.train(mods=[partial_sharing()])(train)
    start = [np.arange(3, dtype=np.float32), np.ones((2, 2))]
    result = PSOFed(num_shared=1.0, aggregation="mean").start(
        InProcessGrid({1: app, 2: app}), arrays_of(start), num_rounds=3
    )
    assert seen == [True] * 6
    for array, begun in zip(result.arrays.to_numpy_ndarrays(), start, strict=True):
        np.testing.assert_allclose(array, begun + 3.0)
