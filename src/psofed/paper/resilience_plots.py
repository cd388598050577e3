"""Heat maps of the resilience matrix: steady states for each M, and what partial sharing gains."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.paper.resilience import (
    ATTACKS,
    MODES,
    OCCASIONS,
    RULES,
    Matrix,
    carried_away,
    participants,
)
from psofed.render.figures import save_figure
from psofed.results import METRIC_TITLES, Estimate, MetricDifference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours end here, in dB: at the errors without attack, and where a model is as bad as none.
_BEST, _WORST = {"network_mse": -17.5, "server_msd": -35.0}, 0.0
_MOST_GAIN = 12.0


def plot_matrix(matrix: Matrix, occasion: str, metric: str, mode: str = "equal traffic") -> "Figure":
    """Draw one heat map attack × rule for each M: steady state in dB, its 95 % interval, trials carried away.

    Where tails are heavy or trials diverged it is the median, with its own interval.
    """
    from matplotlib.figure import Figure

    width, height = max(0.62 * len(RULES), 4.5), max(0.43 * len(ATTACKS), 5.0)
    figure = Figure(figsize=(width * len(matrix.shared), height), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(matrix.shared), sharey=True))
    image: Any = None
    for axes, m in zip(panels, matrix.shared, strict=True):
        places = [[matrix.place(occasion, mode, a, r, m) for r in RULES] for a in ATTACKS]
        found = [[matrix.estimate(place, metric) for place in row] for row in places]
        away = [[float(carried_away(matrix.cell(place))["carried_away"]) for place in row] for row in places]
        values = np.array([[to_decibels(value.typical[0]) for value in row] for row in found])
        image = axes.imshow(
            np.clip(values, _BEST[metric], _WORST),
            cmap="viridis_r",
            vmin=_BEST[metric],
            vmax=_WORST,
            aspect="auto",
        )
        for i, row in enumerate(found):
            for j, value in enumerate(row):
                dark = values[i, j] > (_BEST[metric] + _WORST) / 2
                axes.text(
                    j,
                    i,
                    _cell_text(value, away[i][j]),
                    ha="center",
                    va="center",
                    fontsize=6,
                    color="white" if dark else "black",
                )
        _label(axes, f"M = {m} of {matrix.shared[-1]}, {participants(mode, m)} participants")
    figure.colorbar(image, ax=list(panels), label="dB", shrink=0.7)
    settings = OCCASIONS[occasion]
    figure.suptitle(
        f"{METRIC_TITLES[metric]} at {mode}, {occasion} attacks: {settings['num_byzantine']} of 100 clients Byzantine, "
        f"attack probability {settings['probability']:g} ({matrix.trials} trials)\n"
        "mean [95 % interval]; ~ median, where a few trials decide the mean; ↑ trials carried away",
        fontsize=11,
    )
    return figure


def plot_gains(matrix: Matrix, metric: str) -> "Figure":
    """Draw by how many dB sharing least beats sharing everything; cells that are not significant stay grey."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(max(1.35 * len(RULES), 10.0), max(0.78 * len(ATTACKS), 9.0)), layout="constrained"
    )
    panels = figure.subplots(len(OCCASIONS), len(MODES), sharex=True, sharey=True)
    image: Any = None
    for row, occasion in zip(panels, OCCASIONS, strict=True):
        for axes, mode in zip(row, MODES, strict=True):
            gains = [[matrix.sharing_gain(occasion, mode, a, r, metric) for r in RULES] for a in ATTACKS]
            shown = np.array([[g.decibels if g.is_significant else np.nan for g in line] for line in gains])
            axes.set_facecolor("#e8e8e8")
            image = axes.imshow(
                np.clip(shown, -_MOST_GAIN, _MOST_GAIN),
                cmap="RdBu",
                vmin=-_MOST_GAIN,
                vmax=_MOST_GAIN,
                aspect="auto",
            )
            for i, line in enumerate(gains):
                for j, gain in enumerate(line):
                    strong = gain.is_significant and abs(gain.decibels) > 0.6 * _MOST_GAIN
                    colour = "white" if strong else ("black" if gain.is_significant else "#888888")
                    axes.text(j, i, _gain_text(gain), ha="center", va="center", fontsize=6.5, color=colour)
            few = matrix.shared[0]
            _label(axes, f"{occasion}, {mode} ({participants(mode, few)} against {participants(mode, 5)})")
    figure.colorbar(image, ax=panels.ravel().tolist(), label="dB gained", shrink=0.5)
    figure.suptitle(
        f"What M = {matrix.shared[0]} gains over M = {matrix.shared[-1]} in {METRIC_TITLES[metric]}, in dB; grey: not "
        f"significant (simultaneous 95 % intervals, {matrix.trials} paired trials); "
        "~ median pair, where tails are heavy",
        fontsize=11,
    )
    return figure


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a figure as SVG and PNG, whole or not at all."""
    for suffix in (".svg", ".png"):
        save_figure(figure, path.with_suffix(suffix))


def _cell_text(value: Estimate, away: float) -> str:
    middle, low, high = value.typical
    lost = f"\n↑{away:.0%}" if away >= 0.005 else ""
    if not math.isfinite(middle):
        return f"diverged{lost}"
    mark = "" if value.is_typical else "~"
    text = f"{mark}{to_decibels(middle):.1f}"
    if not (low > 0 and math.isfinite(high)):
        return text + lost
    ends = to_decibels(low), to_decibels(high)
    if ends[1] - ends[0] < 0.2:
        return f"{mark}{to_decibels(middle):.2f}{lost}"
    return f"{text}\n[{ends[0]:.1f}, {ends[1]:.1f}]{lost}"


def _gain_text(gain: MetricDifference) -> str:
    if math.isnan(gain.decibels):
        return "both\ndiverge"
    if math.isinf(gain.decibels):
        return "M = D\ndiverges" if gain.decibels > 0 else "M = 1\ndiverges"
    return f"{'~' if gain.is_heavy_tailed else ''}{gain.decibels:+.1f}"


def _label(axes: "Axes", title: str) -> None:
    axes.set_xticks(
        range(len(RULES)), [rule.replace("-", " ") for rule in RULES], rotation=40, ha="right", fontsize=8
    )
    axes.set_yticks(range(len(ATTACKS)), list(ATTACKS), fontsize=8)
    axes.set_title(title, fontsize=9.5)
    axes.tick_params(length=0)
