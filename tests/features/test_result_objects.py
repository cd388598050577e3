"""Results as objects: what they print, show in notebooks, draw, and give as tables."""

import copy
import json
import math
import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import psofed
from psofed import PsofedError, Scenario, compare, difference, load_result, predict, simulate, sweep, tune
from psofed.attacks import Gaussian, SignFlip
from psofed.common.equality import same_values
from psofed.data.own_data import read_data
from psofed.results.differences import paired_difference
from psofed.studies.comparison import compare_results
from psofed.studies.sweeps import SweepResult, make_grid
from psofed.studies.sweeps.chart import choose_layout

pytestmark = [pytest.mark.results, pytest.mark.render, pytest.mark.studies]

FLEET = Scenario(num_clients=8, dimension=4, iterations=80, attack=Gaussian(num_byzantine=2))


@pytest.fixture(scope="module")
def few():
    return simulate(FLEET, trials=20, seed=4)


@pytest.fixture(scope="module")
def grid():
    fields = {
        "num_shared": [1, 2, 4],
        "attack": [None, SignFlip(num_byzantine=2)],
        ("stepsize", "iterations"): [(0.1, 60), (9.0, 60)],
    }
    return sweep(FLEET, fields, trials=6)  # the last stepsize diverges


@pytest.fixture(scope="module")
def every(few, grid):
    return {
        "simulation": few,
        "difference": few - simulate(FLEET.replace(num_shared=4), trials=20, seed=4),
        "prediction": predict(FLEET),
        "tuning": tune(FLEET, shared=[1, 4]),
        "comparison": compare(FLEET, trials=8),
        "sweep": grid,
    }


NAMES = ("simulation", "difference", "prediction", "tuning", "comparison", "sweep")


@pytest.mark.parametrize("name", NAMES)
def test_every_result_says_shows_draws_and_tabulates_itself(every, name: str) -> None:
    from matplotlib.figure import Figure

    result = every[name]
    text = repr(result)
    assert len(text.splitlines()) <= 30
    assert text == str(result)
    assert text.startswith(result.report().headline[:60])  # the answer first
    html = result._repr_html_()
    assert "<table" in html
    assert "data:image/png;base64," in html
    assert "<script" not in html
    assert isinstance(result.plot(), Figure)
    assert len(result.to_dataframe()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_result_equals_its_copies_and_no_other(every, name: str) -> None:
    result = every[name]
    for copied in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert copied == result
        assert hash(copied) == hash(result)
        assert repr(copied) == repr(result)
        assert copied.to_dataframe().equals(result.to_dataframe())
    assert not any(result == other for key, other in every.items() if key != name)
    assert result != "text"


def test_results_of_the_same_run_are_equal_and_of_others_are_not(few, grid) -> None:
    assert simulate(FLEET, trials=20, seed=4) == few
    assert simulate(FLEET, trials=20, seed=5) != few
    assert simulate(FLEET.replace(num_shared=2), trials=20, seed=4) != few
    assert sweep(grid.grid.base, {"num_shared": [1]}, trials=2) != grid
    assert np.isinf(grid.cells[1].steady_state["network_mse"]).any()  # infinities and NaN are equal to themselves
    assert predict(FLEET) == predict(FLEET) != predict(FLEET.replace(num_shared=2))
    assert predict(FLEET) != predict(FLEET, theory="paper")
    assert tune(FLEET, shared=[1]) == tune(FLEET, shared=[1]) != tune(FLEET, shared=[2])
    assert compare(FLEET, trials=4) == compare(FLEET, trials=4) != compare(FLEET, trials=5)


def test_a_predicted_error_is_a_number_that_also_has_a_mean_and_decibels() -> None:
    prediction = predict(FLEET)
    for level in (prediction.network_mse, prediction.server_msd, prediction.test_mse):
        assert isinstance(level, float)
        assert level.mean == level
        assert level.decibels == pytest.approx(10 * math.log10(level))
        assert type(level + 0) is float
        assert json.loads(json.dumps(level)) == level
        assert pickle.loads(pickle.dumps(level)).decibels == level.decibels
    assert math.isinf(predict(FLEET.replace(stepsize=9.0)).network_mse.decibels)
    json.dumps(prediction.to_json(), allow_nan=False)


def test_a_plot_whose_value_is_thrown_away_is_shown_after_the_cell(few, monkeypatch) -> None:
    """As in a notebook, ``result.plot();`` has no value to show."""
    shown, waiting = [], []
    events = SimpleNamespace(register=lambda _, call: waiting.append(call), unregister=lambda _, call: None)
    notebook = SimpleNamespace(kernel=None, events=events)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: notebook))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=shown.append))
    thrown_away, value = few.plot(), few.plot()
    value._repr_png_()  # shown as the cell's value
    for call in waiting:
        call()
    assert shown == [thrown_away]
    notebook.__dict__.pop("kernel")  # a terminal cannot show pictures
    few.plot()
    assert len(waiting) == 2


def test_tables_of_a_simulation_are_tidy(few) -> None:
    trials, curve, clients = (few.to_dataframe(name) for name in ("trials", "curve", "clients"))
    assert len(trials) == 20
    assert list(trials["network_mse"]) == list(few.steady_state["network_mse"])
    assert len(curve) == 4 * 80
    assert set(curve["metric"]) == {"network_mse", "server_msd", "test_mse", "honest_mse"}
    assert list(clients["is_byzantine"]) == [True] * 2 + [False] * 6
    with pytest.raises(PsofedError, match=r"Did you mean `trials`\?"):
        few.to_dataframe("trial")


def test_variables_in_files_say_what_they_are(few, grid) -> None:
    for data in (few.to_dataset(), grid.to_dataset()):
        for name, variable in data.variables.items():
            assert variable.attrs.get("long_name"), name
        for metric in ("network_mse", "server_msd", "test_mse"):
            assert data[metric].attrs["units"] == "1"


def test_clients_go_by_name_where_they_have_names(tmp_path) -> None:
    rng = np.random.default_rng(1)
    lines = ["station,a,b,y"]
    for station in ("Ada", "Bo", "Cy"):
        lines += [f"{station},{x:.4f},{z:.4f},{x - z + 0.1 * e:.4f}" for x, z, e in rng.standard_normal((30, 3))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = read_data(tmp_path / "t.csv", "station", "y")
    result = simulate(Scenario.from_data(data, num_participants=2), trials=4)
    assert result.to_dataset()["client"].values.tolist() == ["Ada", "Bo", "Cy"]
    assert float(result.to_dataset()["noise_variance"].sel(client="Bo")) == result.fleet.noise_variance[1]
    result.save(tmp_path / "r.nc")
    loaded = load_result(tmp_path / "r.nc")
    assert loaded.fleet.names == ("Ada", "Bo", "Cy")
    assert loaded.to_dataframe("clients")["client"].tolist() == ["Ada", "Bo", "Cy"]
    assert "alone_mse" in loaded.to_dataframe("clients")


# Differences.


def test_results_of_one_seed_and_fleet_are_pairs(few) -> None:
    other = simulate(FLEET.replace(num_shared=4, stepsize=0.1), trials=12, seed=4)
    found = difference(few, other)
    assert found.trials == (12, 12)  # those that both have
    swapped = other - few
    assert swapped.network_mse.decibels == pytest.approx(-found.network_mse.decibels)


@pytest.mark.parametrize(
    ("changes", "seed", "words"),
    [
        ({}, 5, "seeds 4 and 5 differ"),
        ({"num_clients": 9}, 4, "8 and 9 clients"),
        ({"dimension": 5}, 4, "4 and 5 entries"),
        ({"data": psofed.Data(noise_variance=0.1)}, 4, "data.noise_variance differ"),
    ],
)
def test_results_that_are_not_pairs_are_refused_by_name(few, changes, seed: int, words: str) -> None:
    other = simulate(FLEET.replace(**changes), trials=8, seed=seed)
    with pytest.raises(PsofedError, match=f"not pairs: {words}"):
        _ = few - other


def test_only_results_have_differences(few) -> None:
    with pytest.raises(TypeError):
        _ = few - 1.0
    with pytest.raises(PsofedError, match=r"b must be a psofed\.SimulationResult.*; got 1\.0"):
        difference(few, 1.0)


def test_a_difference_against_divergence_is_said(few) -> None:
    wild = simulate(FLEET.replace(stepsize=9.0), trials=20, seed=4)
    found = few - wild
    assert found.network_mse.decibels == -math.inf
    assert "B diverges in most trials, a does not" in found.named("a", "b").describe()
    assert found.to_json()["network_mse"]["db"] is None


# Sweeps.


def test_a_saved_sweep_loads_as_it_was(grid, tmp_path) -> None:
    grid.save(tmp_path / "out")
    for path in (tmp_path / "out", tmp_path / "out" / "sweep.nc"):
        loaded = load_result(path)
        assert loaded.grid == grid.grid
        assert loaded.to_json() == grid.to_json()
        assert same_values(loaded.cells, grid.cells)
    with pytest.raises(PsofedError, match="is a folder, not a result"):
        load_result(tmp_path)


def test_a_part_of_a_sweep_is_selected_by_value_label_or_part(grid) -> None:
    one = grid.select({"attack": "sign-flip"}, num_shared=4, stepsize=0.1)
    assert len(one.cells) == 1
    assert one.cells[0] is grid.cells[2 * 4 + 1 * 2 + 0]
    assert grid.select(attack=SignFlip(num_byzantine=2)).grid.shape == (3, 1, 2)
    assert grid.select(num_shared=[1, 4]).grid.shape == (2, 2, 2)
    assert grid.select(attack="none").select(num_shared=2).grid.axes[0].values == ((2,),)
    with pytest.raises(PsofedError, match="num_shared must be one of 1, 2, 4; got 3"):
        grid.select(num_shared=3)
    with pytest.raises(PsofedError, match=r"Unknown field of this sweep `num_share`. Did you mean `num_shared`\?"):
        grid.select(num_share=3)


def test_points_of_a_sweep_are_compared_in_pairs(grid) -> None:
    common = {"attack": "none", "stepsize": 0.1}
    found = grid.difference({"num_shared": 4, **common}, {"num_shared": 1, **common})
    a, b = (grid.select(num_shared=m, **common).cells[0].steady_state["network_mse"] for m in (4, 1))
    assert found.network_mse.decibels == pytest.approx(10 * math.log10(a.mean() / b.mean()))
    assert isinstance(found, psofed.Difference)
    assert found.names == ("num_shared = 4", "num_shared = 1")
    with pytest.raises(PsofedError, match="add a value for stepsize"):
        grid.difference({"num_shared": 4, "attack": "none"}, {"num_shared": 1, **common})


def test_tables_of_a_sweep_have_a_column_for_each_field(grid) -> None:
    points, trials = grid.to_dataframe(), grid.to_dataframe("trials")
    assert len(points) == 12 * 4
    assert len(trials) == 12 * 6
    assert {"num_shared", "attack", "stepsize", "metric", "mean", "median", "diverged_trials"} <= set(points)
    assert set(trials.loc[trials["stepsize"] == 9.0, "diverged_at"] >= 0) == {True}


def test_pictures_of_sweeps_mark_divergence_and_keep_their_scale(grid) -> None:
    figure = grid.plot()
    visible = [axes for axes in figure.axes if axes.get_visible()]
    low, high = visible[0].get_ylim()
    assert high - low < 45
    markers = {line.get_marker() for axes in visible for line in axes.lines}
    assert r"$\infty$" in markers
    assert len({axes.get_ylim() for axes in visible}) == 1
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "some trials diverged" in labels


def test_theory_is_a_line_beside_the_points(grid) -> None:
    quiet = grid.select({"attack": "none", "stepsize": 0.1})
    plain, [axes] = quiet.plot(), quiet.plot(theory=True, width="column").axes
    lines = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    shared = [cell.scenario for cell in quiet.grid.cells()]
    exact = [10 * math.log10(psofed.predict(scenario).network_mse) for scenario in shared]
    assert sorted(lines[0].get_ydata()) == pytest.approx(sorted(exact))
    labels = [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]
    assert "exact theory" in labels
    assert len(plain.axes[0].lines) < len(axes.lines)


def test_theory_that_no_point_has_is_refused_by_name() -> None:
    fleet = psofed.Scenario(num_clients=5, dimension=2, iterations=20, aggregation="median")
    swept = psofed.sweep(fleet, {"stepsize": [0.1, 0.2]}, trials=2)
    with pytest.raises(psofed.NotCoveredError, match='not "median"'):
        swept.plot(theory=True)
    named = psofed.sweep(fleet.replace(aggregation="mean"), {"uplink": ["same", "redrawn"]}, trials=2)
    with pytest.raises(psofed.InvalidValueError, match="theory must be left out where uplink"):
        named.plot(theory=True)


def test_results_over_other_iterations_are_not_pairs() -> None:
    fleet = psofed.Scenario(num_clients=5, dimension=2, iterations=20)
    with pytest.raises(PsofedError, match="not pairs: they average over the last 10 and 5 iterations"):
        psofed.difference(*(psofed.simulate(fleet, trials=2, tail=tail) for tail in (10, 5)))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_the_default_layout_uses_every_field_once(dimensions: int) -> None:
    fields = {
        "aggregation": ["mean", "median"],
        "attack.strength": [0.1, 0.5, 1.0, 2.0],
        "num_shared": [1, 2, 4],
        "attack.kind": ["gaussian", "constant-bias", "sign-flip"],
    }
    made = make_grid(FLEET, dict(list(fields.items())[:dimensions]))
    layout = choose_layout(SweepResult(made, ()))
    names = {
        role: made.axes[n].name
        for role, n in (("x", layout.x), ("col", layout.col), ("row", layout.row))
        if n is not None
    }
    hues = [made.axes[n].name for n in layout.hue]
    assert sorted([*names.values(), *hues]) == sorted(list(fields)[:dimensions])
    if dimensions == 4:
        assert names == {"x": "attack.strength", "col": "attack.kind", "row": "aggregation"}
        assert hues == ["num_shared"]


def test_too_large_a_picture_is_refused_before_the_work(tmp_path) -> None:
    stepsizes = [0.001 * k for k in range(1, 60)]
    fields = {"stepsize": stepsizes, "num_participants": [1, 2, 3, 4, 5, 6, 7, 8], "num_shared": [1, 2, 3, 4]}
    made = make_grid(FLEET, fields)
    with pytest.raises(PsofedError, match="at most 28 curves and 36 panels"):
        choose_layout(SweepResult(made, ()), x="num_shared", hue="stepsize")
    with pytest.raises(PsofedError, match=r"^hue must be a field that has no other role in the picture"):
        choose_layout(SweepResult(made, ()), x="num_shared", hue="num_shared")


def test_a_sweep_too_large_for_a_picture_shows_its_table(grid) -> None:
    values = {"stepsize": [0.001 * k for k in range(1, 31)], "data.fleet_seed": list(range(30))}
    made = make_grid(FLEET, values)
    large = SweepResult(made, grid.cells[:1] * 900)
    assert "<table" in large._repr_html_()
    assert "<img" not in large._repr_html_()
    assert "Draw the points" not in str(large)


def test_a_role_in_the_picture_that_does_not_exist_is_refused_by_name() -> None:
    sweep = SweepResult(make_grid(FLEET, {"stepsize": [0.1, 0.2]}), ())
    with pytest.raises(TypeError, match=r"Unknown argument of plot\(\) `hu`. Did you mean `hue`\?"):
        sweep.plot(hu="stepsize")
    with pytest.raises(ValueError, match=r"^x must be the name of a field of this sweep; got 3"):
        sweep.plot(x=3)


# Comparisons.


def test_a_comparison_of_heavy_tails_is_open_and_not_a_contradiction() -> None:
    result, prediction = simulate(FLEET, trials=40), predict(FLEET)
    wild = np.full(40, 0.5 * prediction.network_mse)
    wild[0] = 20 * prediction.network_mse
    rows = compare_results(
        replace(result, steady_state={**result.steady_state, "network_mse": wild / 3}), prediction
    ).metrics
    assert rows[0].verdict in ("undecided", "agrees")
    off = compare_results(
        replace(result, steady_state={**result.steady_state, "network_mse": 3 * result.steady_state["network_mse"]}),
        prediction,
    )
    assert off.metrics[0].verdict == "differs"
    assert not off.agrees


def test_few_trials_are_allowed_as_many_standard_errors_as_students_t_says() -> None:
    found = [compare(FLEET, trials=trials) for trials in (3, 40)]
    assert [round(each.standard_errors, 1) for each in found] == [46.3, 3.8]
    assert found[0].to_json()["standard_errors"] == found[0].standard_errors
    with pytest.raises(PsofedError, match="trials must be at least 2; got 1"):
        compare(FLEET, trials=1)


def test_a_simulation_is_not_saved_under_a_name_that_promises_something_else(tmp_path) -> None:
    with pytest.raises(PsofedError, match=r"must be a name ending in \.nc"):
        simulate(FLEET, trials=2).save(tmp_path / "result.json")
    assert not list(tmp_path.iterdir())


def test_nothing_against_something_is_infinitely_less() -> None:
    nothing, something = np.zeros(8), np.linspace(0.9, 1.1, 8)
    assert paired_difference(nothing, something).decibels == -math.inf
    assert paired_difference(something, nothing).decibels == math.inf
    assert paired_difference(nothing, nothing).decibels == 0.0
