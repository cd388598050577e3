"""Ranges and steps of sliders, and how a value is written next to them."""

import math
from collections.abc import Mapping
from typing import Any

from psofed.common.options import Option
from psofed.common.toml import toml_value
from psofed.scenario import Scenario

_END = 1e300  # larger values can be typed; a slider with such a range would overflow


def slider_range(
    option: Option, top: float, default: Any, value: Any, integer: bool, scenario: Scenario
) -> tuple[float, float, bool]:
    """Return the ends of a slider and whether it is logarithmic: the range of the option, or one around its default.

    `top` is the upper end of that range as a number; the option may name another setting instead.
    """
    numbers = [
        abs(float(x)) for x in (default, value) if isinstance(x, int | float) and math.isfinite(float(x))
    ]
    size = min(max([*numbers, 1.0 if integer else 1e-12]), _END)
    low = option.low if math.isfinite(option.low) else -4 * size
    high = top if math.isfinite(top) else max(4 * size, 10 if integer else 0)
    low, high = max(low, -_END), min(high, _END)
    tiny = not integer and option.low >= 0 and 0 < size < 0.02
    if integer:
        if size >= 100:  # a time, or a number of samples
            return max(low, 1), max(high, scenario.iterations), True
        return low, high, False
    if tiny:  # a walk's variance, a tolerance: orders of magnitude matter
        return size / 1000, min(1000 * size, top), True
    low = low + 0.01 * (high - low) if option.open_low else low
    high = high - 0.01 * (high - low) if option.open_high and math.isfinite(top) else high
    return low, high, False


def rounded_up(usual: float, value: Any) -> float:
    """Return the usual end of a slider, or a larger one that includes the value."""
    if isinstance(value, int | float) and math.isfinite(value) and value > usual:
        return min(float(2.0 ** min(math.ceil(math.log2(value)), 1000)), _END)
    return usual


def slider_step(low: float, high: float) -> float:
    """Return a step of about a two-hundredth of the range, a round number.

    Examples
    --------
    >>> slider_step(0.0, 1.0), slider_step(0.0, 0.1)
    (0.005, 0.0005)
    """
    rough = (high - low) / 200
    power = 10.0 ** math.floor(math.log10(rough))
    return float(f"{power * max(step for step in (1, 2, 5) if step * power <= rough * 1.0001):.3g}")


def value_text(value: Any) -> str:
    """Return a value as the form shows it and as it can be typed.

    Examples
    --------
    >>> value_text(0.25), value_text(True), value_text([3, 7])
    ('0.25', 'true', '[3, 7]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return toml_value(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(entry) for entry in value) + "]"
    return "" if value is None else str(value)
