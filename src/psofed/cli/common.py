"""Options that the federation's commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.completion import complete_settings
from psofed.cli.outputs import print_json, progress

if TYPE_CHECKING:
    from psofed.scenario import Scenario

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Scenario, a TOML file (see `psofed example`).")
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a field, such as attack.variance=1.0; repeatable.",
        autocompletion=complete_settings,
    ),
]
Plugins = Annotated[
    list[Path],
    typer.Option("--plugin", metavar="FILE.py", help="Load custom parts from a file or module; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a report.")]


def load_plugins(plugins: list[Path]) -> None:
    """Load custom parts, before anything names them."""
    from psofed.cli.inputs import Plugins as Modules

    Modules(plugins=plugins).load()


def read_scenario_with(
    file: Path, settings: list[str], plugins: list[Path], open_data: bool = True
) -> "Scenario":
    """Read a scenario file with ``--set`` changes, after loading the parts that it may name."""
    from psofed.cli.inputs import ScenarioFile as Source

    return Source(file=file, changes=settings, plugins=plugins).read(open_data)


__all__ = [
    "AsJson", "Plugins", "ScenarioFile", "Settings", "load_plugins", "print_json", "progress",
    "read_scenario_with",
]  # fmt: skip
