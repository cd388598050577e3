"""A picture of a paired difference: every pair, the estimate, and its interval."""

import math
from typing import TYPE_CHECKING

import numpy as np

from psofed.plots.curves import COLOURS, finish_axes
from psofed.results.metrics import ALL_TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psofed.results import Difference


def plot_difference(found: "Difference", metric: str = "network_mse") -> "Figure":
    """Draw the pairs' differences in dB, from the lowest to the highest; diverged ones at the edges."""
    from matplotlib.figure import Figure

    pairs = np.sort(found.pairs(metric))
    finite = np.isfinite(pairs)
    estimate = found[metric]
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(1, pairs.size + 1)
    axes.plot(places[finite], pairs[finite], "o", ms=3.5, color=COLOURS[0], label="pairs of trials, in order")
    axes.axhline(0.0, color="0.4", lw=0.8)
    if math.isfinite(estimate.decibels):
        axes.axhline(
            estimate.decibels,
            color=COLOURS[3],
            lw=1.6,
            label=f"{estimate.statistic}: {estimate.decibels:+.2f} dB",
        )
        low, high = (
            float(np.clip(end, *axes.get_ylim())) if not math.isnan(end) else end for end in estimate.interval
        )
        if not math.isnan(low):
            axes.axhspan(low, high, color=COLOURS[3], alpha=0.2, lw=0, label="95 % interval")
    for sign, marker, edge in ((1, "^", 0.98), (-1, "v", 0.02)):
        lost = np.isinf(pairs) & (np.sign(pairs) == sign)
        if lost.any():
            side = "first" if sign > 0 else "second"
            axes.plot(places[lost], np.full(lost.sum(), edge), marker, ms=5, color=COLOURS[3], clip_on=False,
                      transform=axes.get_xaxis_transform(), label=f"only the {side} diverged")  # fmt: skip
    finish_axes(axes, "pair", f"{ALL_TITLES[metric]}, first less second (dB)")
    return figure
