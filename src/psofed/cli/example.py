"""``psofed example``: a commented scenario to start from."""

import typer

from psofed.cli.outputs import Output, print_json


def example(output: Output) -> None:
    """Print a commented scenario to start from: psofed example > scenario.toml."""
    from psofed.scenario.file import EXAMPLE

    if output.as_json:
        from psofed.scenario import Scenario

        print_json(Scenario.from_toml(EXAMPLE).to_mapping())
    else:
        typer.echo(EXAMPLE, nl=False)
