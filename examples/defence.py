"""Byzantine clients detected and excluded: the picture of docs/security.md.

Run as `python examples/defence.py docs/images`.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from psofed import Scenario, attacks, defences, simulate
from psofed.common.numbers import to_decibels
from psofed.render.figures import finish_axes, save_figure
from psofed.render.style import COLOURS

LENGTH, BIN = 600, 10


def plot_defence(path: Path) -> None:
    """Draw the network MSE without attack, attacked and defended, and who is found when."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    found = figure.add_subplot(1, 2, 2)
    curves = figure.add_subplot(1, 2, 1)
    clean = Scenario(num_clients=50, dimension=5, iterations=LENGTH)
    attack, defence = attacks.Gaussian(num_byzantine=15), defences.Cusum()
    time = np.arange(LENGTH)
    for shared, style in ((1, "-"), (5, "--")):
        scenario = clean.replace(num_shared=shared)
        cases = {
            "attacked": scenario.replace(attack=attack),
            "defended": scenario.replace(attack=attack, defence=defence),
            "no attack": scenario,
        }
        for colour, (name, case) in zip((COLOURS[1], COLOURS[0], "black"), cases.items(), strict=True):
            result = simulate(case, trials=320, seed=1)
            curve = result.curve["network_mse"].reshape(-1, BIN).mean(axis=1)
            curves.plot(
                time[::BIN] + BIN / 2, to_decibels(curve), style, color=colour, lw=1.2, label=f"M = {shared}, {name}"
            )
            if result.defence is None:
                continue
            record = result.defence
            for which, shade in (("Byzantine clients", COLOURS[0]), ("honest clients", COLOURS[2])):
                chosen = record.is_byzantine if which == "Byzantine clients" else ~record.is_byzantine
                first = record.first[:, chosen]
                share = [100 * np.mean((first >= 0) & (first <= n)) for n in time]
                found.plot(time, share, style, color=shade, lw=1.2, label=f"M = {shared}, {which}")
            print(f"M = {shared}: {record.describe()}")
    curves.set_ylim(top=-3)
    finish_axes(curves, "iteration", "network MSE (dB), lower is better")
    finish_axes(found, "iteration", "excluded so far (%)")
    save_figure(figure, path)


if __name__ == "__main__":
    plot_defence(Path(sys.argv[1]) / "defence.png")
