"""Tables as rows of text, which every renderer of reports starts from."""

import math
from dataclasses import dataclass

from psofed.common.numbers import to_decibels
from psofed.render.numbers import count, fixed, percent, significant
from psofed.render.report import Cell, Column, Kind, Measured, Table


@dataclass(frozen=True)
class Written:
    """A table in writing.

    Attributes
    ----------
    headings : list of str
    is_text : list of bool
        Columns of words, which start at the left.
    rows : list of lists of str
    """

    headings: list[str]
    is_text: list[bool]
    rows: list[list[str]]


def write_table(table: Table, most: int | None = None) -> Written:
    """Write the cells of a table, an interval in a column of its own where the column says so.

    Columns of words without any are left out.
    """
    columns = [
        (at, column)
        for at, column in enumerate(table.columns)
        if column.kind is not Kind.TEXT or not table.rows or any(row[at] for row in table.rows)
    ]
    headings: list[str] = []
    is_text: list[bool] = []
    for _, column in columns:
        headings += [column.heading, "95 % interval"][: 1 + column.interval]
        is_text += [column.kind is Kind.TEXT, False][: 1 + column.interval]
    rows = [[text for at, column in columns for text in _texts(row[at], column)] for row in table.rows[:most]]
    return Written(headings, is_text, rows)


def write_number(value: float, column: Column) -> str:
    """Write one number as its column says."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return column.infinite if value > 0 else fixed(value)
    match column.kind:
        case Kind.LEVEL:
            return fixed(to_decibels(value), _decimals(column))
        case Kind.DECIBELS:
            return fixed(value, _decimals(column), signed=True)
        case Kind.PERCENT:
            return percent(value, _decimals(column), signed=True)
        case Kind.COUNT:
            return count(value)
        case _:
            return significant(value, column.digits or 4)


def _decimals(column: Column) -> int:
    return column.digits if column.digits is not None else 1 if column.kind is Kind.PERCENT else 2


def _texts(cell: Cell, column: Column) -> list[str]:
    if not isinstance(cell, Measured):
        text = "" if cell is None else cell if isinstance(cell, str) else write_number(cell, column)
        return [text, ""] if column.interval else [text]
    value, remark = write_number(cell.value, column), f" ({cell.remark})" if cell.remark else ""
    if column.interval:
        return [value + remark, _interval(cell, column)]
    return [f"{value}{_spread(cell, column)}{remark}"]


def _interval(cell: Measured, column: Column) -> str:
    """Write the ends of an interval; nothing without one."""
    if math.isnan(cell.low) or math.isnan(cell.high) or math.isinf(cell.low) or not math.isfinite(cell.value):
        return ""
    ends = (fixed(end) if math.isinf(end) else write_number(end, column) for end in (cell.low, cell.high))
    return " … ".join(ends)


def _spread(cell: Measured, column: Column) -> str:
    """Write ± where the interval is as good as symmetrical, its ends otherwise."""
    if not math.isfinite(cell.value) or math.isnan(cell.low):
        return ""
    numbers = (cell.value, cell.low, cell.high)
    middle, low, high = map(to_decibels, numbers) if column.kind is Kind.LEVEL else numbers
    below, above = middle - low, high - middle
    if not math.isfinite(above + below) or abs(above - below) > 0.25 * (above + below):
        return f" [{_interval(cell, column)}]"
    half = (above + below) / 2
    match column.kind:
        case Kind.PERCENT:
            return f" ± {percent(half, _decimals(column))}"
        case Kind.NUMBER:
            return f" ± {significant(half, 2)}"
        case _:
            return f" ± {fixed(half, _decimals(column))}"
