"""How much of an attack a fleet survives: limits of stability in the number of attackers and in the scale."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psofed.common.errors import InvalidValueError
from psofed.render import Report, Reported
from psofed.scenario import Scenario
from psofed.theory.model import TheoryModel
from psofed.theory.solve import select


@dataclass(frozen=True, repr=False)
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
        from psofed.theory.reports import limits_report

        return limits_report(self)


def attack_limits(scenario: Scenario) -> AttackLimits:
    """Find how many attackers, and how large a scale, the fleet survives.

    Attacks that add something never make the mean of uploads unstable; those that multiply (``sign-flip``,
    ``scaled-update``) and poisoned inputs may.

    Parameters
    ----------
    scenario : Scenario
        With an attack that the theory covers.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import SignFlip
    >>> attack = SignFlip(num_byzantine=5, scale=3.0, of="update", probability=1.0, byzantine_set="redrawn")
    >>> limits = attack_limits(Scenario(num_clients=20, dimension=3, stepsize=0.05, attack=attack))
    >>> 0 < limits.num_byzantine < 10
    True
    """
    attack = scenario.attack
    if attack is None:
        raise InvalidValueError("attack", None, "an attack, whose limits are sought")

    def stable(**changes: Any) -> bool:
        changed = scenario.replace(attack=_changed(attack, **changes))
        return select(TheoryModel(changed)).is_stable(scenario.stepsize)

    count = _largest_count(lambda n: stable(num_byzantine=n), scenario.num_clients)
    has_scale = "scale" in attack.to_mapping()
    scale = _largest_scale(lambda x: stable(scale=x)) if has_scale else None
    return AttackLimits(count, scale, scenario)


def _changed(attack: Any, **changes: Any) -> Any:
    if dataclasses.is_dataclass(attack) and all(hasattr(type(attack), name) for name in changes):
        try:
            return dataclasses.replace(attack, **changes)  # type: ignore[type-var]
        except (TypeError, ValueError):
            pass
    return type(attack)(**(attack.to_mapping() | changes))


def _largest_count(stable: Callable[[int], bool], clients: int) -> int | None:
    if stable(clients):
        return None
    if not stable(0):
        return -1
    low, high = 0, clients
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _largest_scale(stable: Callable[[float], bool]) -> float | None:
    high = 1.0
    while stable(high):
        high *= 2.0
        if high > 1e6:
            return None
    low = 0.5 * high
    while not stable(low):
        low *= 0.5
        if low < 1e-9:
            return 0.0
    high = 2.0 * low
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low
