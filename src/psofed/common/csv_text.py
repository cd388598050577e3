"""Tables as CSV text that is safe to open in a spreadsheet."""

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    r"""Return rows as CSV; NaN is an empty cell, and no text is a formula.

    Names of clients, labels and notes may come from other people's files. Excel and LibreOffice evaluate a cell that
    begins with ``=``, ``+``, ``-`` or ``@``, also to start programs. Such texts get an apostrophe in front, which makes
    them plain text.

    Examples
    --------
    >>> csv_text([["name", "error"], ["=cmd|' /C calc'!A0", -1.5]])
    "name,error\n'=cmd|' /C calc'!A0,-1.5\n"
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return ""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
