"""How results look in notebooks: a small table and a picture, drawn when they are shown and not before."""

import base64
import html
import io
import math
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from psofed.results.estimates import Estimate, in_decibels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid rgba(128,128,128,.3)"


def html_card(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    lines: Iterable[str] = (),
    plot: "Callable[[], Figure] | None" = None,
) -> str:
    """Return a title, a table, lines of text and a picture as HTML; every text is escaped.

    Examples
    --------
    >>> html_card("<1>", ("", "dB"), [("MSE", "-16")]).count("&lt;1&gt;")
    1
    """
    parts = [f"<div><b>{html.escape(title)}</b>", '<table style="border-collapse:collapse;margin:4px 0">']
    parts.append("<tr>" + "".join(_cell("th", text, place) for place, text in enumerate(head)) + "</tr>")
    for row in rows:
        parts.append("<tr>" + "".join(_cell("td", text, place) for place, text in enumerate(row)) + "</tr>")
    parts.append("</table>")
    parts += [f'<div style="font-size:90%">{html.escape(line)}</div>' for line in lines]
    if plot is not None:
        parts.append(_inline_picture(plot(), title))
    return "\n".join([*parts, "</div>"])


def draw(name: str, *arguments: Any, **options: Any) -> "Figure":
    """Call a function of :mod:`psofed.plots`, found by name when a picture is wanted.

    Results count among what decides a simulation's numbers (the key of a sweep's store), pictures do not: so nothing
    here imports them.
    """
    module, _, function = name.rpartition(".")
    figure: Figure = getattr(import_module(f"psofed.plots.{module}"), function)(*arguments, **options)
    return figure


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return lines of a table, the first column to the left and the others to the right.

    Examples
    --------
    >>> text_table(("", "dB"), [("MSE", "-16.0")])
    ['         dB', '  MSE  -16.0']
    """
    table = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            row[0].ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def show_estimate(value: Estimate) -> tuple[str, str]:
    """Return a mean with its interval in dB for a person; the median, and said so, where tails are heavy.

    Examples
    --------
    >>> show_estimate(Estimate(0.1, 0.001, (0.098, 0.102)))
    ('-10.00 dB', '-10.09 … -9.91 dB')
    """
    middle, low, high = value.typical
    if math.isnan(middle):
        return "not measured", ""
    if math.isinf(middle):
        return "diverged", ""
    text = f"{_decibels(middle)} dB" + ("" if value.is_typical else " (median)")
    if math.isnan(low):
        return text, ""
    return text, f"{_decibels(low)} … {_decibels(high)} dB"


def _decibels(value: float) -> str:
    return f"{in_decibels(value):.2f}" if 0 < value < math.inf else ("−∞" if value <= 0 else "∞")


def _cell(tag: str, text: str, place: int) -> str:
    return f'<{tag} style="{_CELL.format("right" if place else "left")}">{html.escape(text)}</{tag}>'


def _inline_picture(figure: "Figure", title: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(title, quote=True)}" style="max-width:640px" src="data:image/png;base64,{encoded}">'
