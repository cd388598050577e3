"""Rows that a client which joins later needs alone to predict as well as with a given model.

Up to twelve clients of the federation are left out in turn. The others federate during the first half of the time.
Then the client joins: after its own warm-up it predicts with the federation's model as it is, or learns alone by
recursive least squares, the fastest way. With A_{k,j} and F_{k,j} the squared errors of both on its j-th row (limited
to five deviations), the number of rows is where learning alone begins to be as good:

    n* = argmax_n Σ_{j ≤ n} Σ_k (A_{k,j} − τ F_{k,j}),

with τ = 0.1 dB, in which errors count as equal. Its interval comes from drawing clients at random, with replacement.
"""

from contextlib import suppress

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.data.own_data import FEWEST_SAMPLES
from psofed.data.standardise import standardise
from psofed.scenario import Scenario
from psofed.studies.advice.advice import Newcomer
from psofed.studies.advice.cautions import BOUND
from psofed.studies.advice.judging import TOLERANCE, Clients
from psofed.studies.advice.ways import Runner, least_squares_errors

_MOST_CLIENTS, _FEWEST_CLIENTS = 12, 4
_DRAWS = 999


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
