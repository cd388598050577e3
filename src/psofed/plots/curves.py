"""Pictures of simulations: one look for all, safe for the colour-blind and readable in grey print."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.common.types import FloatArray
from psofed.results import METRIC_TITLES, SimulationResult, describe_scenario
from psofed.results.estimates import students_factor
from psofed.results.show import show_estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, in an order whose neighbours also differ in lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
PICTURE_FORMATS = (".png", ".svg", ".pdf")

# Points of a learning curve per tenfold of iterations.
BINS_PER_DECADE = 30


def plot_learning_curves(result: SimulationResult) -> "Figure":
    """Draw the mean learning curves in dB, with 95 % bands.

    Points are means over bins that grow with the iteration, so that the steady state can be read.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for colour, (metric, title) in zip(COLOURS, METRIC_TITLES.items(), strict=False):
        if not draw_band(axes, result, metric, colour):
            continue  # not measured
        shown = show_estimate(getattr(result, metric))[0]
        axes.plot([], [], color=colour, lw=1.6, label=f"{title}, steady state {shown}")
    axes.set_xscale("log")
    trials = f"{result.trials} trial{'s' if result.trials > 1 else ''}"
    diverged = f", {result.diverged_trials.size} diverged" if result.diverged_trials.size else ""
    axes.set_title(f"{describe_scenario(result.scenario)}\n({trials}{diverged})", fontsize=10)
    finish_axes(axes, "iteration, from 1", "dB")
    return figure


def draw_band(axes: "Axes", result: SimulationResult, metric: str, colour: str) -> bool:
    """Draw one metric's mean and 95 % band over the iterations; return whether there was anything to draw.

    Within a bin of iterations the mean of their standard errors is taken: never less than the standard error of the
    bin's mean, whatever the iterations have to do with each other.
    """
    x, mean, error = log_bins(
        result.iterations, result.curve[metric], np.nan_to_num(result.curve_standard_error[metric])
    )
    if not np.isfinite(mean).any():
        return False
    factor = students_factor(result.trials) if result.trials > 1 else 0.0
    low, high = np.maximum(mean - factor * error, 0.05 * mean), mean + factor * error
    axes.plot(x, to_decibels(mean), color=colour, lw=1.6)
    axes.fill_between(x, to_decibels(low), to_decibels(high), color=colour, alpha=0.25, lw=0)
    return True


def log_bins(iterations: NDArray[np.int64], *curves: FloatArray) -> tuple[FloatArray, ...]:
    """Average curves over bins that are equally wide on a logarithmic axis; return bin centres (from 1) and means.

    Examples
    --------
    >>> x, y = log_bins(np.arange(1000), np.ones(1000))
    >>> x.size < 120, float(x[0]), float(y[-1])
    (True, 1.0, 1.0)
    """
    places = np.asarray(iterations, dtype=np.float64) + 1.0
    numbers = np.floor(np.log10(places / places[0]) * BINS_PER_DECADE)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
    counts = np.diff(np.append(starts, places.size))
    centres = 10 ** (np.add.reduceat(np.log10(places), starts) / counts)
    with np.errstate(invalid="ignore"):
        return (centres, *(np.add.reduceat(curve, starts) / counts for curve in curves))


def finish_axes(axes: "Axes", x_label: str, y_label: str) -> None:
    """Label the axes and give them the common look."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def to_decibels(values: FloatArray) -> FloatArray:
    """Return 10 log₁₀ of values; NaN, which leaves a gap in a curve, where they are not finite and positive.

    Examples
    --------
    >>> to_decibels(np.array([1.0, 0.1, np.inf]))
    array([  0., -10.,  nan])
    """
    fit = np.isfinite(values) & (values > 0)
    return np.where(fit, 10 * np.log10(np.where(fit, values, 1.0)), np.nan)


def check_picture_format(path: Path) -> None:
    """Refuse a picture's name whose ending is not one we can write, before any work is done."""
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise InvalidValueError("picture", str(path), "a name ending in " + ", ".join(PICTURE_FORMATS))


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Write a figure, whole or not at all; the same figure gives the same bytes."""
    import matplotlib as mpl

    check_picture_format(Path(path))
    dateless = {".png": None, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    suffix, content = Path(path).suffix.lower(), io.BytesIO()
    # In memory first: on a full disk some of Matplotlib's writers stumble over their own error.
    with mpl.rc_context({"svg.hashsalt": "psofed"}):
        figure.savefig(content, format=suffix[1:], dpi=150, metadata=dateless[suffix])
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.getvalue())
