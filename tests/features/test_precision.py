"""Runs that stop when they are precise enough: what they compute, what they say, and that their intervals hold."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed.attacks import Gaussian

pytestmark = pytest.mark.simulation

FLEET = psofed.Scenario(num_clients=10, dimension=3, iterations=100, attack=Gaussian(num_byzantine=2))
STUDY = Path(__file__).parents[2] / "examples" / "precision_coverage.py"


def test_a_run_stops_at_the_first_stage_that_is_precise_enough_with_the_bits_of_a_plain_run() -> None:
    found = psofed.simulate(FLEET, trials=1000, precision=0.3)
    assert 32 <= found.trials < 1000
    assert found.margin <= 0.3
    plain = psofed.simulate(FLEET, trials=found.trials)
    assert np.array_equal(found.steady_state["network_mse"], plain.steady_state["network_mse"])
    assert np.array_equal(found.curve["network_mse"], plain.curve["network_mse"])
    low, high = found.network_mse.interval
    assert low < plain.network_mse.interval[0] < plain.network_mse.interval[1] < high
    assert f"Stopped after {found.trials} of at most 1,000 trials" in str(found)
    half = psofed.simulate(FLEET, trials=found.trials // 2, precision=1e-9)
    assert half.trials == found.trials // 2
    assert half.margin > 0.3
    assert "wider than the" in str(half)


def test_precision_is_decibels_or_per_cent_of_the_first_metric(tmp_path: Path) -> None:
    relative = psofed.simulate(FLEET, trials=1000, precision="7.2%")  # 0.3 dB
    assert relative.trials == psofed.simulate(FLEET, trials=1000, precision=0.3).trials
    relative.save(tmp_path / "result.nc")
    again = psofed.load_result(tmp_path / "result.nc")
    assert (again.stopping, again.network_mse) == (relative.stopping, relative.network_mse)
    server = psofed.simulate(FLEET, trials=128, precision=0.5, metrics="server_msd")
    assert server.stopping is not None
    assert server.stopping.metric == "server_msd"
    for wrong in (0, -1.0, "fast", True):
        with pytest.raises(psofed.InvalidValueError, match="precision"):
            psofed.simulate(FLEET, precision=wrong)


def test_every_point_of_a_sweep_gets_the_trials_it_needs_and_resumes(tmp_path: Path) -> None:
    points = {"attack.num_byzantine": [0, 4]}
    swept = psofed.sweep(FLEET, points, trials=256, precision=0.3, store=tmp_path)
    few, many = (cell.trials for cell in swept.cells)
    assert few < many
    kept = sorted(tmp_path.glob("*.cell"))
    kept[0].unlink()
    again = psofed.sweep(FLEET, points, trials=256, precision=0.3, store=tmp_path)
    assert again.to_json() == swept.to_json()
    alone = psofed.simulate(FLEET.replace(attack=Gaussian(num_byzantine=4)), trials=256, precision=0.3)
    assert np.array_equal(alone.steady_state["network_mse"], swept.cells[1].steady_state["network_mse"])
    assert alone.network_mse == swept.cells[1].estimate("network_mse")


def test_a_run_does_not_stop_before_rare_attacks_were_seen() -> None:
    """Without the trials that decide the mean, an interval is narrow and misses it."""
    rare = FLEET.replace(attack=Gaussian(num_byzantine=2, probability=1e-3, variance=1e3))
    assert psofed.simulate(FLEET, trials=400, precision=2.0).trials == 32
    assert psofed.simulate(rare, trials=400, precision=2.0).trials == 256


def test_intervals_hold_where_runs_stop() -> None:
    spec = importlib.util.spec_from_file_location("precision_coverage", STUDY)
    assert spec is not None
    assert spec.loader is not None
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    for name in ("normal, 20 % deviation", "log-normal, σ = 1", "one trial in 10 is 10 times as large"):
        held, _, _ = study.coverage(study.LAWS[name], 1.0, 512, 300)
        assert held > 0.93, name  # 0.95 less about 1.6 standard errors of 300 samples
