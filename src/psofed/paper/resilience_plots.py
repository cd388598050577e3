"""Heat maps of the resilience matrix: steady states for each M, and what partial sharing gains."""

import math
import textwrap
from collections.abc import Callable

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.paper.resilience import ATTACKS, MODES, OCCASIONS, RULES, Matrix, carried_away, participants
from psofed.render.charts import HeatMap, Panels
from psofed.render.numbers import MINUS, fixed
from psofed.render.style import PAGE_WIDTH
from psofed.results import METRIC_TITLES, Estimate, MetricDifference

# Colours end here, in dB: at the errors without attack, and where a model is as bad as none.
_BEST, _WORST = {"network_mse": -17.5, "server_msd": -35.0}, 0.0
_MOST_GAIN = 12.0


def matrix_chart(matrix: Matrix, occasion: str, metric: str, mode: str = "equal traffic") -> Panels:
    """Return a heat map attack × rule for each M: steady state in dB, and trials carried away.

    Where tails are heavy or trials diverged it is the median. The tables have the intervals.
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
        "~ median, where a few extreme trials dominate the mean; ↑ trials carried away"
    )
    return _stacked(title, list(map(panel, matrix.shared)))


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
        f"~ median pair, where tails are heavy; ±∞ one of them diverges, – both"
    )
    return _stacked(title, [panel(occasion, mode) for occasion in OCCASIONS for mode in MODES])


def _stacked(title: str, charts: list[HeatMap]) -> Panels:
    """Return heat maps below each other, as wide as a page, so that their numbers can be read there."""
    wrapped = "\n".join(line for part in title.split("\n") for line in textwrap.wrap(part, 105))
    height = 1.2 + (0.35 + 0.19 * len(ATTACKS)) * len(charts)
    return Panels(wrapped, tuple((chart,) for chart in charts), shared=True, size=(PAGE_WIDTH, height))


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
    middle = value.typical[0]
    if not math.isfinite(middle):
        return "∞"
    mark = "" if value.is_typical else "~"
    lost = "↑" if away >= 0.005 else ""
    return f"{mark}{fixed(to_decibels(middle), 1)}{lost}"


def _gain_text(gain: MetricDifference) -> str:
    if math.isnan(gain.decibels):
        return "–"
    if math.isinf(gain.decibels):
        return "+∞" if gain.decibels > 0 else f"{MINUS}∞"
    return f"{'~' if gain.is_heavy_tailed else ''}{fixed(gain.decibels, 1, signed=True)}"
