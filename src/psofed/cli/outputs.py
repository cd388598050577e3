"""Outputs of commands: the report or JSON, a picture, a file, and progress on the terminal."""

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from psofed.cli.flags import Given, words_of
from psofed.common.options import option
from psofed.common.settings import Settings, call_with

if TYPE_CHECKING:
    from psofed.common.types import ProgressCallback
    from psofed.render import Report
    from psofed.scenario import Scenario

R = TypeVar("R")
_PATIENCE = 1.0  # seconds of work without a sign of it


class Output(Settings):
    """How the answer is printed."""

    group = "Output"

    as_json: bool = option(default=False, flag="--json", text="print JSON instead of text")


class ReportOutput(Output):
    """How a report is printed."""

    wide: bool = option(default=False, text="print all columns of tables, however wide they are")

    def present(
        self,
        result: Any,
        *given: Settings | Given[Any],
        to_json: Callable[[], Any] | None = None,
        report: "Callable[[], Report] | None" = None,
        rows: int = 40,
    ) -> None:
        """Print the result: as JSON, or its report with the next step, to which the settings `given` are repeated.

        Only what is printed is made, with `to_json` and `report` if these are given. A report is wrapped to the
        terminal's width, with its headline in bold where the terminal can.
        """
        with progress("preparing the answer"):
            made = (to_json or result.to_json)() if self.as_json else (report or result.report)()
        if self.as_json:
            print_json(made)
            return
        step = made.next_step
        file = words_of(step.command, *given) if step is not None and step.command and given else ""
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(made.to_text(width=width, rows=rows, colour=colour, file=file, wide=self.wide))


class PlotOutput(ReportOutput):
    """How the answer is printed and drawn."""

    plot: Path | None = option(default=None, text="draw the result (.png, .svg or .pdf)")

    def check(self, *files: Path | None) -> None:
        """Refuse pictures and other files that cannot be written, before anything is computed."""
        from psofed.common.files import check_writable

        for file in filter(None, (self.plot, *files)):
            check_writable(file)
        if self.plot is not None:
            from psofed.render.style import check_picture_format

            check_picture_format(self.plot, "plot")

    def present(self, result: Any, *given: Settings | Given[Any], out: Path | None = None, **about: Any) -> None:
        """Save and draw a result where that was asked for, and print it, also if a file cannot be written."""
        try:
            if out is not None:
                result.save(out)
            if self.plot is not None:
                from psofed.render.figures import save_figure

                save_figure(result.plot(), self.plot)
        finally:
            super().present(result, *given, **about)


def compute(label: str, function: Callable[..., R], scenario: "Scenario", settings: Any, unit: str = "") -> R:
    """Call a function of a scenario and of settings, with its progress on the terminal."""
    with progress(label, unit) as report:
        return call_with(function, scenario, settings.replace(progress=report))


def print_json(value: Any) -> None:
    """Print strict JSON; numbers that are not finite become null."""
    from psofed.common.numbers import finite_or_none

    typer.echo(json.dumps(finite_or_none(value), indent=2, allow_nan=False))


@contextmanager
def progress(label: str, unit: str = "") -> Iterator["ProgressCallback"]:
    """Show progress on stderr for work that takes more than a second: a bar, and the time left once it is known.

    Yields a function to call with (done, total). Nothing is shown when stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counted]}"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=None, counted="")

    def update(done: float, total: int) -> None:
        counted = f"{int(done)} of {total} {unit}" if unit else f"{done / total:.0%}"
        bar.update(task, completed=done, total=total, counted=counted)

    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar
        bar.stop()
