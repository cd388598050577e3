"""The chart of a federation: what happened, beside what theory and simulation predict."""

from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.render.charts import Chart, Scale, Series
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.federation.demo import Prediction
    from psofed.render.figures import Figure


def federation_chart(result: dict[str, Any], prediction: "Prediction | None" = None) -> Chart:
    """Return the clients' errors and the server's deviation by round.

    Parameters
    ----------
    result : dict
        As in ``result.json``.
    prediction : Prediction, optional
        Drawn as dashed lines, with the range of 90 % of simulated runs shaded.
    """
    curve, scenario = result["learning_curve"], Scenario.from_mapping(result["scenario"])
    rounds = np.array(curve["round"], dtype=np.float64)
    series = []
    # The network MSE of one run is a mean of a few squares: points, since a line would suggest a course.
    for colour, (metric, marker, line) in enumerate((("network_mse", "o", ""), ("server_msd", "s", "-"))):
        values = np.array([np.nan if value is None else value for value in curve[metric]])
        if np.isnan(values).all():
            continue
        title = METRIC_TITLES[metric]
        measured = Series(
            f"{title}, one run", rounds, to_decibels(values), line=line, marker=marker, colour=colour
        )
        series.append(measured)
        if prediction is not None:
            expected = to_decibels(np.array(getattr(prediction, metric)))
            series.append(Series(f"{title}, theory", rounds, expected, line="--", colour=colour, width=1.4))
    if prediction is not None:
        low, high = (to_decibels(np.array(ends)) for ends in (prediction.low, prediction.high))
        label = "server MSD, 90 % of simulated runs"
        series.append(Series(label, rounds, (low + high) / 2, low, high, colour=1, width=0.0))
    return Chart(
        f"Federation of {scenario.num_clients} clients, {scenario.num_byzantine} Byzantine, sharing "
        f"{scenario.num_shared} of {scenario.dimension} parameters",
        Scale("round", whole=True),
        Scale("error (dB), lower is better"),
        tuple(series),
    )


def plot_federation(result: dict[str, Any], prediction: "Prediction | None" = None) -> "Figure":
    """Draw :func:`federation_chart`."""
    from psofed.render.figures import draw_chart

    return draw_chart(federation_chart(result, prediction))
