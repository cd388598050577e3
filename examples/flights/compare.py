"""Delays of flights, learned by airports together and alone: the numbers and pictures of docs/studies.md.

Run as `python examples/flights/compare.py docs/images`.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from psofed import OwnData, Scenario, read_data, simulate
from psofed.attacks import Gaussian
from psofed.render.figures import finish_axes, save_figure
from psofed.render.style import COLOURS
from psofed.simulation.baselines import run_baselines

FEATURES = ("departure_delay", "air_time", "wind_speed", "visibility", "rain", "pressure")
STEPSIZES = np.geomspace(0.002, 0.06, 9)
ATTACK = Gaussian(num_byzantine=4, probability=0.5, variance=0.5)
TITLES = {
    "alone": "each airport alone",
    "federation": "federation, M = 2",
    "attacked 2": "federation attacked, M = 2",
    "attacked 6": "federation attacked, M = 6",
    "pooled": "all data pooled, online",
}


def mean_errors(data: OwnData, stepsize: float) -> dict[str, float]:
    """Return every method's MSE over the whole year at one stepsize."""
    scenario = Scenario.from_data(data, stepsize=stepsize, num_shared=2)
    length = scenario.iterations
    baselines = run_baselines(scenario, length)
    found = {name: baselines.network_mse(name) for name in ("alone", "pooled", "average", "least_squares")}
    found["federation"] = simulate(scenario, trials=32, seed=1, tail=length).network_mse.mean
    for shared in (2, 6):
        lied_to = scenario.replace(num_shared=shared, attack=ATTACK)
        attacked = simulate(lied_to, trials=32, seed=1, tail=length)
        found[f"attacked {shared}"] = attacked.network_mse.mean
    return found


def plot_stepsizes(data: OwnData, path: Path) -> None:
    """Print and draw the year's MSE over the stepsize."""
    found = [mean_errors(data, float(mu)) for mu in STEPSIZES]
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    print("| method | lowest MSE over the year | at stepsize |")
    print("|---|---|---|")
    for colour, (name, title) in zip(COLOURS, TITLES.items(), strict=False):
        curve = np.array([point[name] for point in found])
        axes.plot(STEPSIZES, curve, "o-", color=colour, lw=1.2, ms=4, label=title)
        print(f"| {title} | {curve.min():.4f} | {STEPSIZES[curve.argmin()]:.4f} |")
    print(f"| least squares in hindsight | {found[0]['least_squares']:.4f} | |")
    print(f"| running mean, no model | {found[0]['average']:.4f} | |")
    axes.set_xscale("log")
    axes.set_xticks([0.002, 0.005, 0.01, 0.02, 0.05], ["0.002", "0.005", "0.01", "0.02", "0.05"])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0.3, 1.2)
    finish_axes(axes, "stepsize", "MSE over the year (1: no model)")
    save_figure(figure, path)


def plot_learning(data: OwnData, path: Path) -> None:
    """Draw how the error falls over the year at one stepsize, smoothed over 30 flights."""
    scenario = Scenario.from_data(data, stepsize=0.01, num_shared=2)
    baselines = run_baselines(scenario, scenario.iterations)
    result = simulate(scenario, trials=32, seed=1)
    curves = {
        "each airport alone": baselines.curves["alone"],
        "federation, M = 2": result.curve["network_mse"],
        "server's model": result.curve["test_mse"],
        "all data pooled, online": baselines.curves["pooled"],
        "running mean, no model": baselines.curves["average"],
    }
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        axes.plot(np.convolve(curve, np.full(30, 1 / 30), mode="valid"), color=colour, lw=1.2, label=name)
        print(f"{name}: first 60 flights {curve[:60].mean():.4f}, all {curve.mean():.4f}")
    finish_axes(axes, "flight (mean over the 30 from here)", "MSE (1: no model)")
    save_figure(figure, path)


if __name__ == "__main__":
    table = Path(__file__).with_name("flights.csv")
    flights = read_data(table, "destination", "arrival_delay", FEATURES)
    plot_stepsizes(flights, Path(sys.argv[1]) / "flights_stepsize.png")
    plot_learning(flights, Path(sys.argv[1]) / "flights_learning.png")
