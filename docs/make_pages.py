"""Writes the pages and lists that are made from code, so that nothing can be left out: `make docs`.

If that changes anything it fails, so that what is committed is up to date.
"""

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
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, built_in_parts
from psofed.scenario import Data, Links, Scenario, Selection
from psofed.settings.data import DataSettings

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from api_reference import api_pages  # noqa: E402

PACKAGE = DOCS.parent / "src" / "psofed"

SETTINGS: dict[str, Any] = {
    "Scenario": Scenario,
    "Selection: `[selection]`": Selection,
    "Data: `[data]`": Data,
    "Links: `[channel]`": Links,
}

# A family's title, where it is set, and the page with results.
TITLES = {
    "attack": ("Attacks", "`attack.kind`, `psofed.attacks`", "attacks.md#attacks"),
    "aggregation": ("Aggregation rules", "`aggregation`, `psofed.aggregations`", "algorithms.md#aggregation-rules"),
    "defence": ("Defences", "`defence.kind`, `psofed.defences`", "security.md#exclude-clients-that-stand-out"),
    "pre_aggregation": (
        "Pre-aggregations",
        "`pre_aggregation.kind`, `psofed.pre_aggregations`",
        "algorithms.md#before-the-rule",
    ),
    "pattern": ("Selection patterns", "`selection.pattern`, `psofed.patterns`", ""),
    "algorithm": ("Algorithms", "`algorithm`, `psofed.algorithms`", "algorithms.md#how-the-algorithms-differ"),
    "learner": ("Learners", "`learner.kind`, `psofed.learners`", "learning.md#learners"),
    "stream": ("Streams", "`data.stream.kind`, `psofed.streams`", "learning.md#streams"),
    "drift": ("Drifts", "`drift.kind`, `psofed.drifts`", "learning.md#moving-targets"),
    "model": ("Models", "`model.kind`, `psofed.models`", "learning.md#random-fourier-features"),
    "function": ("Functions to learn", "`data.function`, `psofed.functions`", ""),
    "availability": ("Availability", "`availability.kind`, `psofed.availabilities`", "attacks.md#who-is-available"),
    "channel": ("Channels", "`channel.up.kind`, `channel.down.kind`, `psofed.channels`", "attacks.md#what-a-link-does"),
    "delay": ("Delays", "`delay.kind`, `psofed.delays`", "attacks.md#when-an-upload-arrives"),
}


def pages() -> dict[Path, str]:
    """Return every file that is made from code, with its text."""
    if missing := undocumented():
        sys.exit("the Python reference needs\n" + "\n".join(missing))
    made = {
        DOCS / "cli.md": make_cli_page(),
        DOCS / "parts.md": make_parts_page(),
        **{DOCS / "api" / name: text for name, text in api_pages().items()},
        DOCS / "settings.md": make_settings_page(),
    }
    for family, folder in FAMILIES.items():
        made[PACKAGE / f"{folder}.pyi"] = make_stub(family)
    return made


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
    """Return the list of all settings, each entry from its declaration."""
    lines = [
        "# Settings",
        "",
        "Made by `make docs` from the declarations. A field of a scenario is set in Python, in TOML and with",
        "`--set field=value`; [parts](parts.md) have options of their own. Under `[data]` a file may also name a",
        "table, with the arguments of [`psofed.read_data`](api/read_data.md).",
    ]
    for title, kind in SETTINGS.items():
        lines += ["", f"## {title}", "", kind.summary(), ""]
        for name, field in kind.options().items():
            about = option_of(field)
            typed = "" if kind.table or kind is Scenario or about.flag is None else f", `{flag_of(field)}`"
            lines.append(_entry(kind.full_name(name), _default(field), f"{_values(field)}{typed}", about.text))
    return "\n".join(lines) + "\n"


def _entry(name: str, default: str, values: str, text: str, is_bold: bool = False) -> str:
    about = "; ".join(filter(None, (default, values)))
    return f"- {f'**`{name}`**' if is_bold else f'`{name}`'}{f' ({about})' if about else ''}: {text}"


def _values(field: Any) -> str:
    """Return which values a field accepts, in few words; nothing for a part, which has its own list."""
    text = describe_option(field)
    for words, sign in {", at least": " ≥", "at most": "≤", ", above": " >", "below": "<"}.items():
        text = text.replace(words, sign)
    return "" if text[0].isupper() else re.sub(r"^number (?=[≥>])", "", text)


def _default(field: Any) -> str:
    if is_required(field):
        return "required"
    default = field.default_factory() if field.default is MISSING else field.default
    if isinstance(default, Part):
        return f"`{default.kind}`"
    return "" if default in (None, ()) or field.default is MISSING else str(default)


def make_parts_page() -> str:
    """Return the list of all parts with their options."""
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
                "In brackets is what an attacker sees besides its own upload; `attack.strength` addresses the option",
                "in bold.",
                "",
            ]
        one = built_in_parts(family)[0]
        if common := {name: field for name, field in one.options().items() if name not in one.own_options()}:
            lines += ["All have:", "", *(_part_option(name, field) for name, field in common.items()), ""]
        if more:
            lines += [f"[Details]({more}).", ""]
        for part in built_in_parts(family):
            summary = part.summary().replace("*", "\\*")
            detail = {"attack": _knowledge, "aggregation": lambda part: part.over}.get(family)
            lines.append(f"- `{part.kind}`{f' ({detail(part)})' if detail else ''}: {summary}")
            for name, field in part.own_options().items():
                is_strength = family == "attack" and part.strength_field() == name
                lines.append(f"    {_part_option(name, field, is_strength)}")
    return "\n".join(lines) + "\n"


def _part_option(name: str, field: Any, is_bold: bool = False) -> str:
    values = describe_option(field)
    return _entry(name, _default(field), values if '"' in values else "", option_of(field).text, is_bold)


def make_stub(family: str) -> str:
    """Return the list of a family's classes for type checkers, such as ``psofed/attacks.pyi``."""
    # In the order of the linter: acronyms count as constants.
    homes = sorted((part.__module__, not part.__name__.isupper(), part.__name__) for part in built_in_parts(family))
    names = [f"from {module} import {name} as {name}\n" for module, _, name in homes]
    return "".join(["# For type checkers; written by `make docs`.\n", *names])


def _knowledge(part: Any) -> str:
    return "its data" if part.defines("poison") else part.knows


def make_cli_page() -> str:
    """Return the page on the command line; what several commands or a Python function have too stands once."""
    all_commands = list(commands("psofed", typer.main.get_command(app)))
    rows = {path: [_row(parameter) for parameter in _parameters(command)] for path, command in all_commands}
    counts = Counter(row for command_rows in rows.values() for row in command_rows)
    usual = {name: (name, text) for (name, text), _ in reversed(counts.most_common())}
    table = [f"`{flag_of(field)}`" for field in DataSettings.options().values() if option_of(field).flag is not None]
    inputs = ["`--plugin`", "`--set`", "`--data`", *table]
    first, everywhere = {*inputs[:3], "`FILE`"}, ("`--json`", "`--wide`")
    shared, body = [row for row, count in counts.items() if row[0] in first and count > 3], []
    for path, command in all_commands:
        function = getattr(psofed, path.split()[1], None) if path.count(" ") == 1 else None
        docstring = " ".join((inspect.getdoc(function) or "").split()) if inspect.isfunction(function) else ""
        names = {name for name, _ in rows[path]}
        own, also, as_arguments = [], [], []
        if set(inputs) <= names:
            also.append("a scenario or a table")
        for parameter, (name, text) in zip(_parameters(command), rows[path], strict=True):
            if set(inputs) <= names and (name in inputs or (name, text) == usual["`FILE`"]):
                continue
            if parameter.help and parameter.help in docstring:
                as_arguments.append(name)
            elif name in everywhere:
                continue
            elif counts[name, text] > 1 and usual[name] == (name, text):
                also.append(name)
                shared += [(name, text)] if (name, text) not in shared else []
            else:
                own.append(f"- {name}: {text}")
        body += ["", f"## `{path}`", "", (command.help or "").strip().partition("\n\n")[0], "", *own]
        if as_arguments:
            page = f"[`{function.__name__}`](api/{function.__name__}.md)"
            body += ["", f"As {page} in Python: {', '.join(as_arguments)}."]
        if also:
            body += ["", f"Also: {', '.join(also)}."]
    lines = [
        "# The command line",
        "",
        "Made by `make docs` from the commands' own help; `psofed COMMAND --help` says more. Exit codes: 0 all well,",
        "1 the answer is no (a comparison failed), 2 a mistake in what was asked, 130 interrupted. Commands that print",
        "a result have `--json`, for scripts, and `--wide`, which shows all columns of tables.",
        "",
        "## Options that several commands have",
        "",
        *(f"- {name}: {text}" for name, text in shared),
        "",
        "*A scenario or a table* stands for the first four and, as [`read_data`](api/read_data.md) in Python,",
        f"{', '.join(table)}.",
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, *body])) + "\n"


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
    """Return what an option is, without the remarks of its help, and the default, if there is one worth telling."""
    # A backslash keeps Rich from taking a bracket for markup.
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\\[", "[")
    text = re.split(r"; |(?<=\w)\. |, such as ", text)[0].rstrip(".")
    is_required = (getattr(parameter, "help", None) or "").endswith(" Required.")
    default = "required" if is_required else parameter.default
    if default not in (None, 0, "", [], ()) and not isinstance(default, bool) and not callable(default):
        text += f" ({default})"
    return text


if __name__ == "__main__":
    made = pages()
    changed = [file for file, text in made.items() if not file.exists() or file.read_text("utf-8") != text]
    (DOCS / "api").mkdir(exist_ok=True)
    for file in changed:
        file.write_text(made[file], encoding="utf-8")
        print(f"{file.relative_to(DOCS.parent)}: rewritten; check the difference and run this again")
    for file in set((DOCS / "api").glob("*.md")) - set(made):
        file.unlink()
    sys.exit(bool(changed))
