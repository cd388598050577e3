"""Which scenarios a grid file means, and what it says of mistakes."""

import pytest

from psofed.common.errors import InvalidValueError, PsofedError, UnknownFieldError
from psofed.scenario import Uniform
from psofed.studies.sweeps import read_grid
from psofed.studies.sweeps.grid import grid_from_mapping

pytestmark = pytest.mark.studies

BASE = {"num_clients": 8, "dimension": 4}


def test_a_grid_visits_every_combination_with_the_last_field_fastest():
    grid = grid_from_mapping({"base": BASE, "grid": {"num_shared": [1, 2], "stepsize": [0.1, 0.2, 0.3]}})
    assert grid.shape == (2, 3)
    assert [(s.num_shared, s.stepsize) for s in grid.scenarios()][:4] == [(1, 0.1), (1, 0.2), (1, 0.3), (2, 0.1)]


def test_fields_of_tables_vary_by_dotted_name_written_either_way(tmp_path):
    dotted = tmp_path / "dotted.toml"
    dotted.write_text("[base]\nnum_clients = 8\ndimension = 4\n[grid]\nattack.num_byzantine = [1, 2]\n")
    quoted = tmp_path / "quoted.toml"
    quoted.write_text('[base]\nnum_clients = 8\ndimension = 4\n[grid]\n"attack.num_byzantine" = [1, 2]\n')
    assert read_grid(dotted) == read_grid(quoted)
    assert [s.num_byzantine for s in read_grid(dotted).scenarios()] == [1, 2]


def test_fields_in_one_key_change_together():
    values = {"base": BASE, "grid": {"stepsize, iterations": [[0.01, 800], [0.1, 80]]}}
    assert [(s.stepsize, s.iterations) for s in grid_from_mapping(values).scenarios()] == [(0.01, 800), (0.1, 80)]


def test_values_may_be_ranges_and_lists():
    grid = grid_from_mapping({"base": BASE, "grid": {"data": {"input_variance": [1.0, {"uniform": [0.5, 1.0]}]}}})
    assert [s.data.input_variance for s in grid.scenarios()] == [1.0, Uniform(0.5, 1.0)]
    assert grid.axes[0].labels == ["1.0", '{"uniform": [0.5, 1.0]}']


def test_a_base_may_be_a_file_beside_the_grid(tmp_path):
    (tmp_path / "fleet.toml").write_text("num_clients = 8\ndimension = 4\n")
    (tmp_path / "grid.toml").write_text('base = "fleet.toml"\ntrials = 7\n[grid]\nnum_shared = [1, 4]\n')
    grid = read_grid(tmp_path / "grid.toml")
    assert (grid.base.num_clients, grid.trials) == (8, 7)


def test_a_tail_below_one_is_a_fraction_of_the_iterations():
    values = {"base": BASE, "tail": 0.5, "grid": {"iterations": [100, 40]}}
    assert [cell.tail for cell in grid_from_mapping(values).cells()] == [50, 20]


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (
            {"base": BASE, "grid": {"num_shared": [1, 9]}},
            InvalidValueError,
            r"num_shared must be between 1 and 4 \(the dimension\)",
        ),
        ({"base": BASE, "grid": {"stepsizes": [0.1]}}, UnknownFieldError, "stepsizes"),
        ({"base": BASE, "grid": {"stepsize": 0.1}}, InvalidValueError, "a list of values"),
        ({"base": BASE, "grid": {"stepsize": []}}, InvalidValueError, "a list of values"),
        ({"base": BASE, "grid": {"stepsize": [0.1, 0.1]}}, InvalidValueError, "distinct"),
        ({"base": BASE, "grid": {"stepsize, iterations": [[0.1]]}}, InvalidValueError, "2 values"),
        ({"base": BASE, "grid": {"stepsize": [0.1], "stepsize, iterations": [[0.1, 9]]}}, InvalidValueError, "twice"),
        ({"base": BASE, "grid": {}}, InvalidValueError, r"\[grid\]"),
        ({"grid": {"stepsize": [0.1]}}, InvalidValueError, r"\[base\]"),
        ({"base": BASE, "grids": {}}, UnknownFieldError, "grids"),
        ({"base": BASE, "trials": 0, "grid": {"stepsize": [0.1]}}, InvalidValueError, "trials must be at least 1"),
        ({"base": BASE, "tail": -1, "grid": {"stepsize": [0.1]}}, InvalidValueError, "tail must be above 0"),
    ],
)
def test_a_mistake_in_a_grid_is_named(values, error, words):
    with pytest.raises(error, match=words):
        grid_from_mapping(values)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(PsofedError, match=r"nowhere\.toml: no such file"):
        read_grid(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("[base\n")
    with pytest.raises(PsofedError, match="not valid TOML"):
        read_grid(tmp_path / "broken.toml")


def test_a_file_may_name_parts_describe_them_and_leave_them_out():
    base = {**BASE, "attack": {"num_byzantine": 2}}
    told = {"kind": "sign-flip", "num_byzantine": 1, "scale": 3.0}
    grid = grid_from_mapping({"base": base, "grid": {"attack": ["none", "constant-bias", told]}})
    assert grid.axes[0].labels == ["none", "constant-bias", "sign-flip"]
    nobody, named, described = (scenario.attack for scenario in grid.scenarios())
    assert nobody is None
    assert (named.kind, named.num_byzantine) == ("constant-bias", 2)  # who attacks is the base's
    assert (described.num_byzantine, described.scale) == (1, 3.0)
    rules = {"aggregation": ["mean", {"kind": "krum", "tolerated": 0}], "pre_aggregation": ["none", "nnm"]}
    every = list(grid_from_mapping({"base": BASE, "grid": rules}).scenarios())
    assert [s.aggregation.kind for s in every] == ["mean", "mean", "krum", "krum"]
    assert every[3].aggregation.tolerated == 0
    assert [s.pre_aggregation is None for s in every[:2]] == [True, False]


def test_tables_of_parts_are_checked_like_those_of_a_scenario():
    for field, value, message in (
        ("attack", {"kind": "sign-flip"}, r"attack\.num_byzantine is required"),
        ("aggregation", {"kind": "krum", "toler": 1}, r"Did you mean `aggregation\.tolerated"),
        ("aggregation", {}, r"aggregation\.kind is required"),
        ("pre_aggregation", "nmm", r'pre_aggregation\.kind must be one of "arc", "bucketing", "nnm"'),
    ):
        with pytest.raises(PsofedError, match=message):
            list(grid_from_mapping({"base": BASE, "grid": {field: [value]}}).scenarios())
