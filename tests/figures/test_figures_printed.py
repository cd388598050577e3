"""Agreement with the figures 1 to 4 as printed: order, slopes, and levels within the fleet's uncertainty.

The paper's fleet, its drawn variances, is unknown. We draw `FLEETS` fleets from the same distributions and
predict the printed points for each; the spread between them is the fleet's uncertainty.

Stated tolerances
-----------------
levels, figures 2 to 4: within 2.5 standard deviations between fleets (about 0.25 dB each).
levels, figure 1 (test MSE): within 0.6 dB; the noise of a test set of 50 instances alone is 0.9 dB.
slopes, figure 1: within 5 % of the mean fleet's.
slopes, figures 2 to 4 with 15 Byzantine clients: within 20 %.
slopes with 5 Byzantine clients: within 50 %; the rise is 0.6 dB, read off with 0.02 dB and printed rounded.
"""

import numpy as np
import pytest

from psofed.paper.figures import load_figure, predict_point, published_table
from psofed.scenario.changes import with_values

pytestmark = pytest.mark.paper

BYZANTINE = load_figure("fig1").x_axis.labels
PREDICTED = {c.label: c.equivalent for c in load_figure("fig1").curves if c.equivalent is not None}

FLEETS = range(6)
PRINTED = [(name, curve) for name in ("fig2", "fig3", "fig4") for curve in published_table()[name]]


def identify(value):
    return f"{value['kind']}-{byzantine(value)}" if isinstance(value, dict) else value


def byzantine(curve):
    """The number of Byzantine clients of a printed curve of figures 2 to 4."""
    return int(curve["curve"].removeprefix("|S_B| = "))


def predicted(name, num_byzantine):
    """Network MSE of a printed curve for every fleet, shape (fleets, points); the upload set is redrawn."""
    plan = load_figure(name)
    return np.array(
        [
            [
                predict_point(
                    with_values(
                        plan.base,
                        {
                            plan.x_axis.name: x, "attack.num_byzantine": num_byzantine,
                            "uplink": "redrawn", "data.fleet_seed": fleet,
                        },
                    ),
                    "exact",
                )["network_mse"]
                for x in plan.x_axis.labels
            ]
            for fleet in FLEETS
        ]
    )  # fmt: skip


def slope(x, y):
    return np.polyfit(x, y, 1)[0]


@pytest.mark.parametrize(("name", "curve"), PRINTED, ids=identify)
def test_printed_levels_are_those_of_some_fleet(name, curve):
    decibels = 10 * np.log10(predicted(name, byzantine(curve)))
    scores = (np.array(curve["y_db"]) - decibels.mean(axis=0)) / decibels.std(axis=0, ddof=1)
    assert np.all(np.abs(scores) < 2.5), scores


@pytest.mark.parametrize(("name", "curve"), [case for case in PRINTED if case[0] != "fig2"], ids=identify)
def test_printed_slopes_over_the_attack_are_ours(name, curve):
    ours = predicted(name, byzantine(curve)).mean(axis=0)
    ratio = slope(curve["x"], 10 ** (np.array(curve["y_db"]) / 10)) / slope(curve["x"], ours)
    assert ratio == pytest.approx(1.0, abs=0.2 if byzantine(curve) == 15 else 0.5)


@pytest.mark.parametrize("kind", ["theory", "simulation"])
def test_what_a_byzantine_client_adds_at_each_m_is_as_printed(kind):
    printed = {
        byzantine(curve): 10 ** (np.array(curve["y_db"]) / 10)
        for curve in published_table()["fig2"]
        if curve["kind"] == kind
    }
    ours = predicted("fig2", 15).mean(axis=0) - predicted("fig2", 5).mean(axis=0)
    ratio = (printed[15] - printed[5]) / ours
    assert np.all(np.abs(ratio - 1) < (0.1 if kind == "theory" else 0.25)), ratio


def test_the_equations_as_written_do_not_fit_the_printed_figure_2():
    """The check is sharp: with the same set for download and upload, M = 5 is far off the printed points."""
    plan = load_figure("fig2")
    scenario = with_values(plan.base, {"num_shared": 5, "attack.num_byzantine": 15, "uplink": "same"})
    printed = next(c for c in published_table()["fig2"] if (c["kind"], byzantine(c)) == ("simulation", 15))
    assert 10 * np.log10(predict_point(scenario, "exact")["network_mse"]) - printed["y_db"][-1] > 3


@pytest.mark.parametrize("label", PREDICTED)
def test_figure_1_has_the_printed_levels_and_slopes_for(label):
    base = load_figure("fig1").base
    test_mse = np.array(
        [
            [
                predict_point(
                    with_values(base, {**PREDICTED[label], "attack.num_byzantine": b, "data.fleet_seed": fleet}),
                    "exact",
                )["test_mse"]
                for b in BYZANTINE
            ]
            for fleet in FLEETS
        ]
    ).mean(axis=0)
    printed = next(curve for curve in published_table()["fig1"] if curve["curve"] == label)
    assert np.all(np.abs(printed["y_db"] - 10 * np.log10(test_mse)) < 0.6)
    ratio = slope(BYZANTINE, 10 ** (np.array(printed["y_db"]) / 10)) / slope(BYZANTINE, test_mse)
    assert ratio == pytest.approx(1.0, abs=0.05)


def test_under_attack_the_algorithms_come_in_the_printed_order(reproduction):
    """PSO and CS tie within 0.5 dB in print and here; then QS, Online-Fed and SignSGD, apart."""
    ours = {s.label: s.y_db for s in reproduction.figures["fig1"].select(kind="simulation", uplink="same")}
    printed = {curve["curve"]: np.array(curve["y_db"]) for curve in published_table()["fig1"]}
    for values in (ours, printed):
        assert np.all(np.abs(values["PSO-Fed"] - values["CS-Fed"])[1:] < 0.5)
        ladder = [values[name][1:] for name in ("PSO-Fed", "QS-Fed", "Online-Fed", "SignSGD")]
        assert np.all(np.diff(ladder, axis=0) > 0)


def test_the_rivals_levels_are_those_printed_but_for_the_growth_of_qs_fed(reproduction):
    ours = {s.label: s.y_db for s in reproduction.figures["fig1"].select(kind="simulation", uplink="same")}
    for curve in published_table()["fig1"]:
        tolerance = 2.5 if curve["curve"] == "QS-Fed" else 1.2
        assert np.all(np.abs(ours[curve["curve"]] - curve["y_db"]) < tolerance), curve["curve"]
