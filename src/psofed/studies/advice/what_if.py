"""Effect of Byzantine clients on the federation in the answer, with the mean and with a robust rule."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts.attack_groups import AttackGroups
from psofed.parts.attacks.sign_flip import SignFlip
from psofed.parts.base import Aggregation, Attack
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.judging import Judge, Judged
from psofed.studies.advice.methods import LearningMethod, federation_method

_FRACTION = 0.2  # of the clients are Byzantine where nobody says how many


@dataclass(frozen=True)
class ByzantineWhatIf:
    """The federation in the answer with some Byzantine clients.

    Attributes
    ----------
    clients : tuple of str
        Clients that federate: the largest group in the answer, or all clients if the attack names one that is to be
        left out.
    byzantine : tuple of str
        Byzantine clients; empty if they are redrawn in every iteration.
    attacks : tuple of dict
        What each group of them does, as in a scenario file.
    methods : tuple of LearningMethod
        With the mean and with the robust rule, on the honest clients.
    """

    clients: tuple[str, ...]
    byzantine: tuple[str, ...]
    attacks: tuple[dict[str, Any], ...]
    methods: tuple[LearningMethod, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "methods": [method.to_json() for method in self.methods]}


@dataclass(frozen=True, eq=False)
class AttackPlan:
    """The attack of the what-if analysis, for any group of clients.

    Attributes
    ----------
    attack : Attack or None
        The scenario's attack; the opposite of the model at all times by default.
    fraction : float
        Fraction of Byzantine clients, unless the attack names or redraws them; 0 without an attack.
    seed : int
        Draws the Byzantine clients.
    names : tuple of str
        All clients.
    """

    attack: Attack | None
    fraction: float
    seed: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, scenario: Scenario, settings: AdviceSettings) -> "AttackPlan":
        """Return the plan for a scenario's attack and the fraction in the settings."""
        attack, fraction = scenario.attack, settings.byzantine
        if fraction is None:
            fraction = _FRACTION if attack is None else scenario.num_byzantine / scenario.num_clients
        elif fraction and any(
            part.clients or part.byzantine_set == "redrawn" or part is not attack for part in scenario.attacks
        ):
            allowed = "left out: the scenario's attack says which clients are Byzantine"
            raise InvalidValueError("byzantine", fraction, allowed)
        return cls(attack, fraction, settings.seed, scenario.client_names)

    def within(self, group: Sequence[int]) -> Attack | None:
        """Return the attack on a federation of some clients; None without Byzantine clients."""
        given = self.attack
        if self.fraction == 0:
            return None
        if given is not None and given.byzantine_set == "redrawn":
            return given if given.num_byzantine < len(group) else None
        if isinstance(given, AttackGroups) or (given is not None and given.clients):
            parts = given.groups if isinstance(given, AttackGroups) else (given,)
            masks = [part.byzantine_mask(len(self.names), self.names) for part in parts]
            if any(mask.sum() > mask[list(group)].sum() for mask in masks):
                return None
            inside = [tuple(np.flatnonzero(mask[list(group)]).tolist()) for mask in masks]
            moved = [part.replace(clients=clients) for part, clients in zip(parts, inside, strict=True)]
            return given.replace(groups=tuple(moved)) if isinstance(given, AttackGroups) else moved[0]
        count = min(math.ceil(self.fraction * len(group) - 1e-9), len(group) - 1)
        if count == 0:
            return None
        who = np.random.default_rng((self.seed, 12)).choice(len(group), count, replace=False)
        base = given or SignFlip(num_byzantine=count, of="model", probability=1.0)
        return base.replace(clients=tuple(int(k) for k in np.sort(who)))


def ask_what_if(
    trier: Trier, plan: AttackPlan, robust: Aggregation, group: tuple[int, ...], alone: FloatArray
) -> tuple[LearningMethod, ByzantineWhatIf] | None:
    """Return a group's federation with the robust rule, and what an attack does with the mean and with that rule.

    Parameters
    ----------
    alone : array (stepsizes, blocks, K)
        Errors of each client alone.
    """
    everybody = tuple(range(trier.scenario.num_clients))
    attack, families = plan.within(group), None
    if attack is not None and group != everybody:
        with suppress(InvalidValueError):  # the rule may need more clients than the group has
            families = _families(trier, trier.of_group(group), robust, attack)
    if families is None:
        group, attack = everybody, plan.within(everybody)
        if attack is None:
            return None
        families = _families(trier, trier.scenario, robust, attack)
    assert attack is not None
    names = tuple(plan.names[k] for k in group)
    flat = [scenario for family in families for scenario in family]
    errors = np.split(trier.federations(flat, [group] * len(flat)), len(families))
    byzantine = np.zeros(len(everybody), np.bool_)
    if attack.byzantine_set == "fixed":
        byzantine[list(group)] = attack.byzantine_mask(len(group), names)
    members = np.isin(everybody, group)
    who = "all together" if group == everybody else f"federation of {len(group)} clients"
    methods = []
    for at, (family, found) in enumerate(zip(families, errors, strict=True)):
        judge = Judge(trier.blocks, members & ~byzantine if at else members)
        own, judged = judge.choose(alone), judge.choose(found, [scenario.num_shared for scenario in family])
        error, gain = judge.error(judged), judge.gain(judged, own)
        if not at:  # a row of the table of all clients, in which those that do not federate are alone
            filled = np.where(members, judged.errors, trier.judge.choose(alone).errors)
            error = trier.judge.error(Judged(filled, judged.last))
        name = "mean" if at == 1 else "robust"
        methods.append(federation_method(name, who, family[judged.last], error, gain))
    attacks = tuple(part.to_mapping() for part in families[1][0].attacks)
    byzantine_names = tuple(plan.names[k] for k in np.flatnonzero(byzantine))
    return methods[0], ByzantineWhatIf(names, byzantine_names, attacks, tuple(methods[1:]))


def _families(trier: Trier, base: Scenario, robust: Aggregation, attack: Attack) -> list[list[Scenario]]:
    """Return the settings to try: the robust rule, and under attack the mean and the robust rule."""
    counts = trier.shared(few=True) if base.num_clients > 1 else (base.dimension,)
    grid = np.unique(trier.stepsizes(base.iterations, base.num_participants))
    robustly = base.replace(aggregation=robust)
    return [
        [each.replace(num_shared=count, stepsize=float(mu)) for count in counts for mu in grid]
        for each in (robustly, base.replace(attack=attack), robustly.replace(attack=attack))
    ]
