"""A picture of the advice: what each way to learn gains, and how each station fares."""

import math
from typing import TYPE_CHECKING

import numpy as np

from psofed.advice import Advice, Method, Station
from psofed.plots.style import COLOURS, make_canvas, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMED = 40
_ALONE, _TOGETHER, _FLAG = COLOURS[4], COLOURS[0], COLOURS[1]


def plot_advice(advice: Advice) -> "Figure":
    """Draw gains with their intervals on the left, every station's errors on the right."""
    with plot_style():
        height = max(3.6, 1.4 + 0.19 * min(len(advice.stations), _MOST_NAMED))
        figure = make_canvas(10.0, height)
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
        _draw_gains(left, advice)
        if len(advice.stations) <= _MOST_NAMED:
            _draw_stations(right, advice.stations)
        else:
            _draw_cloud(right, advice.stations)
        figure.suptitle(_wrap(advice.answer, 125), fontsize=10, x=0.01, ha="left")
    return figure


def _draw_gains(axes: "Axes", advice: Advice) -> None:
    shown = [m for m in advice.methods if m.name in ("federation", "pooled")]
    rows: list[tuple[str, Method, str]] = [(m.title, m, _TOGETHER) for m in shown]
    for method in advice.lies:
        rows.append(
            (f"{len(advice.liars) or 'some'} lying: M = {method.num_shared}, {method.rule}", method, _FLAG)
        )
    for at, (_, method, colour) in enumerate(rows):
        gain, (low, high) = method.gain.value, method.gain.interval
        if not math.isfinite(gain):
            axes.annotate(
                "diverged", (0.02, at), xycoords=("axes fraction", "data"), va="center", color=colour
            )
            continue
        is_chosen = (
            method.num_shared == advice.federation.num_shared
            and method.rule == "mean"
            and colour == _TOGETHER
        )
        if math.isfinite(low):
            axes.plot(
                [100 * low, 100 * high], [at, at], color=colour, lw=2.2, alpha=0.55, solid_capstyle="butt"
            )
        axes.plot(
            [100 * gain], [at], color=colour, marker="*" if is_chosen else "o", ms=10 if is_chosen else 5.5
        )
    axes.axvline(0.0, color="black", lw=0.9)
    axes.set_yticks(range(len(rows)), [title for title, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("error below that of each station alone, per cent")
    axes.set_title("gain on being alone, 95 % interval (★: see above)", loc="left")


def _draw_stations(axes: "Axes", stations: tuple[Station, ...]) -> None:
    for at, station in enumerate(stations):
        if not (math.isfinite(station.alone) and math.isfinite(station.federation)):
            continue
        colour = _FLAG if station.stands_out else "0.6"
        axes.plot([station.alone, station.federation], [at, at], color=colour, lw=1.6, zorder=1)
        axes.plot([station.alone], [at], marker="o", ms=5, mfc="white", mec=_ALONE, mew=1.2, zorder=2)
        axes.plot([station.federation], [at], marker="o", ms=5, color=_TOGETHER, zorder=3)
    axes.set_yticks(range(len(stations)), [_shorten(s.name) for s in stations], fontsize=8)
    for label, station in zip(axes.get_yticklabels(), stations, strict=True):
        if station.stands_out:
            label.set_color(_FLAG)
            label.set_fontweight("bold")
    axes.set_ylim(len(stations) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    _finish(axes, "error of each station")
    axes.plot([], [], marker="o", ms=5, mfc="white", mec=_ALONE, mew=1.2, ls="none", label="alone")
    axes.plot([], [], marker="o", ms=5, color=_TOGETHER, ls="none", label="in the federation")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.1)


def _draw_cloud(axes: "Axes", stations: tuple[Station, ...]) -> None:
    points = np.array([(s.alone, s.federation) for s in stations])
    fit = np.isfinite(points).all(axis=1) & (points > 0).all(axis=1)
    flagged = np.array([s.stands_out for s in stations]) & fit
    axes.plot(*points[fit & ~flagged].T, ls="none", marker="o", ms=4, color=_TOGETHER, alpha=0.6)
    axes.plot(*points[flagged].T, ls="none", marker="s", ms=5, color=_FLAG, label="stands out")
    for station in [s for s in stations if s.stands_out][:8]:
        axes.annotate(_shorten(station.name), (station.alone, station.federation), fontsize=7, xytext=(4, 3),
                      textcoords="offset points", color=_FLAG)  # fmt: skip
    if fit.any():
        ends = points[fit].min(), points[fit].max()
        axes.plot(ends, ends, color="black", lw=0.9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylabel("in the federation")
    _finish(axes, f"errors of {len(stations)} stations: below the line the federation is better")
    axes.set_xlabel("alone")
    if flagged.any():
        axes.legend()


def _finish(axes: "Axes", title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel("mean squared error; 1 is the variance of its target")


def _shorten(name: str, most: int = 18) -> str:
    # A dollar sign would start a formula.
    text = name if len(name) <= most else f"{name[: most - 1]}…"
    return text.replace("$", r"\$")


def _wrap(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width)).replace("$", r"\$")
