"""The resilience matrix: what its cells are, how they are compared, what is written."""

import csv
import json
import math

import numpy as np
import pytest

from psofed import load_result
from psofed.paper import resilience, resilience_answers
from psofed.paper.resilience import (
    ATTACKS,
    MODES,
    OCCASIONS,
    RULES,
    Matrix,
    Place,
    carried_away,
    make_attack,
    make_rule,
    participants,
    quantiles_db,
    resilience_grid,
    run_resilience,
)
from psofed.paper.resilience_answers import attacks_on_uploads, count_gains, worst_attack
from psofed.parts.aggregations import Krum
from psofed.parts.registry import part_names
from psofed.studies.sweeps import Axis, CellResult, Grid, SweepResult

pytestmark = [pytest.mark.paper, pytest.mark.takes(16)]


def cell_of(values: list[float], change: float = 0.0) -> CellResult:
    level = np.array(values)
    metrics = ("network_mse", "server_msd", "test_mse")
    changes = np.where(np.isfinite(level), change, math.nan)
    diverged = np.where(np.isinf(level), 7, -1)
    return CellResult(dict.fromkeys(metrics, level), dict.fromkeys(metrics, changes), diverged, "", 0.0)


def two_cells(few: list[float], many: list[float]) -> tuple[Matrix, Place, Place]:
    a, b = (Place("persistent", "mimic", "mean", m, 30 // m) for m in (1, 5))
    designs = Axis(("num_shared",), ((1,), (5,)), (a.design_name, b.design_name))
    attacks = Axis(("attack",), ((make_attack("persistent", "mimic"),),), (a.attack_name,))
    base = resilience_grid().base
    sweep = SweepResult(Grid(base, (attacks, designs), trials=len(few)), (cell_of(few), cell_of(many)))
    return Matrix(sweep, (1, 5)), a, b


def test_every_attack_and_every_rule_has_its_place() -> None:
    undefended = {rule for rule in RULES if "+" not in rule}
    assert undefended == set(part_names("aggregation")) - {"mda"}  # too many ways with 30 participants
    assert [make_rule(rule, 6)[1].kind for rule in RULES if "+" in rule] == ["cusum", "cusum"]
    assert {options.get("kind") for options in ATTACKS.values()} == {None, *part_names("attack")}


@pytest.mark.parametrize("m", [1, 3, 5])
def test_equal_traffic_means_as_many_numbers_in_every_iteration(m: int) -> None:
    count = participants("equal traffic", m)
    assert count * m == 30
    assert make_rule("krum", count) == (Krum(tolerated=30 // m // 5), None)


def test_the_grid_holds_every_combination_once() -> None:
    grid = resilience_grid(shared=(1, 5), trials=4, iterations=30)
    assert grid.shape == (len(OCCASIONS) * len(ATTACKS), 3 * len(RULES))
    # Without attack both occasions are the same cell, computed once.
    assert len({cell.key for cell in grid.cells()}) == (2 * len(ATTACKS) - 1) * 3 * len(RULES)


def test_sharing_everything_is_the_same_place_in_both_modes() -> None:
    matrix, _, _ = two_cells([1.0, 1.0], [1.0, 1.0])
    assert len({matrix.place("persistent", mode, "mimic", "mean", 5) for mode in MODES}) == 1


def test_a_gain_is_the_ratio_of_means_in_decibels() -> None:
    matrix, few, many = two_cells([0.9, 1.1, 1.0, 1.0], [9.0, 11.0, 10.0, 10.0])
    gain = matrix.gain(few, many, "network_mse")
    assert math.isclose(gain.decibels, 10.0)
    # The trials are pairs with the same ratio, so nothing is uncertain.
    assert np.allclose(gain.interval, 10.0)
    assert gain.is_significant


def test_a_gain_within_its_interval_is_not_significant() -> None:
    matrix, few, many = two_cells([1.0, 1.2, 1.3, 1.1], [1.2, 1.0, 1.1, 1.4])
    gain = matrix.gain(few, many, "network_mse")
    assert gain.interval[0] < 0 < gain.interval[1]
    assert not gain.is_significant


def test_the_one_that_always_diverges_loses() -> None:
    matrix, few, many = two_cells([1.0] * 16, [math.inf] * 16)
    assert matrix.gain(few, many, "network_mse").decibels == math.inf
    assert matrix.gain(many, few, "network_mse").decibels == -math.inf
    assert matrix.gain(many, few, "network_mse").is_significant


def test_nothing_is_claimed_where_both_diverge_or_one_does_by_chance() -> None:
    matrix, few, many = two_cells([1.0] * 16, [1.0] * 15 + [math.inf])
    assert not matrix.gain(few, many, "network_mse").is_significant
    assert not matrix.gain(many, many, "network_mse").is_significant


def test_a_trial_is_carried_away_if_it_knows_less_than_nothing() -> None:
    cell = cell_of([0.1, 0.2, 5.0, math.inf], change=1.0)
    found = carried_away(cell)
    assert found["carried_away"] == 0.5
    assert found["growth_db"] == pytest.approx(10 * math.log10(5.5 / 4.5))
    assert quantiles_db(cell, "server_msd")[-1] == math.inf
    assert quantiles_db(cell, "server_msd")[2] == pytest.approx(10 * math.log10(0.2))


def fill(matrix: Matrix, attack: str, few: list[float], many: list[float]) -> Matrix:
    """Add another attack's two cells to a matrix of two."""
    attacks, designs = matrix.sweep.grid.axes
    more = Axis(
        attacks.fields,
        (*attacks.values, (make_attack("persistent", attack),)),
        (*attacks.names, f"persistent: {attack}"),
    )
    grid = Grid(matrix.sweep.grid.base, (more, designs), trials=len(few))
    return Matrix(SweepResult(grid, (*matrix.sweep.cells, cell_of(few), cell_of(many))), matrix.shared)


def test_the_worst_attack_is_the_one_with_the_highest_typical_level(monkeypatch) -> None:
    calm, wild = [1.0, 1.1, 0.9] * 6, [0.5] * 17 + [1e9]  # a mean of 1e8 that one trial decides
    matrix = fill(two_cells(calm, calm)[0], "Min-Max", wild, wild)
    monkeypatch.setattr(
        resilience_answers, "ATTACKS", {label: ATTACKS[label] for label in ("mimic", "Min-Max")}
    )
    matrix = fill(matrix, "none", [0.1] * 18, [0.1] * 18)
    worst = worst_attack(matrix, "persistent", "mean", 1, 30, "network_mse")
    assert worst.attack == "mimic"
    assert worst.away == pytest.approx(1 / 3)


def test_an_attack_that_costs_nothing_is_not_named(monkeypatch) -> None:
    monkeypatch.setattr(resilience_answers, "ATTACKS", {"mimic": ATTACKS["mimic"]})
    matrix = fill(two_cells([1.0] * 9, [1.0] * 9)[0], "none", [1.0] * 9, [1.0] * 9)
    assert worst_attack(matrix, "persistent", "mean", 1, 30, "network_mse").attack == ""


def test_gains_are_counted_by_sign_and_size(monkeypatch) -> None:
    low, high, hardly = [1.0, 1.01] * 9, [2.0, 2.02] * 9, [1.05, 1.0605] * 9
    matrix = fill(two_cells(low, high)[0], "Min-Max", hardly, low)
    labels = {label: ATTACKS[label] for label in ("mimic", "Min-Max")}
    monkeypatch.setattr(resilience_answers, "ATTACKS", labels)
    gains = count_gains(matrix, "persistent", "equal traffic", "network_mse", rules=["mean"])
    assert (gains.total, gains.better, gains.clearly_better) == (2, 1, 1)
    assert (gains.worse, gains.clearly_worse) == (1, 0)  # 0.2 dB


def test_poisoned_data_are_no_attack_on_uploads() -> None:
    assert set(ATTACKS) - set(attacks_on_uploads()) == {"none", "poisoned labels", "poisoned inputs"}


def test_the_command_line_reaches_the_matrix(tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from psofed.cli import app

    seen = {}

    def pretend(out, quick, trials, threads, progress, seed, executor):
        seen.update(out=out, quick=quick, trials=trials, seed=seed)

    monkeypatch.setattr(resilience, "run_resilience", pretend)
    result = CliRunner().invoke(
        app, ["reproduce", "resilience", "--quick", "--trials", "4", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert seen == {"out": tmp_path, "quick": True, "trials": 4, "seed": 0}
    assert "resilience.json" in result.output


def test_the_matrix_is_written_kept_and_not_computed_twice(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(resilience, "RULES", ("mean", "krum"))
    monkeypatch.setattr(resilience, "ATTACKS", {"none": {}, "update ×10": ATTACKS["update ×10"]})
    monkeypatch.setattr("psofed.paper.resilience_plots.RULES", resilience.RULES)
    monkeypatch.setattr("psofed.paper.resilience_plots.ATTACKS", resilience.ATTACKS)
    monkeypatch.setattr(resilience_answers, "RULES", resilience.RULES)
    monkeypatch.setattr(resilience_answers, "ATTACKS", resilience.ATTACKS)
    seen: list[tuple[float, int]] = []
    run_resilience(tmp_path, quick=True, trials=4, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (18, 18)
    for suffix in ("svg", "png"):
        assert len(list(tmp_path.glob(f"resilience*.{suffix}"))) == 6
    document = json.loads((tmp_path / "resilience.json").read_text())
    assert len(document["cells"]) == 24
    assert len(document["gains"]) == 2 * 2 * 2 * 2 * 3
    lost = [cell for cell in document["cells"] if cell["carried_away"] == 1.0]
    assert lost
    assert all(cell["network_mse"]["mean"] is None for cell in lost if cell["diverged_trials"])
    with (tmp_path / "resilience.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 24 * 3
    assert len(load_result(tmp_path / "resilience.nc").cells) == 4 * 6
    tables = (tmp_path / "resilience.md").read_text(encoding="utf-8")
    assert "| `krum` |" in tables
    assert "| persistent | update ×10 | `mean` | M = 1, 6 | 100 % |" in tables
    seen.clear()
    monkeypatch.setattr("psofed.render.style.save_picture", lambda *_, **__: None)  # they are there
    run_resilience(tmp_path, quick=True, trials=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(18, 18)]
