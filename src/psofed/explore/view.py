"""The widgets of the page and how they are laid out; `page.css` says how they look."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import panel as pn

from psofed.explore.chart import AxisChart
from psofed.explore.form import ESSENTIALS
from psofed.explore.words import Row
from psofed.results.metrics import LABELS

_CSS = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
_SHOW_ADDRESS = "history.replaceState(null, '', location.pathname + '?' + cb_obj.value)"
_AXES = {"Stepsize": "stepsize", "Shared parameters": "num_shared", "Time": "iteration"}
_WIDE: dict[str, Any] = {"sizing_mode": "stretch_width"}


class View:
    """The page's widgets by name, and `root`, which holds all of them.

    Parameters
    ----------
    presets : iterable of str
        Titles to start from.
    files : mapping of str to callable
        Files to download by name, and functions that return their text.
    """

    def __init__(self, presets: Iterable[str], files: Mapping[str, Callable[[], str]]) -> None:
        button, menu, pane = pn.widgets.Button, pn.widgets.Select, partial(pn.pane.HTML, stylesheets=[_CSS])
        titles = {label.title: name for name, label in LABELS.items()}
        starts = {"your settings": "", **{title: title for title in presets}}
        self.preset: Any = menu(name="Start from", options=starts, width=290)
        self.metric: Any = menu(name="Metric", options=titles, width=150)
        self.simulate: Any = button(name="Simulate", align="end", width=110, button_type="primary")
        self.sentence: Any = pane(css_classes=["sentences"], **_WIDE)
        self.group: Any = menu(name="Settings", options=[ESSENTIALS], **_WIDE)
        self.error: Any = pane(css_classes=["error"], **_WIDE)
        self.fields: Any = pn.Column(**_WIDE)
        self.best: Any = button(name="Use the best stepsize", **_WIDE)
        self.axis: Any = pn.widgets.RadioButtonGroup(options=_AXES)
        self.chart: AxisChart = AxisChart("stepsize")
        self._figure: Any = pn.pane.Bokeh(self.chart.figure, **_WIDE)
        self.caption: Any = pane(css_classes=["caption"], **_WIDE)
        self.table: Any = pane(**_WIDE)
        self.usage: Any = pn.widgets.TextAreaInput(name="With this file", auto_grow=True, **_WIDE)
        self.playground: Any = pane()
        self.address: Any = pn.widgets.TextInput(visible=False)
        self.address.jscallback(value=_SHOW_ADDRESS)
        title = pane("<h1>psofed <span>explorer</span></h1>", align="center", width=160)
        settings = (self.group, self.error, self.fields, self.best)
        answers = (self.axis, self._figure, self.caption, self.table, self._downloads(files))
        self.root: Any = _box(
            pn.Column,
            "page",
            _box(pn.Row, "row", title, self.preset, self.metric, self.simulate),
            self.sentence,
            _box(pn.Row, "row", _box(pn.Column, "form", *settings), _box(pn.Column, "answers", *answers)),
            self.address,
        )

    def _downloads(self, files: Mapping[str, Callable[[], str]]) -> Any:
        """Return what can be copied and downloaded, folded at first."""

        def file(name: str, text: Callable[[], str]) -> Any:
            return pn.widgets.FileDownload(
                callback=lambda: StringIO(text()), filename=name, label=name, width=150, button_type="default"
            )

        copy = pn.widgets.Button(name="Copy", width=70)
        copy.js_on_click(args={"box": self.usage}, code="navigator.clipboard.writeText(box.value)")
        row = _box(pn.Row, "row", *(file(name, text) for name, text in files.items()))
        about = {"title": "Copy and download", "collapsed": True}
        return _box(pn.Card, "copies", row, self.usage, pn.Row(copy, self.playground), **about)

    def draw_over(self, axis: str) -> None:
        """Begin a chart over another axis."""
        self.chart = AxisChart(axis)
        self._figure.object = self.chart.figure

    def show_table(self, columns: tuple[str, ...], table: list[Row], title: str) -> None:
        """Show the table; the row with this title is the selected metric."""
        head = "".join(f"<th scope=col>{escape(column)}</th>" for column in ("", *columns))
        rows = []
        for row in table:
            kind = "minor" if row.is_minor else "shown" if row.title == title else ""
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
            rows.append(f'<tr class="{kind}"><th scope=row>{escape(row.title)}</th>{cells}</tr>')
        self.table.object = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _box(kind: Any, name: str, *content: Any, **about: Any) -> Any:
    return kind(*content, css_classes=[name], stylesheets=[_CSS], **_WIDE, **about)
