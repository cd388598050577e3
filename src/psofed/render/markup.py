"""Reports as HTML, for notebooks and pages, and as LaTeX, with all rows."""

import base64
import html
import re
from collections.abc import Collection, Sequence

from psofed.common.errors import InvalidValueError
from psofed.render.cells import write_table
from psofed.render.numbers import MINUS, counted
from psofed.render.report import Report, Table

_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid rgba(128,128,128,.3)"
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", "±": r"$\pm$", "∞": r"$\infty$",
    "…": r"\dots{}", "×": r"$\times$", "μ": r"$\mu$", "–": "--", "σ": r"$\sigma$", "²": r"$^2$",
}  # fmt: skip


def report_to_html(report: Report, rows: int) -> str:
    r"""Return a report as HTML that needs no style sheet and no script; every text is escaped.

    Examples
    --------
    >>> report_to_html(Report("<1>"), 12)
    '<div>\n<div><b>&lt;1&gt;</b></div>\n</div>'
    """
    parts = [f"<div><b>{html.escape(report.headline)}</b></div>"]
    if report.subject:
        parts.append(_small(report.subject))
    parts += [table_to_html(table, rows) for table in report.tables]
    parts += [_small(f"Note: {note}") for note in report.notes]
    for chart in report.charts:
        from psofed.render.figures import draw_chart, figure_to_png

        encoded = base64.b64encode(figure_to_png(draw_chart(chart))).decode()
        alternative = html.escape(chart.title or report.headline, quote=True)
        parts.append(f'<img alt="{alternative}" style="max-width:640px" src="data:image/png;base64,{encoded}">')
    if (step := report.next_step) is not None:
        parts.append(_small(f"{step.purpose}: ", f"<code>{html.escape(step.call)}</code>"))
    return "\n".join(["<div>", *parts, "</div>"])


def table_to_html(table: Table, most: int | None = None) -> str:
    """Return a table as HTML; rows that stand out are bold."""
    written = write_table(table, most)
    sides = ["left" if is_text else "right" for is_text in written.is_text]
    parts = ['<table style="border-collapse:collapse;margin:4px 0">']
    if table.title:
        parts.append(f'<caption style="text-align:left;padding:2px 10px">{html.escape(table.title)}</caption>')
    parts.append(_row("th", written.headings, sides))
    parts += [_row("td", row, sides, at in table.marked) for at, row in enumerate(written.rows)]
    parts.append("</table>")
    if left_out := len(table.rows) - len(written.rows):
        parts.append(_small(f"… {counted(left_out, 'more row')}"))
    return "\n".join([*parts, *map(_small, table.notes)])


def _row(tag: str, texts: list[str], sides: list[str], bold: bool = False) -> str:
    cells = [
        f'<{tag} style="{_CELL.format(side)}{";font-weight:bold" if bold else ""}">{html.escape(text)}</{tag}>'
        for text, side in zip(texts, sides, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def report_to_latex(report: Report, columns: Sequence[str] | None = None) -> str:
    """Return every table of a report as LaTeX, the first with the headline in its caption."""
    if not report.tables:
        return _tex(report.headline) + "\n"
    tables = report.tables if columns is None else _only(report.tables, columns)
    return "\n".join(
        table_to_latex(table, report.headline if number == 0 else "") for number, table in enumerate(tables)
    )


def _only(tables: tuple[Table, ...], columns: Sequence[str]) -> list[Table]:
    """Return the tables that have all of these columns, with only them."""
    chosen = []
    for table in tables:
        titles = [column.title for column in table.columns]
        if set(columns) <= set(titles):
            chosen.append(table.select([titles.index(name) for name in columns]))
    if not chosen:
        known = "; ".join(", ".join(c.title for c in table.columns if c.title) for table in tables)
        raise InvalidValueError("columns", ", ".join(columns), f"columns of one table: {known}")
    return chosen


def table_to_latex(table: Table, headline: str = "", bold: Collection[tuple[int, int]] = ()) -> str:
    """Return a LaTeX ``table`` with its caption (package: booktabs); marked rows and the cells `bold` are bold."""
    written = write_table(table)
    caption = " ".join(filter(None, (_sentence(table.title), headline, *table.notes)))
    body = [
        " & ".join(
            rf"\textbf{{{_tex(text)}}}" if text and (row in table.marked or (row, column) in bold) else _tex(text)
            for column, text in enumerate(texts)
        )
        + r" \\"
        for row, texts in enumerate(written.rows)
    ]
    alignment = "".join("l" if is_text else "r" for is_text in written.is_text)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(caption)}}}",
        rf"  \begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        "    " + " & ".join(map(_tex, written.headings)) + r" \\",
        r"    \midrule",
        *(f"    {line}" for line in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return re.sub(r" (?=\\%)", r"\\,", "".join(_LATEX.get(letter, letter) for letter in text))


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def _small(text: str, code: str = "") -> str:
    return f'<div style="font-size:90%">{html.escape(text)}{code}</div>'
