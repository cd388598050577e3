"""A target that moves: the numbers and pictures of docs/learning.md.

Run as `python examples/drift.py docs/images`.
"""

import sys
from pathlib import Path

import numpy as np
from lag import measure_lag
from matplotlib.figure import Figure

from psofed import Scenario, attacks, drifts, optimal_stepsize, predict, simulate
from psofed.common.numbers import to_decibels
from psofed.render.figures import finish_axes, save_figure
from psofed.render.style import COLOURS

BASE = Scenario(num_clients=20, dimension=5, iterations=2000, attack=attacks.Gaussian(num_byzantine=4))
WALKS = (0.0, 1e-4, 1e-3)


def plot_stepsizes(path: Path) -> None:
    """Print and draw the network MSE over the stepsize, theory and simulation, for walks of different pace."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    print("| q | best stepsize, theory | predicted MSE | simulated MSE | predicted lag | measured lag |")
    print("|---|---|---|---|---|---|")
    for colour, q in zip(COLOURS, WALKS, strict=False):
        scenario = BASE.replace(drift=drifts.RandomWalk(variance=q) if q else None)
        stepsizes = np.geomspace(0.01, 0.25, 25)
        curve = np.array([predict(scenario.replace(stepsize=mu)).network_mse for mu in stepsizes])
        axes.plot(stepsizes, to_decibels(curve), color=colour, lw=1.2, label=f"q = {q:g}, theory")
        for mu in (0.02, 0.05, 0.1, 0.2):
            found = simulate(scenario.replace(stepsize=mu), trials=64, seed=1).network_mse
            axes.plot(mu, 10 * np.log10(found.mean), "o", color=colour, ms=5, mfc="white")
        best = optimal_stepsize(scenario)
        at_best = scenario.replace(stepsize=best)
        prediction, result = predict(at_best), simulate(at_best, trials=64, seed=1)
        axes.plot(best, 10 * np.log10(prediction.network_mse), "*", color=colour, ms=12)
        found, lag = result.network_mse, "– | –"
        if q:
            measured = measure_lag(at_best, trials=256, seed=1)
            predicted = prediction.steady_state.drift.server / (scenario.dimension * q)
            lag = f"{predicted:.1f} | {measured.mean:.1f} ± {measured.standard_error:.1f}"
        level = f"{found.mean:.5f} ± {found.standard_error:.5f}"
        print(f"| {q:g} | {best:.4f} | {prediction.network_mse:.5f} | {level} | {lag} |")
    axes.set_xscale("log")
    finish_axes(axes, "stepsize (star: best by theory, circles: simulated)", "network MSE in dB")
    save_figure(figure, path)


def plot_tracking(path: Path) -> None:
    """Draw the server's MSD through a jump and along a sinusoid, for two numbers of shared entries."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    moves = {
        "jump of 1 at iteration 1000": drifts.Jump(size=1.0, at=1000),
        "sinusoid of 0.5, period 400": drifts.Sinusoid(amplitude=0.5, period=400),
    }
    for column, (title, drift) in enumerate(moves.items(), start=1):
        axes = figure.add_subplot(1, 2, column)
        for colour, shared in zip(COLOURS, (1, 5), strict=False):
            scenario = BASE.replace(drift=drift, num_shared=shared, stepsize=0.05)
            result = simulate(scenario, trials=160, seed=1, keep_trials=True)
            tracking = result.tracking
            print(f"{title}, M = {shared}: {tracking.describe()} {tracking.to_json()}")
            axes.plot(to_decibels(result.curve["server_msd"]), color=colour, lw=1.0, label=f"M = {shared}")
        axes.set_title(title, fontsize=10)
        finish_axes(axes, "iteration", "server MSD in dB")
    save_figure(figure, path)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plot_stepsizes(folder / "drift_stepsize.png")
    plot_tracking(folder / "drift_tracking.png")
