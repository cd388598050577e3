"""Reports for the terminal: the answer, the numbers, what to know, and what to try next."""

import os
import shlex
import shutil
import sys
import textwrap
from typing import TextIO

from psofed.render.cells import Written, write_table
from psofed.render.numbers import counted
from psofed.render.report import MOST_ROWS, NextStep, Report, Table

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_INDENT = "  "
_NARROW = 12  # headings are not broken to less


def print_report(report: Report, *, file: str = "", rows: int = MOST_ROWS, out: TextIO | None = None) -> None:
    """Print a report, in bold where the terminal can, wrapped to its width.

    Parameters
    ----------
    report : Report
    file : str
        The scenario's file, for the command to try next.
    rows : int
        Rows shown of each table.
    out : text stream, optional
        Standard output by default.
    """
    out = out or sys.stdout
    is_terminal = out.isatty()
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    colour = is_terminal and not os.environ.get("NO_COLOR")
    print(report.to_text(width=width, rows=rows, colour=colour, file=file), file=out)


def report_to_text(report: Report, width: int, rows: int, colour: bool, file: str) -> str:
    """Return a report as text; see :meth:`Report.to_text`."""
    start, end = (_BOLD, _PLAIN) if colour else ("", "")
    blocks = [start + _wrapped(report.headline, width) + end]
    if report.subject:
        blocks[0] += "\n" + _wrapped(report.subject, width)
    blocks += [table_to_text(table, rows, width) for table in report.tables]
    if report.notes:
        blocks.append("\n".join(_wrapped(f"Note: {note}", width, _INDENT) for note in report.notes))
    if report.next_step is not None:
        blocks.append(next_step_text(report.next_step, file))
    return "\n\n".join(blocks)


def table_to_text(table: Table, most: int = MOST_ROWS, width: int = 100) -> str:
    """Return a table as text: words from the left, numbers to the right, ``*`` behind a row that stands out."""
    written = write_table(table, most)
    lines = [] if not table.title else [table.title]
    lines += _grid(written)
    if written.left_out:
        lines.append(f"{_INDENT}… {counted(written.left_out, 'more row')}")
    lines += [_wrapped(note, width, _INDENT) for note in table.notes]
    return "\n".join(lines)


def next_step_text(step: NextStep, file: str = "") -> str:
    """Return what to try next: a command where it is known how the scenario was given, else a Python call.

    Examples
    --------
    >>> step = NextStep("Predict", "predict(scenario)", "psofed predict FILE --set stepsize=0.1")
    >>> next_step_text(step, "s.toml --set num_shared=2 --set stepsize=0.5")
    'Predict: psofed predict s.toml --set num_shared=2 --set stepsize=0.1'
    """
    command = _said_once(step.command.replace("FILE", file)) if file and step.command else ""
    return f"{step.purpose}: {command or step.call}"


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


def _grid(written: Written) -> list[str]:
    # Numbers above each other stay so where one is marked.
    unmarked = "  " if any(written.marked) and not written.is_text[0] else ""
    body = [
        [row[0] + (" *" if marked else unmarked), *row[1:]]
        for row, marked in zip(written.rows, written.marked, strict=True)
    ]
    rows = [*_heading_lines(written.headings, body), *body]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (
            _INDENT
            + "  ".join(
                text.ljust(width) if is_text else text.rjust(width)
                for text, width, is_text in zip(row, widths, written.is_text, strict=True)
            )
        ).rstrip()
        for row in rows
    ]


def _heading_lines(headings: list[str], body: list[list[str]]) -> list[list[str]]:
    """Break headings that are wider than what stands below them, so that tables stay narrow."""
    if not any(headings):
        return []
    widths = [max([_NARROW, *(len(row[at]) for row in body)]) for at in range(len(headings))]
    broken = [
        textwrap.wrap(text, width, break_long_words=False) or [""]
        for text, width in zip(headings, widths, strict=True)
    ]
    height = max(map(len, broken))
    padded = [[""] * (height - len(lines)) + lines for lines in broken]
    return [list(line) for line in zip(*padded, strict=True)]


def _wrapped(text: str, width: int, hanging: str = "") -> str:
    # A number stays with its unit or its sign.
    glued = text.replace(" dB", "\u00a0dB").replace(" %", "\u00a0%")
    lines = textwrap.wrap(
        glued, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\u00a0", " ")
