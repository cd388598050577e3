"""Heat maps of the resilience matrix: steady states for each M, and what partial sharing gains."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.paper.resilience import ATTACKS, MODES, OCCASIONS, RULES, Matrix, carried_away, participants
from psofed.render.charts import HeatMap, Panels
from psofed.results import METRIC_TITLES, Estimate, MetricDifference

# Colours end here, in dB: at the errors without attack, and where a model is as bad as none.
_BEST, _WORST = {"network_mse": -17.5, "server_msd": -35.0}, 0.0
_MOST_GAIN = 12.0


def matrix_chart(matrix: Matrix, occasion: str, metric: str, mode: str = "equal traffic") -> Panels:
    """Return a heat map attack × rule for each M: steady state in dB, its 95 % interval, trials carried away.

    Where tails are heavy or trials diverged it is the median, with its own interval.
    """

    def panel(m: int) -> HeatMap:
        def cell(attack: str, rule: str) -> tuple[float, str]:
            place = matrix.place(occasion, mode, attack, rule, m)
            value = matrix.estimate(place, metric)
            away = float(carried_away(matrix.cell(place))["carried_away"])
            return to_decibels(value.typical[0]), _cell_text(value, away)

        title = f"M = {m} of {matrix.shared[-1]}, {participants(mode, m)} participants"
        return _heat_map(title, cell, (_BEST[metric], _WORST))

    settings = OCCASIONS[occasion]
    title = (
        f"{METRIC_TITLES[metric]} at {mode}, {occasion} attacks: {settings['num_byzantine']} of 100 clients Byzantine, "
        f"attack probability {settings['probability']:g} ({matrix.trials} trials)\n"
        "mean [95 % interval]; ~ median, where a few extreme trials dominate the mean; ↑ trials carried away"
    )
    width, height = max(0.62 * len(RULES), 4.5), max(0.43 * len(ATTACKS), 5.0)
    size = (width * len(matrix.shared), height)
    return Panels(title, (tuple(map(panel, matrix.shared)),), shared=True, size=size)


def gains_chart(matrix: Matrix, metric: str) -> Panels:
    """Return by how many dB sharing least beats sharing everything; cells that are not significant stay grey."""
    few = matrix.shared[0]

    def panel(occasion: str, mode: str) -> HeatMap:
        def cell(attack: str, rule: str) -> tuple[float, str]:
            gain = matrix.sharing_gain(occasion, mode, attack, rule, metric)
            return gain.decibels if gain.is_significant else math.nan, _gain_text(gain)

        title = f"{occasion}, {mode} ({participants(mode, few)} against {participants(mode, 5)})"
        return _heat_map(title, cell, (-_MOST_GAIN, _MOST_GAIN), "dB gained", "RdBu")

    title = (
        f"What M = {few} gains over M = {matrix.shared[-1]} in {METRIC_TITLES[metric]}, in dB\ngrey: not "
        f"significant (simultaneous 95 % intervals, {matrix.trials} paired trials); "
        "~ median pair, where tails are heavy"
    )
    size = (max(1.35 * len(RULES), 10.0), max(0.78 * len(ATTACKS), 9.0))
    charts = tuple(tuple(panel(occasion, mode) for mode in MODES) for occasion in OCCASIONS)
    return Panels(title, charts, shared=True, size=size)


def save_picture(chart: Panels, path: Path) -> None:
    """Write a chart as SVG and PNG, whole or not at all."""
    from psofed.render.figures import draw_chart, save_figure

    figure = draw_chart(chart)
    for suffix in (".svg", ".png"):
        save_figure(figure, path.with_suffix(suffix))
        figure.set_layout_engine("none")  # everything has its place by now


def _heat_map(
    title: str, cell: Callable[[str, str], tuple[float, str]], limits: tuple[float, float],
    unit: str = "dB", colours: str = "viridis_r",
) -> HeatMap:  # fmt: skip
    cells = [[cell(attack, rule) for rule in RULES] for attack in ATTACKS]
    values = np.array([[value for value, _ in row] for row in cells])
    texts = tuple(tuple(text for _, text in row) for row in cells)
    names = tuple(rule.replace("-", " ") for rule in RULES)
    return HeatMap(title, names, tuple(ATTACKS), values, texts, limits, unit, colours)


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
