"""Writes docs/cli.md from the command line itself, so that no command or option can be left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from psofed.cli import app

PAGE = Path(__file__).parent / "cli.md"


def make_page() -> str:
    """Return the page's text."""
    lines = [
        "# The command line",
        "",
        "Made by `make docs` from the commands' own help; a test compares the two. Exit codes: 0 all well, 1 the",
        "answer is no (a comparison failed), 2 a mistake in what was asked, 130 interrupted.",
    ]
    for path, command in commands("psofed", typer.main.get_command(app)):
        lines += ["", f"## `{path}`", "", (command.help or "").strip()]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [
            p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden
        ]
        if arguments or options:
            lines += ["", "| | |", "|---|---|"]
        for parameter in arguments:
            lines.append(f"| `{(parameter.metavar or parameter.name).upper()}` | {describe(parameter)} |")
        for parameter in options:
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            lines.append(f"| {names} | {describe(parameter)} |")
    return "\n".join(lines) + "\n"


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that can be run, with its full name."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name in sorted(children):
        yield from commands(f"{path} {name}", children[name])


def describe(parameter: Any) -> str:
    """Return the help text and the default, if there is one worth telling."""
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    if parameter.default not in (None, False, [], ()) and not callable(parameter.default):
        text += f" Default: {parameter.default}."
    return text


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
