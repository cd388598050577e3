"""A picture of a federation: what happened, beside what theory and simulation led to expect."""

from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.plots.curves import COLOURS, finish_axes, to_decibels
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psofed.federation.demo import Prediction


def plot_federation(result: dict[str, Any], prediction: "Prediction | None" = None) -> "Figure":
    """Draw the clients' errors and the server's deviation by round.

    Parameters
    ----------
    result : dict
        As in ``result.json``.
    prediction : Prediction, optional
        Drawn as dashed lines, with the range of 90 % of simulated runs shaded.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curve, scenario = result["learning_curve"], Scenario.from_mapping(result["scenario"])
    rounds = np.array(curve["round"])
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    # The network MSE of one run is a mean of a few squares: points, for a line would suggest a course.
    measured = {
        "network_mse": ("network MSE, one run", "o", ""),
        "server_msd": ("server MSD, one run", "s", "-"),
    }
    for colour, (name, (label, marker, line)) in zip(COLOURS, measured.items(), strict=False):
        values = np.array([np.nan if value is None else value for value in curve[name]])
        if np.isnan(values).all():
            continue
        axes.plot(
            rounds, to_decibels(values), color=colour, marker=marker, ms=4, ls=line, lw=1.0, label=label
        )
        if prediction is not None:
            expected = to_decibels(np.array(getattr(prediction, name)))
            axes.plot(rounds, expected, color=colour, ls="--", lw=1.4, label=f"{label.split(',')[0]}, theory")
    if prediction is not None:
        low, high = to_decibels(np.array(prediction.low)), to_decibels(np.array(prediction.high))
        label = "server MSD, 90 % of simulated runs"
        axes.fill_between(rounds, low, high, color=COLOURS[1], alpha=0.2, lw=0, label=label)
    axes.set_title(
        f"Federation of {scenario.num_clients} nodes, {scenario.num_byzantine} Byzantine, sharing "
        f"{scenario.num_shared} of {scenario.dimension} entries",
        fontsize=10,
    )
    finish_axes(axes, "round", "dB")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
