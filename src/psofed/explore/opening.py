"""Settings that the page opens your own data with: the best of a small grid, simulated on the data."""

import math

import numpy as np

from psofed.scenario import Scenario
from psofed.settings.simulation import SimulationSettings

_TRIALS = 16
_STEPSIZES = 10
_MOST_UPDATES = 6_000_000  # by clients, in all: about two seconds
_FEWEST_ITERATIONS = 50
_NEARLY_AS_GOOD = 10**0.01  # 0.1 dB


def tuned(scenario: Scenario, keep_shared: bool = False) -> Scenario:
    """Return a scenario with your own data at its best stepsize and number of shared parameters, 1 or all.

    Of numbers within 0.1 dB of the best the smallest is taken. Large tables are tried on their first rows.
    """
    from psofed.fleet.measured import table_samples
    from psofed.simulation.monte_carlo import run_trials

    counts = [scenario.num_shared] if keep_shared else sorted({1, scenario.dimension})
    power = float(table_samples(scenario)[0].input_variance.mean()) * scenario.dimension
    stepsizes = np.geomspace(0.01, 1.0, _STEPSIZES) / max(power, 1e-9)
    affordable = _MOST_UPDATES // (scenario.num_clients * _TRIALS * _STEPSIZES * len(counts))
    length = min(scenario.iterations, max(affordable, _FEWEST_ITERATIONS))
    found = {}
    for count in counts:
        for stepsize in stepsizes:
            tried = scenario.replace(num_shared=count, stepsize=float(f"{stepsize:.3g}"), iterations=length)
            result, _ = run_trials(tried, SimulationSettings(_TRIALS, tail=length))
            error = result.network_mse.mean
            found[count, tried.stepsize] = error if math.isfinite(error) else math.inf
    least = min(found.values())
    if math.isinf(least):
        return scenario
    best = {
        count: min((key for key in found if key[0] == count), key=lambda key: found[key]) for count in counts
    }
    chosen = next(key for key in best.values() if found[key] <= _NEARLY_AS_GOOD * least)
    return scenario.replace(num_shared=chosen[0], stepsize=chosen[1])
