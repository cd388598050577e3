"""The figures as charts. The same thing looks the same in every figure, in print and on the page.

Algorithms have one family of colours, attacks another (from none, slate, to the strongest, crimson). Sharing one
entry is PSO-Fed's blue and sharing all is Online-Fed's orange, because that is what they are. Every colour has a
contrast of at least 3 to 1 against the page, light and dark; a test computes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.paper.model import FigureData, FigureSeries
from psofed.render.charts import Chart, Panels, Scale, Series
from psofed.render.style import COLOURS, MARKERS, PAGE_WIDTH
from psofed.results import METRIC_TITLES
from psofed.scenario import UPLINKS

PANEL_TITLES = {"same": "uplink as in the equations (same)", "redrawn": "uplink as in the analysis (redrawn)"}

# Normal quantile of the 95 % intervals; with a hundred trials and more, Student's differs by under 2 %.
BAND = 1.96


@dataclass(frozen=True)
class Look:
    """A colour, and a marker in Matplotlib's letters."""

    colour: str
    marker: str


_PARTIAL, _FULL = Look("#0072b2", "o"), Look("#d55e00", "s")
_QUIET, _FEW, _MANY = Look("#64788c", "o"), Look("#8a63d2", "s"), Look("#d02f5f", "^")

LOOKS: dict[str, Look] = {
    "PSO-Fed": _PARTIAL,
    "Online-Fed": _FULL,
    "CS-Fed": Look("#009e73", "D"),
    "QS-Fed": Look("#a87b00", "v"),
    "SignSGD": Look("#737b85", "^"),
    "SignSGD, plain signs, majority": Look("#9a6b3f", "P"),
    "SignSGD, plain signs, mean": Look("#b0709a", "*"),
    "M = 1": _PARTIAL,
    "M = 5": _FULL,
    "|S_B| = 0": _QUIET,
    "|S_B| = 5": _FEW,
    "|S_B| = 10": Look("#b04a9c", "D"),
    "|S_B| = 15": _MANY,
    # Figure 7 has five Byzantine clients; of variance 0.25 they are those of figure 6.
    "σ_B² = 0.0": _QUIET,
    "σ_B² = 0.25": _FEW,
    "σ_B² = 1.0": Look("#a0522d", "v"),
    # What is left without an attack, and what an attack adds.
    "E_φ (data)": _QUIET,
    "E_ω (attack), |S_B| = 5": _FEW,
    "E_ω (attack), |S_B| = 15": _MANY,
}


def look_of(label: str, curve: int) -> Look:
    """Return the look of a curve, by its label; one that has none of its own gets the palette's, by number.

    Examples
    --------
    >>> look_of("M = 1", 0) == look_of("PSO-Fed", 3)
    True
    """
    fallback = Look(COLOURS[curve % len(COLOURS)], MARKERS[curve % len(MARKERS)])
    return LOOKS.get(label, fallback)


class KindLook(NamedTuple):
    """How a kind of series is shown; without a line, it has the curve's marker unless it names another."""

    title: str
    line: str = ""
    marker: str = ""
    size: float = 5.0
    hollow: bool = False


# Kinds as a reader sees them.
KINDS = {
    "simulation": KindLook("simulation, with its 95 % interval"),
    "exact-theory": KindLook("exact theory", "-"),
    "paper-theory": KindLook("paper’s theory", "--"),
    "approximation": KindLook("paper’s theory for small stepsizes", ":"),
    "published": KindLook("printed in the paper", size=9.0, hollow=True),
    "published-theory": KindLook("theory printed there", marker="x", size=6.0),
    "published-approximation": KindLook("approximation printed there", marker="+", size=7.0),
}


def kind_of(series: FigureSeries) -> str:
    """Return what a reader sees a series as, a key of `KINDS`."""
    if series.kind == "paper-theory" and "approximation" in series.label:
        return "approximation"
    if series.kind == "published" and "theory" in series.label:
        return "published-approximation" if "small" in series.label else "published-theory"
    return series.kind


def shown_kinds(data: FigureData, uplinks: Sequence[str] = UPLINKS) -> list[str]:
    """Return the kinds that some panels show, in order."""
    kinds = {kind_of(series) for uplink in uplinks for series in data.panel(uplink)}
    return [kind for kind in KINDS if kind in kinds]


def ordinate(data: FigureData) -> str:
    """Return what the ordinate shows, in dB, and which way is better."""
    if data.metric not in METRIC_TITLES:
        return "term of the MSE (dB)"
    return f"steady-state {METRIC_TITLES[data.metric]} (dB), lower is better"


def figure_chart(data: FigureData) -> Panels:
    """Return the figure: simulation, both theories and the printed points in dB, a panel per uplink."""
    labels, nothing, grey = data.curve_labels, np.empty(0), Look("0.25", "o")
    key = [_drawn("simulation", look_of(label, n), label, nothing, nothing) for n, label in labels.items()]
    key += [_drawn(kind, grey, KINDS[kind].title, nothing, nothing) for kind in shown_kinds(data)]
    points = sorted({float(x) for series in data.series for x in series.x})
    whole = all(x.is_integer() for x in points)
    x = Scale(ticks=tuple((place, f"{place:g}") for place in points) if whole else None)
    charts: list[Chart] = []
    for uplink in UPLINKS:
        series = [] if charts else list(key)
        for one in data.panel(uplink):
            look, error = look_of(labels[one.curve], one.curve), one.standard_error_db
            ends = {} if error is None else {"low": one.y_db - BAND * error, "high": one.y_db + BAND * error}
            series.append(_drawn(kind_of(one), look, "", one.x, one.y_db, **ends))
        charts.append(Chart(PANEL_TITLES[uplink], x, Scale(), tuple(series)))
    return Panels("", tuple(charts), 2, True, data.x_label, ordinate(data), size=(PAGE_WIDTH, 3.0))


def _drawn(kind: str, look: Look, label: str, x: FloatArray, y: FloatArray, **ends: FloatArray) -> Series:
    about = KINDS[kind]
    marker = "" if about.line else about.marker or look.marker
    return Series(
        label, x, np.where(np.isfinite(y), y, np.nan), ends.get("low"), ends.get("high"), line=about.line,
        marker=marker, colour=look.colour, size=about.size, width=1.3, hollow=about.hollow,
    )  # fmt: skip
