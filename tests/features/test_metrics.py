"""Metrics as values: the honest clients' MSE, each client's error, and a user's own metric everywhere."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import psofed
from psofed.attacks import Gaussian, LabelPoisoning
from psofed.cli import app
from psofed.parts.registry import _REGISTERED

pytestmark = pytest.mark.results

FLEET = psofed.Scenario(num_clients=12, dimension=4, iterations=200, attack=LabelPoisoning(num_byzantine=3))


class WorstEntry(psofed.Metric):
    """Largest squared error of an entry of the server's model."""

    def measure(self, state: psofed.TrialState) -> float:
        return np.max((state.server - state.target) ** 2)


class HonestError(psofed.Metric):
    """The honest MSE, computed from the state."""

    def measure(self, state: psofed.TrialState) -> float:
        return np.nanmean(state.errors[~state.is_byzantine] ** 2)


class ServerDistance(psofed.Metric):
    """The server's MSD, computed from the state."""

    power: float = psofed.option(default=2.0, text="exponent")

    def measure(self, state: psofed.TrialState) -> float:
        return np.sum(np.abs(state.server - state.target) ** self.power)


class Uncompiled(psofed.Metric):
    """A metric that Numba cannot compile, with a unit of its own."""

    title, unit, in_decibels = "spread of the models", "kW", False

    def measure(self, state: psofed.TrialState) -> float:
        return json.loads(json.dumps({"spread": float(np.std(state.models))}))["spread"]


class Failing(psofed.Metric):
    """A metric with a mistake."""

    def measure(self, state: psofed.TrialState) -> float:
        raise ValueError("no such thing")


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Register the metrics of this file, which the end of another file of tests has forgotten."""
    for metric in (WorstEntry, HonestError, ServerDistance, Uncompiled, Failing):
        _REGISTERED["metric", metric.kind] = metric


@pytest.mark.parametrize(
    "scenario",
    [
        FLEET,
        FLEET.replace(attack=Gaussian(num_byzantine=3, byzantine_set="redrawn")),
        FLEET.replace(attack=[Gaussian(clients=[0, 1]), LabelPoisoning(clients=[5])]),
        FLEET.replace(drift=psofed.drifts.RandomWalk(variance=1e-4)),
        FLEET.replace(algorithm="online-fed", num_shared=4),
    ],
    ids=["fixed", "redrawn", "groups", "drift", "no models"],
)
def test_a_metric_computed_from_the_state_equals_the_built_in_one(scenario: psofed.Scenario) -> None:
    own = [HonestError(), ServerDistance()]
    result, plain = psofed.simulate(scenario, trials=18, metrics=own), psofed.simulate(scenario, trials=18)
    for metric, values in plain.steady_state.items():
        assert np.array_equal(result.steady_state[metric], values), metric
    np.testing.assert_allclose(result.curve["honest_error"], result.curve["honest_mse"], rtol=1e-12)
    np.testing.assert_allclose(result.curve["server_distance"], result.curve["server_msd"], rtol=1e-11)


def test_the_honest_mse_leaves_out_byzantine_clients() -> None:
    result = psofed.simulate(FLEET, trials=20)
    honest = ~result.fleet.byzantine_mask(FLEET.attack)
    assert result.client_mse is not None
    np.testing.assert_allclose(result.client_mse[:, honest].mean(axis=1), result.steady_state["honest_mse"])
    assert result.honest_mse.mean < result.network_mse.mean
    table = result.to_dataframe("clients")
    np.testing.assert_allclose(table["mse"], result.client_mse.mean(axis=0))


def test_without_byzantine_clients_all_are_honest_and_without_honest_ones_there_is_none() -> None:
    quiet = psofed.simulate(FLEET.replace(attack=None), trials=4, metrics="honest_mse")
    assert np.array_equal(quiet.steady_state["honest_mse"], quiet.steady_state["network_mse"])
    everybody = FLEET.replace(attack=Gaussian(num_byzantine=12))
    assert "honest_mse" not in psofed.simulate(everybody, trials=2).steady_state
    with pytest.raises(psofed.NotCoveredError, match="all 12 are Byzantine"):
        psofed.simulate(everybody, trials=2, metrics="honest_mse")


def test_own_data_count_only_honest_clients_with_a_sample() -> None:
    rng = np.random.default_rng(1)
    clients, inputs = np.repeat(["a", "b", "c", "d"], [40, 60, 80, 80]), rng.normal(size=(260, 3))
    data = psofed.from_arrays(inputs, inputs @ [1.0, -1.0, 0.5] + rng.normal(size=260), clients)
    scenario = psofed.Scenario.from_data(data).replace(attack=Gaussian(num_byzantine=1))
    result = psofed.simulate(scenario, trials=3, metrics=[HonestError()])
    np.testing.assert_allclose(result.curve["honest_error"], result.curve["honest_mse"], rtol=1e-12)


def test_an_own_metric_goes_everywhere(tmp_path: Path) -> None:
    own = [WorstEntry(), Uncompiled()]
    result = psofed.simulate(FLEET, trials=12, metrics=own)
    assert "worst entry" in str(result)
    assert "spread of the models (kW)" in str(result)
    assert any("ran as plain Python" in note for note in result.notes)
    result.save(tmp_path / "result.nc")
    again = psofed.load_result(tmp_path / "result.nc")
    assert again.to_json() == result.to_json()
    assert again.to_json()["worst_entry"]["mean"] == result["worst_entry"].mean
    assert "worst_entry" in result.to_dataframe()
    assert "worst entry" in str([series.label for series in result.chart().series])
    difference = psofed.simulate(FLEET.replace(num_shared=4), trials=12, metrics=own) - result
    assert difference["worst_entry"].statistic

    swept = psofed.sweep(FLEET, {"num_shared": [1, 4]}, trials=12, metrics=own, store=tmp_path / "store")
    assert "lowest worst entry" in str(swept)
    assert (
        psofed.sweep(FLEET, {"num_shared": [1, 4]}, trials=12, metrics=own, store=tmp_path / "store").to_json()
        == swept.to_json()
    )
    swept.save(tmp_path / "sweep")
    kinds = {kind: _REGISTERED.pop(("metric", kind)) for kind in ("worst-entry", "uncompiled")}
    try:  # the file says what its metrics are called, whether or not their classes are loaded
        loaded = psofed.load_result(tmp_path / "sweep")
        assert str(loaded) == str(swept)
        assert loaded.chart("uncompiled").y == "steady-state spread of the models (kW)"
    finally:
        _REGISTERED.update({("metric", kind): part for kind, part in kinds.items()})
    assert r"\textbf" in swept.to_latex(metric="worst_entry")


def test_mistakes_are_named() -> None:
    with pytest.raises(psofed.PsofedError, match="ValueError: no such thing"):
        psofed.simulate(FLEET, trials=2, metrics=[Failing()])
    with pytest.raises(psofed.InvalidValueError, match="honest_mse"):
        psofed.simulate(FLEET, trials=2, metrics=["honest_msd"])
    with pytest.raises(psofed.InvalidValueError, match="given once"):
        psofed.simulate(FLEET, trials=2, metrics=[ServerDistance(), ServerDistance(power=1.0)])


def test_what_rests_on_theory_refuses_an_own_metric_by_name(tmp_path: Path) -> None:
    with pytest.raises(psofed.PsofedError, match=r"compare\(\) `metrics`. Only psofed.simulate and psofed.sweep take"):
        psofed.compare(FLEET, metrics=[WorstEntry()])
    for tune in (psofed.tune, psofed.optimal_stepsize):
        with pytest.raises(psofed.InvalidValueError, match=r"metric must be one of .*; got 'worst_entry'"):
            tune(FLEET, metric="worst_entry")
    (tmp_path / "fleet.toml").write_text(FLEET.to_toml())
    for command in ("compare", "tune", "explore"):
        done = CliRunner().invoke(app, [command, str(tmp_path / "fleet.toml"), "--metric", "worst_entry"])
        assert done.exit_code != 0
        assert "--metric" in str(done.output) + str(done.exception)


def test_the_command_line_takes_a_metric_of_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "largest_weight.py").write_text(
        "import numpy as np\nimport psofed\n\n\nclass LargestWeight(psofed.Metric):\n"
        "    def measure(self, state):\n        return np.max(np.abs(state.server))\n"
    )
    (tmp_path / "fleet.toml").write_text("num_clients = 6\ndimension = 2\niterations = 40\n")
    run = CliRunner().invoke(
        app,
        ["simulate", str(tmp_path / "fleet.toml"), "--plugin", str(tmp_path / "largest_weight.py"), "--json",
         "--metric", "largest_weight", "--precision", "20%", "--trials", "64"],
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert answer["stopping"]["metric"] == "largest_weight"
    assert answer["largest_weight"]["mean"] > 0
    wrong = CliRunner().invoke(app, ["simulate", str(tmp_path / "fleet.toml"), "--metric", "largest"])
    assert isinstance(wrong.exception, psofed.InvalidValueError)
