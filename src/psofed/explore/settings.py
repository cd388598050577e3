"""The page's settings: up to two scenarios in the layout of a scenario file, and the same as the query of a link.

Nothing from a browser is trusted: every value passes the scenario's own checks, and sizes are bounded before anything
is allocated. No setting names a file, so a link cannot make the explorer read one.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.options import is_required, option_of, value_type
from psofed.common.toml import toml_value
from psofed.common.validation import check_choice, check_integer
from psofed.paper.figures import figure_names
from psofed.parts.registry import find_part, part_names
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.scenario.changes import parse_setting, set_values
from psofed.scenario.mapping import (
    CHANNEL_TABLES,
    INNER,
    KIND_TABLES,
    NAMED,
    OPTIONAL,
    TABLE_NAMES,
    families_of_names,
    scenario_from_mapping,
)

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

SIDES = ("A", "B")
_LONGEST_QUERY = 20_000
_LONGEST_VALUE = 4_000
_MOST_FIELDS = 200
_LARGEST_INTEGER = 2**53  # what a browser's numbers hold exactly


@dataclass(frozen=True)
class Limits:
    """Largest fleet that the explorer accepts, so that it answers while the user watches.

    Attributes
    ----------
    num_clients, dimension, iterations : int
        Largest allowed values.
    """

    num_clients: int = 1000
    dimension: int = 200
    iterations: int = 100_000

    def including(self, scenario: Scenario) -> "Limits":
        """Return limits that also admit `scenario`, the user's own file."""
        return Limits(
            max(self.num_clients, scenario.num_clients),
            max(self.dimension, scenario.dimension),
            max(self.iterations, scenario.iterations),
        )

    def check(self, mapping: Mapping[str, Any]) -> None:
        """Refuse a scenario that is too large, before anything is allocated for it."""
        for name in ("num_clients", "dimension", "iterations"):
            check_integer(name, mapping.get(name, 1), 1, getattr(self, name), "the explorer's limit")
        for table, values in mapping.items():
            for key, value in values.items() if isinstance(values, Mapping) else ():
                if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
                    raise InvalidValueError(f"{table}.{key}", value, f"at most {_LARGEST_INTEGER}")
        sizes = {"model": ("features",), "data": ("input_dimension", "test_instances")}
        for table, names in sizes.items():
            given = mapping.get(table)
            sized = given if isinstance(given, Mapping) else {}
            for name in names:
                if sized.get(name) is not None:
                    check_integer(f"{table}.{name}", sized[name], 1, 10_000, "the explorer's limit")


@dataclass(frozen=True)
class PageSettings:
    """Everything that the page is set to.

    Attributes
    ----------
    sides : mapping
        The scenarios of A and, if there is one, B, in the layout of a scenario file.
    own_data : frozenset of str
        Sides whose clients learn from the user's table.
    metric : str
        ``"network_mse"``, ``"server_msd"`` or ``"test_mse"``.
    figure : str
        The paper's figure that is shown, if any.
    """

    sides: Mapping[str, Mapping[str, Any]]
    own_data: frozenset[str] = frozenset()
    metric: str = "network_mse"
    figure: str = ""


def make_scenario(mapping: Mapping[str, Any], limits: Limits, data: "OwnData | None" = None) -> Scenario:
    """Return the scenario of one side, fitted to `data` if given.

    Raises
    ------
    PsofedError
        If it is too large or invalid.
    """
    limits.check(mapping)
    if data is not None:
        return scenario_from_mapping({**mapping, "data": {"rows": data}})
    given = mapping.get("data")
    if isinstance(given, Mapping) and "file" in given:
        raise InvalidValueError(
            "data.file", given["file"], "absent from links (start the explorer with --data)"
        )
    return scenario_from_mapping(mapping)


def form_mapping(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as the form and links hold it: without the user's table, which the explorer has."""
    mapping = scenario.to_mapping()
    if scenario.data.rows is not None:
        del mapping["data"]
    return mapping


# Fields that may be empty, with the table that is then left out
_OPTIONAL_KINDS = {f"{table}.kind": table for table in OPTIONAL if table in (*KIND_TABLES, *CHANNEL_TABLES)}
_OPTIONAL_KINDS |= {table: table for table in OPTIONAL if table in INNER}


def changed(mapping: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a side's mapping with one field of the form set, unchecked.

    Besides the scenario's own dotted names there are ``data.noise_variance.low`` and ``.high`` for the ends of a
    range. ``attack.kind``, ``drift.kind`` and similar fields may be ``""`` for none. Required
    options of a newly chosen part get an initial value.

    Examples
    --------
    >>> changed({"num_clients": 50, "dimension": 5}, "attack.kind", "sign-flip")["attack"]
    {'kind': 'sign-flip', 'num_byzantine': 15}
    """
    table, _, key = name.rpartition(".")
    if key in ("low", "high") and table in ("data.noise_variance", "data.input_variance"):
        low, high = variance_range(mapping.get("data", {}).get(table[5:])) or (0.0, 0.0)
        ends = [value, high] if key == "low" else [low, value]
        return set_values(mapping, {table: ends[0] if ends[0] == ends[1] else {"uniform": ends}})
    if name in _OPTIONAL_KINDS and value == "":
        return set_values(mapping, {_OPTIONAL_KINDS[name]: None})
    if name == "attack.clients" and value in ("", []):
        count = len(mapping.get("attack", {}).get("clients") or ()) or 1
        return set_values(mapping, {"attack.num_byzantine": count})
    result = set_values(mapping, {name: value})
    if (
        name in families_of_names()
        and name not in NAMED
        and name != "selection.pattern"
        and isinstance(value, str)
    ):
        _give_starting_values(result, name.removesuffix(".kind"), value)
    if name == "dimension" and "features" in result.get("model", {}):
        result["model"]["features"] = value
    if name == "model.features":
        result["dimension"] = value
    return result


def variance_range(value: Any) -> tuple[float, float] | None:
    """Return the ends of a variance that is a number or a range; None if each client has its own.

    Examples
    --------
    >>> variance_range(0.5), variance_range({"uniform": [0.2, 1.2]}), variance_range([0.1, 0.2])
    ((0.5, 0.5), (0.2, 1.2), None)
    """
    if isinstance(value, Mapping):
        ends = value.get("uniform")
        return (ends[0], ends[1]) if isinstance(ends, list | tuple) and len(ends) == 2 else None
    return None if value is None or isinstance(value, list | tuple) else (value, value)


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


def to_query(settings: PageSettings) -> str:
    """Return the settings as the query of a link.

    Examples
    --------
    >>> to_query(PageSettings({"A": {"num_clients": 9, "dimension": 2, "attack": {"kind": "drop-out"}}}))
    'num_clients=9&dimension=2&attack.kind=drop-out'
    """
    pairs: list[tuple[str, str]] = []
    for side, mapping in settings.sides.items():
        prefix = "" if side == "A" else f"{side}."
        if side in settings.own_data:
            pairs.append((f"{prefix}own_data", "true"))
        for name, value in mapping.items():
            if name == "plugins":
                continue
            if isinstance(value, Mapping) and name in TABLE_NAMES:
                pairs += [(f"{prefix}{name}.{key}", _text(entry)) for key, entry in value.items()]
            else:
                pairs.append((f"{prefix}{name}", _text(value)))
    if settings.metric != "network_mse":
        pairs.append(("metric", settings.metric))
    if settings.figure:
        pairs.append(("figure", settings.figure))
    return urlencode(pairs, quote_via=quote, safe="[]{},:")


def from_query(query: str, has_data: bool = False) -> PageSettings | None:
    """Return the settings in a link's query, not checked yet; None if there are none.

    Parameters
    ----------
    query : str
        The part of the address after ``?``; a ``token`` in it is skipped.
    has_data : bool
        Whether the explorer was started with the user's table.

    Raises
    ------
    PsofedError
        If it is too long, or names an unknown setting.

    Examples
    --------
    >>> from_query("num_clients=9&dimension=2&B.num_clients=9&B.dimension=3").sides["B"]
    {'num_clients': 9, 'dimension': 3}
    """
    if len(query) > _LONGEST_QUERY:
        raise PsofedError(f"The link has {len(query)} characters; the limit is {_LONGEST_QUERY}.")
    try:
        pairs = parse_qsl(
            query.lstrip("?"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise PsofedError(f"The link cannot be read ({error}).") from None
    sides: dict[str, dict[str, Any]] = {}
    own_data: set[str] = set()
    shown: dict[str, str] = {}
    choices = {"metric": METRIC_TITLES, "figure": figure_names()}
    for name, text in pairs:
        if name == "token":
            continue
        if name in choices:
            shown[name] = check_choice(name, text, choices[name])
            continue
        side, field = ("B", name[2:]) if name.startswith("B.") else ("A", name)
        if field == "plugins":
            raise InvalidValueError("plugins", text, "absent from links (start the explorer with --plugin)")
        if field == "own_data":
            if not has_data:
                raise InvalidValueError(
                    "own_data", text, "absent unless the explorer was started with --data"
                )
            own_data.add(side)
            sides.setdefault(side, {})
            continue
        sides[side] = set_values(sides.get(side, {}), {field: parse_value(text)})
    if not sides:
        return PageSettings({}, frozenset(), **shown) if shown else None
    if "A" not in sides:
        raise PsofedError("The link has settings for B but none for A.")
    ordered = {name: sides[name] for name in SIDES if name in sides}
    return PageSettings(ordered, frozenset(own_data), **shown)


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
    low = about.low if about.low > -1e300 else 0.0
    if name == "bits":
        return 8
    if table == "delay" and type_name == "int":
        return min(10, _count(mapping.get("iterations"), 3000) - 1)
    if type_name == "int":  # a time, mostly: half of the run
        half = _count(mapping.get("iterations"), 3000) // 2
        return int(min(max(half, low), float(about.high)))
    if name == "mean_time":
        return 10.0
    if type_name == "float" or about.check is not None:  # one value for all clients
        small = 1e-5 if name.endswith("variance") else 0.5
        return min(max(small, low), float(about.high))
    return False if type_name == "bool" else ""


def _count(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) and 0 < value < 10**6 else default


def _text(value: Any) -> str:
    return value if isinstance(value, str) and parse_value(value) == value else toml_value(value)
