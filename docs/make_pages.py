"""Writes the pages and lists that are made from code, so that nothing can be left out: `make docs`.

If that changes anything it fails, so that what is committed is up to date.
"""

import importlib
import inspect
import re
import sys
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
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings
from psofed.settings.explorer import ExplorerSettings
from psofed.settings.simulation import SimulationSettings
from psofed.settings.sweep import SweepSettings
from psofed.settings.theory import ComparisonSettings, PredictionSettings, TuningSettings

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
    "`psofed.simulate`": SimulationSettings,
    "`psofed.predict`": PredictionSettings,
    "`psofed.compare`": ComparisonSettings,
    "`psofed.tune`": TuningSettings,
    "`psofed.sweep`": SweepSettings,
    "`psofed.advise`": AdviceSettings,
    "`psofed explore`": ExplorerSettings,
}

TITLES = {
    "attack": ("Attacks", "`attack.kind`, `psofed.attacks`", "[attacks](attacks.md) has their equations"),
    "aggregation": (
        "Aggregation rules",
        "`aggregation`, `psofed.aggregations`",
        "[aggregation rules](aggregations.md) says what they do with entries that few sent, and what they cost",
    ),
    "defence": ("Defences", "`defence.kind`, `psofed.defences`", "[the defence](defence.md) has results"),
    "pre_aggregation": (
        "Pre-aggregations",
        "`pre_aggregation.kind`, `psofed.pre_aggregations`",
        "[what comes before a rule](aggregations.md#before-the-rule) says what they mean where entries are not shared",
    ),
    "pattern": ("Selection patterns", "`selection.pattern`, `psofed.patterns`", ""),
    "algorithm": (
        "Algorithms",
        "`algorithm`, `psofed.algorithms`",
        "[the algorithms](algorithms.md) compares them",
    ),
    "learner": (
        "Learners",
        "`learner.kind`, `psofed.learners`",
        "[learners and streams](learners.md) has the equations",
    ),
    "stream": (
        "Streams",
        "`data.stream.kind`, `psofed.streams`",
        "[learners and streams](learners.md#streams) says where they apply",
    ),
    "drift": ("Drifts", "`drift.kind`, `psofed.drifts`", "[moving targets](drift.md) has results"),
    "model": ("Models", "`model.kind`, `psofed.models`", "[random Fourier features](rff.md) has results"),
    "function": ("Functions to learn", "`data.function`, `psofed.functions`", ""),
    "availability": (
        "Availability",
        "`availability.kind`, `psofed.availabilities`",
        "[links](links.md) has details",
    ),
    "channel": (
        "Channels",
        "`channel.up.kind`, `channel.down.kind`, `psofed.channels`",
        "[links](links.md) has details",
    ),
    "delay": ("Delays", "`delay.kind`, `psofed.delays`", "[links](links.md) has details"),
}


def pages() -> dict[Path, str]:
    """Return every file that is made from code, with its text."""
    made = {
        DOCS / "cli.md": make_cli_page(),
        DOCS / "parts.md": make_parts_page(),
        DOCS / "api.md": make_api_page(),
        DOCS / "settings.md": make_settings_page(),
    }
    for family, folder in FAMILIES.items():
        made[PACKAGE / f"{folder}.pyi"] = make_stub(family)
    return made


def make_api_page() -> str:
    """Return the page with the docstrings of all public names, object by object."""
    if missing := undocumented():
        sys.exit("the Python reference needs\n" + "\n".join(missing))
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Families of parts": [], "Errors": []}
    for name in sorted(set(psofed.__all__) - {"__version__"}):
        value = getattr(psofed, name)
        if inspect.ismodule(value):
            continue
        if not inspect.isclass(value):
            groups["Functions"].append(name)
        elif issubclass(value, Exception):
            groups["Errors"].append(name)
        elif issubclass(value, Part):
            groups["Families of parts"].append(name)
        else:
            groups["Classes"].append(name)
    lines = [
        "# Python reference",
        "",
        "What `import psofed` gives, from the docstrings; made by `make docs`.",
        "The built-in parts are in [their own table](parts.md).",
    ]
    for title, names in groups.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *describe_object(name, getattr(psofed, name))]
    lines += [
        "",
        "## Arguments of parts",
        "",
        "What the methods of a part are shown, as named tuples (`psofed.parts.contexts`).",
    ]
    for name, value in vars(contexts).items():
        if hasattr(value, "_fields"):
            lines += ["", f"### {name}", "", *to_markdown(inspect.getdoc(value) or "")]
    lines += [
        "",
        "## scikit-learn and river",
        "",
        "`psofed.river` has `RiverFederation`, a `RowFederation` whose clients are river's regressors:",
        "[how to use them](howto/sklearn.md).",
    ]
    for name in ("sklearn.FederatedRegressor", "simulation.row_by_row.RowFederation"):
        module, _, inner = name.rpartition(".")
        value = getattr(importlib.import_module(f"psofed.{module}"), inner)
        lines += ["", *describe_object(name, value)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


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
        "`--set field=value`. Settings of a function are its arguments and, where named, options of its command.",
        "[Adding a setting](adding_a_setting.md) describes how to declare one. [Parts](parts.md) have their own table.",
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
        "[Adding a part](adding_a_part.md) says how to write your own.",
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
        head = ["name", "class", "what it does", *([extra] if extra else []), "options (default)"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for part in built_in_parts(family):
            about = {"attack": "knows", "aggregation": "over"}.get(family)
            value = [_knowledge(part) if about == "knows" else part.over] if about else []
            summary = part.summary().replace("*", "\\*")
            row = [f"`{part.kind}`", f"`{part.__name__}`", summary, *value, _options(part)]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


def make_stub(family: str) -> str:
    """Return the list of a family's classes for type checkers, such as ``psofed/attacks.pyi``."""
    names = [
        f"from {part.__module__} import {part.__name__} as {part.__name__}\n"
        for part in built_in_parts(family)
    ]
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
    """Return the page on the command line."""
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
    # A backslash keeps Rich from taking a bracket for markup.
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\\[", "[")
    if parameter.default not in (None, False, "", [], ()) and not callable(parameter.default):
        text += f" Default: {parameter.default}."
    return text


if __name__ == "__main__":
    changed = [(file, text) for file, text in pages().items() if file.read_text(encoding="utf-8") != text]
    for file, text in changed:
        file.write_text(text, encoding="utf-8")
        print(f"{file.relative_to(DOCS.parent)}: rewritten; check the difference and run this again")
    sys.exit(bool(changed))
