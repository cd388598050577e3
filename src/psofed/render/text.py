"""Reports for the terminal: the answer, the numbers, what to know, and what to try next."""

import os
import re
import shlex
import shutil
import sys
import textwrap
from typing import TextIO

from psofed.render.cells import write_table
from psofed.render.numbers import counted
from psofed.render.report import MOST_ROWS, NextStep, Report, Table

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_INDENT = "  "
_NARROW = 12  # headings are not broken to less
_LEAST_TEXT = 20  # columns in which sentences can be read


def print_report(
    report: Report, *, file: str = "", rows: int = MOST_ROWS, wide: bool = False, out: TextIO | None = None
) -> None:
    """Print a report, in bold where the terminal can, wrapped to its width.

    Parameters
    ----------
    report : Report
    file : str
        The scenario's file, for the command to try next.
    rows : int
        Rows shown of each table.
    wide : bool
        Whether tables have all their columns, however wide they are.
    out : text stream, optional
        Standard output by default.
    """
    out = out or sys.stdout
    is_terminal = out.isatty()
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    colour = is_terminal and not os.environ.get("NO_COLOR")
    print(report.to_text(width=width, rows=rows, colour=colour, file=file, wide=wide), file=out)


def report_to_text(report: Report, width: int, rows: int, colour: bool, file: str, wide: bool) -> str:
    """Return a report as text; see :meth:`Report.to_text`."""
    start, end = (_BOLD, _PLAIN) if colour else ("", "")
    blocks = [start + _wrapped(report.headline, width) + end]
    if report.subject:
        blocks[0] += "\n" + _wrapped(report.subject, width)
    blocks += [table_to_text(table, rows, width, wide) for table in report.tables]
    if report.notes:
        blocks.append("\n".join(_wrapped(f"Note: {note}", width, _INDENT) for note in report.notes))
    if report.next_step is not None:
        blocks.append(next_step_text(report.next_step, file, width))
    return "\n\n".join(blocks)


def table_to_text(table: Table, most: int = MOST_ROWS, width: int = 100, wide: bool = False) -> str:
    """Return a table as text: words from the left, numbers to the right, ``*`` behind a row that stands out.

    Unless it may be `wide`, columns that do not fit are left out and named.
    """
    shown, grid = table, _grid(table, most, width)
    while not wide and max(map(len, grid), default=0) > width and len(shown.columns) > 2:
        places = range(len(shown.columns))
        dropped = max(places[1:], key=lambda at: (shown.columns[at].minor, at))
        shown = shown.select([at for at in places if at != dropped])
        grid = _grid(shown, most, width)
    lines = [_wrapped(table.title, width, _INDENT)] if table.title else []
    lines += _grid(table, most) if wide else grid
    if len(table.rows) > most:
        lines.append(f"{_INDENT}… {counted(len(table.rows) - most, 'more row')}")
    left_out = ", ".join(column.title for column in table.columns if column not in shown.columns)
    if left_out:
        lines.append(_wrapped(f"Not shown (--wide or wide=True shows all): {left_out}.", width, _INDENT))
    lines += [_wrapped(note, width, _INDENT) for note in table.notes]
    return "\n".join(lines)


def next_step_text(step: NextStep, file: str = "", width: int = 120) -> str:
    """Return what to try next: a command where it is known how the scenario was given, else a Python call.

    A line that would be too wide is continued as a shell does it.

    Examples
    --------
    >>> step = NextStep("Predict", "predict(scenario)", "psofed predict FILE --set stepsize=0.1")
    >>> next_step_text(step, "s.toml --set num_shared=2 --set stepsize=0.5")
    'Predict: psofed predict s.toml --set num_shared=2 --set stepsize=0.1'
    """
    command = _said_once(step.command.replace("FILE", file)) if file and step.command else ""
    line = f"{step.purpose}: {command or step.call}"
    if len(line) <= width:
        return line
    options = re.split(r" (?=--)", command) if command else [step.call]
    rows = [options[0]]
    for option in options[1:]:
        if len(rows[-1]) + len(option) + 5 <= width:
            rows[-1] += f" {option}"
        else:
            rows.append(f"{_INDENT}{option}")
    return f"{step.purpose}:\n{_INDENT}" + f" \\\n{_INDENT}".join(rows)


def _said_once(command: str) -> str:
    """Return a command without the options that a later one replaces, and with one list of clients to leave out."""
    words = shlex.split(command)
    options: dict[tuple[str, str], list[str]] = {}
    kept = []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            kept.append(word)
            continue
        value = words.pop(0) if words and not words[0].startswith("--") else ""
        key = word, value.partition("=")[0] if word in ("--set", "--plugin") else ""
        before = options.pop(key, None)
        text = f"{before[1]},{value}" if before and word == "--leave-out" else value
        options[key] = [word, text] if value else [word]
    return shlex.join([*kept, *(word for option in options.values() for word in option)])


def _grid(table: Table, most: int, width: int | None = None) -> list[str]:
    """Return the lines of a table; words in its last column are broken so that they fit a width."""
    written = write_table(table, most)
    # Numbers above each other stay so where one is marked.
    unmarked = "  " if table.marked and not written.is_text[0] else ""
    body = [[row[0] + (" *" if at in table.marked else unmarked), *row[1:]] for at, row in enumerate(written.rows)]
    rows = [*_heading_lines(written.headings, body), *body]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    space = 0 if width is None else width - sum(widths[:-1]) - 2 * len(widths)
    is_broken = written.is_text[-1] and _LEAST_TEXT <= space < widths[-1] and len(widths) > 1
    lines = []
    for row in rows:
        *cells, last = row
        parts = textwrap.wrap(last, space, break_on_hyphens=False) or [""] if is_broken else [last]
        for texts in ([*cells, parts[0]], *([""] * len(cells) + [part] for part in parts[1:])):
            aligned = (
                text.ljust(size) if is_text else text.rjust(size)
                for text, size, is_text in zip(texts, widths, written.is_text, strict=True)
            )
            lines.append((_INDENT + "  ".join(aligned)).rstrip())
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


def _wrapped(text: str, width: int, hanging: str = "") -> str:
    # A number stays with its unit or its sign.
    glued = text.replace(" dB", "\u00a0dB").replace(" %", "\u00a0%")
    lines = textwrap.wrap(glued, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ")
