"""What the commands share: reading a scenario, printing JSON, tables and progress."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.completion import complete_settings

if TYPE_CHECKING:
    from psofed.common.types import ProgressCallback
    from psofed.scenario import Scenario

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Scenario, a TOML file (see `psofed example`).")
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a field, e.g. attack.variance=1.0; repeatable.",
        autocompletion=complete_settings,
    ),
]
Plugins = Annotated[
    list[Path],
    typer.Option(
        "--plugin", metavar="FILE.py", help="Load parts of your own from a file or module; repeatable."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def load_plugins(plugins: list[Path]) -> None:
    """Load the user's own parts, before anything names them."""
    if plugins:
        from psofed.parts.registry import load_plugin

        for plugin in plugins:
            load_plugin(plugin)


def read_scenario_with(file: Path, settings: list[str], plugins: list[Path]) -> "Scenario":
    """Read a scenario file and apply ``--set`` changes to it, after loading the parts it may name."""
    load_plugins(plugins)
    from psofed.scenario.changes import parse_setting
    from psofed.scenario.file import read_scenario

    return read_scenario(file, changes=dict(parse_setting(text) for text in settings))


def print_json(value: Any) -> None:
    """Print strict JSON; numbers that are not finite become null."""
    from psofed.common.numbers import finite_or_none

    typer.echo(json.dumps(finite_or_none(value), indent=2, allow_nan=False))


@contextmanager
def progress(label: str, unit: str = "") -> Iterator["ProgressCallback"]:
    """Show a bar with the time left on stderr for work that takes more than a second.

    Yields a function to be called with (done, total). Nothing is shown when stderr is no terminal.
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
