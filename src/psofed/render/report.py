"""A report: what a result says, as a value that every output renders alike.

>>> table = Table("Steady state", (Column("metric"), Column("mean", Kind.LEVEL)), (("network MSE", Measured(0.01)),))
>>> print(Report("The network MSE settles at −20.00 dB.", tables=(table,)))
The network MSE settles at −20.00 dB.
<BLANKLINE>
Steady state
  metric       mean (dB)
  network MSE     −20.00
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from psofed.common.equality import same_values

if TYPE_CHECKING:
    from psofed.render.charts import AnyChart
    from psofed.render.figures import Figure

# Rows of a table that are shown unless asked for more: in a terminal, and as a Python object's short form.
MOST_ROWS, FEW_ROWS = 40, 12


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


@dataclass(frozen=True)
class NextStep:
    """A next step to try.

    Attributes
    ----------
    purpose : str
        Such as ``"Check it against the theory"``.
    call : str
        In Python.
    command : str
        On the command line; ``FILE`` stands for the words that give the scenario: its file, table and changes. Empty
        where there is no such command.
    """

    purpose: str
    call: str
    command: str = ""


@dataclass(frozen=True)
class Report:
    """A result in words, tables and curves.

    Attributes
    ----------
    headline : str
        The answer, in a sentence.
    subject : str
        What was looked at.
    tables : tuple of Table
    notes : tuple of str
        Sentences a reader should know.
    next_step : NextStep or None
    draw : callable
        Makes the charts, since a report is often wanted without them.
    """

    headline: str
    subject: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    next_step: NextStep | None = None
    draw: "Callable[[], tuple[AnyChart, ...]]" = field(default=tuple, repr=False, compare=False)

    @cached_property
    def charts(self) -> "tuple[AnyChart, ...]":
        """The charts."""
        return self.draw()

    def adding(self, *notes: str, tables: tuple[Table, ...] = (), next_step: NextStep | None = None) -> "Report":
        """Return a report with more notes and tables, and perhaps another next step."""
        return replace(
            self, notes=(*self.notes, *notes), tables=(*self.tables, *tables), next_step=next_step or self.next_step
        )

    def to_text(
        self, *, width: int = 100, rows: int = MOST_ROWS, colour: bool = False, file: str = "", wide: bool = False
    ) -> str:
        """Return the report as text.

        Parameters
        ----------
        width : int
            Columns of the terminal. Of tables that are wider, minor columns are left out first, then the last ones.
        rows : int
            Rows shown of each table.
        colour : bool
            Whether the headline is set in bold.
        file : str
            The scenario's file: the next step is then a command, otherwise a Python call.
        wide : bool
            Whether tables have all their columns.
        """
        from psofed.render.text import report_to_text

        return report_to_text(self, width, rows, colour, file, wide)

    def to_html(self, *, rows: int = MOST_ROWS) -> str:
        """Return the report as a piece of HTML, pictures included."""
        from psofed.render.markup import report_to_html

        return report_to_html(self, rows)

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """Return the tables as LaTeX (``booktabs``), headline and notes as captions.

        `columns` are the titles of those to show; tables without them are left out.
        """
        from psofed.render.markup import report_to_latex

        return report_to_latex(self, columns)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


class Reported:
    """A result that shows itself by its report: as text in a terminal, as HTML in a notebook.

    Dataclasses that derive from it say ``eq=False, repr=False``: two are equal if all that they hold is.
    """

    def __eq__(self, other: object) -> bool:
        return same_values(self, other)

    def __hash__(self) -> int:
        return hash(type(self).__name__)  # what they hold may be arrays

    def report(self) -> Report:
        """Return what was found: a headline, tables, notes, charts and what to try next."""
        raise NotImplementedError

    def chart(self) -> "AnyChart":
        """Return the result's picture as a value."""
        raise NotImplementedError

    def plot(self, *arguments: Any, **named: Any) -> "Figure":
        """Draw the result; returns a Matplotlib figure that displays itself in a notebook.

        Parameters
        ----------
        *arguments, **named
            Those of `chart`. Besides, ``ax=`` draws into Matplotlib axes of yours, and ``width=`` sets the width:
            ``"column"`` or ``"page"`` of a journal (3.5 and 7.16 inches), or inches.
        """
        from psofed.render.figures import draw_chart, show_after_cell

        axes, width = named.pop("ax", None), named.pop("width", None)
        figure = draw_chart(self.chart(*arguments, **named), axes, width)
        if axes is None:
            show_after_cell(figure)
        return figure

    def to_latex(self, columns: Any = None) -> str:
        """Return the result's tables as LaTeX; see :meth:`Report.to_latex`."""
        return self.report().to_latex(columns)

    def __repr__(self) -> str:
        return self.report().to_text(rows=FEW_ROWS)

    def _repr_html_(self) -> str:
        return self.report().to_html(rows=FEW_ROWS)
