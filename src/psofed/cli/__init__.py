"""The command line: one module per command, imported when it is needed so that --help is instant."""

import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click
import typer
from typer.core import TyperArgument

from psofed._version import __version__
from psofed.cli.flags import add_command
from psofed.common.errors import NotCoveredError, PsofedError
from psofed.common.notices import listen
from psofed.common.suggest import did_you_mean

COMMANDS = (
    "example", "advise", "simulate", "plot", "predict", "tune", "compare", "sweep", "explore", "reproduce",
    "federation",
)  # fmt: skip

if TYPE_CHECKING:
    app: typer.Typer
else:

    def __getattr__(name: str) -> Any:
        if name == "app":
            return make_app(COMMANDS)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def make_app(commands: tuple[str, ...]) -> typer.Typer:
    """Return the command line with some of its commands."""
    made = typer.Typer(
        name="psofed",
        help="Online federated learning that withstands Byzantine clients: simulate, predict, tune, run.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    for name in commands:
        module = import_module(f"psofed.cli.{name}")
        if name == "federation":
            group = typer.Typer(name=name, help=module.HELP, no_args_is_help=True)
            for function in module.COMMANDS:
                add_command(group, function)
            made.add_typer(group)
        else:
            add_command(made, getattr(module, name))
    return made


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"psofed {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake ends with exit code 2 and one line, never a traceback."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: more threads only wait for each other
    for stream in (sys.stdout, sys.stderr):
        if os.name == "nt" and isinstance(stream, io.TextIOWrapper):  # its code page lacks a minus and Greek
            stream.reconfigure(encoding="utf-8")
    listen(lambda text: print(f"psofed: {text}", file=sys.stderr))
    typed = tuple(name for name in sys.argv[1:2] if name in COMMANDS)
    try:
        try:
            code = make_app(typed or COMMANDS)(prog_name="psofed", standalone_mode=False)
        finally:
            sys.stdout.flush()
    except PsofedError as error:
        _refuse(explain(error, *typed))
    except click.UsageError as error:
        _refuse(_usage(error))
    except click.Abort:
        sys.exit(1)
    except BrokenPipeError:  # the reader, such as `| head`, has read enough
        _forget_output()
        sys.exit(0)
    except MemoryError as error:
        _refuse(f"This needs more memory than there is ({error}).")
    except OSError as error:  # a full disk, a folder that cannot be written, a file that cannot be opened
        from psofed.common.files import reason_of

        _forget_output()
        _refuse(f"{error.filename or 'output'}: {reason_of(error)}")
    sys.exit(code if isinstance(code, int) else 0)


def explain(error: PsofedError, command: str = "") -> str:
    """Return what a user of a command is told of a mistake."""
    is_theory = isinstance(error, NotCoveredError) and command in ("predict", "tune", "compare")
    return f"{error}; try `psofed simulate`" if is_theory else str(error)


def _refuse(message: str) -> NoReturn:
    print(f"psofed: {message}", file=sys.stderr)
    sys.exit(2)


def _usage(error: click.UsageError) -> str:
    """Return what is wrong with a command line, and which help describes it."""
    message = error.format_message().strip()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(message)  # the help itself
        sys.exit(0)
    if isinstance(error, click.MissingParameter) and isinstance(error.param, TyperArgument):
        text = (error.param.help or "").replace("\\[", "[")
        message = f"{error.param.metavar} is required: {text[:1].lower()}{text[1:]}"
    if isinstance(error, click.NoSuchOption):
        message = f"No such option: {error.option_name}."
        message += did_you_mean(error.option_name, error.possibilities or ()) or _setting(error)
    if not message.endswith((".", "?")):
        message += "."
    return message if error.ctx is None else f"{message} See `{error.ctx.command_path} --help`."


def _setting(error: click.NoSuchOption) -> str:
    """Return how a field of a scenario is given that was typed like an option, such as ``--stepsize``."""
    if error.ctx is None:
        return ""
    if not any("--set" in parameter.opts for parameter in error.ctx.command.params):
        return " Write fields of the scenario under [base] in the grid file." * (error.ctx.info_name == "sweep")
    from psofed.scenario.mapping import field_names

    name = error.option_name.lstrip("-").replace("-", "_")
    field = next((field for field in field_names() if field.rpartition(".")[2] == name), None)
    return f" Fields of the scenario are set with --set {field}=VALUE." if field else ""


def _forget_output() -> None:
    # Python writes what is left when it ends, and would complain once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
