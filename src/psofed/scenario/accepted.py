"""Values that the fields of a scenario accept, and how they are written: parts, tables, matrices and rows.

A part may be given by its name, and a part or a table of settings by a mapping, as in TOML.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psofed.common.errors import InvalidValueError, MissingValueError, UnknownFieldError
from psofed.common.options import Check
from psofed.common.per_client import plain_per_client
from psofed.common.settings import Settings
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.attack import AttackGroups
from psofed.parts.base import Attack
from psofed.parts.network import Channel
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, find_part, part_names

Covariances = tuple[tuple[tuple[float, ...], ...], ...]

# Kinds of tables that do not name theirs.
DEFAULT_KIND = {
    "learner": "lms",
    "model": "linear",
    "stream": "independent",
    "attack": "gaussian",
    "defence": "cusum",
    "availability": "bernoulli",
}


def as_part(family: str, value: Any, field_name: str = "") -> Any:
    """Return a part as it is, with its default options if `value` is its name, or with those of its table.

    Examples
    --------
    >>> as_part("aggregation", "krum"), as_part("delay", {"kind": "fixed", "iterations": 3}).iterations
    (Krum(tolerated=1), 3)
    """
    name = field_name or family
    if isinstance(value, str):
        find_part(family, value, name)  # refused by this name, and not as the kind of a table
        value = {"kind": value}
    if isinstance(value, Mapping):
        return _part_from_table(family, dict(value), name)
    if not isinstance(value, Part) or value.family != family:
        hint = f" Make a value of the class: {value.__name__}(…)." if isinstance(value, type) else ""
        allowed = f"one of psofed.{FAMILIES[family]}, its name, or a table of its options"
        raise InvalidValueError(name, value, allowed, hint)
    return value


def _part_from_table(family: str, values: dict[str, Any], table: str) -> Part:
    """Make a part from the fields of its table, which errors call `table`: ``channel.up``, or ``attack[1]``."""
    if "kind" not in values and family not in DEFAULT_KIND:
        raise MissingValueError(f"{table}.kind", "one of " + ", ".join(part_names(family)))
    kind: Any = values.pop("kind", DEFAULT_KIND.get(family))
    part = find_part(family, kind, f"{table}.kind")
    if family == "attack" and "strength" in values:
        name = part.strength_field()
        if name in values:
            allowed = f'left out where {table}.{name} is given, which is the strength of "{part.kind}"'
            raise InvalidValueError(f"{table}.strength", values["strength"], allowed)
        values[name] = values.pop("strength")
    try:
        made: Part = part.from_mapping(values)
    except (InvalidValueError, UnknownFieldError) as error:
        # Named after the place where the table stands.
        is_inside = error.field.startswith(f"{part.table}.")
        raise error.renamed(table + error.field.removeprefix(part.table)) if is_inside else error from None
    return made


@dataclass(frozen=True)
class PartCheck:
    """A check that accepts a part of a family, or its name.

    `convert` replaces the check where a field holds several parts.
    """

    family: str
    convert: Check | None = None

    def __call__(self, name: str, value: Any) -> Any:
        """Return the part."""
        return as_part(self.family, value, name) if self.convert is None else self.convert(name, value)


@dataclass(frozen=True)
class TableCheck:
    """A check that accepts a value of one class of settings, or its table."""

    kind: type[Settings]

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value."""
        if isinstance(value, Mapping):
            return self.kind.from_mapping(value)
        if not isinstance(value, self.kind):
            is_table = isinstance(value, OwnData)
            hint = " Make the scenario with psofed.Scenario.from_data(data, …)." if is_table else ""
            raise InvalidValueError(name, value, f"a psofed.{self.kind.__name__}, or a table, [{name}]", hint)
        return value


def as_covariances(field_name: str, value: Any) -> Covariances:
    """Return one covariance matrix per client as tuples, from an array or nested sequences."""
    import numpy as np

    allowed = "num_clients symmetric positive semi-definite matrices of finite numbers, dimension × dimension each"
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValueError(field_name, value, allowed) from None
    if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0 or not np.isfinite(array).all():
        raise InvalidValueError(field_name, f"an array of shape {array.shape}", allowed)
    for k, matrix in enumerate(array):
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise InvalidValueError(f"{field_name}[{k}]", "an unsymmetric matrix", allowed)
        if np.linalg.eigvalsh(matrix).min() < -1e-10 * scale:
            raise InvalidValueError(f"{field_name}[{k}]", "a matrix with a negative eigenvalue", allowed)
    return tuple(tuple(tuple(row) for row in matrix) for matrix in array.tolist())


def as_rows(field_name: str, value: Any) -> OwnData | DataSource:
    """Return your own data as they are."""
    if not isinstance(value, OwnData | DataSource):
        allowed = "what psofed.read_data or psofed.from_arrays returns"
        raise InvalidValueError(field_name, type(value).__name__, allowed)
    return value


def as_attacks(name: str, value: Any) -> Attack | None:
    """Return an attack, or the groups that a list of attacks stands for."""
    if isinstance(value, AttackGroups):
        value = value.groups
    groups = _as_parts("attack", name, value)
    if len(groups) < 2:
        return groups[0] if groups else None
    return AttackGroups(groups=groups)


def as_channels(name: str, value: Any) -> tuple[Channel, ...]:
    """Return the channels of one direction, in series; one part stands for a series of one, "none" for no channel."""
    return () if value is None or value == "none" else _as_parts("channel", name, value)


def _as_parts(family: str, name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        return (as_part(family, value, name),)
    return tuple(as_part(family, part, f"{name}[{place}]") for place, part in enumerate(value))


def plain_value(value: Any) -> Any:
    """Return a field's value as in TOML and JSON."""
    if isinstance(value, Part):
        options = value.to_mapping()
        return {"kind": value.kind, **options} if options else value.kind
    if isinstance(value, Settings):
        return value.to_mapping()
    return [plain_value(entry) for entry in value] if isinstance(value, tuple) else plain_per_client(value)
