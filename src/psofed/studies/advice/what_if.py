"""Effect of Byzantine clients on the federation in the answer, with the mean and with a robust rule."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.parts.attacks.by_value import SignFlip
from psofed.parts.base import Aggregation, Attack
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.studies.advice.advice import ByzantineWhatIf, LearningMethod, describe
from psofed.studies.advice.judging import Clients, Way
from psofed.studies.advice.ways import Runner

_FRACTION = 0.2  # of the clients are Byzantine where nobody says how many


def names_clients(scenario: Scenario) -> bool:
    """Whether the scenario's attack says which clients are Byzantine: then it is on the federation of all."""
    attack = scenario.attack
    return any(p.clients or p.byzantine_set == "redrawn" or p is not attack for p in scenario.attacks)


def attack_on(count: int, scenario: Scenario, settings: AdviceSettings) -> Attack | None:
    """Return the attack on a federation of some clients; None without Byzantine clients.

    It is the scenario's, or the opposite of the model at all times; `settings` draw the Byzantine clients.
    """
    attack, fraction = scenario.attack, settings.byzantine
    if names_clients(scenario):
        if fraction:
            allowed = "left out: the scenario's attack says which clients are Byzantine"
            raise InvalidValueError("byzantine", fraction, allowed)
        return attack if fraction is None else None
    if fraction is None:
        fraction = _FRACTION if attack is None else scenario.num_byzantine / scenario.num_clients
    byzantine = min(math.ceil(fraction * count - 1e-9), count - 1)
    if not byzantine:
        return None
    who = np.random.default_rng((settings.seed, 12)).choice(count, byzantine, replace=False)
    attack = attack or SignFlip(num_byzantine=byzantine, of="model", probability=1.0)
    return attack.replace(clients=tuple(np.sort(who).tolist()))


def ask_what_if(
    runner: Runner, scenario: Scenario, rule: Aggregation, group: Clients, alone: Way
) -> tuple[list[LearningMethod], ByzantineWhatIf | None]:
    """Return a group's federation with the robust rule, and what the attack does with the mean and with that rule."""
    group = runner.everybody if names_clients(scenario) else group
    attack = attack_on(len(group), scenario, runner.settings)
    if attack is None:
        return [], None
    robust: dict[str, Any] = {"name": "robust", "aggregation": rule}
    try:
        ways = [
            runner.federation(group, runner.shared(few=True), **changes)
            for changes in (robust, {"name": "mean", "attack": attack}, robust | {"attack": attack})
        ]
    except InvalidValueError:  # the rule may need more clients than the group has
        if group == runner.everybody:
            raise
        return ask_what_if(runner, scenario, rule, runner.everybody, alone)
    names, members = [runner.data.clients[k] for k in group], runner.mask(group)
    byzantine = np.zeros(len(runner.everybody), np.bool_)
    if attack.byzantine_set == "fixed":
        byzantine[list(group)] = attack.byzantine_mask(len(group), tuple(names))
    own = alone.errors[runner.judge.best(alone, runner.judge.blocks)]
    filled = replace(ways[0], errors=np.where(members, ways[0].errors, own))  # a row of the table of all clients
    honest = runner.judge.among(members & ~byzantine)
    return [describe(filled, alone, runner.judge.among(members), runner.judge)], ByzantineWhatIf(
        tuple(names),
        tuple(runner.data.clients[k] for k in np.flatnonzero(byzantine)),
        tuple(part.to_mapping() for part in ways[1].scenarios[0].attacks),
        tuple(describe(way, alone, honest, honest) for way in ways[1:]),
    )
