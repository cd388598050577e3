"""The chart of a sweep: a metric over one field, colours for another, panels for two more.

Where trials diverged the point is marked at the upper edge, and where tails are heavy the median over trials is drawn
with a hollow marker, so neither flattens the rest. All panels share their axes.
"""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

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
    from psofed.studies.sweeps.grid import Axis
    from psofed.studies.sweeps.result import SweepResult

# More than this cannot be told apart, or does not fit.
MOST_CURVES, MOST_PANELS = 28, 36
_MOST_COLUMNS = 4  # of panels, before they wrap
_LONGEST_LABEL = 26

# Values more than this above the lowest are marked at the edge if the range is wider than a picture can show.
_WIDEST = 45.0


class FacetFields(TypedDict, total=False):
    """The fields of the sweep that vary along the horizontal axis, in colour, and from panel to panel."""

    x: str | None
    hue: str | None
    col: str | None
    row: str | None


class FacetLayout(NamedTuple):
    """Which axes of the grid have which role in the picture; fields that are left over share the colours."""

    x: int
    hue: tuple[int, ...]
    col: int | None
    row: int | None


def sweep_chart(
    result: "SweepResult", metric: str = "network_mse", theory: bool = False, **fields: Unpack[FacetFields]
) -> Panels:
    """Return the steady states in dB with 95 % intervals; see :meth:`psofed.SweepResult.plot` for the arguments."""
    check_choice("metric", metric, result.titles)
    layout, unit, axes = choose_layout(result, **fields), label_of(metric).shown_unit, result.grid.axes
    columns, rows = (1 if number is None else len(axes[number].values) for number in (layout.col, layout.row))
    predicted = _predicted(result, metric, axes[layout.x]) if theory else None
    panels = [
        _panel(result, metric, layout, (row, column), predicted) for row in range(rows) for column in range(columns)
    ]
    positions, names, is_log = _abscissa(axes[layout.x])
    ticks = None if names is None else tuple(zip(positions.tolist(), names, strict=True))
    scales = Scale(log=is_log, ticks=ticks), Scale(limits=_limits([curve for panel in panels for curve in panel]))
    charts = []
    for place, panel in enumerate(panels):
        facets = ((layout.col, place % columns), (layout.row, place // columns))
        title = ", ".join(_named(axes[number], at) for number, at in facets if number is not None)
        charts.append(Chart(title, *scales, panel))
    across = columns
    if layout.row is None and columns > _MOST_COLUMNS:
        across = min(_MOST_COLUMNS, max(math.ceil(math.sqrt(columns)), 3))
    down = -(-len(charts) // across)
    size = (6.0, 3.9) if len(panels) == 1 else (max(2.1, 9.5 / across), max(1.9, min(2.6, 9.0 / down)))
    return Panels(
        title="",
        charts=tuple(charts),
        across=across,
        shared=True,
        x=field_title(axes[layout.x].name),
        y=f"steady-state {result.titles[metric]}{f' ({unit})' if unit else ''}",
        legend=", ".join(field_title(axes[number].name) for number in layout.hue),
        size=(size[0] * across + 0.5, size[1] * down + 0.6),
    )


def choose_layout(result: "SweepResult", **fields: Unpack[FacetFields]) -> FacetLayout:
    """Assign the fields that vary; those that are not given are chosen so that most pictures look right."""
    axes, count = result.grid.axes, result.grid.shape
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
    numeric = [axis.is_numeric for axis in axes]
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
        allowed = (
            f"at most {MOST_CURVES} curves and {MOST_PANELS} panels; choose x, hue, col and row, or draw some of the "
            "values (--only FIELD=VALUE, SweepResult.select)"
        )
        raise InvalidValueError("picture", f"{what} of a sweep over {names}", allowed)
    return layout


def _panel(
    result: "SweepResult", metric: str, layout: FacetLayout, place: tuple[int, int], predicted: FloatArray | None
) -> tuple[Series, ...]:
    """Return the curves of one panel, a colour for each combination of the hues; theory as lines beside points."""
    axes, shown, estimates = result.grid.axes, label_of(metric).shown, result.estimates(metric)
    axis, hue_axes = axes[layout.x], [axes[number] for number in layout.hue]
    positions, is_numeric = _abscissa(axis)[0], axis.is_numeric
    order = np.argsort(positions, kind="stable")
    fixed = {number: at for number, at in zip((layout.row, layout.col), place, strict=True) if number is not None}
    hues = list(itertools.product(*(range(len(each.values)) for each in hue_axes)))
    curves, lines, count = [], [], len(hues)
    # Numbers in order are shades in order.
    is_shaded = count > 2 and len(hue_axes) == 1 and hue_axes[0].is_numeric
    ranks = np.argsort(np.argsort(hue_axes[0].labels)) if is_shaded else np.arange(count)
    for index, (chosen, rank) in enumerate(zip(hues, ranks.tolist(), strict=True)):
        where = fixed | dict(zip(layout.hue, chosen, strict=True))
        index_in = tuple(where.get(number, slice(None)) for number in range(len(axes)))
        points = np.arange(len(result.cells)).reshape(result.grid.shape)[index_in][order].tolist()
        middle, low, high = (shown(np.array(c)) for c in zip(*(estimates[at].typical for at in points), strict=True))
        # Names have no order to be joined by a line: their points stand beside each other.
        shift = 0.0 if is_numeric else (index - (count - 1) / 2) * min(0.14, 0.7 / count)
        colour = 0.9 * rank / (count - 1) if is_shaded else index
        line = "-" if is_shaded else LINES[index // len(COLOURS) % len(LINES)]
        if predicted is not None and np.isfinite(predicted[points]).any():
            lines.append(Series("", positions[order], to_decibels(predicted[points]), colour=colour))
        label = shortened(
            ", ".join(_text(each.labels[at]) for each, at in zip(hue_axes, chosen, strict=True)), _LONGEST_LABEL
        )
        look: dict[str, Any] = {"colour": colour, "line": "" if predicted is not None or not is_numeric else line}
        look["marker"] = MARKERS[rank % len(MARKERS)]
        look["is_median"] = np.array([not estimates[at].is_typical for at in points])
        look["is_lost"] = np.array([result.cells[at].num_diverged > 0 for at in points])
        curves.append(Series(label, positions[order] + shift, middle, low, high, **look))
    legend = [Series("exact theory", np.empty(0), np.empty(0), colour="0.35")] if lines else []
    return (*lines, *curves, *legend)


def _predicted(result: "SweepResult", metric: str, axis: "Axis") -> FloatArray:
    """Return what the exact theory says of all points, NaN where it does not cover them; refuse if it covers none."""
    from psofed.theory.prediction import predict

    if not axis.is_numeric:
        raise InvalidValueError("theory", True, f"left out where {axis.fields[0]}, along x, is not a number")
    levels, refused = np.full(len(result.cells), math.nan), NotCoveredError(f"there is no theory of {metric}")
    for at, cell in enumerate(result.grid.cells()):
        try:
            levels[at] = getattr(predict(cell.scenario), metric, math.nan)  # some metrics are only simulated
        except NotCoveredError as error:
            refused = error
    if not np.isfinite(levels).any():
        raise refused
    return levels


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
    inside = np.append(ends[(ends > bottom - span) & (ends < top + span)], [bottom, top])
    bottom, top = float(inside.min()), float(inside.max())
    margin = 0.06 * max(top - bottom, 0.5)
    return bottom - margin, top + 1.5 * margin


def _abscissa(axis: "Axis") -> tuple[FloatArray, list[str] | None, bool]:
    """Return where the values stand, names for them if they are not numbers, and whether the axis is logarithmic."""
    labels = axis.labels
    if not axis.is_numeric:
        names = [shortened(_text(label), _LONGEST_LABEL) for label in labels]
        return np.arange(len(labels), dtype=float), names, False
    x = np.array(labels, dtype=float)
    ordered = np.sort(x)
    if len(x) < 3 or ordered[0] <= 0 or ordered[-1] < 15 * ordered[0]:
        are_few = len(x) <= 6 and all(isinstance(label, int) for label in labels)
        return x, [str(label) for label in labels] if are_few else None, False
    linear, log = np.diff(ordered), np.diff(np.log(ordered))
    return x, None, bool(log.max() / log.min() < linear.max() / linear.min())


def _named(axis: "Axis", place: int) -> str:
    return shortened(f"{field_title(axis.name)} = {_text(axis.labels[place])}", 40)


def _text(label: Any) -> str:
    return f"{label:g}".replace("-", MINUS) if isinstance(label, float) else str(label)
