"""``psofed explore``: a page with sliders for the exact theory."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import Plugins, Settings, load_plugins
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Epochs,
    Features,
    TargetColumn,
    read_own_data,
    scenario_for,
)
from psofed.common.errors import PsofedError


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(explore)


def explore(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="Scenario to open with, a TOML file; the README's fleet if left out."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Where to listen; any free port by default.")
    ] = 0,
    browser: Annotated[
        bool,
        typer.Option("--browser/--no-browser", help="Open the page in a browser, or only print its address."),
    ] = True,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    epochs: Epochs = 1,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Move sliders and see what theory says at once: a page on this machine only, ended by Ctrl-C.

    With --data the fleet's covariances and noise are measured in a table of yours, as `psofed tune` does.
    """
    load_plugins(plugins)
    data = read_own_data(table, client_column, target_column, features, epochs)
    scenario = None
    if file is not None or data is not None:
        scenario = scenario_for(file, settings, plugins, data)
    elif settings:
        raise PsofedError("--set changes a FILE or --data TABLE, and there is neither")
    try:
        from psofed.explore.server import Explorer
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("panel", "param", "bokeh"):
            raise
        raise PsofedError(
            "the explorer needs Panel; install it with: pip install 'psofed[explore]'"
        ) from None
    from psofed.explore.exports import Origin

    named = {
        "--data": table,
        "--client-column": client_column,
        "--target-column": target_column,
        "--features": features,
    }
    words = [word for option, value in named.items() if value is not None for word in (option, str(value))]
    words += ["--epochs", str(epochs)] if epochs != 1 else []
    explorer = Explorer(scenario, data, Origin(tuple(words), tuple(map(str, plugins))), port)

    def ready() -> None:
        typer.echo(f"psofed explorer: {explorer.url}\nCtrl-C ends it.")
        if browser:
            import webbrowser

            webbrowser.open(explorer.url)

    explorer.run(ready)
    typer.echo("psofed explorer: ended")
