"""Everything that can be copied or downloaded: the scenario as commands and Python, the numbers as CSV."""

import math
import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any
from urllib.parse import urlencode

from psofed.common.csv_text import csv_text
from psofed.explore.answers import Answer, PageState
from psofed.explore.steps import theory_of
from psofed.parts.attacks.by_value import Gaussian
from psofed.scenario import Scenario

_FILE = "scenario.toml"
# The fleets of the documentation's playground.
PLAYGROUND: dict[str, dict[str, Any]] = {
    "readme": {"num_clients": 50, "dimension": 5},
    "paper": {"num_clients": 100, "dimension": 5},
    "wide": {"num_clients": 20, "dimension": 10, "num_participants": 4},
    "redrawn": {"num_clients": 50, "dimension": 5, "uplink": "redrawn"},
}


def as_command(scenario: Scenario, plugins: tuple[str, ...], is_predictable: bool) -> str:
    """Return shell commands that compute what the page shows, of the scenario in the file ``scenario.toml``."""
    loading = [word for plugin in plugins for word in ("--plugin", plugin)]
    theory = theory_of(scenario)
    options = [] if theory == "exact" else ["--theory", theory]
    lines = [["psofed", "predict", _FILE, *loading, *options]] if is_predictable else []
    lines.append(["psofed", "simulate", _FILE, *loading])
    return "".join(f"{shlex.join(line)}\n" for line in lines)


def as_python(scenario: Scenario, plugins: tuple[str, ...], is_predictable: bool) -> str:
    """Return Python code that does the same."""
    lines = ["import psofed", "", *(f"psofed.load_plugin({plugin!r})" for plugin in plugins)]
    lines.append(f"scenario = psofed.read_scenario({_FILE!r})")
    if is_predictable:
        lines.append(f"print(psofed.predict(scenario, theory={theory_of(scenario)!r}).network_mse)")
    lines.append("print(psofed.simulate(scenario).network_mse)")
    return "\n".join(lines) + "\n"


def playground_fragment(scenario: Scenario) -> str:
    """Return the settings in the address of the documentation's playground; empty if it does not have this scenario.

    Examples
    --------
    >>> from psofed.explore.presets import readme_fleet
    >>> playground_fragment(readme_fleet())
    'fleet=readme&m=1&b=15&p=0.2&v=0.5&mu=0.077'
    """
    attack, stepsize = scenario.attack or Gaussian(num_byzantine=0), scenario.stepsize
    if not isinstance(attack, Gaussian) or attack.clients or not isinstance(stepsize, float | int):
        return ""
    fleet = scenario.replace(attack=None, num_shared=1, stepsize=0.1, iterations=1)
    for name, fields in PLAYGROUND.items():
        if fleet == Scenario(**fields, stepsize=0.1, iterations=1):
            settings = {"fleet": name, "m": scenario.num_shared, "b": attack.num_byzantine}
            return urlencode({**settings, "p": attack.probability, "v": attack.variance, "mu": stepsize})
    return ""


def playground_address(scenario: Scenario) -> str:
    """Return the scenario's address in the playground; empty without one, or if the package names no documentation."""
    try:
        named = metadata("psofed").get_all("Project-URL") or []
    except PackageNotFoundError:
        named = []
    sites = dict(entry.split(", ", 1) for entry in named)
    fragment = playground_fragment(scenario)
    site = sites.get("Documentation", "").rstrip("/")
    return f"{site}/playground/#{fragment}" if site and fragment else ""


def numbers_as_csv(state: PageState) -> str:
    """Return the points of all charts as one long table: source, axis, x, metric, mean, interval, trials."""
    rows: list[tuple[Any, ...]] = [("source", "axis", "x", "metric", "mean", "low", "high", "trials")]
    for source, answer in (("theory", state.theory), ("simulation", state.simulation)):
        rows += [(source, *row) for row in _rows(answer)]
    return csv_text(rows)


def _rows(answer: Answer) -> Iterator[tuple[Any, ...]]:
    for axis, points in answer.charts.items():
        for point in points:
            for metric, level in point.levels.items():
                yield axis, point.x, metric, level.mean, level.low, level.high, point.trials or ""
            if not math.isnan(point.worst):
                yield axis, point.x, "network_mse, worst attack", point.worst, "", "", ""
