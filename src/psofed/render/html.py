"""Reports as HTML: a headline, small tables and pictures, for notebooks and pages."""

import base64
import html

from psofed.render.cells import write_table
from psofed.render.numbers import counted
from psofed.render.report import Report, Table

_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid rgba(128,128,128,.3)"


def report_to_html(report: Report, rows: int, charts: bool = True) -> str:
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
    if charts:
        from psofed.render.figures import draw_chart, figure_to_png

        for chart in report.charts:
            encoded = base64.b64encode(figure_to_png(draw_chart(chart))).decode()
            parts.append(
                f'<img alt="{html.escape(chart.title or report.headline, quote=True)}" style="max-width:640px" '
                f'src="data:image/png;base64,{encoded}">'
            )
    if report.next_step is not None:
        step = report.next_step
        parts.append(
            f'<div style="font-size:90%">{html.escape(step.purpose)}: <code>{html.escape(step.call)}</code></div>'
        )
    return "\n".join(["<div>", *parts, "</div>"])


def table_to_html(table: Table, most: int | None = None) -> str:
    """Return a table as HTML; rows that stand out are bold."""
    written = write_table(table, most)
    sides = ["left" if is_text else "right" for is_text in written.is_text]
    parts = ['<table style="border-collapse:collapse;margin:4px 0">']
    if table.title:
        parts.append(f'<caption style="text-align:left;padding:2px 10px">{html.escape(table.title)}</caption>')
    parts.append(_row("th", written.headings, sides))
    for row, marked in zip(written.rows, written.marked, strict=True):
        parts.append(_row("td", row, sides, marked))
    parts.append("</table>")
    if written.left_out:
        parts.append(_small(f"… {counted(written.left_out, 'more row')}"))
    return "\n".join([*parts, *map(_small, table.notes)])


def _row(tag: str, texts: list[str], sides: list[str], bold: bool = False) -> str:
    cells = [
        f'<{tag} style="{_CELL.format(side)}{";font-weight:bold" if bold else ""}">{html.escape(text)}</{tag}>'
        for text, side in zip(texts, sides, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _small(text: str) -> str:
    return f'<div style="font-size:90%">{html.escape(text)}</div>'
