"""What can be taken away: the scenario as TOML, as commands and as Python; the numbers as CSV and JSON."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.numbers import finite_or_none
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, plugin_of
from psofed.scenario import Scenario

_END = "END"
_TABLES = {
    "stepsizes": ("stepsize",),
    "shared": ("num_shared", "numbers"),
    "participants": ("num_participants", "numbers"),
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the command line named beside the scenario, for commands that do the same.

    Attributes
    ----------
    data : tuple of str
        Options that name the user's table: ``("--data", "table.csv", "--client-column", …)``.
    plugins : tuple of str
        Files or modules with parts of the user's own.
    """

    data: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


def as_command(scenario: Scenario, origin: Origin, own_data: bool, predictable: bool) -> str:
    """Return commands for a terminal that show what the page shows.

    Parameters
    ----------
    scenario : Scenario
    origin : Origin
    own_data : bool
        Whether it learns from the user's table.
    predictable : bool
        Whether theory covers it.
    """
    loading = [word for plugin in origin.plugins for word in ("--plugin", plugin)]
    data = list(origin.data) if own_data else []
    verbs = ["tune" if own_data else "predict"] if predictable else []
    lines = [f"cat > scenario.toml <<'{_END}'", scenario.to_toml().rstrip("\n"), _END]
    for verb in (*verbs, "simulate"):
        lines.append(shlex.join(["psofed", verb, "scenario.toml", *data, *loading]))
    return "\n".join(lines) + "\n"


def as_python(scenario: Scenario, origin: Origin, own_data: bool, predictable: bool) -> str:
    """Return lines of Python that make the same scenario, and predict or simulate it."""
    lines = ["import psofed", ""]
    lines += [f"psofed.load_plugin({plugin!r})" for plugin in origin.plugins]
    if any(plugin_of(part) is not None or type(part).__module__ == "__main__" for part in scenario.parts()):
        lines.append(f"scenario = psofed.Scenario.from_toml({scenario.to_toml()!r})")
    else:
        lines.append(f"scenario = {_call('psofed.Scenario', _changed_fields(scenario), indent=True)}")
    if predictable and not own_data:
        lines.append("print(psofed.predict(scenario).network_mse)")
    if own_data:
        named = dict(zip(origin.data[::2], origin.data[1::2], strict=True))
        words = {"--data": "path", "--client-column": "client", "--target-column": "target"}
        given = [repr(named[option]) for option in words if option in named]
        if "--features" in named:
            given.append(f"{named['--features'].split(',')!r}")
        if "--epochs" in named:
            given.append(f"epochs={named['--epochs']}")
        lines.append(f"data = psofed.read_data({', '.join(given)})")
    lines.append(f"print(psofed.simulate(scenario{', data=data' if own_data else ''}).network_mse)")
    return "\n".join(lines) + "\n"


def numbers_as_json(sides: Mapping[str, Mapping[str, Any]]) -> str:
    """Return everything behind the pictures as JSON.

    Parameters
    ----------
    sides : mapping
        By side: ``scenario``, ``theory`` and ``simulation``.
    """
    plain = {
        side: {
            "scenario": content["scenario"].to_mapping(),
            "theory": content["theory"],
            "simulation": content["simulation"],
        }
        for side, content in sides.items()
    }
    return json.dumps(finite_or_none({"version": __version__, **plain}), indent=2, allow_nan=False) + "\n"


def numbers_as_csv(sides: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the points of all pictures as one long table: side, source, picture, x, metric, y and its interval."""
    rows: list[list[Any]] = [["side", "source", "picture", "x", "metric", "y", "low", "high", "trials"]]
    for side, content in sides.items():
        for source in ("theory", "simulation"):
            rows += [[side, source, *row] for row in _long_rows(content[source])]
    return csv_text(rows)


def _long_rows(picture: Mapping[str, Any]) -> list[list[Any]]:
    from psofed.explore.theory import METRICS

    rows: list[list[Any]] = []
    for table, (x, *_) in _TABLES.items():
        for point in picture.get(table, ()):
            for metric in METRICS:
                ends = [point.get(f"{metric}_low", ""), point.get(f"{metric}_high", "")]
                rows.append([table, point[x], metric, point[metric], *ends, point.get("trials", "")])
    curve = picture.get("curve")
    if curve:
        empty = [""] * len(curve["iteration"])
        for metric in METRICS:
            ends_of = [curve.get(f"{metric}_{end}", empty) for end in ("low", "high")]
            for n, y, low, high in zip(curve["iteration"], curve[metric], *ends_of, strict=True):
                rows.append(["curve", n, metric, y, low, high, curve.get("trials", "")])
    point = picture.get("point")
    if point:
        for term in ("data", "attack", "noise", "drift", "targets"):
            rows.append(["terms", point["stepsize"], term, point[term], "", "", ""])
    return rows


def _changed_fields(value: Any) -> dict[str, str]:
    """Return the fields of a dataclass that are not at their defaults, as Python."""
    changed = {}
    for field in dataclasses.fields(value):
        now = getattr(value, field.name)
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            default = dataclasses.MISSING
        if default is dataclasses.MISSING or now != default:
            changed[field.name] = _expression(now)
    return changed


def _expression(value: Any) -> str:
    if isinstance(value, Part):
        fields = _changed_fields(value)
        if "clients" in fields:
            fields.pop("num_byzantine", None)
        return _call(f"psofed.{FAMILIES[value.family]}.{type(value).__name__}", fields)
    if dataclasses.is_dataclass(value):
        return _call(f"psofed.{type(value).__name__}", _changed_fields(value))
    return repr(value)


def _call(name: str, fields: Mapping[str, str], indent: bool = False) -> str:
    arguments = [f"{key}={value}" for key, value in fields.items()]
    if not indent:
        return f"{name}({', '.join(arguments)})"
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"
