"""``psofed federation``: PSO-Fed with real clients over a real network."""

import typer

from psofed.cli import federation_client, federation_run, federation_server


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    group = typer.Typer(
        name="federation",
        help="Run PSO-Fed with real clients: demo on one machine, or certs, server, client and run on several.",
        no_args_is_help=True,
    )
    for module in (federation_run, federation_server, federation_client):
        module.register(group)
    app.add_typer(group)
