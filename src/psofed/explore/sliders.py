"""Where sliders begin and end, in what steps they go, and how a value is written beside them."""

import math
from typing import Any

from psofed.scenario import Scenario

_END = 1e300  # what is beyond can be typed, but no slider goes there: its range would overflow


def slider_range(
    option: Any, default: Any, value: Any, integer: bool, scenario: Scenario
) -> tuple[float, float, bool]:
    """Where a slider of an option begins and ends: its own range, or some way around its default."""
    numbers = [
        abs(float(x)) for x in (default, value) if isinstance(x, int | float) and math.isfinite(float(x))
    ]
    size = min(max([*numbers, 1.0 if integer else 1e-12]), _END)
    low = option.low if math.isfinite(option.low) else -4 * size
    high = option.high if math.isfinite(option.high) else max(4 * size, 10 if integer else 0)
    low, high = max(low, -_END), min(high, _END)
    tiny = not integer and option.low >= 0 and 0 < size < 0.02
    if integer:
        if size >= 100:  # a time, or a number of samples
            return max(low, 1), max(high, scenario.iterations), True
        return low, high, False
    if tiny:  # a walk's variance, a tolerance: orders of magnitude matter
        return size / 1000, min(1000 * size, option.high), True
    low = low + 0.01 * (high - low) if option.open_low else low
    high = high - 0.01 * (high - low) if option.open_high and math.isfinite(option.high) else high
    return low, high, False


def rounded_up(usual: float, value: Any) -> float:
    """Return the usual end of a slider, or a larger one that takes the value in."""
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
    """Write a value as the form shows it, and as it can be typed.

    Examples
    --------
    >>> value_text(0.25), value_text(True), value_text([3, 7])
    ('0.25', 'true', '[3, 7]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(entry) for entry in value) + "]"
    return "" if value is None else str(value)
