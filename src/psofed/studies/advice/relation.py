"""Tests whether the relation between columns and target is linear: random features, and trees boosted on all rows."""

from importlib.util import find_spec
from itertools import pairwise

import numpy as np

from psofed.parts.models.built_in import Rff
from psofed.studies.advice.judging import Way
from psofed.studies.advice.running import Runner

_BANDWIDTHS = (1.5, 0.5)  # times √d, the typical distance of inputs from their mean
_MOST_FEATURES, _MOST_NUMBERS = 100, 20_000_000  # of random features, and of them in the whole table
_STEPSIZES = np.array([0.05, 0.15, 0.45, 1.0])  # E‖z‖² = 1
_MOST_ROWS, _STAGES = 50_000, 3  # that trees learn from, and how often they do


def random_features(runner: Runner) -> Way | None:
    """Run a federation of all clients with random features, shared completely; None if the model has some already."""
    if not runner.scenario.is_linear:
        return None
    rows, columns = sum(runner.data.samples), runner.data.num_columns
    count = int(np.clip(_MOST_NUMBERS // rows, 10, _MOST_FEATURES))
    models = [Rff(features=count, bandwidth=round(scale * columns**0.5, 2)) for scale in _BANDWIDTHS]
    ways = [
        runner.federation(runner.everybody, _STEPSIZES, [count], dimension=count, num_shared=count, model=model)
        for model in models
    ]
    errors = np.concatenate([way.errors for way in ways])
    return Way("rff", "random features", errors, tuple(s for way in ways for s in way.scenarios))


def boosted_trees(runner: Runner) -> Way | None:
    """Run trees that learn from all rows before a moment, at three moments; None without scikit-learn."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    data, edges, first = runner.data, runner.blocks.edges, runner.judge.first
    errors = np.zeros((runner.scenario.iterations, data.num_clients))
    ends = edges[np.unique(np.linspace(first, len(edges) - 1, _STAGES + 1).astype(int))].tolist()
    for start, end in pairwise(ends):
        x, y = (np.concatenate([rows[:start] for rows in of]) for of in (data.inputs, data.targets))
        chosen = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
        later = [rows[start:end] for rows in data.inputs]
        with threadpool_limits(1):
            trees = HistGradientBoostingRegressor(random_state=0).fit(x[chosen], y[chosen])
            forecasts = np.split(trees.predict(np.concatenate(later)), np.cumsum(list(map(len, later)))[:-1])
        for k, forecast in enumerate(forecasts):
            errors[start : start + len(forecast), k] = (data.targets[k][start:end] - forecast) ** 2
    return Way("boosting", "boosted trees, pooled", runner.blocks.sums(errors)[None])
