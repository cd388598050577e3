"""Effect of Byzantine clients on the federation in the answer, with the mean and with a robust rule."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.parts.attacks.by_value import SignFlip
from psofed.parts.base import Aggregation, Attack
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.studies.advice.advice import ByzantineWhatIf, LearningMethod, describe
from psofed.studies.advice.judging import Judge, Way
from psofed.studies.advice.running import Clients, Runner

_FRACTION = 0.2  # of the clients are Byzantine where nobody says how many


class Threat(NamedTuple):
    """The attack of the what-if analysis.

    Attributes
    ----------
    attack : Attack or None
        The scenario's; the opposite of the model at all times by default.
    fraction : float
        Fraction of Byzantine clients; 0 skips the analysis.
    is_named : bool
        Whether the attack says which clients are Byzantine: then it is on the federation of all.
    seed : int
        Draws the Byzantine clients otherwise.
    rule : Aggregation
        The robust rule.
    """

    attack: Attack | None
    fraction: float
    is_named: bool
    seed: int
    rule: Aggregation

    @classmethod
    def of(cls, scenario: Scenario, settings: AdviceSettings, rule: Aggregation) -> "Threat":
        """Return the threat of a scenario's attack, with the fraction in the settings."""
        attack, fraction = scenario.attack, settings.byzantine
        is_named = any(
            part.clients or part.byzantine_set == "redrawn" or part is not attack for part in scenario.attacks
        )
        if fraction is None:
            fraction = _FRACTION if attack is None else scenario.num_byzantine / scenario.num_clients
        elif fraction and is_named:
            allowed = "left out: the scenario's attack says which clients are Byzantine"
            raise InvalidValueError("byzantine", fraction, allowed)
        return cls(attack, fraction, is_named, settings.seed, rule)

    def on(self, count: int) -> Attack | None:
        """Return the attack on a federation of some clients; None without Byzantine clients."""
        if self.is_named:
            return self.attack if self.fraction else None
        byzantine = min(math.ceil(self.fraction * count - 1e-9), count - 1)
        if not byzantine:
            return None
        who = np.random.default_rng((self.seed, 12)).choice(count, byzantine, replace=False)
        attack = self.attack or SignFlip(num_byzantine=byzantine, of="model", probability=1.0)
        return attack.replace(clients=tuple(np.sort(who).tolist()))


def ask_what_if(
    runner: Runner, threat: Threat, group: Clients, alone: Way
) -> tuple[list[LearningMethod], ByzantineWhatIf | None]:
    """Return a group's federation with the robust rule, and what an attack does with the mean and with that rule."""
    group = runner.everybody if threat.is_named else group
    attack = threat.on(len(group))
    if attack is None:
        return [], None
    how = group, runner.stepsizes(runner.scenario.num_participants), runner.shared(few=True)
    robust: dict[str, Any] = {"aggregation": threat.rule}
    try:
        safe = runner.federation(*how, "robust", **robust)
        attacked = [
            runner.federation(*how, "mean", attack=attack), runner.federation(*how, "robust", attack=attack, **robust)
        ]  # fmt: skip
    except InvalidValueError:  # the rule may need more clients than the group has
        if group == runner.everybody:
            raise
        return ask_what_if(runner, threat, runner.everybody, alone)
    names, members = tuple(runner.data.clients[k] for k in group), np.isin(runner.everybody, group)
    byzantine = np.zeros(len(runner.everybody), np.bool_)
    if attack.byzantine_set == "fixed":
        byzantine[list(group)] = attack.byzantine_mask(len(group), names)
    own = alone.errors[runner.judge.best(alone, runner.judge.blocks)]
    filled = replace(safe, errors=np.where(members, safe.errors, own))  # a row of the table of all clients
    honest = Judge(runner.blocks, members & ~byzantine)
    attacks = tuple(part.to_mapping() for part in attacked[0].scenarios[0].attacks)
    return [describe(filled, alone, Judge(runner.blocks, members), runner.judge)], ByzantineWhatIf(
        names,
        tuple(runner.data.clients[k] for k in np.flatnonzero(byzantine)),
        attacks,
        tuple(describe(way, alone, honest, honest) for way in attacked),
    )
