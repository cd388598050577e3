"""Outputs of commands: the report or JSON, a picture, a file, and progress on the terminal."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings

if TYPE_CHECKING:
    from psofed.common.types import ProgressCallback
    from psofed.render import Report


class Output(Settings):
    """How the answer is printed."""

    group = "Output"

    as_json: bool = option(default=False, flag="--json", text="print JSON instead of a report")

    def show(
        self,
        to_json: Callable[[], Any],
        report: "Callable[[], Report]",
        *,
        file: Path | None = None,
        rows: int = 40,
    ) -> None:
        """Print the result: as JSON, or the report with the next step. Only what is printed is made."""
        if self.as_json:
            print_json(to_json())
            return
        from psofed.render.text import print_report

        print_report(report(), file="" if file is None else str(file), rows=rows)


class PlotOutput(Output):
    """How the answer is printed and drawn."""

    plot: Path | None = option(default=None, text="draw the result (.png, .svg or .pdf)")

    def check(self) -> None:
        """Refuse a picture format that cannot be written, before anything is computed."""
        if self.plot is not None:
            from psofed.render.style import check_picture_format

            try:
                check_picture_format(self.plot)
            except InvalidValueError as error:
                raise error.renamed("--plot") from None

    def draw(self, result: Any) -> None:
        """Draw a result, if that was asked for."""
        if self.plot is not None:
            from psofed.render.figures import save_figure

            save_figure(result.plot(), self.plot)


def print_json(value: Any) -> None:
    """Print strict JSON; numbers that are not finite become null."""
    from psofed.common.numbers import finite_or_none

    typer.echo(json.dumps(finite_or_none(value), indent=2, allow_nan=False))


@contextmanager
def progress(label: str, unit: str = "") -> Iterator["ProgressCallback"]:
    """Show a bar with the remaining time on stderr for work that takes more than a second.

    Yields a function to call with (done, total). Nothing is shown when stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counted]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=None, counted="")
    start = time.monotonic()

    def update(done: float, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - start > 1.0:
            bar.start()
        counted = f"{int(done)} of {total} {unit}" if unit else f"{done / total:.0%}"
        bar.update(task, completed=done, total=total, counted=counted)

    try:
        yield update
    finally:
        bar.stop()
