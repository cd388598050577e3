"""Options for data of one's own, shared by the commands that take them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.common.errors import PsofedError

if TYPE_CHECKING:
    from rich.console import Console

    from psofed.fleet.own_data import OwnData
    from psofed.results import SimulationResult
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


def print_data_summary(data: "OwnData", result: "SimulationResult") -> None:
    """Print the comparison with the baselines, and what was done to the data."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from psofed.simulation.baselines import TITLES

    details, console = result.details["data"], Console()
    mse = result.network_mse
    table = Table(
        title=f"MSE over the last {result.tail} of {result.scenario.iterations} iterations (1: no model)"
    )
    table.add_column("")
    table.add_column("mean", justify="right")
    table.add_column("best for", justify="right")
    clients = [c for c in details["clients"] if c["mse"] is not None]
    better = sum(c["mse"] < c["alone_mse"] for c in clients)
    table.add_row(
        "federation",
        f"{mse.mean:.4f} ± {1.96 * mse.standard_error:.4f}",
        f"{better} of {len(clients)} clients",
    )
    for name, title in TITLES.items():
        best = f"{len(clients) - better} of {len(clients)} clients" if name == "alone" else ""
        table.add_row(title, f"{details['baselines'][name]:.4f}", best)
    console.print(table)
    _print_clients(details["clients"], console)
    console.print("Trials differ only in participants, masks and attack: the data are what they are.")
    console.print(
        f"All learn with the stepsize {result.scenario.stepsize:g}, which suits some ways better than others: "
        "psofed advise tunes each and says which to use.",
        highlight=False,
    )
    for line in data.notes():
        console.print(f"[bold]Note:[/bold] {escape(line)}")


def _print_clients(clients: list[dict[str, Any]], console: "Console") -> None:
    """Print every client's errors by name, some of them if they are many."""
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    from psofed.advice.stations import robust_scores, stands_out

    alone = np.array([np.nan if c["alone_mse"] is None else c["alone_mse"] for c in clients])
    flags = stands_out(*robust_scores(alone))
    shown = set(np.lexsort((np.arange(len(clients)), ~flags))[:_MOST_CLIENTS].tolist())
    table = Table(title="MSE of each client")
    for heading in ("client", "samples", "alone", "federation", "gain", ""):
        table.add_column(heading, justify="left" if heading in ("client", "") else "right")
    for k, client in enumerate(clients):
        if k not in shown:
            continue
        mse, own = client["mse"], client["alone_mse"]
        errors = ["" if value is None else f"{value:.4f}" for value in (own, mse)]
        gain = f"{100 * (1 - mse / own):+.1f} %" if mse is not None and own else ""
        remarks = ["lies"] * client["is_byzantine"] + ["stands out"] * bool(flags[k])
        table.add_row(escape(client["name"]), str(client["samples"]), *errors, gain, ", ".join(remarks))
    console.print(table)
    if len(shown) < len(clients):
        console.print(f"{len(clients) - len(shown)} more clients are in --json and --out.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _columns(table: Path) -> str:
    from psofed.fleet.frames import read_header

    return f"the table has the columns {', '.join(read_header(table))}"
