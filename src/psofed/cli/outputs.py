"""Outputs of commands: the report or JSON, a picture, a file, and progress on the terminal."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from psofed.cli.flags import Given, words_of
from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings, call_with

if TYPE_CHECKING:
    from rich.progress import Progress

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

        Only what is printed is made, with `to_json` and `report` if these are given.
        """
        with progress("preparing the answer"):
            made = (to_json or result.to_json)() if self.as_json else (report or result.report)()
        if self.as_json:
            print_json(made)
            return
        from psofed.render.text import print_report

        step = made.next_step
        file = words_of(step.command, *given) if step is not None and step.command and given else ""
        print_report(made, file=file, rows=rows, wide=self.wide)


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

            try:
                check_picture_format(self.plot)
            except InvalidValueError as error:
                raise error.renamed("--plot") from None

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
    bar = _Bar(label, unit)
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A bar that another thread may start, and that imports what draws it only then."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._done, self._total = 0.0, 0
        self._drawn: Progress | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        class Remaining(ProgressColumn):
            def render(self, task: Task) -> Text:
                left = task.time_remaining
                spent = f"{_PATIENCE + (task.elapsed or 0.0):.0f} s"
                return Text(spent if left is None else f"{timedelta(seconds=int(left))} left")

        bar = self

        class Newest(Progress):
            def get_renderables(self) -> Iterable[Any]:
                if bar._total:
                    self.update(self.task_ids[0], completed=bar._done, total=bar._total, counted=bar._counted())
                return super().get_renderables()

        counted = TextColumn("{task.fields[counted]}")
        columns = (TextColumn("{task.description}"), BarColumn(), counted, Remaining())
        with self._lock:
            if not self._stopped:
                self._drawn = Newest(*columns, console=Console(stderr=True), transient=True)
                self._drawn.add_task(self._label, total=None, counted="")
                self._drawn.start()

    def update(self, done: float, total: int) -> None:
        self._done, self._total = done, total

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._drawn is not None:
                self._drawn.stop()

    def _counted(self) -> str:
        done, total = self._done, self._total
        return f"{int(done)} of {total} {self._unit}" if self._unit else f"{done / total:.0%}"
