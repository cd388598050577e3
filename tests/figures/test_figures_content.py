"""What the nine figures hold."""

import csv
import json

import numpy as np
import pytest

import psofed
from psofed.common.errors import InvalidValueError
from psofed.paper.figures import STEPSIZES, figure_names, load_figure, paper_scenario, predict_point, published_table
from psofed.paper.model import KINDS, Quality
from psofed.paper.reproduce import choose_figures
from psofed.scenario import UPLINKS

pytestmark = [pytest.mark.paper, pytest.mark.takes(21)]

NAMES = [f"fig{number}" for number in range(1, 10)]


def test_there_are_nine_figures():
    assert list(figure_names()) == NAMES
    assert [load_figure(name).name for name in NAMES] == NAMES


@pytest.mark.parametrize(("given", "meant"), [([], NAMES), (["all"], NAMES), (["fig9", "fig2"], ["fig2", "fig9"])])
def test_figures_are_chosen_by_name(given, meant):
    assert list(choose_figures(given)) == meant


def test_an_unknown_figure_is_refused_with_those_there_are():
    with pytest.raises(InvalidValueError, match=r"fig1, fig2.*fig10"):
        choose_figures(["fig10"])


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_is_simulated_and_predicted_for_both_uplinks(reproduction, name):
    figure = reproduction.figures[name]
    for uplink in UPLINKS:
        simulated = {series.label for series in figure.select(kind="simulation", uplink=uplink)}
        exact = {series.label for series in figure.select(kind="exact-theory", uplink=uplink)}
        paper = {series.label for series in figure.panel(uplink) if series.kind == "paper-theory"}
        assert exact <= simulated
        assert exact <= paper
        if name != "fig1":
            assert exact == simulated


@pytest.mark.parametrize("name", NAMES)
def test_every_simulation_has_reached_its_steady_state(reproduction, name):
    assert reproduction.figures[name].unsteady == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_document_of_a_figure_has_the_promised_shape(saved, name):
    folder, _, _ = saved
    document = json.loads((folder / f"{name}.json").read_text())
    assert document["figure"] == name
    for series in document["series"]:
        assert {"label", "kind", "uplink", "x", "y", "y_db", "standard_error"} <= set(series)
        assert series["kind"] in KINDS
        assert series["uplink"] in (*UPLINKS, None)
        assert len(series["x"]) == len(series["y"]) == len(series["y_db"])
        np.testing.assert_allclose(10 * np.log10(series["y"]), series["y_db"], atol=1e-9)
        assert (series["standard_error"] is not None) == (series["kind"] == "simulation")
    has_published = any(series["kind"] == "published" for series in document["series"])
    assert has_published == (name in published_table())


@pytest.mark.parametrize("name", NAMES)
def test_pictures_and_tables_hold_the_same_data(saved, reproduction, name):
    import xarray

    folder, _, _ = saved
    figure = reproduction.figures[name]
    assert (folder / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    every = figure.series
    with xarray.open_dataset(folder / f"{name}.nc", engine="h5netcdf") as data:
        assert list(data["label"].values) == [series.label for series in every]
        first = data["y"].values[0]
        np.testing.assert_array_equal(first[: every[0].y.size], every[0].y)
    with (folder / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["y"]) for row in rows] == [value for series in every for value in series.y.tolist()]


def test_figures_share_their_cells():
    quality = Quality(quick=True)
    keys = {name: {cell.key for cell in load_figure(name).cells(quality)} for name in NAMES}
    assert len(keys["fig6"] & keys["fig7"]) == 2 * len(STEPSIZES)  # 5 clients of variance 0.25
    assert keys["fig2"] < keys["fig9"]


def test_full_quality_asks_for_more_trials_than_quick_and_a_given_number_beats_both():
    for name in NAMES:
        plan = load_figure(name)
        counts = [plan.cells(q)[0].trials for q in (Quality(), Quality(quick=True), Quality(trials=7))]
        assert counts[0] > counts[1]
        assert counts[2] == 7


@pytest.mark.parametrize("theory", ["exact", "paper"])
@pytest.mark.parametrize("uplink", UPLINKS)
def test_scaled_predictions_are_what_predict_says(theory, uplink):
    scenario = paper_scenario(num_byzantine=10, probability=0.3, variance=0.7, uplink=uplink, num_shared=2)
    point, direct = predict_point(scenario, theory), psofed.predict(scenario, theory=theory)
    assert point["network_mse"] == pytest.approx(direct.network_mse, rel=1e-7)
    assert point["server_msd"] == pytest.approx(direct.server_msd, rel=1e-7)
    assert point["test_mse"] == pytest.approx(direct.test_mse, rel=1e-7)
    assert point["attack"] == pytest.approx(direct.terms.attack, rel=1e-7)
