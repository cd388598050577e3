"""Reports as Markdown and as LaTeX, with all rows."""

import re
from collections.abc import Collection, Sequence

from psofed.common.errors import InvalidValueError
from psofed.render.cells import write_table
from psofed.render.numbers import MINUS
from psofed.render.report import Report, Table

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", "±": r"$\pm$", "∞": r"$\infty$",
    "…": r"\dots{}", "×": r"$\times$", "μ": r"$\mu$", "–": "--", "σ": r"$\sigma$", "²": r"$^2$",
}  # fmt: skip


def report_to_markdown(report: Report) -> str:
    """Return a report as Markdown (GitHub's tables)."""
    blocks = [f"**{_md(report.headline)}**"]
    if report.subject:
        blocks.append(_md(report.subject))
    for table in report.tables:
        blocks += [_md(table.title)] if table.title else []
        blocks.append(table_to_markdown(table))
        blocks += [_md(note) for note in table.notes]
    blocks += [f"Note: {_md(note)}" for note in report.notes]
    if report.next_step is not None:
        blocks.append(f"{_md(report.next_step.purpose)}: `{report.next_step.call}`")
    return "\n\n".join(blocks) + "\n"


def table_to_markdown(table: Table) -> str:
    """Return a table as Markdown; rows that stand out are bold."""
    written = write_table(table)
    lines = [_pipes(map(_md, written.headings))]
    lines.append(_pipes("---" if is_text else "---:" for is_text in written.is_text))
    for row, marked in zip(written.rows, written.marked, strict=True):
        lines.append(_pipes(f"**{_md(text)}**" if marked and text else _md(text) for text in row))
    return "\n".join(lines)


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
            rf"\textbf{{{_tex(text)}}}" if text and (marked or (row, column) in bold) else _tex(text)
            for column, text in enumerate(texts)
        )
        + r" \\"
        for row, (texts, marked) in enumerate(zip(written.rows, written.marked, strict=True))
    ]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_tex(caption)}}}",
            rf"  \begin{{tabular}}{{{''.join('l' if is_text else 'r' for is_text in written.is_text)}}}",
            r"    \toprule",
            "    " + " & ".join(map(_tex, written.headings)) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    return re.sub(r" (?=\\%)", r"\\,", "".join(_LATEX.get(letter, letter) for letter in text))


def _md(text: str) -> str:
    return re.sub(r"([|*_`<\\])", r"\\\1", text)


def _pipes(texts: object) -> str:
    return f"| {' | '.join(texts)} |"  # type: ignore[arg-type]


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."
