"""What must hold for any drift, model and table (Hypothesis)."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed import Data, Drift, PsofedError, Scenario
from psofed.data.standardise import standardise
from psofed.data.table import read_table
from psofed.parts.drifts import Jump, RandomWalk, Sinusoid
from psofed.parts.models import Rff
from psofed.parts.registry import part_names

pytestmark = [pytest.mark.parts, pytest.mark.fleet]

sizes = st.floats(0, 1e6, allow_nan=False)
drifts = st.one_of(
    st.builds(RandomWalk, variance=sizes),
    st.builds(Jump, size=sizes, at=st.integers(0, 10**6)),
    st.builds(Sinusoid, amplitude=sizes, period=st.integers(2, 10**6)),
)


@given(drifts)
def test_any_drift_survives_toml_and_back(drift: Drift) -> None:
    scenario = Scenario(num_clients=9, dimension=3, drift=drift)
    assert Scenario.from_toml(scenario.to_toml()) == scenario


@given(
    st.sampled_from(part_names("function")),
    st.integers(1, 200),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**64),
    st.booleans(),
)
def test_any_features_survive_toml_and_back(
    function: str, features: int, bandwidth: float, seed: int, named: bool
) -> None:
    model = Rff(features=features if named else None, bandwidth=bandwidth, seed=seed)
    data = Data(function=function, input_dimension=4)
    scenario = Scenario(num_clients=9, dimension=features, model=model, data=data)
    assert Scenario.from_toml(scenario.to_toml()) == scenario


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_no_text_makes_the_table_reader_fail_otherwise_than_by_saying_so(tmp_path_factory, text: str) -> None:
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        file.write("who,x,y\n" + text)
    with contextlib.suppress(PsofedError):
        read_table(path, "who", "y")


values = st.floats(-1e9, 1e9) | st.just(float("nan"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(values, st.floats(-1e9, 1e9)), min_size=3, max_size=60), st.integers(2, 10))
def test_standardised_values_are_finite_and_inputs_within_the_clip(rows: list, warmup: int) -> None:
    table = np.array(rows)
    inputs, targets, _ = standardise(table[:, :1].copy(), table[:, 1].copy(), warmup, 4.0)
    assert np.isfinite(inputs).all()
    assert np.isfinite(targets).all()
    assert np.abs(inputs).max(initial=0.0) <= 4.0
    assert len(targets) <= max(len(rows) - warmup, 0)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 1e4), st.floats(-1e4, 1e4), st.integers(0, 1000))
def test_units_do_not_matter(scale: float, offset: float, seed: int) -> None:
    """Metres or feet, Celsius or Fahrenheit: standardised samples are the same."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    plain = standardise(x, y, 5, 3.0)
    other = standardise(offset + scale * x, offset + scale * y, 5, 3.0)
    for a, b in zip(plain[:2], other[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, abs(offset) / scale / 1e4))
