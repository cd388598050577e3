"""Pictures of predictions: error over stepsize, and theory on top of simulation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.plots.curves import COLOURS, finish_axes, to_decibels
from psofed.results import METRIC_TITLES, SimulationResult
from psofed.theory.prediction import LearningCurve
from psofed.theory.tuning import Tuning, metric_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", "-.", ":")
_TITLES = {"network": "network MSE", "test": "test MSE", "msd": "server MSD"}


def plot_tuning(tuning: Tuning, stepsizes: FloatArray, errors: Mapping[int, FloatArray]) -> "Figure":
    """Draw the predicted error over the stepsize for each number of shared entries, best points marked.

    Parameters
    ----------
    tuning : Tuning
    stepsizes : array (n,)
    errors : mapping from num_shared to array (n,)
        Infinite where unstable; the curve ends there.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for index, point in enumerate(tuning.points):
        colour, style = COLOURS[index % len(COLOURS)], _STYLES[index % len(_STYLES)]
        curve = to_decibels(errors[point.num_shared])
        axes.plot(stepsizes, curve, color=colour, ls=style, lw=1.4, label=f"M = {point.num_shared}")
        best = to_decibels(np.array([metric_of(point, tuning.metric)]))
        marker = "*" if point is tuning.recommended else "o"
        axes.plot(
            [point.stepsize], best, color=colour, marker=marker, ms=11 if marker == "*" else 5, ls="none"
        )
    axes.set_xscale("log")
    axes.set_title("star: recommended; dots: best stepsize of each M", fontsize=10)
    when = "steady state" if tuning.horizon is None else f"mean over {tuning.horizon} iterations"
    finish_axes(axes, "stepsize μ", f"{_TITLES[tuning.metric]}, {when} (dB)")
    return figure


def plot_comparison(result: SimulationResult, curves: Mapping[str, LearningCurve]) -> "Figure":
    """Draw simulated learning curves with 95 % bands, and predicted ones on top.

    Parameters
    ----------
    result : SimulationResult
    curves : mapping from a theory's name to its predicted curve
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    x = result.iterations + 1
    for colour, (metric, title) in zip(COLOURS, METRIC_TITLES.items(), strict=False):
        mean, error = result.curve[metric], result.curve_standard_error[metric]
        low, high = np.maximum(mean - 1.96 * error, 0.05 * mean), mean + 1.96 * error
        axes.fill_between(x, to_decibels(low), to_decibels(high), color=colour, alpha=0.35, lw=0)
        axes.plot(x, to_decibels(mean), color=colour, lw=0.8, alpha=0.7, label=f"{title}, simulated")
        for (theory, curve), style in zip(curves.items(), ("--", ":"), strict=False):
            predicted = bin_means(getattr(curve, metric), result.bin_width)
            axes.plot(x, to_decibels(predicted), color="black", lw=1.3, ls=style,
                      label=f"{theory} theory" if metric == "network_mse" else None)  # fmt: skip
    axes.set_xscale("log")
    finish_axes(axes, "iteration, from 1", "dB")
    return figure


def bin_means(curve: FloatArray, width: int) -> FloatArray:
    """Average a curve over bins of `width` iterations, as the simulator's curves are.

    Examples
    --------
    >>> bin_means(np.array([1.0, 3.0, 5.0]), 2)
    array([2., 5.])
    """
    edges = np.arange(0, len(curve), width)
    return np.add.reduceat(curve, edges) / np.minimum(width, len(curve) - edges)
