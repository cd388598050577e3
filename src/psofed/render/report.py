"""A report: what a result says, as a value that every output renders alike.

>>> from psofed.render import Column, Kind, Measured
>>> table = Table("Steady state", (Column("metric"), Column("mean", Kind.LEVEL)), (("network MSE", Measured(0.01)),))
>>> print(Report("The network MSE settles at −20.00 dB.", tables=(table,)))
The network MSE settles at −20.00 dB.
<BLANKLINE>
Steady state
  metric       mean (dB)
  network MSE     −20.00
"""

import base64
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from psofed.common.equality import same_values
from psofed.common.errors import InvalidValueError
from psofed.render.tables import INDENT, MOST_ROWS, Table, small, to_tex, wrapped

if TYPE_CHECKING:
    from psofed.render.charts import AnyChart
    from psofed.render.figures import Figure

FEW_ROWS = 12  # of a table in a Python object's short form
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


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

    def to_text(self, file: str = "", width: int = 120) -> str:
        """Return what to try next: a command where it is known how the scenario was given, else a Python call.

        A line that would be too wide is continued as a shell does it.

        Examples
        --------
        >>> step = NextStep("Predict", "predict(scenario)", "psofed predict FILE --set stepsize=0.1")
        >>> step.to_text("s.toml --set num_shared=2")
        'Predict: psofed predict s.toml --set num_shared=2 --set stepsize=0.1'
        """
        command = self.command.replace("FILE", file) if file else ""
        line = f"{self.purpose}: {command or self.call}"
        if len(line) <= width:
            return line
        options = re.split(r" (?=--)", command) if command else [self.call]
        rows = [options[0]]
        for option in options[1:]:
            if len(rows[-1]) + len(option) + 5 <= width:
                rows[-1] += f" {option}"
            else:
                rows.append(f"{INDENT}{option}")
        return f"{self.purpose}:\n{INDENT}" + f" \\\n{INDENT}".join(rows)


@dataclass(frozen=True)
class Report:
    """A result in words, tables and a chart.

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
    chart : callable or None
        Makes the chart, since a report is often wanted without it.
    """

    headline: str
    subject: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    next_step: NextStep | None = None
    chart: "Callable[[], AnyChart] | None" = field(default=None, repr=False, compare=False)

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
        start, end = (_BOLD, _PLAIN) if colour else ("", "")
        blocks = [start + wrapped(self.headline, width) + end]
        if self.subject:
            blocks[0] += "\n" + wrapped(self.subject, width)
        blocks += [table.to_text(width, rows, wide) for table in self.tables]
        if self.notes:
            blocks.append("\n".join(wrapped(f"Note: {note}", width, INDENT) for note in self.notes))
        if self.next_step is not None:
            blocks.append(self.next_step.to_text(file, width))
        return "\n\n".join(blocks)

    def to_html(self, *, rows: int = MOST_ROWS) -> str:
        r"""Return the report as a piece of HTML that needs no style sheet and no script; every text is escaped.

        Examples
        --------
        >>> Report("<1>").to_html()
        '<div>\n<div><b>&lt;1&gt;</b></div>\n</div>'
        """
        parts = [f"<div><b>{html.escape(self.headline)}</b></div>"]
        if self.subject:
            parts.append(small(self.subject))
        parts += [table.to_html(rows) for table in self.tables]
        parts += [small(f"Note: {note}") for note in self.notes]
        if self.chart is not None:
            from psofed.render.figures import draw_chart, figure_to_png

            chart = self.chart()
            encoded = base64.b64encode(figure_to_png(draw_chart(chart))).decode()
            alternative = html.escape(chart.title or self.headline, quote=True)
            parts.append(f'<img alt="{alternative}" style="max-width:640px" src="data:image/png;base64,{encoded}">')
        if (step := self.next_step) is not None:
            parts.append(small(f"{step.purpose}: ", f"<code>{html.escape(step.call)}</code>"))
        return "\n".join(["<div>", *parts, "</div>"])

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """Return the tables as LaTeX (``booktabs``), headline and notes as captions.

        `columns` are the titles of those to show; tables without them are left out.
        """
        if not self.tables:
            return to_tex(self.headline) + "\n"
        tables = list(self.tables)
        if columns is not None:
            titles = [[column.title for column in table.columns] for table in tables]
            tables = [
                table.select([names.index(name) for name in columns])
                for table, names in zip(tables, titles, strict=True)
                if set(columns) <= set(names)
            ]
            if not tables:
                known = "; ".join(", ".join(filter(None, names)) for names in titles)
                raise InvalidValueError("columns", ", ".join(columns), f"columns of one table: {known}")
        return "\n".join(table.to_latex("" if at else self.headline) for at, table in enumerate(tables))

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
        """Return what was found: a headline, tables, notes, a chart and what to try next."""
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
