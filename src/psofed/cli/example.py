"""``psofed example``: a commented scenario to start from."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(example)


def example() -> None:
    """Print a commented scenario to start from: psofed example > scenario.toml."""
    from psofed.scenario.file import EXAMPLE

    typer.echo(EXAMPLE, nl=False)
