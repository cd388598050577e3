"""Pictures of predictions: error over stepsize, and theory on top of simulation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.plots.curves import COLOURS, draw_band, finish_axes, log_bins, to_decibels
from psofed.results import METRIC_TITLES, SimulationResult, describe_scenario
from psofed.theory.prediction import LearningCurve, Prediction
from psofed.theory.stepsize_curve import StepsizeCurve
from psofed.theory.tuning import Tuning, metric_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", "-.", ":")
_THEORY_STYLES = ("--", ":")
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
    """Draw simulated learning curves with 95 % bands, and predicted ones on top, in one colour for each metric.

    Parameters
    ----------
    result : SimulationResult
    curves : mapping from a theory's name to its predicted curve
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for colour, (metric, title) in zip(COLOURS, METRIC_TITLES.items(), strict=False):
        draw_band(axes, result, metric, colour)
        axes.plot([], [], color=colour, lw=4, alpha=0.45, label=f"{title}, simulated")
        for (_, curve), style in zip(curves.items(), _THEORY_STYLES, strict=False):
            x, predicted = log_bins(result.iterations, bin_means(getattr(curve, metric), result.bin_width))
            axes.plot(x, to_decibels(predicted), color="black", lw=1.4, ls=style)
    for theory, style in zip(curves, _THEORY_STYLES, strict=False):
        axes.plot([], [], color="black", lw=1.4, ls=style, label=f"{theory} theory")
    axes.set_xscale("log")
    axes.set_title(f"{describe_scenario(result.scenario)}\n({result.trials} trials, 95 % bands)", fontsize=10)
    finish_axes(axes, "iteration, from 1", "dB")
    return figure


def plot_prediction(prediction: Prediction) -> "Figure":
    """Draw the predicted learning curve of every metric, and its steady state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    curve = prediction.learning_curve()
    x = np.arange(curve.network_mse.size) + 1
    for index, (metric, title) in enumerate(METRIC_TITLES.items()):
        steady, values = getattr(prediction, metric), getattr(curve, metric)
        level = f"{10 * np.log10(steady):.2f} dB" if np.isfinite(steady) and steady > 0 else "unstable"
        if np.isnan(values).all():
            continue
        axes.plot(x, to_decibels(values), color=COLOURS[index], ls=_STYLES[index], lw=1.6,
                  label=f"{title}, steady state {level}")  # fmt: skip
    axes.set_xscale("log")
    axes.set_title(f"{prediction.theory} theory, {describe_scenario(prediction.scenario)}", fontsize=10)
    finish_axes(axes, "iteration, from 1", "dB")
    return figure


def plot_stepsizes(curve: StepsizeCurve) -> "Figure":
    """Draw every metric's predicted steady state over the stepsize; what is unstable is shaded."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    order = np.argsort(curve.stepsize)
    x = curve.stepsize[order]
    for index, (metric, title) in enumerate(METRIC_TITLES.items()):
        values = getattr(curve, metric)[order]
        axes.plot(
            x, to_decibels(values), color=COLOURS[index], ls=_STYLES[index], marker="o", ms=3, label=title
        )
    unstable = x[~curve.is_stable[order]]
    if unstable.size:
        axes.axvspan(unstable[0], unstable[-1], color="0.9", lw=0, label="unstable")
    axes.set_xscale("log")
    finish_axes(axes, "stepsize μ", "steady state (dB)")
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
