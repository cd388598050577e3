"""Fields of a scenario set by dotted name, as ``--set`` and sweeps do, and what each change takes with it."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError, UnknownFieldError
from psofed.common.settings import Settings
from psofed.common.suggest import closest
from psofed.common.toml import parse_toml
from psofed.parts.part import Part
from psofed.parts.registry import find_part
from psofed.scenario.accepted import DEFAULT_KIND, plain_value
from psofed.scenario.mapping import (
    CHANNEL_TABLES,
    NAMED,
    OPTIONAL,
    PART_TABLES,
    SEEN,
    TABLE_NAMES,
    field_names,
    scenario_from_mapping,
    scenario_to_mapping,
)
from psofed.scenario.scenario import Scenario
from psofed.settings.data import DataSettings

_TABLES = (*TABLE_NAMES, *PART_TABLES)
# Tables that may be lists of tables.
_LISTS = ("attack", *CHANNEL_TABLES)


def with_values(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """Return the scenario with fields set by dotted name, as ``--set`` and sweeps do.

    Setting a field of an absent attack makes the attack, provided that all it needs is set. Another kind of part
    starts from its own default options, and keeps what all kinds have (who attacks, and how often).
    ``attack.strength`` is whatever field is the attack's strength. ``attack="sign-flip"`` is short for ``attack.kind``,
    and ``attack="none"`` leaves the attack out.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> scenario = Scenario(num_clients=50, dimension=5)
    >>> with_values(scenario, {"attack.num_byzantine": 5, "attack.strength": 2.0}).attack.variance
    2.0
    """
    mapping = scenario_to_mapping(scenario)
    if scenario.data.rows is None:
        return scenario_from_mapping(set_values(mapping, changes))
    if any(name in changes for name in ("data", "data.file", *(f"data.{key}" for key in DataSettings.options()))):
        return scenario_from_mapping(_without_rows(set_values(mapping, changes), changes), opening=True)
    return scenario_from_mapping(set_values({**mapping, "data": {"rows": scenario.data.rows}}, changes))


def set_values(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's mapping with fields set by dotted name, unchecked but for tables there are not."""
    changed = copy.deepcopy(dict(mapping))
    changes = _as_settings(changes, changed)
    for dotted, value in sorted(changes.items(), key=_order):
        place, _, key = dotted.rpartition(".")
        table, number = _split_number(place)
        if table and table not in _TABLES:
            options = NAMED.get(table) or closest(table, _TABLES)
            likely = [table if key == "kind" and table in NAMED else f"{options}.{key}"]
            raise UnknownFieldError(dotted, TABLE_NAMES, elsewhere=likely if options else field_names())
        if not table:
            if key in NAMED and value != changed.get(key):
                changed.pop(NAMED[key], None)
            changed[key] = value
            continue
        for values in _open_tables(changed, dotted, table, number, key):
            if key in ("kind", "pattern") and values.get(key) != value:
                _drop_own_options(table, key, values)
            if table == "attack" and key in ("clients", "num_byzantine"):
                other = "num_byzantine" if key == "clients" else "clients"
                if f"{place}.{other}" not in changes:  # where both are set, they must agree
                    values.pop(other, None)
            values[key] = value
            if table == "attack" and key == "strength":
                _replace_strength(values, changes, place)
    return changed


def _split_number(place: str) -> tuple[str, int | None]:
    """Split the number of a group or channel from its table: ``attack.1`` and ``attack[1]`` are the second group."""
    match = re.fullmatch(r"(.+?)(?:\.(\d{1,6})|\[(\d{1,6})\])", place)
    return (place, None) if match is None else (match[1], int(match[2] or match[3]))


def _open_tables(
    changed: dict[str, Any], dotted: str, table: str, number: int | None, key: str
) -> list[dict[str, Any]]:
    """Return the tables to write a field into: one, or each of a list that has the field."""
    holder, name = _holder(changed, table)
    value = holder.get(name, {})
    is_list = isinstance(value, list | tuple) and table in _LISTS
    tables = [_opened(table, entry) for entry in (value if is_list else [value])]
    holder[name] = tables if is_list else tables[0]
    if number is None:
        return [values for values in tables if not is_list or _has_option(PART_TABLES[table], values, key)] or tables
    if number >= len(tables):
        allowed = f"a field of {table}, which has {len(tables)} entries (numbered from 0)"
        raise InvalidValueError(dotted, number, allowed)
    return [tables[number]]


def _holder(changed: dict[str, Any], table: str) -> tuple[dict[str, Any], str]:
    """Return the mapping that a table stands in, and its name there: ``channel.up`` is ``up`` in ``[channel]``."""
    outer, _, name = table.rpartition(".")
    if outer:
        changed[outer] = _opened(outer, changed.get(outer, {}))
    return changed[outer] if outer else changed, name


def _part_of(family: str, values: Mapping[str, Any], key: str = "kind") -> Any:
    """Return the class of the part that a table describes; None if the table is refused later."""
    try:
        return find_part(family, values.get(key, "random" if key == "pattern" else DEFAULT_KIND.get(family)))
    except InvalidValueError:
        return None


def _has_option(family: str, values: Mapping[str, Any], key: str) -> bool:
    part = _part_of(family, values)
    return part is None or key in ("kind", "strength") or key in part.options()


def parse_setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split ``key=value``; the value is read as TOML, or as a bare word if it is none.

    Examples
    --------
    >>> parse_setting("stepsize=0.03"), parse_setting("selection.pattern=round-robin")
    (('stepsize', 0.03), ('selection.pattern', 'round-robin'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidValueError(option, text, "key=value, for example stepsize=0.03 or attack.variance=1.0")
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except PsofedError:
        return key.strip(), value.strip()


def _without_rows(mapping: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Forget what followed from a table that is to be read again in another way."""
    followed = {"num_clients", "dimension", "iterations", "num_participants"} - set(changes)
    fields = {key: value for key, value in mapping.items() if key not in followed}
    return {**fields, "data": {key: value for key, value in mapping["data"].items() if key not in SEEN}}


def _as_settings(changes: Mapping[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return the changes with names of parts as their kinds; parts that are to be left out go from `changed`."""
    parts: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for dotted, value in changes.items():
        if dotted in OPTIONAL and (value is None or (isinstance(value, str) and value.lower() == "none")):
            holder, name = _holder(changed, dotted)
            holder.pop(name, None)
        elif dotted in PART_TABLES and isinstance(value, str):
            others[f"{dotted}.kind"] = value
        elif dotted in NAMED and isinstance(value, Part):
            parts |= {dotted: value.kind, NAMED[dotted]: value.to_mapping()}
        elif dotted == "selection.pattern" and isinstance(value, Part):
            parts |= {dotted: value.kind}
            parts |= {f"selection.{name}": option for name, option in value.to_mapping().items()}
        else:
            others[dotted] = value
    return {**parts, **others}


def _order(change: tuple[str, Any]) -> int:
    """Whole parts and tables come first, then kinds, with which options that only the old kind reads go."""
    if isinstance(change[1], Settings | list | tuple):
        return 0
    return 1 if change[0].rpartition(".")[2] in ("kind", "pattern") else 2


def _opened(table: str, value: Any) -> dict[str, Any]:
    """Return a table to write into, of what stands there: a part, a table, a name that is short for one, or "none"."""
    if isinstance(value, Settings):
        value = plain_value(value)
    if table in OPTIONAL and value == "none":
        return {}
    if table in PART_TABLES and isinstance(value, str):
        return {"kind": value}
    if not isinstance(value, dict):
        raise InvalidValueError(table, value, f"a table, [{table}]")
    return value


def _drop_own_options(table: str, key: str, values: dict[str, Any]) -> None:
    """Forget what only the old kind reads."""
    old = _part_of("pattern" if key == "pattern" else PART_TABLES.get(table, table), values, key)
    for name in ("strength", *(old.own_options() if old else ())):
        values.pop(name, None)


def _replace_strength(attack: dict[str, Any], changes: Mapping[str, Any], place: str) -> None:
    """Let a strength that is set replace the value it addresses, unless that is set as well."""
    kind = _part_of("attack", attack)
    if kind is not None and f"{place}.{kind.strength_field()}" not in changes:
        attack[kind.strength_field()] = attack.pop("strength")
