"""The chart of a sweep: a metric over one field, colours for another, panels for two more.

Where trials diverged the point is marked at the upper edge, and where tails are heavy the median over trials is drawn
with a hollow marker, so neither flattens the rest. All panels share their axes.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError, UnknownArgumentError
from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.render.charts import Chart, Panels, Scale, Series
from psofed.render.numbers import MINUS, shortened
from psofed.render.style import COLOURS, LINES, MARKERS
from psofed.results.metrics import label_of
from psofed.scenario.describe import field_title

if TYPE_CHECKING:
    from psofed.scenario import Scenario
    from psofed.studies.sweeps.grid import Axis
    from psofed.studies.sweeps.result import SweepResult

# More than this cannot be told apart, or does not fit.
MOST_CURVES, MOST_PANELS = 28, 36
_MOST_COLUMNS = 4  # of panels, before they wrap
_LONGEST_LABEL = 26

_THEORY = "exact theory"

# Values more than this above the lowest are marked at the edge if the range is wider than a picture can show.
_WIDEST = 45.0


@dataclass(frozen=True)
class FacetLayout:
    """Which axis of the grid has which role in the picture; fields that are left over share the colours.

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


class FacetFields(TypedDict, total=False):
    """The fields of the sweep that vary along the horizontal axis, in colour, and from panel to panel."""

    x: str | None
    hue: str | None
    col: str | None
    row: str | None


def sweep_chart(
    result: "SweepResult", metric: str = "network_mse", theory: bool = False, **fields: Unpack[FacetFields]
) -> Panels:
    """Return the steady states in dB with 95 % intervals; see :meth:`psofed.SweepResult.plot` for the arguments."""
    check_choice("metric", metric, result.titles)
    layout, unit = choose_layout(result, **fields), label_of(metric).shown_unit
    columns, rows = _size(result, layout.col), _size(result, layout.row)
    places = list(itertools.product(range(rows), range(columns)))
    panels = [_panel(result, metric, layout, place, theory) for place in places]
    if theory and not any(curve.label == _THEORY for panel in panels for curve in panel):
        _refuse_theory(result, metric, result.grid.axes[layout.x])
    positions, names, is_log = _abscissa(result.grid.axes[layout.x])
    ticks = None if names is None else tuple(zip(positions.tolist(), names, strict=True))
    scales = Scale(log=is_log, ticks=ticks), Scale(limits=_limits(list(itertools.chain(*panels))))
    charts: list[Chart | None] = [
        Chart(_title(result, layout, place), *scales, panel) for place, panel in zip(places, panels, strict=True)
    ]
    across = columns
    if layout.row is None and columns > _MOST_COLUMNS:
        across = min(_MOST_COLUMNS, max(math.ceil(math.sqrt(columns)), 3))
    down = -(-len(charts) // across)
    charts += [None] * (down * across - len(charts))
    size = (6.0, 3.9) if len(places) == 1 else (max(2.1, 9.5 / across), max(1.9, min(2.6, 9.0 / down)))
    return Panels(
        title="",
        charts=tuple(tuple(charts[row * across : (row + 1) * across]) for row in range(down)),
        shared=True,
        x=field_title(result.grid.axes[layout.x].name),
        y=f"steady-state {result.titles[metric]}{f' ({unit})' if unit else ''}",
        legend=", ".join(field_title(result.grid.axes[number].name) for number in layout.hue),
        right=() if layout.row is None else tuple(_named(result, layout.row, at, 30) for at in range(rows)),
        size=(size[0] * across + 0.5, size[1] * down + 0.6),
    )


def choose_layout(result: "SweepResult", **fields: Unpack[FacetFields]) -> FacetLayout:
    """Assign the fields that vary; those that are not given are chosen so that most pictures look right."""
    axes = result.grid.axes
    given: dict[str, int] = {}
    for role, field in fields.items():
        if role not in FacetFields.__annotations__:
            raise UnknownArgumentError(role, tuple(FacetFields.__annotations__), "argument of plot()")
        if isinstance(field, str):
            number = result.grid.place(field)
            if number in given.values():
                raise InvalidValueError(role, field, "a field that has no other role in the picture")
            given[role] = number
        elif field is not None:
            raise InvalidValueError(role, field, "the name of a field of this sweep")
    left = [number for number in range(len(axes)) if number not in given.values()]
    count, numeric = result.grid.shape, [axis.is_numeric for axis in axes]
    if "x" not in given and not left:
        raise InvalidValueError("x", None, "a field that is not a colour or a panel already")
    preferences: dict[str, Callable[[int], tuple[float, ...]]] = {
        "x": lambda n: (numeric[n], count[n], -n),
        "hue": lambda n: (count[n] > 1, numeric[n], count[n] <= len(COLOURS), count[n], -n),
        "col": lambda n: (count[n], -n),
        "row": lambda n: (count[n], -n),
    }
    for role, preference in preferences.items():
        if role not in given and left:
            given[role] = max(left, key=preference)
            left.remove(given[role])
    hues = tuple(given[role] for role in ("hue",) if role in given) + tuple(left)
    layout = FacetLayout(given["x"], hues, given.get("col"), given.get("row"))
    curves = math.prod(count[number] for number in hues)
    panels = math.prod(count[number] for number in (layout.col, layout.row) if number is not None)
    if curves > MOST_CURVES or panels > MOST_PANELS:
        what = f"{curves} curves" if curves > MOST_CURVES else f"{panels} panels"
        names = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in axes)
        raise InvalidValueError(
            "picture",
            f"{what} of a sweep over {names}",
            f"at most {MOST_CURVES} curves and {MOST_PANELS} panels; choose x, hue, col and row, or draw some of the "
            "values (--only FIELD=VALUE, SweepResult.select)",
        )
    return layout


def _panel(
    result: "SweepResult", metric: str, layout: FacetLayout, place: tuple[int, int], theory: bool
) -> tuple[Series, ...]:
    """Return the curves of one panel, a colour for each combination of the hues; `theory` as lines beside points."""
    axis, shown = result.grid.axes[layout.x], label_of(metric).shown
    cells = np.arange(len(result.cells)).reshape(result.grid.shape)
    scenarios = [cell.scenario for cell in result.grid.cells()] if theory and axis.is_numeric else []
    positions, _, _ = _abscissa(axis)
    order = np.argsort(positions, kind="stable")
    hues = [range(_size(result, number)) for number in layout.hue]
    count, curves, lines = math.prod(map(len, hues)), [], []
    for index, (chosen, label) in enumerate(zip(itertools.product(*hues), _hue_labels(result, layout), strict=True)):
        where: list[Any] = [slice(None)] * cells.ndim
        for number, at in zip((layout.row, layout.col, *layout.hue), (*place, *chosen), strict=True):
            if number is not None:
                where[number] = at
        points = cells[tuple(where)][order].tolist()
        estimates = [result.cells[at].estimate(metric) for at in points]
        middle, low, high = (shown(np.array(c)) for c in zip(*(e.typical for e in estimates), strict=True))
        # Names have no order to be joined by a line: their points stand beside each other.
        shift = 0.0 if axis.is_numeric else (index - (count - 1) / 2) * min(0.14, 0.7 / count)
        style = _style(result, layout, index, count, theory or not axis.is_numeric)
        predicted = _predicted([scenarios[at] for at in points if scenarios], metric)
        if np.isfinite(predicted).any():
            lines.append(Series("", positions[order], to_decibels(predicted), colour=style["colour"]))
        curves.append(
            Series(
                label, positions[order] + shift, middle, low, high, **style,
                is_median=np.array([not estimate.is_typical for estimate in estimates]),
                is_lost=np.array([result.cells[at].num_diverged > 0 for at in points]),
            )
        )  # fmt: skip
    legend = [Series(_THEORY, np.empty(0), np.empty(0), colour="0.35")] if lines else []
    return (*lines, *curves, *legend)


def _refuse_theory(result: "SweepResult", metric: str, axis: "Axis") -> None:
    """Say why no point has a theory, or no line can join those that have."""
    if not axis.is_numeric:
        raise InvalidValueError("theory", True, f"left out where {axis.fields[0]}, along x, is not a number")
    from psofed.theory.prediction import predict

    getattr(predict(next(result.grid.scenarios())), metric, None)  # refuses by name what it does not cover
    raise NotCoveredError(f"there is no theory of {metric} at these points")


def _predicted(scenarios: "list[Scenario]", metric: str) -> FloatArray:
    """Return what the exact theory says of some scenarios, NaN where it does not cover them."""
    from psofed.theory.prediction import predict

    def level(scenario: "Scenario") -> float:
        try:
            return float(getattr(predict(scenario), metric, math.nan))  # some metrics are only simulated
        except NotCoveredError:
            return math.nan

    return np.array([level(scenario) for scenario in scenarios])


def _limits(curves: list[Series]) -> tuple[float, float]:
    centres = np.concatenate([curve.y for curve in curves])
    ends = np.concatenate([end for curve in curves for end in (curve.low, curve.high) if end is not None])
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


def _style(result: "SweepResult", layout: FacetLayout, index: int, count: int, is_named: bool) -> dict[str, Any]:
    colour: float = index
    line, rank = LINES[index // len(COLOURS) % len(LINES)], index
    hues = [result.grid.axes[number] for number in layout.hue]
    if count > 2 and len(hues) == 1 and hues[0].is_numeric:
        # Numbers in order are shades in order.
        rank = sorted(range(count), key=lambda at: hues[0].labels[at]).index(index)
        line, colour = "-", 0.9 * rank / (count - 1)
    return {"colour": colour, "marker": MARKERS[rank % len(MARKERS)], "line": "" if is_named else line}


def _hue_labels(result: "SweepResult", layout: FacetLayout) -> list[str]:
    labels = itertools.product(*(result.grid.axes[number].labels for number in layout.hue))
    return [shortened(", ".join(_text(label) for label in chosen), _LONGEST_LABEL) for chosen in labels]


def _title(result: "SweepResult", layout: FacetLayout, place: tuple[int, int]) -> str:
    if layout.col is None or (place[0] and layout.row is not None):
        return ""
    return _named(result, layout.col, place[1], 34)


def _named(result: "SweepResult", number: int, place: int, longest: int) -> str:
    axis = result.grid.axes[number]
    return shortened(f"{field_title(axis.name)} = {_text(axis.labels[place])}", longest)


def _abscissa(axis: "Axis") -> tuple[FloatArray, list[str] | None, bool]:
    """Return where the values stand, names for them if they are not numbers, and whether the axis is logarithmic."""
    labels = axis.labels
    if not axis.is_numeric:
        return (
            np.arange(len(labels), dtype=float),
            [shortened(_text(label), _LONGEST_LABEL) for label in labels],
            False,
        )
    x = np.array(labels, dtype=float)
    ordered = np.sort(x)
    if len(x) < 3 or ordered[0] <= 0 or ordered[-1] < 15 * ordered[0]:
        are_few = len(x) <= 6 and all(isinstance(label, int) for label in labels)
        return x, [str(label) for label in labels] if are_few else None, False
    linear, log = np.diff(ordered), np.diff(np.log(ordered))
    return x, None, bool(log.max() / log.min() < linear.max() / linear.min())


def _size(result: "SweepResult", number: int | None) -> int:
    return 1 if number is None else len(result.grid.axes[number].values)


def _text(label: Any) -> str:
    return f"{label:g}".replace("-", MINUS) if isinstance(label, float) else str(label)
