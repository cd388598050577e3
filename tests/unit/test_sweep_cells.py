"""Cells: their keys, how they are kept, and what is computed again."""

import dataclasses

import numpy as np
import pytest

import psofed
from psofed.common.equality import same_values
from psofed.common.errors import PsofedError
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import find_part, part_names
from psofed.scenario import Scenario
from psofed.studies.sweeps import Axis, Cell, CellStore, Grid, compute_cell, run_cells, run_sweep
from psofed.studies.sweeps import execute as execute_module

pytestmark = pytest.mark.studies

SCENARIO = Scenario(
    num_clients=8, dimension=4, num_participants=3, iterations=60, attack=Gaussian(num_byzantine=3, probability=0.5)
)
CELL = Cell(SCENARIO, trials=5, seed=3, tail=20)


@pytest.fixture
def computed(monkeypatch):
    """Record which cells are really computed."""
    calls = []

    def watched(cell, progress=None):
        calls.append(cell)
        return compute_cell(cell, progress)

    monkeypatch.setattr(execute_module, "compute_cell", watched)
    return calls


def test_a_cell_holds_what_simulate_finds_bit_for_bit():
    result = compute_cell(CELL)
    direct = psofed.simulate(SCENARIO, trials=5, seed=3, tail=20)
    for metric, values in direct.steady_state.items():
        assert result.steady_state[metric].tobytes() == values.tobytes()


def test_everything_that_decides_a_result_changes_the_key():
    others = [
        dataclasses.replace(CELL, trials=6),
        dataclasses.replace(CELL, seed=4),
        dataclasses.replace(CELL, tail=10),
        dataclasses.replace(CELL, scenario=SCENARIO.replace(stepsize=0.1)),
        dataclasses.replace(CELL, scenario=SCENARIO.replace(uplink="redrawn")),
    ]
    assert len({cell.key for cell in [CELL, *others]}) == 1 + len(others)
    assert dataclasses.replace(CELL).key == CELL.key


def test_the_key_changes_with_the_version_and_with_the_engine_sources(monkeypatch):
    monkeypatch.setattr("psofed.studies.sweeps.cell.__version__", "99")
    other_version = dataclasses.replace(CELL).key
    monkeypatch.undo()
    monkeypatch.setattr("psofed.studies.sweeps.cell.engine_digest", lambda: "other")
    other_engine = dataclasses.replace(CELL).key
    monkeypatch.undo()
    assert len({CELL.key, other_version, other_engine}) == 3


@pytest.mark.parametrize("change", [{"num_byzantine": 0}, {"probability": 0.0}])
@pytest.mark.parametrize("kind", part_names("attack"))
def test_an_attack_that_never_happens_is_no_attack_to_the_last_bit(kind, change):
    idle = find_part("attack", kind)(**{"num_byzantine": 3, **change})
    assert Cell(SCENARIO.replace(attack=idle), 5).key == Cell(SCENARIO.replace(attack=None), 5).key


def test_an_attack_of_no_strength_is_a_cell_of_its_own_with_the_numbers_of_no_attack():
    harmless = SCENARIO.replace(attack=SCENARIO.attack.replace(variance=0.0))
    assert Cell(harmless, trials=5).key != Cell(SCENARIO.replace(attack=None), trials=5).key
    with_attack = psofed.simulate(harmless, trials=5)
    without = psofed.simulate(SCENARIO.replace(attack=None), trials=5)
    # An attacked number is formed as a model and turned back into an error, which rounds.
    np.testing.assert_allclose(with_attack.steady_state["network_mse"], without.steady_state["network_mse"], rtol=1e-12)


def test_a_kept_cell_is_not_computed_again_and_keeps_its_bits(tmp_path, computed):
    store = CellStore(tmp_path / "cells")
    first = run_cells([CELL], store=store)[0]
    again = run_cells([CELL], store=store)[0]
    assert len(computed) == 1
    assert same_values(again, first)


def test_equal_cells_are_computed_once(computed):
    run_cells([CELL, dataclasses.replace(CELL), CELL])
    assert len(computed) == 1


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "foreign"])
def test_a_damaged_cell_is_noticed_and_redone(tmp_path, computed, damage):
    store = CellStore(tmp_path)
    first = run_cells([CELL], store=store)[0]
    path = store.path(CELL)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    elif damage == "truncate":
        del content[-100:]
    elif damage == "empty":
        content.clear()
    else:
        other = dataclasses.replace(CELL, seed=9)
        run_cells([other], store=store)
        content[:] = store.path(other).read_bytes()
        computed.pop()
    path.write_bytes(bytes(content))
    again = run_cells([CELL], store=store)[0]
    assert store.damaged == [path]
    assert len(computed) == 2
    assert same_values(again, first)
    assert same_values(CellStore(tmp_path).load(CELL), first)


def test_nothing_but_whole_cells_is_left_in_the_folder(tmp_path):
    store = CellStore(tmp_path)
    run_cells([CELL], store=store)
    assert [path.name for path in tmp_path.iterdir()] == [f"{CELL.key}.cell"]


def test_a_file_where_the_cells_should_be_is_refused(tmp_path):
    (tmp_path / "cells").write_text("")
    with pytest.raises(PsofedError, match="needs a folder"):
        CellStore(tmp_path / "cells")


def test_a_worker_with_other_sources_is_refused(monkeypatch):
    monkeypatch.setattr(execute_module, "engine_digest", lambda: "other")
    with pytest.raises(PsofedError, match="same version"):
        run_cells([CELL])


def test_an_error_in_one_cell_ends_the_others_and_keeps_the_finished(tmp_path, monkeypatch):
    bad = dataclasses.replace(CELL, seed=77)

    def failing(cell, progress=None):
        if cell == bad:
            raise RuntimeError("worker died")
        return compute_cell(cell, progress)

    monkeypatch.setattr(execute_module, "compute_cell", failing)
    store = CellStore(tmp_path)
    long_one = Cell(SCENARIO.replace(iterations=10_000_000), trials=16)
    with pytest.raises(RuntimeError, match="worker died"):
        run_cells([long_one, CELL, bad], threads=3, store=store)
    assert store.load(long_one) is None


def test_progress_ends_at_its_total():
    seen = []
    run_cells([Cell(SCENARIO.replace(iterations=20_000), trials=16)], progress=lambda *now: seen.append(now))
    assert seen[-1][0] == pytest.approx(seen[-1][1], abs=1)


def test_a_sweep_is_labelled_by_the_fields_that_vary(tmp_path):
    grid = Grid(
        SCENARIO,
        (Axis(("num_shared",), ((1,), (4,))), Axis(("stepsize", "iterations"), ((0.05, 80), (0.1, 60), (0.2, 40)))),
        trials=6,
    )
    result = run_sweep(grid)
    data = result.to_dataset()
    assert dict(data["network_mse"].sizes) == {"num_shared": 2, "stepsize": 3, "trial": 6}
    point = data["network_mse"].sel(num_shared=4, stepsize=0.2).values
    direct = psofed.simulate(SCENARIO.replace(num_shared=4, stepsize=0.2, iterations=40), trials=6)
    assert point.tobytes() == direct.steady_state["network_mse"].tobytes()
    assert data["iterations"].sel(stepsize=0.1) == 60

    netcdf, table = result.save(tmp_path)
    import xarray

    with xarray.open_dataset(netcdf, engine="h5netcdf") as loaded:
        np.testing.assert_array_equal(loaded["network_mse"].values, data["network_mse"].values)
        assert Scenario.from_toml(loaded.attrs["base"]) == SCENARIO
    lines = table.read_text().splitlines()
    assert lines[0].startswith("num_shared,stepsize,metric,mean,standard_error,")
    assert len(lines) == 1 + 6 * 4  # a row per point and metric


def test_points_of_one_sweep_share_their_draws_so_differences_are_sharp():
    axis = Axis(("attack.variance",), ((0.5,), (0.55,)))
    weak, strong = run_sweep(Grid(SCENARIO, (axis,), trials=32)).cells
    difference = strong.steady_state["network_mse"] - weak.steady_state["network_mse"]
    unpaired = np.hypot(weak.estimate("network_mse").standard_error, strong.estimate("network_mse").standard_error)
    assert np.std(difference, ddof=1) / np.sqrt(32) < 0.2 * unpaired
