"""A figure of the paper beside the explorer's own charts."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource

from psofed.common.numbers import to_decibels
from psofed.explore.answers import Answers
from psofed.explore.canvas import FONT, ORDINATE, SIDE_COLOURS, ChartText, make_figure, move_axis
from psofed.explore.settings import form_mapping
from psofed.paper.charts import spread_labels
from psofed.paper.curves import FigurePlan
from psofed.paper.figures import load_figure
from psofed.paper.look import look_of
from psofed.results import METRIC_TITLES


class PaperFigure:
    """A figure of the paper: the exact theory as lines, the printed points as rings, and where the settings are."""

    def __init__(self) -> None:
        plot: Any = make_figure("Figure of the paper", "", ORDINATE, False)
        self.figure: Any = plot
        self._name, self._scheme = "", "light"
        self.lines: dict[str, list[float]] = {}  # levels by curve, in dB
        columns = {
            "lines": "xs ys colour",
            "names": "x y text colour",
            "rings": "x y colour",
            "present": "x y colour",
        }
        self._sources = {
            key: ColumnDataSource({c: [] for c in names.split()}) for key, names in columns.items()
        }
        lines, names, rings, present = self._sources.values()
        plot.multi_line("xs", "ys", source=lines, line_color="colour", line_width=2.5)
        plot.scatter("x", "y", source=rings, line_color="colour", fill_color=None, size=9, line_width=1.5)
        plot.scatter("x", "y", source=present, color="colour", fill_alpha=0.25, size=15, line_width=2.5)
        plot.text("x", "y", "text", source=names, text_color="colour", text_font=value(FONT), text_font_size="13px",
                  y_offset=-6, text_align="right")  # fmt: skip

    def recolour(self, scheme: str) -> None:
        """Remember the colours of the circles, which are drawn with the next answer."""
        self._scheme = scheme

    def show(self, name: str, sides: Mapping[str, Answers]) -> ChartText:
        """Draw a figure by its name, none if that is empty; return the words around it."""
        if not name:
            return ChartText("")
        plan = load_figure(name)
        if name != self._name:
            self._name = name
            self._draw(plan)
        places = [(side, *place) for side, answers in sides.items() for place in _place_in(plan, answers)]
        present = {"x": [x for _, x, _ in places], "y": [to_decibels(y) for *_, y in places],
                   "colour": [SIDE_COLOURS[self._scheme][side] for side, *_ in places]}  # fmt: skip
        if self._sources["present"].data != present:
            self._sources["present"].data = present
        key = "Lines: exact theory. Rings: printed in the paper. Circles: the settings of this page."
        caption = re.sub(r" On the right, [^.]*\.", "", plan.caption)  # a panel that only the report has
        return ChartText(f"{caption} {key}", f"Figure {name.removeprefix('fig')}: {plan.title}.")

    def _draw(self, plan: FigurePlan) -> None:
        """Draw what is known of a figure without simulating it."""
        series = [one for one in plan.outline() if one.curve is not None]
        lines = [one for one in series if one.kind == "exact-theory"]
        rings = [one for one in series if one.kind == "published" and "theory" not in one.label]
        colours = {one.curve: look_of(one.label, one.curve).colour for one in lines}
        self.lines = {one.label: one.y_db.tolist() for one in lines}
        xs, ys = np.concatenate([one.x for one in lines]), np.concatenate([one.y_db for one in series])
        ys = ys[np.isfinite(ys)]
        extent = float(np.ptp(ys)) or 1.0
        heights = spread_labels(np.array([one.y_db[-1] for one in lines]), 0.11, extent)
        self._sources["lines"].data = {
            "xs": [one.x.tolist() for one in lines], "ys": [one.y_db.tolist() for one in lines],
            "colour": [colours[one.curve] for one in lines],
        }  # fmt: skip
        self._sources["names"].data = {
            "x": [float(one.x[-1]) for one in lines], "y": heights.tolist(),
            "text": [re.sub(r"\|S_B\| = (\d+)", r"\1 Byzantine", one.label) for one in lines],
            "colour": [colours[one.curve] for one in lines],
        }  # fmt: skip
        dots = [
            (x, y, colours.get(one.curve, "#808A94"))
            for one in rings
            for x, y in zip(one.x, one.y_db, strict=True)
        ]
        self._sources["rings"].data = {"x": [x for x, *_ in dots], "y": [y for _, y, _ in dots],
                                       "colour": [colour for *_, colour in dots]}  # fmt: skip
        margin = 0.06 * extent
        top = max(float(ys.max()), float(heights.max()))
        move_axis(self.figure.y_range, float(ys.min()) - margin, top + 2.5 * margin)  # space for a name
        width = float(np.ptp(xs))
        move_axis(self.figure.x_range, float(xs.min()) - 0.04 * width, float(xs.max()) + 0.04 * width)
        self.figure.title.text = f"Figure {plan.name.removeprefix('fig')} of the paper"
        self.figure.xaxis.axis_label = plan.x_label


def _place_in(plan: FigurePlan, answers: Answers) -> list[tuple[float, float]]:
    """Return where a side lies in a figure, if the figure shows one of its metrics."""
    found: Any = form_mapping(answers.scenario)
    for key in plan.x_axis.name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    point = answers.theory.point
    if point is None or plan.metric not in METRIC_TITLES or not isinstance(found, int | float):
        return []
    level = point.value(plan.metric)
    return [(float(found), level)] if np.isfinite(level) and level > 0 else []
