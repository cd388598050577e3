"""The widgets of the page and how they are laid out; `page.css` says how they look."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import panel as pn

from psofed.explore.answers import Row
from psofed.explore.chart import AxisChart
from psofed.explore.form import ESSENTIALS, Field
from psofed.results.metrics import LABELS

_POSITIONS = 1000  # of a slider with a logarithmic scale
_LOOK = [":host { --padding-vertical: 5px; } label { font-size: 14px; }"]


class Control:
    """The widgets of one field: a menu, or a text to type with a slider below it if it is a number.

    Parameters
    ----------
    field : Field
        What it shows.
    changed : callable
        Called with the field's name and the text that the user chose.
    """

    def __init__(self, field: Field, changed: Callable[[str, str], None]) -> None:
        self._changed, self._field, self._is_filling = changed, field, False
        about: dict[str, Any] = {"name": field.label, "description": field.hint or None, "sizing_mode": "stretch_width",
                                 "margin": (2, 10), "stylesheets": _LOOK}  # fmt: skip
        self._slider: Any = None
        if field.is_fixed:
            self._input: Any = pn.widgets.TextInput(disabled=True, **about)
        elif field.choices:
            self._input = pn.widgets.Select(options={label: value for value, label in field.choices}, **about)
        else:
            self._input = pn.widgets.TextInput(**about)
        if field.slider is not None:
            self._slider = pn.widgets.FloatSlider(
                show_value=False, tooltips=False, sizing_mode="stretch_width", margin=(0, 18, 6, 18)
            )
            self._slider.param.watch(self._slide, "value")
        self._input.param.watch(self._type, "value")
        self.shape: tuple[Any, ...] = shape_of(field)
        views = [view for view in (self._input, self._slider) if view is not None]
        name = field.name.replace(".", "-").replace("_", "-")
        self.box: Any = pn.Column(*views, css_classes=[f"field-{name}"], sizing_mode="stretch_width")
        self._fill(field)

    def update(self, field: Field) -> None:
        """Show another value, or another range."""
        if field != self._field:
            self._fill(field)

    def _fill(self, field: Field) -> None:
        self._field = field
        with self._filling():
            self._input.value = field.value
            if field.slider is not None:
                about = field.slider
                start, end, step = (0, _POSITIONS, 1) if about.is_log else (about.low, about.high, about.step)
                position = min(max(_position(field), start), end)
                self._slider.param.update(start=start, end=end, step=step, value=position)

    @contextmanager
    def _filling(self) -> Iterator[None]:
        self._is_filling = True
        try:
            yield
        finally:
            self._is_filling = False

    def _type(self, event: Any) -> None:
        if not self._is_filling:
            self._changed(self._field.name, str(event.new))

    def _slide(self, event: Any) -> None:
        slider = self._field.slider
        if self._is_filling or slider is None:
            return
        value = event.new
        if slider.is_log:
            value = slider.low * (slider.high / slider.low) ** (value / _POSITIONS)
        is_integer = slider.step == 1 and slider.low == int(slider.low)
        text = str(round(value)) if is_integer else f"{value:.{3 if slider.is_log else 6}g}"
        self._field = replace(self._field, value=text)  # what is under the hand stays where it is
        with self._filling():
            self._input.value = text
        self._changed(self._field.name, text)


def shape_of(field: Field) -> tuple[Any, ...]:
    """Return what a control cannot change about its field."""
    return field.name, field.label, field.choices, field.slider is None, field.is_fixed


def _position(field: Field) -> float:
    """Return where a slider stands; at its start for what is no number."""
    slider = field.slider
    assert slider is not None
    try:
        value = float(field.value)
    except ValueError:
        return slider.low if not slider.is_log else 0.0
    if not slider.is_log:
        return value if math.isfinite(value) else slider.low
    is_inside = value > 0 and math.isfinite(value)
    return round(_POSITIONS * math.log(value / slider.low) / math.log(slider.high / slider.low)) if is_inside else 0.0


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
        self.figure: Any = pn.pane.Bokeh(self.chart.figure, **_WIDE)
        self.caption: Any = pane(css_classes=["caption"], **_WIDE)
        self.table: Any = pane(**_WIDE)
        self.usage: Any = pn.widgets.TextAreaInput(
            name="With this file", auto_grow=True, stylesheets=["textarea { font: 13px/1.4 monospace; }"], **_WIDE
        )
        self.playground: Any = pane()
        self.address: Any = pn.widgets.TextInput(visible=False)
        self.address.jscallback(value=_SHOW_ADDRESS)
        title = pane("<h1>psofed <span>explorer</span></h1>", align="center", width=160)
        settings = (self.group, self.error, self.fields, self.best)
        answers = (self.axis, self.figure, self.caption, self.table, self._downloads(files))
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
        self.figure.object = self.chart.figure

    def show_table(self, columns: tuple[str, ...], table: list[Row], title: str) -> None:
        """Show the table; the row with this title is the selected metric."""
        head = "".join(f"<th scope=col>{escape(column)}</th>" for column in ("", *columns))
        rows = []
        for row in table:
            kind = "minor" if row.is_minor else "shown" if row.title == title else ""
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
            rows.append(f'<tr class="{kind}"><th scope=row>{escape(row.title)}</th>{cells}</tr>')
        thead = f"<thead><tr>{head}</tr></thead>" if columns else ""
        self.table.object = f"<table>{thead}<tbody>{''.join(rows)}</tbody></table>"


def _box(kind: Any, name: str, *content: Any, **about: Any) -> Any:
    return kind(*content, css_classes=[name], stylesheets=[_CSS], **_WIDE, **about)
