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
    marked : list of bool
        Rows that stand out.
    left_out : int
        Rows that are not shown.
    """

    headings: list[str]
    is_text: list[bool]
    rows: list[list[str]]
    marked: list[bool]
    left_out: int


def write_table(table: Table, most: int | None = None) -> Written:
    """Write the cells of a table, an interval in a column of its own where the column says so.

    Columns of words without any are left out.
    """
    used = [at for at, column in enumerate(table.columns) if column.kind is not Kind.TEXT or _is_used(table, at)]
    table, headings, is_text = table.select(used), [], []
    for column in table.columns:
        headings += [column.heading, "95 % interval"][: 1 + column.interval]
        is_text += [column.kind is Kind.TEXT, False][: 1 + column.interval]
    shown = table.rows[:most]
    rows = [
        [text for cell, column in zip(row, table.columns, strict=True) for text in _texts(cell, column)]
        for row in shown
    ]
    marked = [number in table.marked for number in range(len(shown))]
    return Written(headings, is_text, rows, marked, len(table.rows) - len(shown))


def write_number(value: float, column: Column) -> str:
    """Write one number as its column says."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return column.infinite if value > 0 else fixed(value)
    match column.kind:
        case Kind.LEVEL:
            return fixed(to_decibels(value), 2 if column.digits is None else column.digits)
        case Kind.DECIBELS:
            return fixed(value, 2 if column.digits is None else column.digits, signed=True)
        case Kind.PERCENT:
            return percent(value, 1 if column.digits is None else column.digits, signed=True)
        case Kind.COUNT:
            return count(value)
        case _:
            return significant(value, column.digits or 4)


def write_interval(cell: Measured, column: Column) -> str:
    """Write the ends of an interval; nothing without one."""
    if math.isnan(cell.low) or math.isnan(cell.high) or math.isinf(cell.low) or not math.isfinite(cell.value):
        return ""
    ends = (_end(value, column) for value in (cell.low, cell.high))
    return " … ".join(ends)


def _texts(cell: Cell, column: Column) -> list[str]:
    if not isinstance(cell, Measured):
        text = "" if cell is None else cell if isinstance(cell, str) else write_number(cell, column)
        return [text, ""] if column.interval else [text]
    value, remark = write_number(cell.value, column), f" ({cell.remark})" if cell.remark else ""
    if column.interval:
        return [value + remark, write_interval(cell, column)]
    return [f"{value}{_spread(cell, column)}{remark}"]


def _is_used(table: Table, at: int) -> bool:
    """Whether a column of words says anything."""
    return bool(not table.rows or any(row[at] for row in table.rows))


def _spread(cell: Measured, column: Column) -> str:
    """Write ± where the interval is as good as symmetrical, its ends otherwise."""
    if not math.isfinite(cell.value) or math.isnan(cell.low):
        return ""
    middle, low, high = (
        (to_decibels(x) if column.kind is Kind.LEVEL else x) for x in (cell.value, cell.low, cell.high)
    )
    below, above = middle - low, high - middle
    if math.isfinite(above + below) and abs(above - below) <= 0.25 * (above + below):
        half = (above + below) / 2
        digits = column.digits
        if column.kind is Kind.PERCENT:
            return f" ± {percent(half, 1 if digits is None else digits)}"
        if column.kind is Kind.NUMBER:
            return f" ± {significant(half, 2)}"
        return f" ± {fixed(half, 2 if digits is None else digits)}"
    return f" [{write_interval(cell, column)}]"


def _end(value: float, column: Column) -> str:
    return fixed(value) if math.isinf(value) else write_number(value, column)
