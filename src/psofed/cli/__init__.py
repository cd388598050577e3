"""The command line: one module per command, heavy imports inside the commands so that --help is instant."""

import os
import sys

import typer

from psofed._version import __version__
from psofed.cli import (
    advise,
    compare,
    example,
    explore,
    federation,
    plot,
    predict,
    reproduce,
    simulate,
    sweep,
    tune,
)
from psofed.common.errors import PsofedError
from psofed.common.notices import listen

app: typer.Typer = typer.Typer(
    name="psofed",
    help="Online federated learning that stays accurate when some clients lie: simulate, predict, tune, run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (example, advise, simulate, plot, predict, tune, compare, sweep, explore, reproduce, federation)
for _command in _COMMANDS:
    _command.register(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"psofed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake ends with exit code 2 and one line, never a traceback."""
    listen(lambda text: print(f"psofed: {text}", file=sys.stderr))
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except PsofedError as error:
        print(f"psofed: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # `| head` has seen enough
        _forget_output()
        sys.exit(0)
    except MemoryError as error:
        print(f"psofed: this takes more memory than there is ({error})", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder that cannot be written, files that cannot be opened
        from psofed.common.files import reason_of

        _forget_output()
        print(f"psofed: {error.filename or 'output'}: {reason_of(error)}", file=sys.stderr)
        sys.exit(2)


def _forget_output() -> None:
    # Python writes what is left when it ends, and would complain once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
