"""Tables of typed cells, written as text, as HTML and as LaTeX."""

import html
import math
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from psofed.common.numbers import to_decibels
from psofed.render.numbers import MINUS, count, counted, fixed, percent, significant

MOST_ROWS = 40  # of a table that are shown unless asked for more
INDENT = "  "
_NARROW = 12  # headings are not broken to less
_LEAST_TEXT = 20  # columns in which sentences can be read
_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid rgba(128,128,128,.3)"
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", "±": r"$\pm$", "∞": r"$\infty$",
    "…": r"\dots{}", "×": r"$\times$", "μ": r"$\mu$", "–": "--", "σ": r"$\sigma$", "²": r"$^2$",
}  # fmt: skip


class Kind(Enum):
    """Kind of numbers in a column, which decides how they are written."""

    TEXT = "text"
    LEVEL = "level"  # a linear power, written in dB
    DECIBELS = "decibels"  # a difference in dB, written with its sign
    NUMBER = "number"  # significant digits
    PERCENT = "percent"  # a share, written in per cent with its sign
    COUNT = "count"


@dataclass(frozen=True)
class Measured:
    """A number with its 95 % interval.

    Attributes
    ----------
    value : float
        Infinite where it diverged, NaN where it was not measured.
    low, high : float
        Ends of the interval; NaN without one.
    remark : str
        Said beside the number, such as ``"median"``.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    remark: str = ""


Cell = str | float | Measured | None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    title : str
        Without the unit, which the kind or `unit` adds.
    kind : Kind
    digits : int, optional
        Decimals, or significant digits of a ``NUMBER``; what suits the kind by default.
    unit : str
    interval : bool
        Show intervals in a column of their own; otherwise behind the number.
    infinite : str
        The word for a number that is infinite.
    minor : int
        Where a terminal is too narrow, columns with the highest number are left out first, then the last ones.
    """

    title: str
    kind: Kind = Kind.TEXT
    digits: int | None = None
    unit: str = ""
    interval: bool = False
    infinite: str = "diverged"
    minor: int = 0

    @property
    def heading(self) -> str:
        """The title with its unit."""
        unit = self.unit or {Kind.LEVEL: "dB", Kind.DECIBELS: "dB"}.get(self.kind, "")
        return f"{self.title} ({unit})".strip() if unit else self.title

    def write(self, value: float) -> str:
        """Write one number."""
        if math.isnan(value):
            return "–"
        if math.isinf(value):
            return self.infinite if value > 0 else fixed(value)
        match self.kind:
            case Kind.LEVEL:
                return fixed(to_decibels(value), self._decimals)
            case Kind.DECIBELS:
                return fixed(value, self._decimals, signed=True)
            case Kind.PERCENT:
                return percent(value, self._decimals, signed=True)
            case Kind.COUNT:
                return count(value)
            case _:
                return significant(value, self.digits or 4)

    def texts(self, cell: Cell) -> list[str]:
        """Write a cell; its interval is a second text where it has a column of its own."""
        if not isinstance(cell, Measured):
            text = "" if cell is None else cell if isinstance(cell, str) else self.write(cell)
            return [text, ""] if self.interval else [text]
        value = self.write(cell.value)
        remark = f" ({cell.remark})" if cell.remark else ""
        if self.interval:
            return [value + remark, self._ends(cell)]
        return [f"{value}{self._spread(cell)}{remark}"]

    @property
    def _decimals(self) -> int:
        return self.digits if self.digits is not None else 1 if self.kind is Kind.PERCENT else 2

    def _ends(self, cell: Measured) -> str:
        """Write the ends of an interval; nothing without one."""
        if math.isnan(cell.low) or math.isnan(cell.high) or math.isinf(cell.low) or not math.isfinite(cell.value):
            return ""
        return " … ".join(fixed(end) if math.isinf(end) else self.write(end) for end in (cell.low, cell.high))

    def _spread(self, cell: Measured) -> str:
        """Write ± where the interval is as good as symmetrical, its ends otherwise."""
        if not math.isfinite(cell.value) or math.isnan(cell.low):
            return ""
        numbers = (cell.value, cell.low, cell.high)
        middle, low, high = map(to_decibels, numbers) if self.kind is Kind.LEVEL else numbers
        below, above = middle - low, high - middle
        if not math.isfinite(above + below) or abs(above - below) > 0.25 * (above + below):
            return f" [{self._ends(cell)}]"
        half = (above + below) / 2
        match self.kind:
            case Kind.PERCENT:
                return f" ± {percent(half, self._decimals)}"
            case Kind.NUMBER:
                return f" ± {significant(half, 2)}"
            case _:
                return f" ± {fixed(half, self._decimals)}"


@dataclass(frozen=True)
class Table:
    """Rows of typed cells under a title.

    Attributes
    ----------
    title : str
    columns : tuple of Column
    rows : tuple of tuples
        A text, a number, a :class:`Measured` or None (empty) for each column.
    notes : tuple of str
        What explains the columns.
    marked : frozenset of int
        Rows that stand out, such as a recommended one.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    marked: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns")

    def select(self, places: Sequence[int]) -> "Table":
        """Return a table with some of the columns, by number."""
        rows = tuple(tuple(row[at] for at in places) for row in self.rows)
        return replace(self, columns=tuple(self.columns[at] for at in places), rows=rows)

    def written(self, most: int | None = None) -> tuple[list[str], list[bool], list[list[str]]]:
        """Return headings, which columns are words, and rows of texts.

        An interval has a column of its own where the column says so. Columns of words without any are left out.
        """
        columns = [
            (at, column)
            for at, column in enumerate(self.columns)
            if column.kind is not Kind.TEXT or not self.rows or any(row[at] for row in self.rows)
        ]
        headings: list[str] = []
        is_text: list[bool] = []
        for _, column in columns:
            headings += [column.heading, "95 % interval"][: 1 + column.interval]
            is_text += [column.kind is Kind.TEXT, False][: 1 + column.interval]
        return (
            headings,
            is_text,
            [[text for at, one in columns for text in one.texts(row[at])] for row in self.rows[:most]],
        )

    def to_text(self, width: int = 100, most: int = MOST_ROWS, wide: bool = False) -> str:
        """Return the table as text: words from the left, numbers to the right, ``*`` behind a row that stands out.

        Unless it may be `wide`, columns that do not fit are left out and named.
        """
        shown, grid = self, _grid(self, most, width)
        while not wide and max(map(len, grid), default=0) > width and len(shown.columns) > 2:
            places = range(len(shown.columns))
            dropped = max(places[1:], key=lambda at: (shown.columns[at].minor, at))
            shown = shown.select([at for at in places if at != dropped])
            grid = _grid(shown, most, width)
        lines = [wrapped(self.title, width, INDENT)] if self.title else []
        lines += _grid(self, most) if wide else grid
        if len(self.rows) > most:
            lines.append(f"{INDENT}… {counted(len(self.rows) - most, 'more row')}")
        left_out = ", ".join(column.title for column in self.columns if column not in shown.columns)
        if left_out:
            lines.append(wrapped(f"Not shown (--wide or wide=True shows all): {left_out}.", width, INDENT))
        lines += [wrapped(note, width, INDENT) for note in self.notes]
        return "\n".join(lines)

    def to_html(self, most: int | None = None) -> str:
        """Return the table as HTML; rows that stand out are bold."""
        headings, is_text, rows = self.written(most)
        sides = ["left" if one else "right" for one in is_text]
        parts = ['<table style="border-collapse:collapse;margin:4px 0">']
        if self.title:
            parts.append(f'<caption style="text-align:left;padding:2px 10px">{html.escape(self.title)}</caption>')
        parts.append(_row("th", headings, sides))
        parts += [_row("td", row, sides, at in self.marked) for at, row in enumerate(rows)]
        parts.append("</table>")
        if left_out := len(self.rows) - len(rows):
            parts.append(small(f"… {counted(left_out, 'more row')}"))
        return "\n".join([*parts, *map(small, self.notes)])

    def to_latex(self, headline: str = "", bold: Collection[tuple[int, int]] = ()) -> str:
        """Return a LaTeX ``table`` with its caption (package: booktabs); marked rows and the cells `bold` are bold."""
        headings, is_text, rows = self.written()
        title = self.title if not self.title or self.title.endswith(".") else f"{self.title}."
        caption = " ".join(filter(None, (title, headline, *self.notes)))
        body = [
            " & ".join(
                rf"\textbf{{{to_tex(text)}}}"
                if text and (row in self.marked or (row, column) in bold)
                else to_tex(text)
                for column, text in enumerate(texts)
            )
            for row, texts in enumerate(rows)
        ]
        lines = [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{to_tex(caption)}}}",
            rf"  \begin{{tabular}}{{{''.join('l' if one else 'r' for one in is_text)}}}",
            r"    \toprule",
            "    " + " & ".join(map(to_tex, headings)) + r" \\",
            r"    \midrule",
            *(rf"    {line} \\" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def _grid(table: Table, most: int, width: int | None = None) -> list[str]:
    """Return the lines of a table; words in its last column are broken so that they fit a width."""
    headings, is_text, texts = table.written(most)
    # Numbers above each other stay so where one is marked.
    unmarked = "  " if table.marked and not is_text[0] else ""
    body = [[row[0] + (" *" if at in table.marked else unmarked), *row[1:]] for at, row in enumerate(texts)]
    rows = [*_heading_lines(headings, body), *body]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    space = 0 if width is None else width - sum(widths[:-1]) - 2 * len(widths)
    is_broken = is_text[-1] and _LEAST_TEXT <= space < widths[-1] and len(widths) > 1
    lines = []
    for row in rows:
        *cells, last = row
        parts = textwrap.wrap(last, space, break_on_hyphens=False) or [""] if is_broken else [last]
        for line in ([*cells, parts[0]], *([""] * len(cells) + [part] for part in parts[1:])):
            aligned = (
                text.ljust(size) if one else text.rjust(size)
                for text, size, one in zip(line, widths, is_text, strict=True)
            )
            lines.append((INDENT + "  ".join(aligned)).rstrip())
    return lines


def _heading_lines(headings: list[str], body: list[list[str]]) -> list[list[str]]:
    """Break headings that are wider than what stands below them, so that tables stay narrow."""
    if not any(headings):
        return []
    widths = [max([_NARROW, *(len(row[at]) for row in body)]) for at in range(len(headings))]
    broken = [
        textwrap.wrap(text, width, break_long_words=False) or [""] for text, width in zip(headings, widths, strict=True)
    ]
    height = max(map(len, broken))
    padded = [[""] * (height - len(lines)) + lines for lines in broken]
    return [list(line) for line in zip(*padded, strict=True)]


def wrapped(text: str, width: int, hanging: str = "") -> str:
    """Wrap a paragraph."""
    # A number stays with its unit or its sign.
    glued = text.replace(" dB", "\u00a0dB").replace(" %", "\u00a0%")
    lines = textwrap.wrap(glued, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ")


def _row(tag: str, texts: list[str], sides: list[str], bold: bool = False) -> str:
    cells = [
        f'<{tag} style="{_CELL.format(side)}{";font-weight:bold" if bold else ""}">{html.escape(text)}</{tag}>'
        for text, side in zip(texts, sides, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def to_tex(text: str) -> str:
    """Return text as LaTeX."""
    return re.sub(r" (?=\\%)", r"\\,", "".join(_LATEX.get(letter, letter) for letter in text))


def small(text: str, code: str = "") -> str:
    """Return a paragraph of HTML in small letters."""
    return f'<div style="font-size:90%">{html.escape(text)}{code}</div>'
