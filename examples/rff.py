"""Random features on a non-linear stream: the numbers and the picture of docs/learning.md.

Run as `python examples/rff.py docs/images`.
"""

import sys
from pathlib import Path

import numpy as np
from kernel_ridge import kernel_ridge_mse
from matplotlib.figure import Figure

from psofed import Data, Prediction, Scenario, attacks, models, simulate
from psofed.common.numbers import to_decibels
from psofed.fleet.measured import measure_features
from psofed.render.figures import finish_axes, save_figure
from psofed.render.style import COLOURS

STREAM = Data(function="root-sine", input_variance=1.0, noise_variance=0.01)
BASE = Scenario(
    num_clients=20,
    dimension=100,
    num_shared=20,
    stepsize=0.5,
    iterations=6000,
    model=models.Rff(bandwidth=1.5),
    data=STREAM,
)
SMALL = Scenario(
    num_clients=6,
    dimension=12,
    num_participants=3,
    num_shared=3,
    iterations=1500,
    model=models.Rff(bandwidth=0.8),
    data=Data(function="sine", input_dimension=1, input_variance=1.0, noise_variance=0.01),
)


def print_levels() -> dict[str, object]:
    """Print prediction errors against the baselines; return the simulations."""
    linear = BASE.replace(model=models.Linear(), dimension=4, num_shared=1, stepsize=0.02)
    runs = {
        "linear model, D = 4": simulate(linear, trials=16, seed=1),
        "30 features": simulate(BASE.replace(dimension=30, num_shared=6), trials=16, seed=1),
        "100 features": simulate(BASE, trials=16, seed=1),
        "100 features, attacked, M = 20": simulate(
            BASE.replace(attack=attacks.Gaussian(num_byzantine=5)), trials=16, seed=1
        ),
        "100 features, attacked, M = 100": simulate(
            BASE.replace(attack=attacks.Gaussian(num_byzantine=5), num_shared=100), trials=16, seed=1
        ),
    }
    print("| model | network MSE | best weights |")
    print("|---|---|---|")
    for name, run in runs.items():
        value, floor = run.network_mse, measure_features(run.scenario).noise_variance.mean()
        print(f"| {name} | {value.mean:.4f} ± {value.standard_error:.4f} | {floor:.4f} |")
    for samples in (500, 2000):
        value = kernel_ridge_mse(BASE, samples, repeats=4)
        print(f"| kernel ridge, {samples} pooled samples | {value.mean:.4f} ± {value.standard_error:.4f} | |")
    return runs


def print_theory() -> None:
    """Print the theory's learning curve against the simulation's, by stepsize."""
    floor = measure_features(SMALL).noise_variance.mean()
    print(f"best weights: {floor:.5f}; excess over them at the end of {SMALL.iterations} iterations:")
    print("| stepsize | simulated | exact theory | simulated, redrawn | small-stepsize theory |")
    print("|---|---|---|---|---|")
    for stepsize in (0.02, 0.1, 0.4, 1.0):
        row = [f"{stepsize:g}"]
        for uplink, options in (("same", {}), ("redrawn", {"theory": "paper", "small_stepsize": True})):
            scenario = SMALL.replace(stepsize=stepsize, uplink=uplink)
            result = simulate(scenario, trials=400, seed=2, tail=300)
            curve = Prediction(scenario, **options).learning_curve().network_mse[-300:].mean()
            found, excess = result.network_mse, curve - floor
            row.append(f"{found.mean - floor:.5f} ± {found.standard_error:.5f}")
            row.append(f"{excess:.5f} ({excess / (found.mean - floor) - 1:+.1%})")
        print("| " + " | ".join(row) + " |")


def plot_levels(runs: dict[str, object], path: Path) -> None:
    """Draw the learning curves."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        smooth = np.convolve(run.curve["network_mse"], np.full(25, 0.04), mode="valid")
        axes.plot(np.arange(smooth.size) + 1, to_decibels(smooth), color=colour, lw=1.2, label=name)
    floor = kernel_ridge_mse(BASE, 2000, repeats=4).mean
    axes.axhline(10 * np.log10(floor), color="black", lw=0.8, ls="--", label="kernel ridge, 2000 pooled samples")
    axes.set_xscale("log")
    finish_axes(axes, "iteration (mean over 25)", "network MSE in dB")
    save_figure(figure, path)


if __name__ == "__main__":
    plot_levels(print_levels(), Path(sys.argv[1]) / "rff.png")
    print_theory()
