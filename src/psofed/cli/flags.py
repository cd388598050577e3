"""Derive the options of a command from settings: one declaration, one help text, one check.

A command is a function of settings values::

    def simulate(source: ScenarioInput, run: SimulationSettings, reading: Given[DataSettings]) -> None:
        ...

Every field of these values becomes an option (or an argument, if it is positional), grouped in ``--help`` by the
value's `group`. The values are made of what was typed; an error names the option: *--trials must be at least 1; got 0.*
``Given[X]`` passes on what was typed before an X is made of it, where X makes sense only together with another option.
"""

import dataclasses
import functools
import inspect
import shlex
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import click
import typer
from click.core import ParameterSource

from psofed.common.errors import InvalidValueError, MissingValueError
from psofed.common.options import in_words, is_required, option_of, value_type
from psofed.common.settings import Settings

S = TypeVar("S", bound=Settings)


@dataclasses.dataclass(frozen=True)
class Given(Generic[S]):
    """Settings that were typed on the command line.

    Attributes
    ----------
    kind : type
        The settings.
    values : dict
        Their fields that were typed.
    """

    kind: type[S]
    values: dict[str, Any]

    def make(self) -> S:
        """Make the settings; an error names the option instead of the field."""
        try:
            return self.kind.from_mapping(self.values)
        except MissingValueError as error:
            field = self.kind.options()[error.field.removeprefix(self.kind.full_name(""))]
            raise MissingValueError(flag_of(field), option_of(field).text) from None
        except InvalidValueError as error:
            raise _named(error, [self.kind]) from None


def add_command(app: typer.Typer, function: Callable[..., None]) -> None:
    """Add a function of settings values to the command line; other parameters are Typer's."""
    # Typer would keep the line breaks of the docstring.
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(help=text)(flattened(function))


def flattened(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function whose parameters are the fields of the settings that `function` takes."""
    hints = typing.get_type_hints(function, include_extras=True)
    groups = {name: group for name in hints if (group := _settings_in(hints[name])) is not None}
    arguments: list[inspect.Parameter] = []
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kind, is_deferred = groups[name]
        for field in kind.options().values():
            if option_of(field).flag is not None:
                places = arguments if option_of(field).positional else parameters
                places.append(_parameter(kind, field, is_deferred))
    parameters = [*arguments, *parameters]  # as they are typed
    names = [parameter.name for parameter in parameters]
    assert len(set(names)) == len(names), f"two settings of {function.__name__} have the same name"

    @functools.wraps(function)
    def run(**values: Any) -> None:
        context = click.get_current_context()
        made = {name: values[name] for name in hints if name in values}
        for name, (kind, is_deferred) in groups.items():
            typed = {
                field: values[field]
                for field, about in kind.options().items()
                if option_of(about).flag is not None
                and context.get_parameter_source(field) not in (None, ParameterSource.DEFAULT)
            }
            given = Given(kind, typed)
            made[name] = given if is_deferred else given.make()
        try:
            function(**made)
        except InvalidValueError as error:
            raise _named(error, [kind for kind, _ in groups.values()]) from None

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _named(error: InvalidValueError, kinds: list[type[Settings]]) -> InvalidValueError:
    """Return an error that names the option instead of the field, unless it names the place of the mistake already."""
    for kind in kinds:
        for name, field in kind.options().items():
            is_option = error.field == kind.full_name(name) and option_of(field).flag is not None
            if is_option and str(error).startswith(error.field):
                return error.renamed(flag_of(field))
    return error


def flag_of(field: "dataclasses.Field[Any]") -> str:
    """Return how a setting is typed on the command line: ``--client-column``, or ``FILE``.

    Examples
    --------
    >>> from psofed.scenario import Data
    >>> flag_of(Data.options()["fleet_seed"])
    '--fleet-seed'
    """
    about = option_of(field)
    if about.positional:
        return about.metavar or field.name.upper()
    return about.flag or f"--{field.name.replace('_', '-')}"


def words_of(command: str, *given: Settings | Given[Any]) -> str:
    """Return the words by which a command, such as ``psofed tune FILE``, is given these settings.

    Left out are settings that it has not, that have another default there, as the trials of ``advise``, or that the
    command gives itself.
    """
    verb = command.split()[1]
    hints = typing.get_type_hints(getattr(import_module(f"psofed.cli.{verb}"), verb), include_extras=True)
    groups = filter(None, map(_settings_in, hints.values()))
    known = {name: field.default for kind, _ in groups for name, field in kind.options().items()}
    positional: list[str] = []
    options: list[str] = []
    for settings in given:
        fields = (settings.kind if isinstance(settings, Given) else settings).options()
        typed = settings.values if isinstance(settings, Given) else vars(settings)
        for name, field in fields.items():
            about, flag = option_of(field), flag_of(field)
            value = typed.get(name, field.default)
            if about.flag is None or value == field.default or known.get(name, given) != field.default:
                continue
            if about.positional:
                positional.append(str(value))
            elif about.repeat:
                entries = (str(entry) for entry in value)
                kept = (entry for entry in entries if f" {flag} {entry.partition('=')[0]}=" not in command)
                options += [word for entry in kept for word in (flag, entry)]
            elif f" {flag} " in f"{command} ":
                continue
            elif isinstance(value, bool):
                options.append(flag if value else f"--no-{flag[2:]}")
            else:
                text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value).removesuffix(".0")
                options += [flag, text]
    return shlex.join([*positional, *options])


class _Value(click.ParamType):
    """Reads a value of a setting, or a list separated by commas; its range is checked when the settings are made."""

    def __init__(self, field: "dataclasses.Field[Any]", kind: str) -> None:
        self.field, self.kind = field, kind
        self.name = _METAVARS.get(kind, "TEXT").lower()

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a text; an error names the option."""
        if not isinstance(value, str):
            return value
        if self.kind == "Sequence[str]":
            return tuple(entry.strip() for entry in value.split(",") if entry.strip())
        try:
            return {"int": int, "float": float}.get(self.kind, str)(value)
        except ValueError:
            raise InvalidValueError(flag_of(self.field), value, in_words(self.field)) from None


_METAVARS = {"int": "N", "float": "NUMBER", "Path": "PATH", "Sequence[str]": "A,B,…", "str": "TEXT"}


def _parameter(kind: type[Settings], field: "dataclasses.Field[Any]", is_deferred: bool) -> inspect.Parameter:
    about, (value, _), required = option_of(field), value_type(field), is_required(field)
    text = about.text.replace("[", "\\[")  # Rich would read a bracket as markup
    remark = " Required." if required and not about.positional and not is_deferred else ""
    settings: dict[str, Any] = {
        "help": f"{text[:1].upper()}{text[1:]}.{remark}" if text else "",
        "rich_help_panel": None if about.positional else about.group or kind.group or None,
        "metavar": about.metavar or ("|".join(about.choices) if about.choices else _METAVARS.get(value)),
        "show_default": not required and field.default not in (None, ()),
    }
    annotation: Any = str | None
    default: Any = None if required else field.default
    if required and about.positional:
        default = inspect.Parameter.empty  # Click then shows it as required, and refuses to go on without
    if value == "bool":
        annotation = bool
        settings |= {"metavar": None, "show_default": field.default is True}
    else:
        item = "str" if about.repeat and value == "Sequence[str]" else value
        settings["click_type"] = click.Path(path_type=Path) if "Path" in value else _Value(field, item)
        if about.repeat:
            annotation, default = list[str], []
        elif value == "Sequence[str]":
            default = ",".join(map(str, default)) if default else None
    if about.complete is not None:
        settings["autocompletion"] = about.complete
    elif choices := about.choices:
        settings["autocompletion"] = lambda incomplete: [one for one in choices if one.startswith(incomplete)]
    if about.positional:
        info = typer.Argument(**settings)
    else:
        flag = flag_of(field)
        if value == "bool" and field.default is True and not about.flag:
            flag = f"{flag}/--no-{flag[2:]}"
        info = typer.Option(flag, **settings)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[annotation, info], default=default
    )


def _settings_in(hint: Any) -> tuple[type[Settings], bool] | None:
    """Return the settings class of a parameter, and whether it is only :class:`Given`."""
    if typing.get_origin(hint) is Given:
        return typing.get_args(hint)[0], True
    return (hint, False) if isinstance(hint, type) and issubclass(hint, Settings) else None
