"""Pictures of simulations: one look for all, safe for the colour-blind and readable in grey print."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.common.types import FloatArray
from psofed.results import METRIC_TITLES, SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, in an order whose neighbours also differ in lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
PICTURE_FORMATS = (".png", ".svg", ".pdf")


def plot_learning_curves(result: SimulationResult) -> "Figure":
    """Draw the mean learning curves in dB, with 95 % bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    # On a logarithmic axis both the descent and the steady state can be seen; it begins at 1.
    x = result.iterations + 1
    for colour, (metric, title) in zip(COLOURS, METRIC_TITLES.items(), strict=False):
        mean, error = result.curve[metric], result.curve_standard_error[metric]
        low, high = np.maximum(mean - 1.96 * error, 0.05 * mean), mean + 1.96 * error
        label = f"{title}, steady state {getattr(result, metric).decibels:.2f} dB"
        axes.plot(x, to_decibels(mean), color=colour, lw=1.2, label=label)
        axes.fill_between(x, to_decibels(low), to_decibels(high), color=colour, alpha=0.25, lw=0)
    axes.set_xscale("log")
    scenario = result.scenario
    axes.set_title(
        f"{scenario.num_clients} clients, {scenario.num_byzantine} Byzantine, sharing {scenario.num_shared} of "
        f"{scenario.dimension} entries ({result.trials} trials)",
        fontsize=10,
    )
    finish_axes(axes, "iteration, from 1", "dB")
    return figure


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
    with atomic_path(path) as temporary, mpl.rc_context({"svg.hashsalt": "psofed"}):
        figure.savefig(temporary, dpi=150, metadata=dateless[Path(path).suffix.lower()])
