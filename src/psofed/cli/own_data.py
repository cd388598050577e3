"""Options for data of one's own, shared by the commands that take them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.common.errors import PsofedError

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData
    from psofed.scenario import Scenario

_MOST_CLIENTS = 40

OptionalScenarioFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", help="Scenario, a TOML file (see `psofed example`); optional with --data."
    ),
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="TABLE", help="Learn from your own data: a CSV or Parquet file, one row each."
    ),
]
ClientColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --data: the column that says whose row it is.")
]
TargetColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --data: the column to be predicted.")
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C", help="With --data: columns to predict from; all other columns of numbers by default."
    ),
]
MinRows = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="With --data: leave out clients with fewer rows; 30 by default."),
]
LeaveOut = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="With --data: clients to leave out, such as one whose sensor is faulty."
    ),
]
Epochs = Annotated[int, typer.Option(min=1, help="With --data: how often each client goes through its rows.")]


def read_own_data(
    table: Path | None,
    client: str | None,
    target: str | None,
    features: str | None,
    epochs: int = 1,
    min_rows: int | None = None,
    leave_out: str | None = None,
) -> "OwnData | None":
    """Read the table that the options name; None if they name none."""
    given = {
        "--client-column": client,
        "--target-column": target,
        "--features": features,
        "--min-rows": min_rows,
        "--leave-out": leave_out,
    }
    if table is None:
        for option, value in given.items():
            if value is not None:
                raise PsofedError(f"{option} says something about a table, but there is no --data TABLE")
        return None
    if client is None or target is None:
        missing = "--client-column" if client is None else "--target-column"
        raise PsofedError(f"--data {table} needs {missing}; {_columns(table)}")
    from psofed.fleet.own_data import read_data

    names = None if features is None else _names(features)
    gone = _names(leave_out or "")
    return read_data(table, client, target, names, epochs=epochs, min_rows=min_rows, leave_out=gone)


def scenario_for(
    file: Path | None, settings: list[str], plugins: list[Path], data: "OwnData | None"
) -> "Scenario":
    """Read a scenario file and apply ``--set`` changes; with data, fit it to them (the file may then be left out)."""
    from psofed.cli.common import load_plugins, read_scenario_with
    from psofed.scenario.changes import parse_setting, set_values
    from psofed.scenario.file import read_mapping

    if data is None:
        if file is None:
            raise PsofedError(
                "no scenario: give a FILE (`psofed example` prints one to start from) or --data TABLE"
            )
        return read_scenario_with(file, settings, plugins)
    load_plugins(plugins)
    from psofed.fleet.fitting import fit_scenario

    mapping: Mapping[str, Any] = {} if file is None else read_mapping(file)
    return fit_scenario(data, set_values(mapping, dict(parse_setting(text) for text in settings)))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _columns(table: Path) -> str:
    from psofed.fleet.frames import read_header

    return f"the table has the columns {', '.join(read_header(table))}"
