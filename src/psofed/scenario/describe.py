"""Scenarios for people: in a few words, as short Python, and as a table of settings."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psofed.common.options import default_of, option_of
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.part import Part
from psofed.render import Column, Report, Table
from psofed.render.numbers import sentence_case, shortened, significant

if TYPE_CHECKING:
    from psofed.common.per_client import PerClient
    from psofed.scenario.scenario import Scenario

_LONGEST = 60  # letters of a value in a short form


def describe_scenario(scenario: "Scenario") -> str:
    """Describe a scenario in a few words.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> describe_scenario(Scenario(num_clients=50, dimension=5))
    '5 of 50 clients in each iteration, sharing 1 of 5 parameters, stepsize 0.15, no attack'
    """
    groups = [f"{attack.num_byzantine} Byzantine ({attack.kind})" for attack in scenario.attacks]
    algorithm, links, clients = scenario.algorithm.kind, scenario.channel, scenario.num_clients
    drawn = "all" if scenario.num_participants == clients else f"{scenario.num_participants:,} of"
    # Others send all parameters, so rarely that the traffic is that of PSO-Fed.
    is_plain = algorithm == "pso-fed"
    begin, each = ("", " in each iteration,") if is_plain else (f"{algorithm} within the traffic of ", "")
    words = [
        f"{begin}{drawn} {clients:,} clients{each} sharing {scenario.num_shared} of {scenario.dimension} parameters",
        describe_stepsize(scenario.stepsize),
        " and ".join(groups) or "no attack",
    ]
    others: tuple[tuple[Part | None, str, str], ...] = (
        (scenario.selection.pattern, "random", " masks"),
        (scenario.model, "linear", " model"),
        (scenario.data.function, "", " function"),
        (scenario.learner, "lms", ""),
        (scenario.data.stream, "independent", " inputs"),
        (scenario.aggregation, "" if scenario.pre_aggregation else "mean", ""),
        (scenario.defence, "", " defence"),
        (scenario.drift, "", " drift"),
        (scenario.availability, "", " availability"),
    )
    for part, usual, noun in others:
        if part is not None and part.kind != usual:
            before = scenario.pre_aggregation if part is scenario.aggregation else None
            words.append(part.kind + noun + ("" if before is None else f" after {before.kind}"))
    for direction in ("up", "down") if links is not None else ():
        if channels := getattr(links, direction):
            words.append(f"{' then '.join(channel.kind for channel in channels)} channel {direction}")
    if scenario.delay is not None:
        words.append(f"{scenario.delay.kind} delay")
    return ", ".join(words)


def describe_stepsize(stepsize: "PerClient") -> str:
    """Describe one stepsize, or those of the clients.

    Examples
    --------
    >>> describe_stepsize(0.15), describe_stepsize((0.1, 0.3, 0.2))
    ('stepsize 0.15', 'stepsizes 0.1 to 0.3')
    """
    if isinstance(stepsize, float | int):
        return f"stepsize {significant(stepsize)}"
    ends = (min(stepsize), max(stepsize)) if isinstance(stepsize, tuple) else (stepsize.low, stepsize.high)
    return f"stepsizes {significant(ends[0])} to {significant(ends[1])}"


def short_repr(value: Any, **defaults: Any) -> str:
    """Write a dataclass with the fields that differ from their defaults (or from those given), long ones cut.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> from psofed.parts.attacks import Gaussian
    >>> Scenario(num_clients=50, dimension=5, stepsize=0.1, attack=Gaussian(num_byzantine=15))
    Scenario(num_clients=50, dimension=5, stepsize=0.1, attack=Gaussian(num_byzantine=15))
    """
    shown = []
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if field.repr and field.init and not _same(content, defaults.get(field.name, default_of(field))):
            text = _short_value(content)
            is_whole = len(text) <= _LONGEST or "(" in text[:20]
            shown.append(f"{field.name}={text if is_whole else text[:_LONGEST] + '…'}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _short_value(content: Any) -> str:
    if isinstance(content, OwnData | DataSource):
        source = content.source
        return f"{source.num_clients} clients of {source.name}" if source.clients else source.name
    return short_repr(content) if dataclasses.is_dataclass(content) else repr(content)


def scenario_report(scenario: "Scenario") -> Report:
    """Return the settings that a scenario file would hold."""
    settings = dotted_fields(scenario.to_mapping())
    rows = tuple(
        (name, shortened(str(settings[name]), _LONGEST)) for name in sorted(settings, key=lambda name: "." in name)
    )
    table = Table("", (Column("setting"), Column("value")), rows)
    return Report(f"{sentence_case(describe_scenario(scenario))}.", tables=(table,))


def dotted_fields(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of nested tables by their full names.

    Examples
    --------
    >>> dotted_fields({"stepsize": 0.1, "attack": [{"kind": "mimic"}, {"kind": "sign-flip"}]})
    {'stepsize': 0.1, 'attack[0].kind': 'mimic', 'attack[1].kind': 'sign-flip'}
    """
    fields: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            for place, table in enumerate(value):
                fields |= dotted_fields(table, f"{prefix}{key}[{place}].")
        else:
            is_table = isinstance(value, Mapping)
            fields |= dotted_fields(value, f"{prefix}{key}.") if is_table else {f"{prefix}{key}": value}
    return fields


def _same(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except ValueError:  # arrays
        return False


def field_title(name: str) -> str:
    """Return what a field, or fields that vary together, are called in a chart.

    Examples
    --------
    >>> field_title("num_shared"), field_title("attack.variance"), field_title("data.noise_variance")
    ('shared parameters M', 'attack variance', 'noise variance')
    """
    from psofed.parts.base import Attack
    from psofed.scenario.scenario import Scenario
    from psofed.scenario.tables import Data

    table, _, key = name.rpartition(".")
    field = {"": Scenario.options(), "attack": Attack.options(), "data": Data.options()}.get(table, {}).get(key)
    label = "" if field is None else option_of(field).label
    return label or " ".join(word for word in (table, key) if word not in ("", "kind", "data")).replace("_", " ")
