"""A scenario in words."""

from typing import TYPE_CHECKING

from psofed.render.numbers import significant

if TYPE_CHECKING:
    from psofed.scenario.scenario import Scenario


def describe_scenario(scenario: "Scenario") -> str:
    """Describe a scenario in a few words.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> describe_scenario(Scenario(num_clients=50, dimension=5))
    '50 clients, sharing 1 of 5 parameters, stepsize 0.15, no attack'
    """
    attack = scenario.attack
    threat = "no attack" if attack is None else f"{attack.num_byzantine} Byzantine ({attack.kind})"
    rule = scenario.aggregation.kind
    algorithm = scenario.algorithm.kind
    return (
        ("" if algorithm == "pso-fed" else f"{algorithm}, ")
        + f"{scenario.num_clients:,} clients, sharing {scenario.num_shared} of {scenario.dimension} parameters, "
        + f"stepsize {significant(scenario.stepsize)}, {threat}"
        + ("" if rule == "mean" else f", {rule}")
        + ("" if scenario.defence is None else f", {scenario.defence.kind} defence")
        + ("" if scenario.drift is None else f", {scenario.drift.kind} drift")
    )


# Names of fields that people read, along the axes of charts.
_TITLES = {
    "num_shared": "shared parameters M",
    "stepsize": "stepsize μ",
    "num_clients": "clients K",
    "dimension": "parameters D",
    "num_participants": "participants",
    "iterations": "iterations",
    "aggregation": "aggregation rule",
    "attack.num_byzantine": "Byzantine clients",
    "attack.probability": "attack probability",
    "attack.variance": "attack variance",
    "attack.strength": "attack strength",
}


def field_title(name: str) -> str:
    """Return what a field, or fields that vary together, are called in a chart.

    Examples
    --------
    >>> field_title("num_shared"), field_title("data.noise_variance")
    ('shared parameters M', 'data.noise_variance')
    """
    return _TITLES.get(name, name)
