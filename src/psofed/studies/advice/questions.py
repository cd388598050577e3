"""Two further questions on a federation: what Byzantine clients would do to it, and what a newcomer gains.

The what-if analysis runs it with Byzantine clients, with the mean and with a robust rule.

For the newcomer, up to twelve clients of the federation are left out in turn. The others federate during the first half
of the time. Then the client joins: after its own warm-up it predicts with the federation's model as it is, or learns
alone by recursive least squares, the fastest way. With A_{k,j} and F_{k,j} the squared errors of both on its j-th row
(limited to five deviations), the number of rows is where learning alone begins to be as good:

    n* = argmax_n Σ_{j ≤ n} Σ_k (A_{k,j} − τ F_{k,j}),

with τ = 0.1 dB, in which errors count as equal. Its interval comes from drawing clients at random, with replacement.
"""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.data.own_data import FEWEST_SAMPLES
from psofed.data.standardise import standardise
from psofed.parts.attacks.by_value import SignFlip
from psofed.parts.base import Aggregation, Attack
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.studies.advice.advice import ByzantineWhatIf, LearningMethod, Newcomer, describe
from psofed.studies.advice.cautions import BOUND
from psofed.studies.advice.judging import TOLERANCE, Clients, Way
from psofed.studies.advice.ways import Runner, least_squares_errors

_FRACTION = 0.2  # of the clients are Byzantine where nobody says how many
_MOST_CLIENTS, _FEWEST_CLIENTS = 12, 4  # that are left out in turn
_DRAWS = 999  # of clients, for the interval


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


def ask_newcomer(runner: Runner, clients: Clients, setting: Scenario) -> Newcomer | None:
    """Return what a client gains that joins a federation of others; None with too few clients or rows."""
    edges, data = runner.judge.edges, runner.data
    start = int(edges[len(edges) // 2])
    places = np.unique(np.linspace(0, len(clients) - 1, _MOST_CLIENTS).astype(int)).tolist()
    make_features = runner.scenario.model.make_features(data.num_columns, runner.scenario.dimension)
    inputs, targets, scenarios = [], [], []
    for k in (clients[place] for place in places):
        raw, warmup = data.table, data.settings.warmup
        joined = len(raw.targets[k]) - data.samples[k] + start
        x, y, _ = standardise(raw.inputs[k][joined:], raw.targets[k][joined:], warmup, data.settings.clip)
        if len(y) >= FEWEST_SAMPLES and len(clients) >= _FEWEST_CLIENTS:
            with suppress(InvalidValueError):  # the scenario may have parts that need more clients
                others = runner.of_group(tuple(other for other in clients if other != k))
                settings = {"num_shared": setting.num_shared, "stepsize": setting.common_stepsize}
                scenarios.append(others.replace(iterations=min(start, others.iterations), **settings))
                inputs.append(make_features(x))
                targets.append(y)
    if len(scenarios) < _FEWEST_CLIENTS:
        return None
    alone = least_squares_errors(inputs, targets)[0]
    advantage = np.zeros(alone.shape[::-1])
    for k, (_, model) in enumerate(runner.run(scenarios, np.array([0, start]))):
        errors = (targets[k] - inputs[k] @ model) ** 2
        own = alone[: len(errors), k]
        advantage[k, : len(errors)] = np.minimum(own, BOUND**2) - (1 + TOLERANCE) * np.minimum(errors, BOUND**2)
    draws = np.random.default_rng(runner.settings.seed).integers(len(advantage), size=(_DRAWS, len(advantage)))
    low, high = np.percentile([_best_end(advantage[draw].sum(axis=0)) for draw in draws], [2.5, 97.5])
    return Newcomer(_best_end(advantage.sum(axis=0)), (int(low), int(np.ceil(high))), len(alone))


def _best_end(advantage: np.ndarray) -> int:
    """Return after how many rows the sum of an advantage is largest.

    Examples
    --------
    >>> _best_end(np.array([2.0, 1.0, -1.0, 0.5])), _best_end(np.array([-1.0, 0.5]))
    (2, 0)
    """
    return int(np.argmax(np.concatenate([[0.0], np.cumsum(advantage)])))
