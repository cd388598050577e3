"""Scenarios as nested mappings, as TOML and JSON hold them; reading back gives an equal scenario."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, MissingValueError, UnknownFieldError
from psofed.common.options import default_of, option_of
from psofed.common.settings import Settings
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.learners.built_in import LMS
from psofed.parts.registry import find_part, part_names, plugin_of
from psofed.scenario.accepted import PartCheck, TableCheck, as_part, plain_value
from psofed.scenario.fitting import fitted_to
from psofed.scenario.scenario import Scenario
from psofed.scenario.tables import Data
from psofed.settings.data import DataSettings
from psofed.settings.simulation import SimulationSettings

# Parts whose name stands outside of the table with their options.
NAMED = {"aggregation": "aggregation_options", "algorithm": "algorithm_options"}
_PLAIN_TABLES = {
    name: _check.kind
    for name, field in Scenario.options().items()
    if isinstance(_check := option_of(field).check, TableCheck)
}
# All fields of a scenario and of its plain tables.
_FIELDS = {
    **Scenario.options(),
    **{f"{table}.{name}": field for table, kind in _PLAIN_TABLES.items() for name, field in kind.options().items()},
}
# Fields that hold parts, and their families.
_PARTS = {
    name: _check.family for name, field in _FIELDS.items() if isinstance(_check := option_of(field).check, PartCheck)
}
# Those that are tables with a part's kind and options: of the scenario, of [data], and of a link (several are a list).
PART_TABLES = {name: family for name, family in _PARTS.items() if name not in (*NAMED, "selection.pattern")}
KIND_TABLES = tuple(name for name in PART_TABLES if "." not in name)
INNER = {name: family for name, family in PART_TABLES.items() if name.startswith("data.")}
CHANNEL_TABLES = tuple(name for name in PART_TABLES if name.startswith("channel."))
TABLE_NAMES = (*(name for name in Scenario.options() if name in (*KIND_TABLES, *_PLAIN_TABLES)), *NAMED.values())
# Tables that may be left out; "none" means the same.
OPTIONAL = tuple(name for name in (*_PLAIN_TABLES, *PART_TABLES) if default_of(_FIELDS[name]) in (None, ()))
PLUGINS = "plugins"
# Options of a run that are looked for in scenarios.
_RUN = [name for name, field in SimulationSettings.options().items() if option_of(field).flag is not None]
# What is known of a table that was read, beside what reading it needs.
SEEN = ("clients", "samples", "digest")


def scenario_from_mapping(mapping: Mapping[str, Any], *, folder: Path | None = None, opening: bool = False) -> Scenario:
    """Make a scenario from nested mappings; unknown keys are refused.

    A table that ``[data]`` names is opened only if `opening`, since a mapping may come from another machine; its path
    is relative to `folder`.

    A mapping may name the modules of custom parts (``plugins = ["my_parts"]``). Reading a file never imports them: the
    caller does (:func:`psofed.load_plugin`, ``--plugin``), and the error says so if it did not.
    """
    if not isinstance(mapping, Mapping):
        raise InvalidValueError("mapping", mapping, "nested dicts, as Scenario.to_mapping returns")
    try:
        return _from_mapping(mapping, folder, opening)
    except InvalidValueError as error:
        named = mapping.get(PLUGINS)
        if named and error.allowed.startswith("one of "):
            modules = ", ".join(map(str, named))
            hint = f" The scenario names the module {modules}: load it with --plugin or psofed.load_plugin."
            raise InvalidValueError(error.field, error.value, error.allowed, error.hint + hint) from None
        raise


def scenario_to_mapping(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as nested dicts and lists, without fields that are None."""
    plain: dict[str, Any] = {}
    modules = {plugin for part in scenario.parts() if (plugin := plugin_of(part)) is not None}
    if modules:
        plain[PLUGINS] = sorted(modules)
    for name in Scenario.options():
        value = getattr(scenario, name)
        if name in NAMED:
            plain[name] = value.kind
        elif value is not None:
            plain[name] = value.to_mapping() if isinstance(value, Settings) else plain_value(value)
    for name, table in NAMED.items():
        part = getattr(scenario, name)
        if options := part.to_mapping():
            plain[table] = options
    # Left out where they are the paper's, so that scenarios written before there were others stay as they were.
    if scenario.learner == LMS():
        del plain["learner"]
    if scenario.data.stream.is_independent:
        plain["data"].pop("stream", None)
    return plain


def field_names() -> list[str]:
    """Return the full name of every field of a scenario, including those of all built-in parts."""
    names = [name for name in _FIELDS if name not in ("data.rows", *TABLE_NAMES, *CHANNEL_TABLES)]
    names += [f"data.{name}" for name in ("file", *DataSettings.options())]
    # The attack first: among fields with the same name, users mean its field most often.
    elsewhere = {"selection": "pattern", **{table: family for family, table in NAMED.items()}}
    for table, family in {"attack": "attack", **PART_TABLES, **elsewhere}.items():
        options = {name for kind in part_names(family) for name in find_part(family, kind).options()}
        names += [f"{table}.{name}" for name in sorted(options)]
        if table in PART_TABLES:
            names.append(f"{table}.kind")
    return list(dict.fromkeys([*names, "attack.strength"]))


def families_of_names() -> dict[str, str]:
    """Return the fields whose values are names of parts, with their families: ``attack.kind`` is an attack's.

    Examples
    --------
    >>> [families_of_names()[field] for field in ("attack.kind", "aggregation", "channel.up.kind")]
    ['attack', 'aggregation', 'channel']
    """
    names = {name: family for name, family in _PARTS.items() if name not in (*KIND_TABLES, *CHANNEL_TABLES)}
    return names | {f"{table}.kind": family for table, family in PART_TABLES.items()}


def part_or_value(field: str, value: Any) -> Any:
    """Return the part that a table stands for in a list of values for a field; None for "none"."""
    if field in OPTIONAL and value == "none":
        return None
    family = _PARTS.get(field)
    return as_part(family, value, field) if family and isinstance(value, Mapping) else value


def _from_mapping(mapping: Mapping[str, Any], folder: Path | None, opening: bool) -> Scenario:
    if not isinstance(mapping.get(PLUGINS, []), list):
        raise InvalidValueError(PLUGINS, mapping[PLUGINS], 'a list of modules, such as ["my_parts"]')
    values = {key: value for key, value in mapping.items() if key != PLUGINS}
    known = tuple(Scenario.options())
    for key in values:
        if key not in (*known, *NAMED.values()):
            # A misspelt table looks like one of its fields, too; settings of a run have no table.
            hint = f"It is not part of a scenario: give --{key}, or {key}=… in Python." if key in _RUN else ""
            elsewhere = [*TABLE_NAMES, *field_names()]
            raise UnknownFieldError(key, (*known, *NAMED.values(), PLUGINS), elsewhere=elsewhere, hint=hint)
    for table in OPTIONAL:
        if values.get(table) == "none":
            del values[table]
    for family, table in NAMED.items():
        options = _table(table, values.pop(table, {}))
        if family in values or options:
            kind = values.get(family, default_of(Scenario.options()[family]).kind)
            if isinstance(kind, Mapping):
                raise InvalidValueError(family, kind, f"a name; its options go into [{table}]")
            values[family] = find_part(family, kind, family).from_mapping(options)
    if "data" in values:
        values["data"] = _data(_table("data", values["data"]), folder, opening)
    values = fitted_to(values["data"].rows if "data" in values else None, values)
    return Scenario(**values)


def _data(values: dict[str, Any], folder: Path | None, opening: bool) -> Data:
    if "file" in values:
        values["rows"] = _rows(values, folder, opening)
    elif given := next((name for name in DataSettings.options() if name in values), None):
        raise MissingValueError("data.file", f"the path of a table, since data.{given} describes one")
    return Data.from_mapping(values)


def _rows(values: dict[str, Any], folder: Path | None, opening: bool) -> OwnData | DataSource:
    """Take the keys that name a table out of a ``[data]`` table, and return its rows, or where they are."""
    file = values.pop("file")
    if not isinstance(file, str):
        raise InvalidValueError("data.file", file, "the path of a CSV or Parquet file")
    content = {name: values.pop(name) for name in SEEN if name in values}
    reading = {name: values.pop(name) for name in DataSettings.options() if name in values}
    for name in values:
        if name not in Data.options():
            raise UnknownFieldError(f"data.{name}", ("file", *DataSettings.options()))
    try:
        settings = DataSettings.from_mapping(reading)
    except InvalidValueError as error:
        raise error.renamed(f"data.{error.field}") from None
    place = str(((folder or Path()) / file).absolute()) if file else ""
    seen = (tuple(content.get("clients", ())), tuple(content.get("samples", ())), str(content.get("digest", "")))
    source = DataSource(place, settings, *seen)
    return source.read() if opening else source


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, value, f"a table, [{name}]")
    return dict(value)
