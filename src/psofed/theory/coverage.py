"""Cases that the theory does not cover: refusals by name, each with its reason."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, LinearLearner, PoisonedSamples, Statement
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Attack, Drift
from psofed.parts.channels.quantised import Quantised
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel


# Input variances below this vanish when they are squared twice; a product with the stepsize below the second one, when
# it is taken from 1.
_LEAST_VARIANCE, _LEAST_STEP = 1e-70, 1e-13

# Families of parts that the checks below look at; a part of any other is refused.
_FAMILIES = frozenset(
    (
        "algorithm",
        "aggregation",
        "pre_aggregation",
        "pattern",
        "learner",
        "model",
        "stream",
        "function",
        "drift",
        "attack",
        "defence",
        "availability",
        "channel",
        "delay",
    )
)


def check_scenario(scenario: Scenario) -> None:
    """Refuse an algorithm, a rule, a learner, a stream or another part that no theory covers.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    for part in scenario.parts():
        if part.family not in _FAMILIES:
            raise NotCoveredError(f'the theory knows nothing of {part.table}.kind = "{part.kind}"')
    algorithm = scenario.algorithm
    if not algorithm.holds_models:
        update = algorithm.linear_update(scenario)
        if update is None:
            raise NotCoveredError(
                f'the theory does not cover algorithm = "{algorithm.kind}" with these options: what the server makes '
                "of the uploads is not linear in them, or depends on each client's past, and can only be simulated"
            )
        if scenario.drift is not None or not scenario.is_linear or scenario.data.target_spread > 0:
            raise NotCoveredError(
                f'the theory covers algorithm = "{algorithm.kind}" on linear streams with one target for all clients '
                "that does not move, as the simulation does"
            )
        attack = scenario.attack
        if attack is not None and not (update.hears_attacks or attack.is_idle or attack.poisons_samples()):
            raise NotCoveredError(
                f'the theory covers algorithm = "{algorithm.kind}" without attacks on uploads, which its server '
                f'remembers for each client; attack.kind = "{attack.kind}" can only be simulated'
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
    check_learning(scenario)
    check_network(scenario)
    pattern = scenario.selection.pattern
    if (
        not isinstance(pattern, RoundRobin)
        and pattern.mask_moments(scenario.dimension, scenario.num_shared) is None
    ):
        raise NotCoveredError(
            f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments'
        )


def check_learning(scenario: Scenario) -> None:
    """Refuse learners and streams that no theory covers.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    kind, step = scenario.learner.kind, scenario.learner.linear()
    if step is None:
        raise NotCoveredError(
            f'the theory does not cover learner.kind = "{kind}": its step is not linear in the model, or depends on '
            "earlier samples; it can only be simulated"
        )
    if not scenario.data.stream.is_independent:
        raise NotCoveredError(
            "the theory covers inputs that are independent over time; "
            f'data.stream.kind = "{scenario.data.stream.kind}" can only be simulated'
        )
    if step == LinearLearner():
        return
    if not scenario.algorithm.holds_models:
        raise NotCoveredError(
            f'the theory covers algorithm = "{scenario.algorithm.kind}" with learner.kind = "lms", not "{kind}"'
        )
    if step.leakage > 0 and scenario.drift is not None:
        raise NotCoveredError(
            f'learner.kind = "{kind}" pulls models towards zero, from which a target that walks moves away for ever: '
            "there is no steady state; it can only be simulated"
        )
    if step.regularisation is None:
        return
    if (
        not scenario.is_linear
        or scenario.data.covariances is not None
        or scenario.data.input_correlation != 0.0
    ):
        raise NotCoveredError(
            f'the theory covers learner.kind = "{kind}" over white Gaussian inputs; these are not'
        )
    if step.regularisation == 0.0 and scenario.dimension <= 2:
        raise NotCoveredError(
            f'learner.kind = "{kind}" without regularisation has infinite error for dimension = {scenario.dimension}: '
            "inputs near zero amplify the noise without bound; give learner.regularisation"
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
            f'the theory does not cover availability.kind = "{availability.kind}": who is available depends on the '
            "past, so that moments of two clients depend on the states of all others; it can only be simulated"
        )
    if delay is not None:
        raise NotCoveredError(
            f'the theory does not cover delay.kind = "{delay.kind}": what arrives together depends on the past of all '
            "clients; it can only be simulated"
        )
    for direction in ("up", "down") if channel is not None else ():
        for part in getattr(channel, direction):
            if isinstance(part, Quantised) and part.reach < 2.0 / scenario.dimension**0.5:
                raise NotCoveredError(
                    f"the theory covers channel.{direction}.reach where no value is clipped; {part.reach:g} is less "
                    f"than twice the target's entries, {1.0 / scenario.dimension**0.5:.3g}"
                )
            if part.added_variance() is None and part.loss_probability() is None:
                raise NotCoveredError(
                    f'the theory does not cover channel.{direction}.kind = "{part.kind}" with these options: the error '
                    "that it adds depends on the values sent; it can only be simulated"
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
    statement, kind = model.statement, getattr(model.scenario.attack, "kind", None)
    if model.fleet.input_variance.max() < _LEAST_VARIANCE:
        raise NotCoveredError(
            f"data.input_variance is at most {model.fleet.input_variance.max():g}: nobody learns from such inputs, and "
            "the theory has nothing to say"
        )
    _ = model.walk  # refuses drifts
    step = model.scenario.learner.linear()
    normalises = step is not None and step.regularisation is not None
    if normalises and (not model.fleet.is_white or model.fleet.fourth_moments is not None):
        raise NotCoveredError(
            f'the theory covers learner.kind = "{model.scenario.learner.kind}" over white Gaussian inputs alone'
        )
    if model.theory == "paper" and not model.scenario.algorithm.holds_models:
        raise NotCoveredError(
            'the paper\'s theory covers algorithm = "pso-fed"; use theory = "exact" for '
            f'"{model.scenario.algorithm.kind}"'
        )
    if model.theory == "paper" and model.is_opened:
        raise NotCoveredError(
            "the paper's theory covers its own iteration: one attack, perfect links, clients that are always there, "
            'LMS with one stepsize; use theory = "exact"'
        )
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
    if all(hears_nothing(one, model.attackers.chance) for one, _ in model.statements):
        raise NotCoveredError(
            f'attack.kind = "{kind}": the server never hears what anybody has learned; there is no steady state'
        )
    poisoning = [one for one, _ in model.statements if isinstance(one, PoisonedSamples)]
    if poisoning and not model.scenario.is_linear:
        raise NotCoveredError(
            f'the theory covers attack.kind = "{kind}" on linear streams; here it can only be simulated'
        )
    noisy_inputs = any(one.input_noise_variance > 0 for one in poisoning)
    if noisy_inputs and model.fleet.fourth_moments is not None:
        raise NotCoveredError(
            f'the theory covers attack.kind = "{kind}" on Gaussian inputs, not on measured fourth moments'
        )
    pulls = model.law.corruption.constant is not None or (
        model.is_opened and model.open_parts.received.has_constant
    )
    if model.walk and (pulls or model.mixture.poisoned is not None):
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
            f'the theory covers drift.kind = "random-walk"; "{drift.kind}" states no steps of equal variance, and '
            "can only be simulated"
        )
    return variance
