"""Cases that the theory does not cover: refusals by name, each with its reason.

Covered is what keeps the iteration linear in the models given everything that is drawn independently of them, so that
the first two moments obey x' = F x + s: uploads α u + γ g + c + noise under the mean, learners
v + μ (x e/(ε + ‖x‖²) − γ v), and masks, participation, losses and delays that do not look at the models. A part states
this itself (``affine``, ``linear``, ``mask_moments``, ``adds_mean_update``, ``added_variance``, ``chances`` …); one
that states nothing is refused.
"""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, LinearLearner, PoisonedSamples, Statement
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Attack, Drift
from psofed.parts.network import Availability, Delay
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel


# Input variances below this vanish when they are squared twice; a product with the stepsize below the second one, when
# it is taken from 1.
_LEAST_VARIANCE, _LEAST_STEP = 1e-70, 1e-13

_LEARNS_NOTHING = "so the server learns nothing and there is no steady state"

# Families of parts that the checks below look at; a part of any other is refused.
_FAMILIES = (
    "algorithm", "aggregation", "pre_aggregation", "pattern", "learner", "model", "stream", "function", "drift",
    "attack", "defence", "availability", "channel", "delay",
)  # fmt: skip


def check_scenario(scenario: Scenario, theory: str = "exact") -> None:
    """Refuse an algorithm, a rule, a learner, a stream or another part that the theory does not cover.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    for part in scenario.parts():
        if part.family not in _FAMILIES:
            raise NotCoveredError(f'the theory does not cover {part.table}.kind = "{part.kind}"')
    algorithm = scenario.algorithm
    if not algorithm.holds_models:
        if not algorithm.adds_mean_update:
            raise NotCoveredError(
                f'the theory does not cover algorithm = "{algorithm.kind}": under the mean it does not simply add the '
                "average of the updates to the server's model (adds_mean_update)"
            )
        if scenario.drift is not None or not scenario.is_linear or scenario.data.target_spread > 0:
            raise NotCoveredError(
                f'the theory covers algorithm = "{algorithm.kind}" on linear streams with one target for all clients '
                "that does not move: leave out drift, model, function and data.target_spread"
            )
        links = (scenario.availability, scenario.channel, scenario.delay)
        if any(part is not None for part in links) or len(scenario.attacks) > 1:
            raise NotCoveredError(
                f'the theory covers algorithm = "{algorithm.kind}" without [availability], [channel], [delay] and '
                "groups of attackers: leave them out"
            )
    if not isinstance(scenario.aggregation, Mean):
        raise NotCoveredError(
            f'the theory covers aggregation = "mean", which is linear in the uploads, not '
            f'"{scenario.aggregation.kind}"'
        )
    defence = scenario.defence
    if defence is not None:
        raise NotCoveredError(
            f'the theory does not cover defence.kind = "{defence.kind}": which clients it excludes depends on the '
            "uploads"
        )
    if scenario.pre_aggregation is not None:
        raise NotCoveredError(
            f'the theory covers no pre-aggregation; leave out "{scenario.pre_aggregation.kind}"'
        )
    check_learning(scenario, theory)
    check_network(scenario)
    pattern = scenario.selection.pattern
    if (
        not isinstance(pattern, RoundRobin)
        and pattern.mask_moments(scenario.dimension, scenario.num_shared) is None
    ):
        raise NotCoveredError(
            f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments (mask_moments)'
        )


def check_learning(scenario: Scenario, theory: str = "exact") -> None:
    """Refuse learners and streams that the theory does not cover.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    kind, step = scenario.learner.kind, scenario.learner.linear()
    if step is None:
        raise NotCoveredError(
            f'the theory does not cover learner.kind = "{kind}": it states no linear step that depends on the current '
            "sample alone (linear)"
        )
    stream = scenario.data.stream
    if not stream.is_independent:
        states_covariance = stream.input_correlation() is not None
        if theory != "independence":
            raise NotCoveredError(
                f'the theory covers inputs that are independent over time, not data.stream.kind = "{stream.kind}"'
                + ('; theory = "independence" predicts as if they were' if states_covariance else "")
            )
        if not scenario.is_linear:
            raise NotCoveredError(
                f'the theory covers data.stream.kind = "{stream.kind}" with linear models and targets alone'
            )
        if not states_covariance:
            raise NotCoveredError(
                f'data.stream.kind = "{stream.kind}" does not state the covariance of its inputs (input_correlation)'
            )
    if step == LinearLearner():
        return
    if not scenario.algorithm.holds_models:
        raise NotCoveredError(
            f'the theory covers algorithm = "{scenario.algorithm.kind}" with learner.kind = "lms", not "{kind}"'
        )
    if step.leakage > 0 and scenario.drift is not None:
        raise NotCoveredError(
            f'learner.kind = "{kind}" pulls models towards zero, and drift.kind = "{scenario.drift.kind}" moves the '
            "target ever further away from it: there is no steady state"
        )
    if step.regularisation is None:
        return
    if not scenario.is_linear or scenario.data.covariances is not None or scenario.data.correlation != 0.0:
        raise NotCoveredError(
            f'the theory covers learner.kind = "{kind}" over white Gaussian inputs: linear streams without '
            "data.covariances and with data.input_correlation = 0"
        )
    if step.regularisation == 0.0 and scenario.dimension <= 2:
        raise NotCoveredError(
            f'learner.kind = "{kind}" without regularisation has infinite error for dimension = {scenario.dimension}: '
            "inputs near zero amplify the noise without bound; set learner.regularisation"
        )


def check_network(scenario: Scenario) -> None:
    """Refuse availabilities, channels and delays that no theory covers.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    availability, delay, channel = scenario.availability, scenario.delay, scenario.channel
    if availability is not None and not availability.is_memoryless:
        raise NotCoveredError(
            f'the theory does not cover availability.kind = "{availability.kind}": '
            f"{availability.not_memoryless_because}"
        )
    if availability is not None:
        _check_availability(scenario, availability)
    if delay is not None:
        _check_delay(scenario, delay)
    for direction in ("up", "down") if channel is not None else ():
        for part in getattr(channel, direction):
            if part.added_variance() is None and part.loss_probability() is None:
                raise NotCoveredError(
                    f'the theory does not cover channel.{direction}.kind = "{part.kind}" with these options: it states '
                    "neither that it only adds independent noise (added_variance) nor that it only loses messages "
                    "(loss_probability)"
                )
            if direction == "up" and part.loss_probability() == 1.0:
                raise NotCoveredError(
                    f'channel.up.kind = "{part.kind}" loses every upload, {_LEARNS_NOTHING}'
                )


def _check_availability(scenario: Scenario, availability: Availability) -> None:
    shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
    if not shares.any():
        raise NotCoveredError(
            f'availability.kind = "{availability.kind}": no client is ever available, {_LEARNS_NOTHING}'
        )
    if availability.learns == "available" and not shares.all():
        raise NotCoveredError(
            f'availability.learns = "available": client {shares.argmin()} is never available, so it learns nothing and '
            'there is no steady state; use "always" or leave the client out'
        )


def _check_delay(scenario: Scenario, delay: Delay) -> None:
    name, availability, chances = f'delay.kind = "{delay.kind}"', scenario.availability, delay.chances()
    if chances is None:
        raise NotCoveredError(
            f"the theory does not cover {name}: it does not state the chances of its delays, independent and the same "
            "for all uploads (chances)"
        )
    possible = np.flatnonzero(chances)
    if len(possible) > 1:
        raise NotCoveredError(
            f'the theory covers delays that are the same for all uploads, not {name}; simulate it, or use "fixed"'
        )
    if len(possible) == 0 or (delay.weight == 0.0 and possible[0] > 0):
        raise NotCoveredError(
            f"{name}, delay.weight = {delay.weight:g}: no upload ever counts, {_LEARNS_NOTHING}"
        )
    withheld = [a for a in scenario.attacks if isinstance(one := a.affine(), Affine) and one.is_lost]
    if withheld:
        raise NotCoveredError(
            f'the theory does not cover {name} with attack.kind = "{withheld[0].kind}": the mean divides by the number '
            "of uploads that arrive, which depends on who withholds; simulate it, or leave out one of them"
        )
    if availability is not None and not availability.server_knows:
        shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
        if np.ptp(shares) > 0:
            raise NotCoveredError(
                f"the theory covers {name} with availability.server_knows = false only if all clients are equally "
                "available: the mean divides by the number of uploads that arrive; simulate it, or let the server know"
            )


def check_paper_iteration(scenario: Scenario, question: str) -> None:
    """Refuse what has no recursion of the paper's iteration, for questions that are answered by it alone.

    Raises
    ------
    NotCoveredError
        With the `question` and the algorithm.
    """
    if not scenario.algorithm.holds_models:
        raise NotCoveredError(
            f'{question} is predicted for algorithm = "pso-fed", not for "{scenario.algorithm.kind}".'
        )
    opened = {
        "availability": scenario.availability,
        "channel": scenario.channel,
        "delay": scenario.delay,
        "several groups of attackers": len(scenario.attacks) > 1 or None,
        "learner but LMS": None if scenario.learner.linear() == LinearLearner() else scenario.learner,
    }
    _ = scenario.common_stepsize  # refuses stepsizes that differ between clients
    for name, part in opened.items():
        if part is not None:
            raise NotCoveredError(f"{question} is predicted for the paper's iteration, which has no {name}.")


def check_attack(model: "TheoryModel") -> None:
    """Refuse an attack, a drift or targets that a model's theory does not cover.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    kind = getattr(model.scenario.attack, "kind", None)
    if model.fleet.input_variance.max() < _LEAST_VARIANCE:
        raise NotCoveredError(
            f"data.input_variance is at most {model.fleet.input_variance.max():g}, too small for the theory's "
            "arithmetic: scale the inputs"
        )
    _ = model.walk  # refuses drifts
    step = model.scenario.learner.linear()
    normalises = step is not None and step.regularisation is not None
    if normalises and (not model.fleet.is_white or model.fleet.fourth_moments is not None):
        raise NotCoveredError(
            f'the theory covers learner.kind = "{model.scenario.learner.kind}" over white Gaussian inputs, which these '
            "are not"
        )
    if model.theory == "paper" and not model.scenario.algorithm.holds_models:
        raise NotCoveredError(
            'the paper\'s theory covers algorithm = "pso-fed"; use theory = "exact" for '
            f'"{model.scenario.algorithm.kind}"'
        )
    if model.theory == "paper" and not model.is_papers:
        raise NotCoveredError(
            "the paper's theory covers its own iteration: one attack, perfect links without delay, clients that are "
            'always available, LMS with one stepsize; use theory = "exact"'
        )
    if model.theory == "paper" and model.fleet.target_offsets is not None:
        raise NotCoveredError(
            "the paper's theory covers clients that all have the same target: set data.target_spread = 0, or use "
            'theory = "exact"'
        )
    if not model.statements:
        return
    if model.theory == "paper" and not model.is_additive:
        raise NotCoveredError(
            f'the paper\'s theory covers attacks of mean zero, independent between clients; "{kind}" is not: '
            'use theory = "exact"'
        )
    if all(hears_nothing(one, model.attack_chance) for one, _ in model.statements):
        raise NotCoveredError(
            f'attack.kind = "{kind}": all uploads are the server\'s own values, so it learns nothing and there is no '
            "steady state; let some clients be honest"
        )
    poisoning = [one for one, _ in model.statements if isinstance(one, PoisonedSamples)]
    if poisoning and not model.scenario.is_linear:
        raise NotCoveredError(f'the theory covers attack.kind = "{kind}" on linear streams; this one is not')
    noisy_inputs = any(one.input_noise_variance > 0 for one in poisoning)
    if noisy_inputs and model.fleet.fourth_moments is not None:
        raise NotCoveredError(
            f'the theory covers attack.kind = "{kind}" on Gaussian inputs, not on measured fourth moments'
        )
    pulls = any(  # towards 0: what they send moves with the target only if own + server = 1
        isinstance(one, Affine) and abs(one.own + one.server - 1.0) > 1e-12 and np.any(attackers.chance > 0)
        for one, attackers in model.statements
    )
    if model.walk and (pulls or model.is_poisoned):
        raise NotCoveredError(
            f'attack.kind = "{kind}" pulls towards a fixed point, and the target drifts ever further away from it: '
            "there is no steady state"
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
    Affine(own=-2.0, server=3.0, offset=0.0, variance=0.0, common_variance=0.0, is_lost=False)
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
            f'the theory does not cover drift.kind = "{drift.kind}": it does not state that its steps are independent '
            "and of equal variance (increment_variance)"
        )
    return variance
