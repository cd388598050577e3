"""Cases that the theory does not cover: refusals by name, each with its reason."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, PoisonedSamples, Statement
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Attack, Drift
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel


# Input variances below this vanish when they are squared twice; a product with the stepsize below the second one, when
# it is taken from 1.
_LEAST_VARIANCE, _LEAST_STEP = 1e-70, 1e-13


def check_scenario(scenario: Scenario) -> None:
    """Refuse an algorithm, a rule, a learner, a stream or another part that no theory covers.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    if not scenario.algorithm.holds_models:
        raise NotCoveredError(
            'the theory covers algorithm = "pso-fed"; it has none for '
            f'"{scenario.algorithm.kind}", which can only be simulated'
        )
    if not isinstance(scenario.aggregation, Mean):
        raise NotCoveredError(
            f'the theory covers aggregation = "mean"; "{scenario.aggregation.kind}" is not linear in what is '
            "uploaded and can only be simulated"
        )
    defence = scenario.defence
    if defence is not None:
        raise NotCoveredError(
            f'the theory does not cover defence.kind = "{defence.kind}": whom it leaves out depends on the data, '
            "so it can only be simulated; psofed.predict_recovery says what follows an exclusion"
        )
    if scenario.pre_aggregation is not None:
        raise NotCoveredError(
            f'the theory covers no pre-aggregation; "{scenario.pre_aggregation.kind}" mixes uploads in a way '
            "that depends on them or on chance, and can only be simulated"
        )
    if scenario.learner.kind != "lms":
        raise NotCoveredError(
            f'the theory covers learner.kind = "lms"; "{scenario.learner.kind}" can only be simulated'
        )
    if not scenario.data.stream.is_independent:
        raise NotCoveredError(
            "the theory covers inputs that are independent over time; "
            f'data.stream.kind = "{scenario.data.stream.kind}" can only be simulated'
        )
    _ = scenario.common_stepsize  # refuses stepsizes that differ between clients
    for name in ("availability", "delay"):
        part = getattr(scenario, name)
        if part is not None:
            raise NotCoveredError(
                f'the theory does not cover {name}.kind = "{part.kind}" yet; it can only be simulated'
            )
    if scenario.channel is not None:
        kinds = ", ".join(part.kind for part in (*scenario.channel.up, *scenario.channel.down))
        raise NotCoveredError(f"the theory does not cover [channel] yet ({kinds}); it can only be simulated")
    if len(scenario.attacks) > 1:
        raise NotCoveredError(
            "the theory does not cover several groups of attackers yet; they can only be simulated"
        )
    pattern = scenario.selection.pattern
    if (
        not isinstance(pattern, RoundRobin)
        and pattern.mask_moments(scenario.dimension, scenario.num_shared) is None
    ):
        raise NotCoveredError(
            f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments'
        )


def check_attack(model: "TheoryModel") -> None:
    """Refuse an attack, a drift or targets that a model's theory does not cover.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    statement, kind = model.statement, getattr(model.scenario.attack, "kind", None)
    if model.fleet.input_variance.max() < _LEAST_VARIANCE:
        raise NotCoveredError(
            f"data.input_variance is at most {model.fleet.input_variance.max():g}: nobody learns from such inputs, and "
            "the theory has nothing to say"
        )
    _ = model.walk  # refuses drifts
    if model.theory == "paper" and model.fleet.target_offsets is not None:
        raise NotCoveredError(
            "the paper's theory covers clients that all have the same target; data.target_spread is not 0"
        )
    if statement is None:
        return
    if model.theory == "paper" and not model.is_additive:
        raise NotCoveredError(
            f'the paper\'s theory covers attacks of mean zero, independent between clients; "{kind}" is not: '
            'use theory = "exact"'
        )
    if hears_nothing(statement, model.attackers.chance):
        raise NotCoveredError(
            f'attack.kind = "{kind}": the server never hears what anybody has learned; there is no steady state'
        )
    if isinstance(statement, PoisonedSamples) and not model.scenario.is_linear:
        raise NotCoveredError(
            f'the theory covers attack.kind = "{kind}" on linear streams; here it can only be simulated'
        )
    noisy_inputs = isinstance(statement, PoisonedSamples) and statement.input_noise_variance > 0
    if noisy_inputs and model.fleet.fourth_moments is not None:
        raise NotCoveredError(
            f'the theory covers attack.kind = "{kind}" on Gaussian inputs, not on measured fourth moments'
        )
    if model.walk and (model.law.corruption.constant is not None or model.mixture.poisoned is not None):
        raise NotCoveredError(
            f'attack.kind = "{kind}" pulls towards a fixed point, from which a target that walks moves away for '
            "ever: there is no steady state; it can only be simulated"
        )


def check_metric_covered(scenario: Scenario, metric: str) -> None:
    """Refuse the test MSE where no theory has one.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    if metric == "test" and scenario.data.rows is not None:
        raise NotCoveredError(
            'metric = "test": with your own data the server is tested on the clients\' next samples, for which there '
            'is no theory; use "network" or "msd"'
        )


def hears_nothing(statement: Statement | None, chance: FloatArray) -> bool:
    """Whether every upload, attacked with the chances (K,), is the server's own number: nothing is ever learned."""
    only_echoes = isinstance(statement, Affine) and (statement.own, statement.server) == (0.0, 1.0)
    return only_echoes and bool(np.all(chance == 1.0))


def check_stepsize(model: "TheoryModel", stepsize: float) -> None:
    """Refuse a stepsize at which, to rounding, nothing is ever learned.

    Raises
    ------
    NotCoveredError
        With the smallest stepsize that is allowed.
    """
    widest = float(model.fleet.input_variance.max())
    if stepsize * widest < _LEAST_STEP:
        raise NotCoveredError(
            f"stepsize = {stepsize:g} is so small that rounding hides what is learned; the theory needs at least "
            f"{_LEAST_STEP / widest:.2g}"
        )


def statement_of(attack: Attack) -> Statement:
    """Return what an attack states of itself.

    Raises
    ------
    NotCoveredError
        For attacks that are not affine in the models, by name and with the reason.

    Examples
    --------
    >>> from psofed.attacks import SignFlip
    >>> statement_of(SignFlip(num_byzantine=1, scale=2.0, of="update"))
    Affine(own=-2.0, server=3.0, offset=0.0, variance=0.0, common_variance=0.0)
    """
    statement = attack.affine()
    if statement is None:
        raise NotCoveredError(
            f'the theory does not cover attack.kind = "{attack.kind}": {attack.not_affine_because}'
        )
    return statement


def walk_of(drift: Drift | None) -> float:
    """Return the variance of the step each entry of the target takes per iteration; 0 if it stays where it is.

    Raises
    ------
    NotCoveredError
        For drifts that state no such variance.
    """
    if drift is None:
        return 0.0
    variance = drift.increment_variance()
    if variance is None:
        raise NotCoveredError(
            f'the theory covers drift.kind = "random-walk"; "{drift.kind}" states no steps of equal variance, and '
            "can only be simulated"
        )
    return variance
