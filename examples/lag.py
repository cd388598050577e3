"""How far the server lags behind a random walk, measured by simulating with and without it."""

from psofed.common.errors import NotCoveredError
from psofed.results import Estimate, estimate
from psofed.scenario import Scenario
from psofed.simulation.monte_carlo import simulate


def measure_lag(scenario: Scenario, trials: int = 100, seed: int = 0) -> Estimate:
    """Measure by how many iterations the server lags behind a random walk, noise and attack taken out.

    The MSD with the walk less the MSD without it, on the same draws, over D·q: errors due to the walk and to all
    else are uncorrelated, so their powers add up.

    Examples
    --------
    >>> from psofed.parts.drifts import RandomWalk
    >>> drift = RandomWalk(variance=1e-3)
    >>> lag = measure_lag(Scenario(num_clients=6, dimension=2, iterations=500, drift=drift), trials=32)
    >>> 3 < lag.mean < 15
    True
    """
    variance = None if scenario.drift is None else scenario.drift.increment_variance()
    if not variance:
        raise NotCoveredError('a lag is measured behind drift.kind = "random-walk" of a variance above 0')
    walking, standing = (
        simulate(s, trials, seed).steady_state["server_msd"] for s in (scenario, scenario.replace(drift=None))
    )
    return estimate((walking - standing) / (scenario.dimension * variance))
