"""Cases that the theory does not cover: refusals by name, each with its reason.

Covered is what keeps the iteration linear in the models given everything that is drawn independently of them, so that
the first two moments obey x' = F x + s: uploads α u + γ g + c + noise under the mean, learners
v + μ (x e/(ε + ‖x‖²) − γ v), and masks, participation, losses and delays that do not look at the models. A part states
this itself (``affine``, ``linear``, ``mask_moments``, ``adds_mean_update``, ``added_variance``, ``chances`` …); one
that states nothing is refused.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, LinearLearner, PoisonedSamples, Statement
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Attack, Drift
from psofed.parts.network import Delay
from psofed.parts.patterns.built_in import RoundRobin
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
    _refuse(_of_iteration(scenario))
    _refuse(_of_learning(scenario, theory))
    _refuse(_of_network(scenario))


def _refuse(reasons: Iterator[str]) -> None:
    """Raise the first reason, if there is one."""
    for reason in reasons:
        raise NotCoveredError(reason)


def _of_iteration(scenario: Scenario) -> Iterator[str]:
    """Yield what the theory does not cover of algorithm, rule, defence and masks."""
    for part in scenario.parts():
        if part.family not in _FAMILIES:
            yield f'the theory does not cover {part.table}.kind = "{part.kind}"'
    algorithm, pattern, data = scenario.algorithm, scenario.selection.pattern, scenario.data
    if not algorithm.holds_models:
        covers = f'the theory covers algorithm = "{algorithm.kind}"'
        if not algorithm.adds_mean_update:
            yield (
                f'the theory does not cover algorithm = "{algorithm.kind}": under the mean it does not simply add the '
                "average of the updates to the server's model (adds_mean_update)"
            )
        if scenario.drift is not None or not scenario.is_linear or data.target_spread > 0:
            yield (
                f"{covers} on linear streams with one target for all clients that does not move: leave out drift, "
                "model, function and data.target_spread"
            )
        links = (scenario.availability, scenario.channel, scenario.delay)
        if any(part is not None for part in links) or len(scenario.attacks) > 1:
            yield f"{covers} without [availability], [channel], [delay] and groups of attackers: leave them out"
    if not isinstance(scenario.aggregation, Mean):
        rule = scenario.aggregation.kind
        yield f'the theory covers aggregation = "mean", which is linear in the uploads, not "{rule}"'
    if scenario.defence is not None:
        kind = scenario.defence.kind
        yield f'the theory does not cover defence.kind = "{kind}": which clients it excludes depends on the uploads'
    if scenario.pre_aggregation is not None:
        yield f'the theory covers no pre-aggregation; leave out "{scenario.pre_aggregation.kind}"'
    states_moments = isinstance(pattern, RoundRobin) or pattern.mask_moments(scenario.dimension, scenario.num_shared)
    if states_moments is None:
        yield (f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments (mask_moments)')


def _of_learning(scenario: Scenario, theory: str) -> Iterator[str]:
    """Yield what the theory does not cover of learner and stream."""
    learner, step = f'learner.kind = "{scenario.learner.kind}"', scenario.learner.linear()
    if step is None:
        yield (
            f"the theory does not cover {learner}: it states no linear step that depends on the current sample alone "
            "(linear)"
        )
        return
    data = scenario.data
    if not data.stream.is_independent:
        stream, states_covariance = (f'data.stream.kind = "{data.stream.kind}"', data.stream.input_correlation())
        hint = '; theory = "independence" predicts as if they were' if states_covariance is not None else ""
        if theory != "independence":
            yield f"the theory covers inputs that are independent over time, not {stream}{hint}"
        if not scenario.is_linear:
            yield f"the theory covers {stream} with linear models and targets alone"
        if states_covariance is None:
            yield f"{stream} does not state the covariance of its inputs (input_correlation)"
    if step != LinearLearner() and not scenario.algorithm.holds_models:
        algorithm = scenario.algorithm.kind
        yield f'the theory covers algorithm = "{algorithm}" with learner.kind = "lms", not {learner}'
    if step.leakage > 0 and scenario.drift is not None:
        yield (
            f'{learner} pulls models towards zero, and drift.kind = "{scenario.drift.kind}" moves the target ever '
            "further away from it: there is no steady state"
        )
    if step.regularisation is None:
        return
    if not scenario.is_linear or data.covariances is not None or data.correlation != 0.0:
        yield (
            f"the theory covers {learner} over white Gaussian inputs: linear streams without data.covariances and "
            "with data.input_correlation = 0"
        )
    if step.regularisation == 0.0 and scenario.dimension <= 2:
        yield (
            f"{learner} without regularisation has infinite error for dimension = {scenario.dimension}: inputs near "
            "zero amplify the noise without bound; set learner.regularisation"
        )


def _of_network(scenario: Scenario) -> Iterator[str]:
    """Yield what the theory does not cover of availability, channels and delay."""
    availability, delay, channel = scenario.availability, scenario.delay, scenario.channel
    shares = np.ones(scenario.num_clients)
    if availability is not None:
        name = f'availability.kind = "{availability.kind}"'
        if not availability.is_memoryless:
            yield f"the theory does not cover {name}: {availability.not_memoryless_because}"
        shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
        if not shares.any():
            yield f"{name}: no client is ever available, {_LEARNS_NOTHING}"
        if availability.learns == "available" and not shares.all():
            yield (
                f'availability.learns = "available": client {shares.argmin()} is never available, so it learns nothing '
                'and there is no steady state; use "always" or leave the client out'
            )
    if delay is not None:
        knows = availability is None or availability.server_knows
        yield from _of_delay(scenario, delay, knows or np.ptp(shares) == 0)
    for direction in ("up", "down") if channel is not None else ():
        for part in getattr(channel, direction):
            name = f'channel.{direction}.kind = "{part.kind}"'
            if part.added_variance() is None and part.loss_probability() is None:
                yield (
                    f"the theory does not cover {name} with these options: it states neither that it only adds "
                    "independent noise (added_variance) nor that it only loses messages (loss_probability); simulate "
                    'it, or use "noisy"'
                )
            if direction == "up" and part.loss_probability() == 1.0:
                yield f"{name} loses every upload, {_LEARNS_NOTHING}"


def _of_delay(scenario: Scenario, delay: Delay, arrivals_are_alike: bool) -> Iterator[str]:
    name, chances = f'delay.kind = "{delay.kind}"', delay.chances()
    if chances is None:
        yield (
            f"the theory does not cover {name}: it does not state the chances of its delays, independent and the same "
            "for all uploads (chances)"
        )
        return
    possible = np.flatnonzero(chances)
    if len(possible) > 1:
        yield f'the theory covers delays that are the same for all uploads, not {name}; simulate it, or use "fixed"'
    if len(possible) == 0 or (delay.weight == 0.0 and possible[0] > 0):
        yield f"{name}, delay.weight = {delay.weight:g}: no upload ever counts, {_LEARNS_NOTHING}"
    for attack in scenario.attacks:
        if isinstance(statement := attack.affine(), Affine) and statement.is_lost:
            yield (
                f'the theory does not cover {name} with attack.kind = "{attack.kind}": the mean divides by the number '
                "of uploads that arrive, which depends on who withholds; simulate it, or leave out one of them"
            )
    if not arrivals_are_alike:
        yield (
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
    _refuse(_of_statistics(model))
    if model.theory == "paper":
        _refuse(_of_papers_theory(model))
    if model.statements:
        _refuse(_of_attack(model))


def _of_statistics(model: "TheoryModel") -> Iterator[str]:
    """Yield what the theory does not cover of the streams' moments and the walk."""
    widest = model.fleet.input_variance.max()
    if widest < _LEAST_VARIANCE:
        yield (f"data.input_variance is at most {widest:g}, too small for the theory's arithmetic: scale the inputs")
    _ = model.walk  # refuses drifts
    if model.learner.regularisation is not None and (
        not model.fleet.is_white or model.fleet.fourth_moments is not None
    ):
        kind = model.scenario.learner.kind
        yield f'the theory covers learner.kind = "{kind}" over white Gaussian inputs, which these are not'


def _of_papers_theory(model: "TheoryModel") -> Iterator[str]:
    """Yield what the paper's theory leaves out."""
    instead = 'use theory = "exact"'
    if not model.scenario.algorithm.holds_models:
        yield f'the paper\'s theory covers algorithm = "pso-fed"; {instead} for "{model.scenario.algorithm.kind}"'
    if not model.is_papers:
        yield (
            "the paper's theory covers its own iteration: one attack, perfect links without delay, clients that are "
            f"always available, LMS with one stepsize; {instead}"
        )
    if model.fleet.target_offsets is not None:
        yield (
            f"the paper's theory covers clients that all have the same target: set data.target_spread = 0, or {instead}"
        )
    if model.statements and not model.is_additive:
        yield (
            "the paper's theory covers attacks of mean zero, independent between clients; "
            f'"{model.scenario.attacks[0].kind}" is not: {instead}'
        )


def _of_attack(model: "TheoryModel") -> Iterator[str]:
    """Yield what the theory does not cover of the attacks."""
    attack = f'attack.kind = "{getattr(model.scenario.attack, "kind", None)}"'
    statements = [statement for statement, _ in model.statements]
    poisoning = [one for one in statements if isinstance(one, PoisonedSamples)]
    if all(hears_nothing(one, model.attack_chance) for one in statements):
        yield (
            f"{attack}: all uploads are the server's own values, so it learns nothing and there is no steady state; "
            "let some clients be honest"
        )
    if poisoning and not model.scenario.is_linear:
        yield f"the theory covers {attack} on linear streams; this one is not"
    if any(one.input_noise_variance > 0 for one in poisoning) and model.fleet.fourth_moments is not None:
        yield f"the theory covers {attack} on Gaussian inputs, not on measured fourth moments"
    # What attackers send moves with the target only if own + server = 1.
    affine = [one for one in statements if isinstance(one, Affine)]
    if model.walk and (poisoning or any(abs(one.own + one.server - 1.0) > 1e-12 for one in affine)):
        yield (
            f"{attack} pulls towards a fixed point, and the target drifts ever further away from it: there is no "
            "steady state"
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
        raise NotCoveredError(f'the theory does not cover attack.kind = "{attack.kind}": {attack.not_affine_because}')
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
