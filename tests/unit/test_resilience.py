"""The resilience matrix: what its cells are, how they are compared, what is written."""

import csv
import json
import math

import numpy as np
import pytest

from psofed.paper import resilience
from psofed.paper.resilience import (
    ATTACKS,
    MODES,
    OCCASIONS,
    RULES,
    Cell,
    Matrix,
    participants,
    run_resilience,
)
from psofed.parts.aggregations import Krum
from psofed.parts.registry import part_names


def two_cells(few: list[float], many: list[float]) -> tuple[Matrix, Cell, Cell]:
    a, b = (Cell("persistent", "mimic", "mean", m, 30 // m) for m in (1, 5))
    states = {cell: {"network_mse": np.array(values)} for cell, values in ((a, few), (b, many))}
    return Matrix((1, 5), len(few), 10, 3, 0, states), a, b


def test_every_attack_and_every_rule_has_its_place() -> None:
    assert set(RULES) == set(part_names("aggregation"))
    assert {options.get("kind") for options in ATTACKS.values()} == {None, *part_names("attack")}


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("m", [1, 3, 5])
def test_equal_traffic_means_as_many_numbers_in_every_iteration(occasion: str, m: int) -> None:
    cell = Cell(occasion, "Gaussian", "krum", m, participants("equal traffic", m))
    assert cell.scenario(10).num_participants * cell.scenario(10).num_shared == 30
    assert cell.scenario(10).aggregation == Krum(tolerated=30 // m // 5)


def test_sharing_everything_is_the_same_cell_in_both_modes() -> None:
    matrix, _, _ = two_cells([1.0, 1.0], [1.0, 1.0])
    assert len({matrix.cell("persistent", mode, "mimic", "mean", 5) for mode in MODES}) == 1


def test_a_gain_is_the_ratio_of_means_in_decibels() -> None:
    matrix, few, many = two_cells([0.9, 1.1, 1.0, 1.0], [9.0, 11.0, 10.0, 10.0])
    gain = matrix.gain(few, many, "network_mse")
    assert math.isclose(gain.decibels, 10.0)
    # The trials are pairs with the same ratio, so nothing is uncertain.
    assert np.allclose(gain.interval, 10.0)
    assert gain.is_significant


def test_a_gain_within_its_interval_is_not_significant() -> None:
    matrix, few, many = two_cells([1.0, 2.0, 3.0, 2.0], [2.1, 2.0, 1.0, 3.0])
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


def test_the_command_line_reaches_the_matrix(tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from psofed.cli import app

    seen = {}

    def pretend(out, quick, trials, threads, progress, seed):
        seen.update(out=out, quick=quick, trials=trials, seed=seed)

    monkeypatch.setattr(resilience, "run_resilience", pretend)
    result = CliRunner().invoke(
        app, ["reproduce", "resilience", "--quick", "--trials", "4", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert seen == {"out": tmp_path, "quick": True, "trials": 4, "seed": 0}
    assert "resilience.json" in result.output


def test_the_matrix_is_written_as_pictures_and_as_numbers(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(resilience, "RULES", ("mean", "krum"))
    monkeypatch.setattr(resilience, "ATTACKS", {"none": {}, "update ×10": ATTACKS["update ×10"]})
    monkeypatch.setattr("psofed.paper.resilience_plots.RULES", resilience.RULES)
    monkeypatch.setattr("psofed.paper.resilience_plots.ATTACKS", resilience.ATTACKS)
    seen: list[tuple[int, int]] = []
    run_resilience(tmp_path, quick=True, trials=4, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (23, 24)
    for suffix in ("svg", "png"):
        assert len(list(tmp_path.glob(f"resilience*.{suffix}"))) == 6
    document = json.loads((tmp_path / "resilience.json").read_text())
    assert len(document["cells"]) == 24
    assert len(document["gains"]) == 2 * 2 * 2 * 2 * 3
    assert any(cell["network_mse"]["mean"] == "diverged" for cell in document["cells"])
    with (tmp_path / "resilience.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 24 * 3
