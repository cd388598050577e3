"""Panel widgets for the form's fields."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import panel as pn

from psofed.explore.form import Field

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
