"""Everything that can be copied or downloaded: a scenario as commands and Python, the numbers as CSV and JSON."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.numbers import finite_or_none
from psofed.data.own_data import OwnData
from psofed.explore.answers import METRICS, Answers, Curve, Point, Simulation, Theory
from psofed.parts.attack_groups import AttackGroups
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, plugin_of
from psofed.scenario import Scenario
from psofed.scenario.describe import changed_fields

_END = "END"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Options of the command line besides the scenario, for commands that do the same.

    Attributes
    ----------
    plugins : tuple of str
        Files or modules with the user's own parts.
    """

    plugins: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Copies:
    """Texts to copy: the active scenario as TOML, commands and Python, and the page as a link's query with token."""

    toml: str
    command: str
    python: str
    query: str
    token: str


def make_copies(scenario: Scenario, origin: Origin, predictable: bool, query: str, token: str) -> Copies:
    """Return the texts for a scenario that is `predictable` by theory or not."""
    about = (scenario, origin, predictable)
    return Copies(scenario.to_toml(), as_command(*about), as_python(*about), query, token)


def as_command(scenario: Scenario, origin: Origin, predictable: bool) -> str:
    """Return shell commands that compute what the page shows.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    origin : Origin
        Options of the command line.
    predictable : bool
        Whether theory covers the scenario.
    """
    loading = [word for plugin in origin.plugins for word in ("--plugin", plugin)]
    verbs = ["predict"] if predictable else []
    lines = [f"cat > scenario.toml <<'{_END}'", scenario.to_toml().rstrip("\n"), _END]
    theory = [] if scenario.data.stream.is_independent else ["--theory", "independence"]
    for verb in (*verbs, "simulate"):
        options = theory if verb == "predict" else []
        lines.append(shlex.join(["psofed", verb, "scenario.toml", *loading, *options]))
    return "\n".join(lines) + "\n"


def as_python(scenario: Scenario, origin: Origin, predictable: bool) -> str:
    """Return Python code that makes the same scenario and predicts or simulates it."""
    lines = ["import psofed", ""]
    lines += [f"psofed.load_plugin({plugin!r})" for plugin in origin.plugins]
    if any(plugin_of(part) is not None or type(part).__module__ == "__main__" for part in scenario.parts()):
        lines.append(f"scenario = psofed.Scenario.from_toml({scenario.to_toml()!r})")
    elif isinstance(scenario.data.rows, OwnData):
        reading = scenario.data.rows.source.to_mapping()
        file = reading.pop("file")
        named = ", ".join(f"{name}={value!r}" for name, value in reading.items())
        lines.append(f"data = psofed.read_data({file!r}, {named})")
        fields = {name: text for name, text in _changed_fields(scenario).items() if name != "data"}
        call = _call("psofed.Scenario.from_data", fields, indent=True)
        lines.append("scenario = " + call.replace("(\n", "(\n    data,\n", 1))
    else:
        lines.append(f"scenario = {_call('psofed.Scenario', _changed_fields(scenario), indent=True)}")
    if predictable:
        theory = "" if scenario.data.stream.is_independent else ', theory="independence"'
        lines.append(f"print(psofed.predict(scenario{theory}).network_mse)")
    lines.append("print(psofed.simulate(scenario).network_mse)")
    return "\n".join(lines) + "\n"


def numbers_as_json(sides: Mapping[str, Answers]) -> str:
    """Return everything behind the charts as JSON, by side."""
    plain = {
        side: {
            "scenario": answers.scenario.to_mapping(),
            "theory": dataclasses.asdict(answers.theory),
            "simulation": dataclasses.asdict(answers.simulation),
        }
        for side, answers in sides.items()
    }
    return json.dumps(finite_or_none({"version": __version__, **plain}), indent=2, allow_nan=False) + "\n"


def numbers_as_csv(sides: Mapping[str, Answers]) -> str:
    """Return the points of all charts as one long table: side, source, chart, x, metric, y and its interval."""
    rows: list[tuple[Any, ...]] = [("side", "source", "chart", "x", "metric", "y", "low", "high", "trials")]
    for side, answers in sides.items():
        rows += [(side, "theory", *row) for row in _theory_rows(answers.theory)]
        rows += [(side, "simulation", *row) for row in _simulation_rows(answers.simulation)]
    return csv_text(rows)


def _theory_rows(theory: Theory) -> Iterator[tuple[Any, ...]]:
    tables: dict[str, list[tuple[float, Point]]] = {
        "stepsizes": [(point.stepsize, point) for point in theory.stepsizes],
        "shared": [(design.count, design.point) for design in theory.shared],
        "participants": [(design.count, design.point) for design in theory.participants],
    }
    for chart, points in tables.items():
        for x, point in points:
            yield from ((chart, x, metric, point.value(metric), "", "", "") for metric in METRICS)
    yield from _curve_rows(theory.curve)
    if theory.point is not None:
        for term, value in theory.point.terms.items():
            yield "terms", theory.point.stepsize, term, value, "", "", ""


def _simulation_rows(simulation: Simulation) -> Iterator[tuple[Any, ...]]:
    for chart in ("stepsizes", "shared", "participants"):
        for x, dot in getattr(simulation, chart):
            for metric in METRICS:
                found = dot.metrics[metric]
                yield chart, x, metric, found.mean, found.low, found.high, dot.trials
    yield from _curve_rows(simulation.curve)


def _curve_rows(curve: Curve | None) -> Iterator[tuple[Any, ...]]:
    if curve is None:
        return
    empty = ("",) * len(curve.iterations)
    for metric in METRICS:
        ends = curve.low.get(metric, empty), curve.high.get(metric, empty)
        for n, y, low, high in zip(curve.iterations, curve.values[metric], *ends, strict=True):
            yield "curve", n, metric, y, low, high, curve.trials or ""


def _changed_fields(value: Any) -> dict[str, str]:
    """Return the fields that differ from their defaults, as Python expressions."""
    return {name: _expression(held) for name, held in changed_fields(value).items()}


def _expression(value: Any) -> str:
    if isinstance(value, AttackGroups):
        return f"[{', '.join(map(_expression, value.groups))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_expression, value))}{',' if len(value) == 1 else ''})"
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
