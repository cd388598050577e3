"""Charts of an advice."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.render.charts import Chart, Panels, RowChart, Rows, Scale, Series
from psofed.render.numbers import shortened

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice
    from psofed.studies.advice.methods import Station

# Rows that the axis is made for.
_FEDERATIONS = ("federation", "everybody", "mean", "robust", "pooled", "rls")
MOST_NAMED = 40  # clients that a chart names


def advice_chart(advice: "Advice") -> Panels:
    """Return gains with their intervals on the left, every client's errors on the right."""
    named = len(advice.stations) <= MOST_NAMED
    height = max(3.6, 1.6 + 0.19 * min(len(advice.stations), MOST_NAMED))
    right = _dumbbells(advice.stations) if named else _cloud(advice.stations)
    title = "\n".join(textwrap.wrap(advice.answer.replace(" %", "\N{NO-BREAK SPACE}%"), 125))
    return Panels(title, ((_gains(advice), right),), size=(10.0, height), widths=(1.0, 1.1))


def _gains(advice: "Advice") -> RowChart:
    plain = [m for m in advice.methods if m.name != "alone"]
    attacked = () if advice.what_if is None else advice.what_if.methods
    count = "" if advice.what_if is None else f"{len(advice.what_if.byzantine) or 'some'} Byzantine"
    shown = [*plain, *attacked]
    names = [m.title for m in plain] + [f"{count}: M = {m.num_shared}, {m.rule}" for m in attacked]
    values = 100 * np.array([m.gain.value for m in shown])
    low, high = (100 * np.array([m.gain.interval[end] for m in shown]) for end in (0, 1))
    is_attacked = np.arange(len(shown)) >= len(plain)
    learns = np.array([m.name in _FEDERATIONS for m in shown])
    ends = np.append(np.concatenate([column[learns] for column in (values, low, high)]), 0.0)
    groups = []
    for mask, colour in ((~is_attacked, 0), (is_attacked, 1)):
        if mask.any():
            shown_here = [np.where(mask, column, np.nan) for column in (values, low, high)]
            groups.append(Rows("", shown_here[0], shown_here[1], shown_here[2], colour=colour))
    return RowChart(
        "gain over learning alone, 95 % intervals (★: recommended)",
        Scale("reduction of the error (%)", limits=_limits(ends, values)),
        tuple(shortened(name, 40) for name in names),
        tuple(groups),
        zero=True,
        starred=frozenset(at for at, m in enumerate(plain) if m.name == "federation"),
    )


def _dumbbells(stations: "tuple[Station, ...]") -> RowChart:
    rows = (
        Rows("alone", np.array([s.alone for s in stations]), colour=4, hollow=True),
        Rows("in the federation", np.array([s.federation for s in stations]), colour=0),
    )
    return RowChart(
        "error of each client",
        Scale(
            "mean squared error; 1 is the variance of the target",
            limits=_limits(np.concatenate([row.values for row in rows])),
        ),
        tuple(shortened(s.name, 18) for s in stations),
        rows,
        joined=True,
        flagged=frozenset(at for at, s in enumerate(stations) if s.flag),
    )


def _limits(values: FloatArray, others: FloatArray | None = None) -> tuple[float, float] | None:
    """Return where the axis ends if some values, or others, are so far out that the rest could not be told apart.

    Examples
    --------
    >>> _limits(np.array([4.0, 5.0, 3.0, -763.0])), _limits(np.array([4.0, 5.0, 3.0, -2.0]))
    ((2.5, 5.5), None)
    """
    values = values[np.isfinite(values)]
    if values.size < 3:
        return None
    centre = float(np.median(values))
    reach = max(6 * float(np.median(np.abs(values - centre))), 0.5 * abs(centre), 1e-9)
    inside = values[np.abs(values - centre) < reach]
    reach = 2 * max(float(np.ptp(inside)), 1e-9)
    everything = values if others is None else np.append(values, others[np.isfinite(others)])
    if everything.min() > inside.min() - reach and everything.max() < inside.max() + reach:
        return None
    return float(inside.min() - reach / 8), float(inside.max() + reach / 8)


def _cloud(stations: "tuple[Station, ...]") -> Chart:
    alone, joined = (np.array([getattr(s, name) for s in stations]) for name in ("alone", "federation"))
    fit = np.isfinite(alone) & np.isfinite(joined) & (alone > 0) & (joined > 0)
    flagged = np.array([bool(s.flag) for s in stations]) & fit
    usual = fit & ~flagged
    series = [Series("", alone[usual], joined[usual], line="", marker="o", size=4)]
    if flagged.any():
        series.append(
            Series("flagged", alone[flagged], joined[flagged], line="", marker="s", colour=1, size=5)
        )
    if fit.any():
        ends = np.array([min(alone[fit].min(), joined[fit].min()), max(alone[fit].max(), joined[fit].max())])
        series.append(Series("", ends, ends, colour="black", width=0.9))
    title = f"errors of {len(stations)} clients: below the line the federation is better"
    return Chart(title, Scale("alone", log=True), Scale("in the federation", log=True), tuple(series))
