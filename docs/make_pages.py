"""Writes the pages and lists that are made from code, so that nothing can be left out: `make docs`.

If that changes anything it fails, so that what is committed is up to date.
"""

import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import typer

import psofed
from psofed.cli import app
from psofed.cli.flags import flag_of
from psofed.common.options import describe as describe_option
from psofed.common.options import is_required, option_of
from psofed.parts import contexts
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, built_in_parts
from psofed.scenario import Data, Links, Scenario, Selection
from psofed.settings.data import DataSettings

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from api_reference import describe_object, to_markdown  # noqa: E402

PACKAGE = DOCS.parent / "src" / "psofed"

SETTINGS: dict[str, Any] = {
    "Scenario": Scenario,
    "Selection: `[selection]`": Selection,
    "Data: `[data]`": Data,
    "Links: `[channel]`": Links,
    "Reading a table: `psofed.read_data`, `--data`": DataSettings,
}

TITLES = {
    "attack": (
        "Attacks",
        "`attack.kind`, `psofed.attacks`",
        "[attacks](attacks.md#attacks) says who can be Byzantine, and what they know",
    ),
    "aggregation": (
        "Aggregation rules",
        "`aggregation`, `psofed.aggregations`",
        "[aggregation rules](algorithms.md#aggregation-rules) says what they do with entries that few sent",
    ),
    "defence": (
        "Defences",
        "`defence.kind`, `psofed.defences`",
        "[security](security.md#exclude-clients-that-stand-out) has results",
    ),
    "pre_aggregation": (
        "Pre-aggregations",
        "`pre_aggregation.kind`, `psofed.pre_aggregations`",
        "[what comes before a rule](algorithms.md#before-the-rule) says what they mean where entries are not shared",
    ),
    "pattern": ("Selection patterns", "`selection.pattern`, `psofed.patterns`", ""),
    "algorithm": ("Algorithms", "`algorithm`, `psofed.algorithms`", "[the algorithms](algorithms.md) compares them"),
    "learner": ("Learners", "`learner.kind`, `psofed.learners`", "[learners](learning.md) has the equations"),
    "stream": (
        "Streams",
        "`data.stream.kind`, `psofed.streams`",
        "[streams](learning.md#streams) says where they apply",
    ),
    "drift": ("Drifts", "`drift.kind`, `psofed.drifts`", "[moving targets](learning.md#moving-targets) has results"),
    "model": (
        "Models",
        "`model.kind`, `psofed.models`",
        "[random Fourier features](learning.md#random-fourier-features) has results",
    ),
    "function": ("Functions to learn", "`data.function`, `psofed.functions`", ""),
    "availability": (
        "Availability",
        "`availability.kind`, `psofed.availabilities`",
        "[links](attacks.md#what-a-link-does) has details",
    ),
    "channel": (
        "Channels",
        "`channel.up.kind`, `channel.down.kind`, `psofed.channels`",
        "[links](attacks.md#what-a-link-does) has details",
    ),
    "delay": ("Delays", "`delay.kind`, `psofed.delays`", "[links](attacks.md#what-a-link-does) has details"),
}


def pages() -> dict[Path, str]:
    """Return every file that is made from code, with its text."""
    made = {
        DOCS / "cli.md": make_cli_page(),
        DOCS / "parts.md": make_parts_page(),
        **make_api_pages(),
        DOCS / "settings.md": make_settings_page(),
    }
    for family, folder in FAMILIES.items():
        made[PACKAGE / f"{folder}.pyi"] = make_stub(family)
    return made


def make_api_pages() -> dict[Path, str]:
    """Return one page per public object, and an index with the first sentence of each."""
    if missing := undocumented():
        sys.exit("the Python reference needs\n" + "\n".join(missing))
    values = {name: getattr(psofed, name) for name in sorted(set(psofed.__all__) - {"__version__"})}
    values = {name: value for name, value in values.items() if not inspect.ismodule(value)}
    for name in ("sklearn.FederatedRegressor", "simulation.online.RowFederation"):
        module, _, inner = name.rpartition(".")
        values[inner] = getattr(importlib.import_module(f"psofed.{module}"), inner)
    arguments = {name: value for name, value in vars(contexts).items() if hasattr(value, "_fields")}
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Families of parts": [], "Errors": []}
    made = {}
    for name, value in values.items():
        kind = "Functions"
        if inspect.isclass(value):
            is_part, is_error = issubclass(value, Part), issubclass(value, Exception)
            kind = "Families of parts" if is_part else "Errors" if is_error else "Classes"
        summary = to_markdown((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " "))[0]
        groups[kind].append(f"| [{name}]({name}.md) | {summary.replace('|', chr(92) + '|')} |")
        title = next((title for title, kind in SETTINGS.items() if kind is value), None)
        lines = describe_object(name, value, None if title is None else f"../settings.md#{_anchor(title)}")
        if kind == "Families of parts":  # what its methods are shown
            source = inspect.getsource(value)
            for argument, context in arguments.items():
                if re.search(rf"\b{argument}\b", source):
                    lines += ["", f"## {argument}", "", *to_markdown(inspect.getdoc(context) or "")]
        made[DOCS / "api" / f"{name}.md"] = _join(lines)
    lines = ["# Python reference", "", "What `import psofed` gives, from the docstrings; made by `make docs`."]
    for title, rows in groups.items():
        lines += ["", f"## {title}", "", "| name | purpose |", "|---|---|", *rows]
    return {DOCS / "api" / "index.md": _join(lines), **made}


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _join(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def undocumented() -> list[str]:
    """Return what the public names lack: docstrings, and examples of functions."""
    missing = []
    for name in sorted(set(psofed.__all__) - {"__version__"}):
        value = getattr(psofed, name)
        if not value.__doc__:
            missing.append(f"a docstring of psofed.{name}")
        elif inspect.isfunction(value) and ">>>" not in value.__doc__:
            missing.append(f"an example in the docstring of psofed.{name}")
        for member, inner in vars(value).items() if inspect.isclass(value) else ():
            is_public = not member.startswith("_") and (inspect.isroutine(inner) or hasattr(inner, "__get__"))
            if is_public and not inspect.getdoc(getattr(inner, "func", inner)):
                missing.append(f"a docstring of psofed.{name}.{member}")
    return missing


def make_settings_page() -> str:
    """Return the tables of all settings, each row from its declaration."""
    lines = [
        "# Settings",
        "",
        "Made by `make docs` from the declarations. A field of a scenario is set in Python, in TOML and with",
        "`--set field=value`. [Parts](parts.md) have their own table. Arguments of functions are in the",
        "[Python reference](api/index.md), options of commands in [the command line](cli.md).",
    ]
    for title, kind in SETTINGS.items():
        lines += ["", f"## {title}", "", kind.summary(), ""]
        lines += ["| name | meaning | values | default | command line |", "|---|---|---|---|---|"]
        for name, field in kind.options().items():
            about = option_of(field)
            typed = "" if kind.table or kind is Scenario or about.flag is None else f"`{flag_of(field)}`"
            shown = [f"`{kind.full_name(name)}`", about.text, describe_option(field), _default(field), typed]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in shown) + " |")
    return "\n".join(lines) + "\n"


def _default(field: Any) -> str:
    if is_required(field):
        return "required"
    if field.default is MISSING:
        made = field.default_factory()
        return f"`{made.kind}`" if isinstance(made, Part) else ""
    return "" if field.default in (None, ()) else f"`{field.default}`"


def make_parts_page() -> str:
    """Return the table of all parts with their options."""
    lines = [
        "# Parts",
        "",
        "Made by `make docs` from the parts themselves. Each is a frozen value, in Python",
        '`psofed.attacks.SignFlip(num_byzantine=5, scale=2.0)`, in TOML `kind = "sign-flip"` with `scale = 2.0`.',
        "[Write a part](write_a_part.md) says how to write your own.",
    ]
    for family, (title, where, more) in TITLES.items():
        lines += ["", f"## {title} ({where})", ""]
        if family == "attack":
            lines += [
                "All have `num_byzantine` (or `clients`), `probability` and `byzantine_set`. *Knows* is what an",
                "attacker sees besides its own upload; `attack.strength` addresses the option in bold.",
                "",
            ]
        if more:
            lines += [f"{more[0]}{more[1].upper()}{more[2:]}.", ""]  # a link comes first
        extra = {"attack": "knows", "aggregation": "works over"}.get(family)
        head = ["name", "what it does", *([extra] if extra else []), "options (default)"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for part in built_in_parts(family):
            about = {"attack": "knows", "aggregation": "over"}.get(family)
            value = [_knowledge(part) if about == "knows" else part.over] if about else []
            summary = part.summary().replace("*", "\\*")
            row = [f"`{part.kind}`", summary, *value, _options(part)]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


def make_stub(family: str) -> str:
    """Return the list of a family's classes for type checkers, such as ``psofed/attacks.pyi``."""
    names = [f"from {part.__module__} import {part.__name__} as {part.__name__}\n" for part in built_in_parts(family)]
    return "".join(["# For type checkers; written by `make docs`.\n", *names])


def _knowledge(part: Any) -> str:
    return "its data" if part.poisons_samples() else part.knows


def _options(part: Any) -> str:
    entries = []
    for name, field in part.own_options().items():
        default = "required" if repr(field.default).startswith("<dataclasses") else field.default
        shown = f"`{name}` ({default}; {describe_option(field)}): {option_of(field).text}"
        bold = part.family == "attack" and part.strength_field() == name
        entries.append(f"**`{name}`**{shown[len(name) + 2 :]}" if bold else shown)
    return "<br>".join(entries)


def make_cli_page() -> str:
    """Return the page on the command line; options that several commands have are described once."""
    all_commands = list(commands("psofed", typer.main.get_command(app)))
    rows = {path: [_row(parameter) for parameter in _parameters(command)] for path, command in all_commands}
    counts = Counter(row for command_rows in rows.values() for row in command_rows)
    shared = [row for row, count in counts.items() if count >= 3]
    lines = [
        "# The command line",
        "",
        "Made by `make docs` from the commands' own help. Exit codes: 0 all well, 1 the answer is no (a comparison",
        "failed), 2 a mistake in what was asked, 130 interrupted.",
        "",
        "## Options that several commands have",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in shared),
    ]
    for path, command in all_commands:
        lines += ["", f"## `{path}`", "", (command.help or "").strip()]
        own = [f"| {name} | {text} |" for name, text in rows[path] if (name, text) not in shared]
        if own:
            lines += ["", "| | |", "|---|---|", *own]
        if also := [name.split(",")[0] for name, text in rows[path] if (name, text) in shared]:
            lines += ["", f"Also: {', '.join(also)}."]
    return "\n".join(lines) + "\n"


def _parameters(command: Any) -> list[Any]:
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    return sorted(shown, key=lambda p: p.param_type_name != "argument")


def _row(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`", describe(parameter)
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names, describe(parameter)


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
    # A backslash keeps Rich from taking a bracket for markup.
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\\[", "[")
    if parameter.default not in (None, False, "", [], ()) and not callable(parameter.default):
        text += f" Default: {parameter.default}."
    return text


if __name__ == "__main__":
    changed = [(file, text) for file, text in pages().items() if not file.exists() or file.read_text("utf-8") != text]
    (DOCS / "api").mkdir(exist_ok=True)
    for file, text in changed:
        file.write_text(text, encoding="utf-8")
        print(f"{file.relative_to(DOCS.parent)}: rewritten; check the difference and run this again")
    sys.exit(bool(changed))
