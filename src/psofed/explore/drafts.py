"""Drafts of scenarios: what the form holds, in the layout of a scenario file, and the same in the page's address.

Nothing from a browser is trusted: every value passes the scenario's own checks, and sizes are bounded before anything
is allocated. No setting names a file or a module, so an address cannot make the explorer read one.
"""

import json
from collections.abc import Mapping
from dataclasses import Field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.options import is_required, option_of, value_type
from psofed.common.validation import check_choice, check_integer
from psofed.parts.registry import find_part, part_names
from psofed.results.metrics import LABELS
from psofed.scenario import Scenario
from psofed.scenario.changes import parse_setting, set_values
from psofed.scenario.mapping import (
    CHANNEL_TABLES,
    INNER,
    KIND_TABLES,
    NAMED,
    OPTIONAL,
    families_of_names,
    scenario_from_mapping,
)

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_LONGEST_QUERY = 20_000
_LONGEST_VALUE = 4_000


Limits = Mapping[str, int]
# Largest fleet that the explorer accepts, so that it answers while the user watches.
LIMITS = {"num_clients": 1000, "dimension": 200, "iterations": 100_000}
_SIZES = (("model", "features"), ("data", "input_dimension"), ("data", "test_instances"))
_LARGEST_SIZE = 10_000


def limits_with(scenario: Scenario) -> Limits:
    """Return limits that also admit `scenario`, the user's own file."""
    return {name: max(limit, getattr(scenario, name)) for name, limit in LIMITS.items()}


def _check_sizes(mapping: Mapping[str, Any], limits: Limits) -> None:
    """Refuse a scenario that is too large, before anything is allocated for it."""
    for name, limit in limits.items():
        check_integer(name, mapping.get(name, 1), 1, limit, "the explorer's limit")
    for table, name in _SIZES:
        values = mapping.get(table)
        if isinstance(values, Mapping) and values.get(name) is not None:
            check_integer(f"{table}.{name}", values[name], 1, _LARGEST_SIZE, "the explorer's limit")


def make_scenario(mapping: Mapping[str, Any], limits: Limits, data: "OwnData | None" = None) -> Scenario:
    """Return the scenario of a draft; one without a table ``data`` learns from the user's `data`.

    Raises
    ------
    PsofedError
        If it is too large or invalid.
    """
    _check_sizes(mapping, limits)
    table = mapping.get("data")
    if data is not None and table is None:
        return scenario_from_mapping({**mapping, "data": {"rows": data}})
    if isinstance(table, Mapping) and "file" in table:
        raise InvalidValueError("data.file", table["file"], "left out (start the explorer with --data)")
    return scenario_from_mapping(mapping)


def form_mapping(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as the form and links hold it: without the user's table, which the explorer has."""
    mapping = scenario.to_mapping()
    mapping.pop("plugins", None)  # loaded already
    if scenario.data.rows is not None:
        del mapping["data"]
    return mapping


# Fields that may be empty, with the table that is then left out
_OPTIONAL_KINDS = {f"{table}.kind": table for table in OPTIONAL if table in (*KIND_TABLES, *CHANNEL_TABLES)}
_OPTIONAL_KINDS |= {table: table for table in OPTIONAL if table in INNER}


def changed(mapping: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a side's mapping with one field of the form set, unchecked.

    ``attack.kind``, ``drift.kind`` and similar fields may be ``""`` for none. Required options of a newly chosen part
    get an initial value.

    Examples
    --------
    >>> changed({"num_clients": 50, "dimension": 5}, "attack.kind", "sign-flip")["attack"]
    {'kind': 'sign-flip', 'num_byzantine': 15}
    """
    if name in _OPTIONAL_KINDS and value == "":
        return set_values(mapping, {_OPTIONAL_KINDS[name]: None})
    if name == "attack.clients" and value in ("", []):
        count = len(mapping.get("attack", {}).get("clients") or ()) or 1
        return set_values(mapping, {"attack.num_byzantine": count})
    result = set_values(mapping, {name: value})
    if name in families_of_names() and name not in NAMED and name != "selection.pattern" and isinstance(value, str):
        _give_starting_values(result, name.removesuffix(".kind"), value)
    if name == "dimension" and "features" in result.get("model", {}):
        result["model"]["features"] = value
    if name == "model.features":
        result["dimension"] = value
    return result


def with_dependents(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    """Reduce the settings that may not exceed the one that was just reduced."""
    bounded = {"dimension": ["num_shared"], "num_clients": ["num_participants", "attack.num_byzantine"]}
    top = mapping.get(name)
    if name in bounded and isinstance(top, int) and top >= 1:
        for dotted in bounded[name]:
            table, _, key = dotted.rpartition(".")
            values = mapping.get(table, {}) if table else mapping
            if isinstance(values.get(key), int) and values[key] > top:
                values[key] = top
    return mapping


def parse_value(text: str) -> Any:
    """Parse what was typed into a field: a TOML value, else the text itself.

    Examples
    --------
    >>> parse_value("0.05"), parse_value("abc"), parse_value("[3, 7]")
    (0.05, 'abc', [3, 7])
    """
    if len(text) > _LONGEST_VALUE:
        raise PsofedError(f"A value has {len(text)} characters; the limit is {_LONGEST_VALUE}.")
    try:
        return parse_setting(f"value={text}")[1]
    except (RecursionError, ValueError):
        return text


def to_address(scenario: Scenario, metric: str) -> str:
    """Return the query of the page's address, which keeps the settings when the page is loaded again."""
    text = json.dumps(form_mapping(scenario), separators=(",", ":"))
    return urlencode({"scenario": text, "metric": metric}, quote_via=quote, safe="[]{},:")


def from_address(query: str) -> tuple[dict[str, Any] | None, str]:
    """Return the mapping and the metric in an address, not checked yet; None for one without settings.

    Raises
    ------
    PsofedError
        If it is too long or holds anything else.
    """
    if len(query) > _LONGEST_QUERY:
        raise PsofedError(f"it has {len(query)} characters; the limit is {_LONGEST_QUERY}.")
    try:
        pairs = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=8, errors="strict"))
        pairs.pop("token", None)
        metric = check_choice("metric", pairs.pop("metric", "network_mse"), tuple(LABELS))
        mapping = json.loads(pairs.pop("scenario")) if "scenario" in pairs else None
    except (ValueError, RecursionError) as error:
        raise PsofedError(str(error)) from None
    if pairs or not isinstance(mapping, dict | None):
        raise PsofedError("it holds no scenario, or more than one.")
    return mapping, metric


_STARTING_VALUES = {"bits": 8, "mean_time": 10.0, "variance": 1e-5}


def _give_starting_values(mapping: dict[str, Any], table: str, kind: str) -> None:
    """Set the required options of a newly chosen part to initial values."""
    outer, _, inner = table.partition(".")
    family = INNER.get(table, outer)
    if kind not in part_names(family):
        return
    values = mapping[outer][inner] if inner else mapping[outer]
    if table == "attack" and not {"num_byzantine", "clients"} & set(values):
        values["num_byzantine"] = max(1, round(0.3 * _count(mapping.get("num_clients"))))
    part = find_part(family, kind)
    for name, field in part.options().items():
        if name == "features" and table == "model":
            values[name] = mapping.get("dimension")
        elif is_required(field) and name not in values:
            values[name] = _starting_value(table, name, field, mapping)


def _starting_value(table: str, name: str, field: "Field[Any]", mapping: Mapping[str, Any]) -> Any:
    about, (type_name, _) = option_of(field), value_type(field)
    if about.choices:
        return about.choices[0]
    iterations = _count(mapping.get("iterations"), 3000)
    times = min(10, iterations - 1) if table == "delay" else iterations // 2  # what integers are, mostly
    value: Any = _STARTING_VALUES.get(name, {"int": times, "bool": False, "str": ""}.get(type_name, 0.5))
    return value if isinstance(value, bool | str) else type(value)(min(max(value, about.low), float(about.high)))


def _count(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) and 0 < value < 10**6 else default
