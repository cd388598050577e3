"""Cases that the theory does not cover: refusals by name, each with its reason.

Covered is what keeps the iteration linear in the models given everything that is drawn independently of them, so that
the first two moments obey x' = F x + s: uploads α u + γ g + c + noise under the mean, learners
v + μ (x e/(ε + ‖x‖²) − γ v), and masks, participation, losses and delays that do not look at the models. A part states
this itself (``affine``, ``linear``, ``mask_moments``, ``adds_mean_update``, ``added_variance``, ``chances`` …); one
that states nothing is refused. Each check below is a condition and the reason to refuse a scenario that meets it.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.parts.affine import LinearLearner, Statement
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Attack, Drift
from psofed.parts.patterns.built_in import RoundRobin
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel

Checks = Iterator[tuple[Any, str]]

# Input variances below this vanish when they are squared twice; a product with the stepsize below the second one, when
# it is taken from 1.
_LEAST_VARIANCE, _LEAST_STEP = 1e-70, 1e-13

_LEARNS_NOTHING = "so the server learns nothing and there is no steady state"

# Families of parts that the checks below look at; a part of any other is refused.
_FAMILIES = (
    "algorithm", "aggregation", "pre_aggregation", "pattern", "learner", "model", "stream", "function", "drift",
    "attack", "defence", "availability", "channel", "delay",
)  # fmt: skip


# Kinds of parts in the paper.
_PAPERS_PARTS = ("pso-fed", "mean", "random", "round-robin", "lms", "linear", "independent", "gaussian")


def check_covered(model: "TheoryModel") -> None:
    """Refuse a scenario that a model's theory does not cover.

    Raises
    ------
    NotCoveredError
        By name and with the reason.
    """
    scenario = model.scenario
    checks = itertools.chain(
        _of_iteration(scenario), _of_server_models(scenario), _of_learning(scenario, model.theory),
        _of_availability(scenario), _of_delay(scenario), _of_links(scenario), _of_statistics(model),
        _of_papers_theory(model), _of_attack(model),
    )  # fmt: skip
    for condition, reason in checks:
        if condition:
            raise NotCoveredError(reason)


def _kind(part: Any) -> str:
    return getattr(part, "kind", "")


def _of_iteration(scenario: Scenario) -> Checks:
    """Check algorithm, rule, defence and masks."""
    algorithm, pattern = scenario.algorithm, scenario.selection.pattern
    defence, first = _kind(scenario.defence), _kind(scenario.pre_aggregation)
    for part in scenario.parts():
        yield part.family not in _FAMILIES, f'the theory does not cover {part.table}.kind = "{part.kind}"'
    yield (
        not algorithm.holds_models and not algorithm.adds_mean_update,
        f'the theory does not cover algorithm = "{algorithm.kind}": under the mean it does not simply add the average '
        "of the updates to the server's model (adds_mean_update)",
    )
    yield (
        not isinstance(scenario.aggregation, Mean),
        f'the theory covers aggregation = "mean", which is linear in the uploads, not "{scenario.aggregation.kind}"',
    )
    yield (
        defence,
        f'the theory does not cover defence.kind = "{defence}": which clients it excludes depends on the uploads',
    )
    yield first, f'the theory covers no pre-aggregation; leave out "{first}"'
    states_moments = isinstance(pattern, RoundRobin) or pattern.mask_moments(scenario.dimension, scenario.num_shared)
    yield (
        states_moments is None,
        f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments (mask_moments)',
    )


def _of_server_models(scenario: Scenario) -> Checks:
    """Check algorithms whose clients hold no models."""
    if scenario.algorithm.holds_models:
        return
    opened = (scenario.availability, scenario.channel, scenario.delay, scenario.drift)
    is_plain = scenario.is_linear and scenario.data.target_spread == 0 and len(scenario.attacks) <= 1
    yield (
        not is_plain or any(part is not None for part in opened) or scenario.learner.linear() != LinearLearner(),
        f'the theory covers algorithm = "{scenario.algorithm.kind}" with learner.kind = "lms" on linear streams with '
        "one fixed target: leave out drift, model, function, data.target_spread, [availability], [channel], [delay] "
        "and groups of attackers",
    )


def _of_learning(scenario: Scenario, theory: str) -> Checks:
    """Check learner and stream."""
    data, learner, step = scenario.data, f'learner.kind = "{scenario.learner.kind}"', scenario.learner.linear()
    yield (
        step is None,
        f"the theory does not cover {learner}: it states no linear step that depends on the current sample alone "
        "(linear)",
    )
    assert step is not None
    if not data.stream.is_independent:
        stream, covariance = f'data.stream.kind = "{data.stream.kind}"', data.stream.input_correlation()
        hint = '; theory = "independence" predicts as if they were' if covariance is not None else ""
        yield (theory != "independence", f"the theory covers inputs that are independent over time, not {stream}{hint}")
        yield not scenario.is_linear, f"the theory covers {stream} with linear models and targets alone"
        yield covariance is None, f"{stream} does not state the covariance of its inputs (input_correlation)"
    yield (
        step.leakage > 0 and scenario.drift is not None,
        f'{learner} pulls models towards zero, and drift.kind = "{_kind(scenario.drift)}" moves the target ever '
        "further away from it: there is no steady state",
    )
    yield (
        step.regularisation == 0.0 and scenario.dimension <= 2,
        f"{learner} without regularisation has infinite error for dimension = {scenario.dimension}: inputs near zero "
        "amplify the noise without bound; set learner.regularisation",
    )


def _of_availability(scenario: Scenario) -> Checks:
    """Check who is available."""
    availability = scenario.availability
    if availability is None:
        return
    name = f'availability.kind = "{availability.kind}"'
    yield (not availability.is_memoryless, f"the theory does not cover {name}: {availability.not_memoryless_because}")
    shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
    yield not shares.any(), f"{name}: no client is ever available, {_LEARNS_NOTHING}"
    yield (
        availability.learns == "available" and not shares.all(),
        f'availability.learns = "available": client {shares.argmin()} is never available, so it learns nothing and '
        'there is no steady state; use "always" or leave the client out',
    )
    yield (
        scenario.delay is not None and not availability.server_knows and np.ptp(shares) > 0,
        f'the theory covers delay.kind = "{_kind(scenario.delay)}" with availability.server_knows = false only if all '
        "clients are equally available: the mean divides by the number of uploads that arrive; simulate it, or let the "
        "server know",
    )


def _of_delay(scenario: Scenario) -> Checks:
    """Check delays."""
    delay = scenario.delay
    if delay is None:
        return
    name, chances = f'delay.kind = "{delay.kind}"', delay.chances()
    yield (
        chances is None,
        f"the theory does not cover {name}: it does not state the chances of its delays, independent and the same for "
        "all uploads (chances)",
    )
    possible = np.flatnonzero(chances or ())
    yield (
        len(possible) > 1,
        f'the theory covers delays that are the same for all uploads, not {name}; simulate it, or use "fixed"',
    )
    yield (
        len(possible) == 0 or (delay.weight == 0.0 and possible[0] > 0),
        f"{name}, delay.weight = {delay.weight:g}: no upload ever counts, {_LEARNS_NOTHING}",
    )
    for attack in scenario.attacks:
        yield (
            getattr(attack.affine(), "is_lost", False),
            f'the theory does not cover {name} with attack.kind = "{attack.kind}": the mean divides by the number of '
            "uploads that arrive, which depends on who withholds; simulate it, or leave out one of them",
        )


def _of_links(scenario: Scenario) -> Checks:
    """Check channels."""
    for direction in ("up", "down") if scenario.channel is not None else ():
        for part in getattr(scenario.channel, direction):
            name, loss = f'channel.{direction}.kind = "{part.kind}"', part.loss_probability()
            yield (
                part.added_variance() is None and loss is None,
                f"the theory does not cover {name} with these options: it states neither that it only adds independent "
                "noise (added_variance) nor that it only loses messages (loss_probability); simulate it, or use "
                '"noisy"',
            )
            yield direction == "up" and loss == 1.0, f"{name} loses every upload, {_LEARNS_NOTHING}"


def _of_statistics(model: "TheoryModel") -> Checks:
    """Check the streams' moments and the walk."""
    fleet, widest, scenario = model.fleet, model.fleet.input_variance.max(), model.scenario
    yield (
        widest < _LEAST_VARIANCE,
        f"data.input_variance is at most {widest:g}, too small for the theory's arithmetic: scale the inputs",
    )
    _ = model.walk  # refuses drifts
    is_plain = scenario.is_linear and fleet.is_white and fleet.fourth_moments is None
    yield (
        model.learner.regularisation is not None and not is_plain,
        f'the theory covers learner.kind = "{scenario.learner.kind}" over white Gaussian inputs: linear streams '
        "without data.covariances and with data.input_correlation = 0",
    )


def _of_papers_theory(model: "TheoryModel") -> Checks:
    """Check what the paper's theory leaves out."""
    if model.theory != "paper":
        return
    is_covered = model.is_papers and model.scenario.algorithm.holds_models and model.fleet.target_offsets is None
    yield (
        not is_covered or (model.attacks and not model.is_additive),
        f"the paper's theory does not cover {beyond_paper(model.scenario)}, but PSO-Fed with LMS, one stepsize and one "
        "target for all clients, one attack of mean zero, independent between clients, perfect links without delay, "
        'and clients that are always available; use theory = "exact"',
    )


def beyond_paper(scenario: Scenario) -> str:
    """Name the settings that the paper's iteration does not have."""
    named = [f'{part.family} "{part.kind}"' for part in scenario.parts() if part.kind not in _PAPERS_PARTS]
    if not isinstance(scenario.stepsize, float | int):
        named.append("a stepsize per client")
    if len(scenario.attacks) > 1:
        named.append("groups of attackers")
    return ", ".join(named) or "clients with targets of their own"


def _of_attack(model: "TheoryModel") -> Checks:
    """Check the attacks."""
    attack = f'attack.kind = "{_kind(model.scenario.attack)}"'
    poisoning = any(one.is_poisoning for one in model.attacks)
    only_echoes = all((one.upload.own, one.upload.server) == (0.0, 1.0) for one in model.attacks)
    yield (
        only_echoes and np.all(model.attack_chance == 1.0),
        f"{attack}: all uploads are the server's own values, so it learns nothing and there is no steady state; let "
        "some clients be honest",
    )
    yield (poisoning and not model.scenario.is_linear, f"the theory covers {attack} on linear streams; this one is not")
    yield (
        model.fleet.fourth_moments is not None and any(one.samples.input_noise_variance for one in model.attacks),
        f"the theory covers {attack} on Gaussian inputs, not on measured fourth moments",
    )
    # What attackers send moves with the target only if own + server = 1.
    pulls = any(abs(one.upload.own + one.upload.server - 1.0) > 1e-12 for one in model.attacks)
    yield (
        model.walk and (poisoning or pulls),
        f"{attack} pulls towards a fixed point, and the target drifts ever further away from it: there is no steady "
        "state",
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
