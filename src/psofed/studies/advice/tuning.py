"""The stepsize and number of shared parameters that do best on a table: what the explorer starts from."""

from dataclasses import replace

import numpy as np

from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.running import Runner

# Client updates that tuned_federation may spend, a few seconds, and the samples of each client that it uses at least.
_MOST_UPDATES, _FEWEST_SAMPLES = 8_000_000, 100


def tuned_federation(scenario: Scenario, keep_shared: bool = False) -> Scenario:
    """Return a scenario with your own data at the stepsize and number of shared parameters that do best on it.

    The choice is that of :func:`psofed.advise` for a federation of all clients. Of large tables the first rows are
    tried, fewer times, and a defence is left out meanwhile. The scenario is returned unchanged if everything diverges.

    Examples
    --------
    >>> from psofed import advise, from_arrays
    >>> rng = np.random.default_rng(1)
    >>> X, clients = rng.standard_normal((600, 3)), np.arange(600) % 10
    >>> data = from_arrays(X, X.sum(axis=1) + rng.standard_normal(600), clients)
    >>> best = tuned_federation(Scenario.from_data(data, num_participants=10))
    >>> chosen = advise(data, byzantine=0).scenario
    >>> (best.num_shared, best.stepsize) == (chosen.num_shared, float(f"{chosen.stepsize:.4g}"))
    True
    """
    check_covered(scenario)
    settings = AdviceSettings()
    plain = scenario.replace(defence=None)  # whose threshold at every stepsize would take too long
    runner = Runner(plain, settings)
    counts = [scenario.num_shared] if keep_shared else runner.shared()
    runs = len(runner.stepsizes(scenario.num_participants)) * len(counts)
    affordable = _MOST_UPDATES // (runs * scenario.num_clients)  # iterations times trials
    length = min(scenario.iterations, max(affordable, _FEWEST_SAMPLES))
    trials = min(settings.trials, max(affordable // length, 1))
    if (length, trials) != (scenario.iterations, settings.trials):
        runner = Runner(_first_rows(plain, length), settings.replace(trials=trials))
    tried = runner.federation(runner.everybody, runner.stepsizes(scenario.num_participants), counts)
    best = runner.judge.best(tried, runner.judge.blocks)
    if not np.isfinite(tried.errors[best]).all():
        return scenario
    chosen = tried.scenarios[best]
    return scenario.replace(num_shared=chosen.num_shared, stepsize=float(f"{chosen.common_stepsize:.4g}"))


def _first_rows(scenario: Scenario, count: int) -> Scenario:
    data = scenario.own_data
    assert data is not None
    inputs, targets = (tuple(rows[:count] for rows in of) for of in (data.inputs, data.targets))
    rows = replace(data, inputs=inputs, targets=targets)
    return scenario.replace(iterations=min(count, max(rows.samples)), data=scenario.data.replace(rows=rows))
