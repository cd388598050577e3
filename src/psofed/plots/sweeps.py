"""Pictures of sweeps: a metric over one field, colours for another, panels for two more.

Where trials diverged the point is marked at the upper edge, and where tails are heavy the median over trials is drawn
with a hollow marker; neither flattens the rest. All panels share their axes.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.plots.style import COLOURS, LINES, MARKERS, make_canvas, plot_style
from psofed.results import METRIC_TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from psofed.sweeps import SweepResult

# More than this cannot be told apart, or does not fit.
MOST_CURVES, MOST_PANELS = 28, 36
_MOST_COLUMNS = 4  # of panels, before they wrap
_LONGEST_LABEL = 26

# Values more than this above the lowest are marked at the edge if the range is wider than a picture can show.
_WIDEST = 45.0


@dataclass(frozen=True)
class Layout:
    """Which axis of the grid is what in the picture; fields that are left over share the colours.

    Attributes
    ----------
    x : int
    hue : tuple of int
    col, row : int or None
    """

    x: int
    hue: tuple[int, ...]
    col: int | None
    row: int | None


@dataclass(frozen=True, eq=False)
class _Curve:
    """Values along x in dB: the centre, the ends of the interval, and what is to be marked."""

    centre: FloatArray
    low: FloatArray
    high: FloatArray
    is_median: NDArray[np.bool_]
    diverged: NDArray[np.bool_]


def plot_sweep(
    result: "SweepResult",
    metric: str = "network_mse",
    *,
    x: str | None = None,
    hue: str | None = None,
    col: str | None = None,
    row: str | None = None,
) -> "Figure":
    """Plot the steady state in dB with 95 % bands.

    Parameters
    ----------
    result : SweepResult
    metric : str
    x, hue, col, row : str, optional
        The fields that vary along the abscissa, in colour, and from panel to panel. By default the numeric field with
        the most values is the abscissa, another numeric one the colour, and the others make columns and rows.
    """
    check_choice("metric", metric, METRIC_TITLES)
    layout = choose_layout(result, x, hue, col, row)
    grid = result.grid
    curves = _gather(result, metric, layout)
    places, ticks, is_log = _abscissa(grid.axes[layout.x].labels)
    names = not _is_numeric(grid.axes[layout.x].labels)
    hues = math.prod(_size(result, number) for number in layout.hue)
    columns, rows = _size(result, layout.col), _size(result, layout.row)
    wrapped = layout.row is None and columns > _MOST_COLUMNS
    across = _wrap(columns) if wrapped else columns
    down = -(-columns // across) if wrapped else rows
    bottom, top = _limits(curves)
    with plot_style():
        legend = _legend_width(result, layout)
        panel = (
            (6.0, 3.9) if columns * rows == 1 else (max(2.1, 9.5 / across), max(1.9, min(2.6, 9.0 / down)))
        )
        figure = make_canvas(panel[0] * across + legend + 0.5, panel[1] * down + 0.6)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for number, axes in enumerate(panels.ravel()):
            if wrapped and number >= columns:
                axes.set_visible(False)
                continue
            at = (0, number) if wrapped else divmod(number, across)
            for index, place in enumerate(np.ndindex(*(_size(result, axis) for axis in layout.hue))):
                style = _style(result, layout, index)
                # Names have no order to be joined by a line: their points stand beside each other.
                shift = (index - (hues - 1) / 2) * min(0.14, 0.7 / hues) if names else None
                _draw(axes, places, curves[(*at, *place)], style, top, 1.1 / max(hues, 6), shift)
            if ticks is not None:
                axes.set_xticks(
                    places,
                    ticks,
                    rotation=0 if _fits(ticks, panel[0]) else 35,
                    ha="center" if _fits(ticks, panel[0]) else "right",
                )
            _title(axes, result, layout, at, across)
        first = panels[0, 0]
        if is_log:
            first.set_xscale("log")
        first.set_ylim(bottom, top)
        what = f"steady-state {METRIC_TITLES[metric]} (dB)"
        name = grid.axes[layout.x].name
        if down * across == 1:
            first.set_xlabel(name)
            first.set_ylabel(what)
        else:
            figure.supxlabel(name, fontsize=9.5)
            figure.supylabel(what, fontsize=9.5)
        if wrapped:  # what stands above an empty panel has the ticks
            for hidden in range(columns, down * across):
                above = panels.ravel()[hidden - across]
                above.tick_params(labelbottom=True)
        _add_legend(figure, result, layout, curves)
    return figure


def choose_layout(
    result: "SweepResult",
    x: str | None = None,
    hue: str | None = None,
    col: str | None = None,
    row: str | None = None,
) -> Layout:
    """Say which field is what; those that are not given are chosen so that most pictures look right."""
    axes = result.grid.axes
    given: dict[str, int] = {}
    for role, field in (("x", x), ("hue", hue), ("col", col), ("row", row)):
        if field is not None:
            number = result.grid.place(field)
            if number in given.values():
                raise InvalidValueError(
                    f"--{role}", field, "a field that is not drawn in another way already"
                )
            given[role] = number
    left = [number for number in range(len(axes)) if number not in given.values()]

    def count(number: int) -> int:
        return len(axes[number].values)

    def numeric(number: int) -> bool:
        return _is_numeric(axes[number].labels)

    if "x" not in given:
        if not left:
            raise InvalidValueError("--x", None, "a field that is not a colour or a panel already")
        given["x"] = max(left, key=lambda n: (numeric(n), count(n), -n))
        left.remove(given["x"])
    if "hue" not in given and left:
        given["hue"] = max(
            left, key=lambda n: (count(n) > 1, numeric(n), count(n) <= len(COLOURS), count(n), -n)
        )
        left.remove(given["hue"])
    for role in ("col", "row"):
        if role not in given and left:
            given[role] = max(left, key=lambda n: (count(n), -n))
            left.remove(given[role])
    hues = tuple(given[role] for role in ("hue",) if role in given) + tuple(left)
    layout = Layout(given["x"], hues, given.get("col"), given.get("row"))
    curves = math.prod(count(number) for number in hues)
    panels = math.prod(count(number) for number in (layout.col, layout.row) if number is not None)
    if curves > MOST_CURVES or panels > MOST_PANELS:
        what = f"{curves} curves" if curves > MOST_CURVES else f"{panels} panels"
        names = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in axes)
        raise InvalidValueError(
            "picture",
            f"{what} of a sweep over {names}",
            f"at most {MOST_CURVES} curves and {MOST_PANELS} panels; choose with --x, --hue, --col and --row, or draw "
            "a part of it with --only FIELD=VALUE",
        )
    return layout


def _gather(result: "SweepResult", metric: str, layout: Layout) -> dict[tuple[int, ...], _Curve]:
    """Return the curves by (row, column, places of the hues…)."""
    shape = result.grid.shape
    table = np.empty((*shape, 5))
    for index, cell in zip(np.ndindex(*shape), result.cells, strict=True):
        found = cell.estimate(metric)
        table[index] = (*found.typical, not found.is_typical, cell.num_diverged > 0)
    order = np.argsort(_abscissa(result.grid.axes[layout.x].labels)[0], kind="stable")
    curves = {}
    rows, columns = range(_size(result, layout.row)), range(_size(result, layout.col))
    hues = [range(_size(result, number)) for number in layout.hue]
    for at in itertools.product(rows, columns, *hues):
        chosen: list[Any] = [slice(None)] * len(shape)
        for number, place in zip((layout.row, layout.col, *layout.hue), at, strict=True):
            if number is not None:
                chosen[number] = place
        values = table[tuple(chosen)][order]
        fit = np.isfinite(values[:, :3]) & (values[:, :3] > 0)
        decibels = np.where(fit, 10 * np.log10(np.where(fit, values[:, :3], 1.0)), np.nan)
        # An interval without upper end reaches beyond the picture.
        high = np.where(np.isposinf(values[:, 2]), np.inf, decibels[:, 2])
        curves[at] = _Curve(decibels[:, 0], decibels[:, 1], high, values[:, 3] > 0, values[:, 4] > 0)
    return curves


def _limits(curves: dict[tuple[int, ...], _Curve]) -> tuple[float, float]:
    centres = np.concatenate([curve.centre for curve in curves.values()])
    ends = np.concatenate([end for curve in curves.values() for end in (curve.low, curve.high)])
    centres, ends = centres[np.isfinite(centres)], ends[np.isfinite(ends)]
    if not centres.size:
        return -1.0, 1.0
    bottom, top = float(centres.min()), float(centres.max())
    if top - bottom > _WIDEST:
        top = max(float(np.median(centres)) + 15.0, min(5.0, top), bottom + 20.0)
        top = float(centres[centres <= top].max())
    # Bands are shown as far as they do not squeeze the curves.
    span = max(top - bottom, 0.5)
    inside = ends[(ends > bottom - span) & (ends < top + span)]
    if inside.size:
        bottom, top = min(bottom, float(inside.min())), max(top, float(inside.max()))
    margin = 0.06 * max(top - bottom, 0.5)
    return bottom - margin, top + 1.5 * margin


def _draw(
    axes: "Axes",
    x: FloatArray,
    curve: _Curve,
    style: dict[str, Any],
    top: float,
    shade: float,
    shift: float | None,
) -> None:
    x = np.sort(x) + (shift or 0.0)
    colour = style["color"]
    beyond = curve.centre > top
    centre = np.where(beyond, np.nan, curve.centre)
    low = np.where(np.isfinite(centre), curve.low, np.nan)
    high = np.where(np.isfinite(centre), np.minimum(curve.high, top + 50), np.nan)
    if shift is None:
        axes.plot(x, centre, **style, markevery=list(np.flatnonzero(~curve.is_median)))
        axes.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
    else:
        axes.plot(x, centre, **(style | {"linestyle": "none"}))
        axes.vlines(x, low, high, color=colour, lw=1.4)
    hollow = curve.is_median & np.isfinite(centre)
    if hollow.any():
        axes.plot(
            x[hollow], centre[hollow], ls="none", marker=style["marker"], color=colour, mfc="white", zorder=3
        )
    for at, marker in ((curve.diverged, "x"), (beyond & ~curve.diverged, "^")):
        if at.any():
            axes.plot(x[at], np.full(int(at.sum()), 0.985), ls="none", marker=marker, color=colour, ms=6.5, mew=1.8,
                      transform=axes.get_xaxis_transform(), clip_on=False, zorder=4)  # fmt: skip


def _style(result: "SweepResult", layout: Layout, index: int) -> dict[str, Any]:
    count = math.prod(_size(result, number) for number in layout.hue)
    ordered = len(layout.hue) == 1 and _is_numeric(result.grid.axes[layout.hue[0]].labels)
    if ordered and count > 3:
        # Numbers in order are shades in order.
        import matplotlib

        rank = sorted(range(count), key=lambda at: result.grid.axes[layout.hue[0]].labels[at]).index(index)
        shade = matplotlib.colormaps["viridis"](0.9 * rank / (count - 1))
        return {"color": shade, "marker": MARKERS[rank % len(MARKERS)], "linestyle": "-"}
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index // len(COLOURS) % len(LINES)],
    }


def _add_legend(
    figure: "Figure", result: "SweepResult", layout: Layout, curves: dict[tuple[int, ...], _Curve]
) -> None:
    from matplotlib.lines import Line2D

    handles: list[Line2D] = []
    top = _limits(curves)[1]
    if layout.hue:
        for index, labels in enumerate(_hue_labels(result, layout)):
            handles.append(Line2D([], [], **_style(result, layout, index), label=labels))
    marks = {
        "x": ("some trials diverged", any(curve.diverged.any() for curve in curves.values())),
        "^": (
            "above the picture",
            any((c.centre > top).any() and not c.diverged.all() for c in curves.values()),
        ),
        "o": (
            "median, heavy tails",
            any((c.is_median & np.isfinite(c.centre)).any() for c in curves.values()),
        ),
    }
    marked = [
        Line2D(
            [],
            [],
            ls="none",
            marker=marker,
            color="0.3",
            mfc="white" if marker == "o" else None,
            mew=1.5,
            label=words,
        )
        for marker, (words, there) in marks.items()
        if there
    ]
    if not handles and not marked:
        return
    title = ", ".join(result.grid.axes[number].name for number in layout.hue) or None
    figure.legend(
        handles=[*handles, *marked],
        title=title,
        loc="outside right upper",
        ncols=1 if len(handles) <= 20 else 2,
        title_fontsize=8.5,
        alignment="left",
    )


def _hue_labels(result: "SweepResult", layout: Layout) -> list[str]:
    labels = itertools.product(*(result.grid.axes[number].labels for number in layout.hue))
    return [_short(", ".join(_text(label) for label in chosen)) for chosen in labels]


def _legend_width(result: "SweepResult", layout: Layout) -> float:
    if not layout.hue:
        return 0.0
    names = [*_hue_labels(result, layout), ", ".join(result.grid.axes[number].name for number in layout.hue)]
    return min(0.6 + 0.075 * max(map(len, names)), 2.6)


def _title(axes: "Axes", result: "SweepResult", layout: Layout, at: tuple[int, int], across: int) -> None:
    grid = result.grid
    row, column = at
    if layout.col is not None and (row == 0 or layout.row is None):
        axis = grid.axes[layout.col]
        axes.set_title(_short(f"{axis.name} = {_text(axis.labels[column])}", 34), fontsize=8.5)
    if layout.row is not None and column == across - 1:
        axis = grid.axes[layout.row]
        axes.annotate(_short(f"{axis.name} = {_text(axis.labels[row])}", 30), (1.02, 0.5), xycoords="axes fraction",
                      rotation=270, va="center", fontsize=8.5)  # fmt: skip


def _abscissa(labels: Sequence[Any]) -> tuple[FloatArray, list[str] | None, bool]:
    """Return where the values stand, names for them if they are not numbers, and whether the axis is logarithmic."""
    if not _is_numeric(labels):
        return np.arange(len(labels), dtype=float), [_short(_text(label)) for label in labels], False
    x = np.array(labels, dtype=float)
    ordered = np.sort(x)
    if len(x) < 3 or ordered[0] <= 0 or ordered[-1] < 15 * ordered[0]:
        few = sorted(labels) if len(x) <= 6 and all(isinstance(label, int) for label in labels) else None
        return x, None if few is None else [str(label) for label in labels], False
    linear, log = np.diff(ordered), np.diff(np.log(ordered))
    return x, None, bool(log.max() / log.min() < linear.max() / linear.min())


def _size(result: "SweepResult", number: int | None) -> int:
    return 1 if number is None else len(result.grid.axes[number].values)


def _wrap(panels: int) -> int:
    return min(_MOST_COLUMNS, max(math.ceil(math.sqrt(panels)), 3))


def _fits(ticks: list[str], width: float) -> bool:
    return sum(map(len, ticks)) * 0.075 + 0.1 * len(ticks) < width


def _text(label: Any) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def _short(text: str, longest: int = _LONGEST_LABEL) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _is_numeric(labels: Sequence[Any]) -> bool:
    return all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels)
