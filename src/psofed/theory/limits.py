"""Finds how much of an attack a fleet survives: the most Byzantine clients, and the largest scale, with ρ(𝓕) < 1.

Both are found by bisection over :meth:`psofed.theory.solve.Solver.is_stable` at the scenario's stepsize, all
else as in the scenario. With an attack on every upload at scale 0 the server never hears anything, ρ(𝓕) is 1, and at
small scales it differs from 1 by less than eigenvalues are computed to; so a scale counts as survived only if scale 0
is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.parts.base import Attack
from psofed.render import Report, Reported
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.clipping import clips
from psofed.theory.coverage import hears_nothing, statement_of
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver

Number = TypeVar("Number", int, float)

_UNRESOLVED = 1e-3  # scales below which ρ(𝓕) may be 1 to rounding


@dataclass(frozen=True, eq=False, repr=False)
class AttackLimits(Reported):
    """Up to where the mean square stays bounded, at the scenario's own stepsize.

    Attributes
    ----------
    num_byzantine : int or None
        The largest number of Byzantine clients at which it does, all else as in the scenario; None if it does with all
        clients Byzantine, −1 if it does not even with none.
    scale : float or None
        The largest scale of the attack at which it does; None if there is no such limit up to a million, or the attack
        has no scale.
    scenario : Scenario
    """

    num_byzantine: int | None
    scale: float | None
    scenario: Scenario

    def report(self) -> Report:
        """Return how much of the attack the fleet tolerates."""
        from psofed.theory.tuning_reports import limits_report

        return limits_report(self)


def attack_limits(scenario: Scenario | str | Path, theory: str = "exact") -> AttackLimits:
    """Find how many attackers, and how large a scale, the fleet survives.

    Attacks that add something never make the mean of uploads unstable; those that multiply (``sign-flip``,
    ``scaled-update``) and poisoned inputs may.

    Parameters
    ----------
    scenario : Scenario or path
        With an attack that the theory covers.
    theory : str
        ``"exact"``, ``"paper"`` or ``"independence"`` (inputs taken as independent over time).

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import SignFlip
    >>> attack = SignFlip(num_byzantine=5, scale=3.0, of="update", probability=1.0, byzantine_set="redrawn")
    >>> limits = attack_limits(Scenario(num_clients=20, dimension=3, stepsize=0.05, attack=attack))
    >>> 0 < limits.num_byzantine < 10
    True
    """
    scenario = as_scenario(scenario)
    attack, clients, names = scenario.attack, scenario.num_clients, scenario.client_names
    if clips(scenario):
        raise NotCoveredError(
            "attack_limits finds where models grow without bound, which a quantised channel prevents by clipping them; "
            "leave out the channel"
        )
    if attack is None:
        raise InvalidValueError("attack", None, "an attack to find the limits of")
    if len(scenario.attacks) > 1:
        raise NotCoveredError("attack_limits varies one attack; this scenario has several groups of attackers")

    def stable(changed: Attack) -> bool:
        byzantine, _ = changed.byzantine_moments(clients, names)
        if hears_nothing(statement_of(changed), changed.probability * byzantine):
            return False  # marginal at best, and refused elsewhere
        return Solver(TheoryModel(scenario.replace(attack=changed), theory)).is_stable(scenario.mean_stepsize)

    count = _largest_count(lambda n: stable(_with_count(attack, n, clients, names)), clients)
    if "scale" not in attack.to_mapping():
        return AttackLimits(count, None, scenario)
    scale = _largest_scale(lambda x: stable(attack.replace(scale=x)))
    if scale is not None and scale < _UNRESOLVED and not stable(attack.replace(scale=0.0)):
        scale = 0.0
    return AttackLimits(count, scale, scenario)


def _with_count(attack: Attack, count: int, clients: int, names: tuple[str, ...]) -> Attack:
    """Return the attack with `count` Byzantine clients: those it names come first, then the others."""
    if not attack.clients:
        return attack.replace(num_byzantine=count)
    named = attack.byzantine_mask(clients, names)
    order = [*np.flatnonzero(named).tolist(), *np.flatnonzero(~named).tolist()]
    return attack.replace(clients=order[:count]) if count else attack.replace(num_byzantine=0)


def _largest_count(stable: Callable[[int], bool], clients: int) -> int | None:
    if stable(clients):
        return None
    return _bisect(stable, 0, clients, 1) if stable(0) else -1


def _largest_scale(stable: Callable[[float], bool]) -> float | None:
    low = 1.0
    while not stable(low):
        low *= 0.5
        if low < 1e-9:
            return 0.0
    while stable(2.0 * low):
        low *= 2.0
        if low > 5e5:
            return None
    return _bisect(stable, low, 2.0 * low, 1e-6 * low)


def _bisect(stable: Callable[[Number], bool], low: Number, high: Number, width: float) -> Number:
    """Return a stable number that lies less than `width` below one that is not."""
    while high - low > width:
        middle = type(low)((low + high) / 2)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low
