"""Setting up a fleet: for each number of shared entries the best stepsize, and which to choose."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.theory.models import Model
from psofed.theory.recursion import Sources
from psofed.theory.steady import Solver
from psofed.theory.stepsize import error_at, has_optimum, minimise, stable_range

_SETTLED = 10**0.1  # converged: within 1 dB of the steady state
_NEARLY_AS_GOOD = 10**0.01  # 0.1 dB
_LONGEST = 100_000
_MOST_CLIENTS_STEPPED = 300


@dataclass(frozen=True)
class TuningPoint:
    """What one number of shared entries offers.

    Attributes
    ----------
    num_shared : int
        M.
    stepsize : float
        The best one; the scenario's own without an attack, when the best is 0.
    network_mse, server_msd, test_mse : float
        Predicted steady state there; infinite if unstable.
    max_stepsize : float
        The mean-square stability limit.
    convergence_iterations : int or None
        Iterations until the network MSE is within 1 dB of its steady state.
    numbers_per_iteration : int
        Numbers exchanged per iteration, up and down, by all participants.
    """

    num_shared: int
    stepsize: float
    network_mse: float
    server_msd: float
    test_mse: float
    max_stepsize: float
    convergence_iterations: int | None
    numbers_per_iteration: int


@dataclass(frozen=True)
class Tuning:
    """Best stepsizes by number of shared entries, and a recommendation.

    Attributes
    ----------
    metric : str
        What was minimised: ``"network"``, ``"test"`` or ``"msd"``.
    points : tuple of TuningPoint
    recommended : TuningPoint
    reason : str
    """

    metric: str
    points: tuple[TuningPoint, ...]
    recommended: TuningPoint
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return {
            "metric": self.metric,
            "points": [asdict(point) for point in self.points],
            "recommendation": asdict(self.recommended) | {"reason": self.reason},
        }


def tune(
    scenario: Scenario, metric: str = "network", shared: Sequence[int] | None = None, theory: str = "exact"
) -> Tuning:
    """Find the best stepsize for each number of shared entries, and recommend one of them.

    Parameters
    ----------
    scenario : Scenario
        The fleet and the attack on it; its stepsize and number of shared entries are what is sought.
    metric : str
        ``"network"``, ``"test"`` or ``"msd"``.
    shared : sequence of int, optional
        Numbers of shared entries to consider; 1 to D by default.
    theory : str
        ``"exact"`` or ``"paper"``.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> tuning = tune(Scenario(num_clients=20, dimension=3, attack=Gaussian(num_byzantine=5)))
    >>> tuning.recommended.num_shared
    1
    """
    counts = tuple(shared) if shared is not None else tuple(range(1, scenario.dimension + 1))
    points = tuple(_point(scenario.replace(num_shared=count), metric, theory) for count in counts)
    recommended, reason = _recommend(points, metric, has_best=has_optimum(Model(scenario)))
    return Tuning(metric, points, recommended, reason)


def error_curve(
    scenario: Scenario, stepsizes: FloatArray, metric: str = "network", theory: str = "exact"
) -> FloatArray:
    """Predicted steady-state error at each stepsize; infinite where unstable."""
    solver = Solver(Model(scenario, theory))
    limit = stable_range(solver)
    return np.array([error_at(solver, float(mu), metric) if mu < limit else math.inf for mu in stepsizes])


def metric_of(point: TuningPoint, metric: str) -> float:
    """Return the error of a point that was minimised."""
    return {"network": point.network_mse, "test": point.test_mse, "msd": point.server_msd}[metric]


def _point(scenario: Scenario, metric: str, theory: str) -> TuningPoint:
    solver = Solver(Model(scenario, theory))
    # With correlated inputs every evaluation takes its time, and the minimum is flat.
    limit_tolerance, tolerance = (1e-2, 3e-2) if solver.model.entries.is_full else (1e-4, 2e-5)
    limit = stable_range(solver, limit_tolerance)
    has_best = has_optimum(solver.model)
    stepsize = (
        minimise(lambda mu: error_at(solver, mu, metric), limit, tolerance) if has_best else scenario.stepsize
    )
    stable = stepsize < limit
    errors = {
        name: error_at(solver, stepsize, name) if stable else math.inf for name in ("network", "test", "msd")
    }
    traffic = measure_communication(scenario)
    return TuningPoint(
        num_shared=scenario.num_shared,
        stepsize=stepsize,
        network_mse=errors["network"],
        server_msd=errors["msd"],
        test_mse=errors["test"],
        max_stepsize=limit,
        convergence_iterations=_settling_time(solver, stepsize, errors["network"]) if stable else None,
        numbers_per_iteration=int(traffic.numbers_down + traffic.numbers_up),
    )


def _settling_time(solver: Solver, stepsize: float, steady: float) -> int | None:
    """Count iterations until the network MSE is, and stays, within 1 dB of `steady`; from ρ(𝓕) for large fleets."""
    model = solver.model
    floor = float(model.fleet.noise_variance.mean())
    if model.drawn.clients > _MOST_CLIENTS_STEPPED:
        start = float(model.fleet.input_variance.mean())
        needed = math.log((_SETTLED - 1.0) * steady / start) / math.log(solver.spectral_radius(stepsize))
        return max(0, math.ceil(needed))
    if model.is_scattered:
        # Offsets hardly matter for how long it takes: a few of them are enough.
        length = 512
        while length <= _LONGEST:
            excess, _ = solver.curve(stepsize, length)
            late = np.nonzero(excess + floor > _SETTLED * steady)[0]
            if late.size == 0 or late[-1] < length // 2:
                return int(late[-1] + 1) if late.size else 0
            length *= 4
        return None
    recursion = model.recursion(stepsize, model.branches[0])
    v = recursion.initial
    for n in range(_LONGEST):
        if recursion.level(v).excess + floor <= _SETTLED * steady:
            return n
        v = recursion.step(v, n, Sources())
    return None


def _recommend(points: tuple[TuningPoint, ...], metric: str, has_best: bool) -> tuple[TuningPoint, str]:
    best = min(points, key=lambda point: metric_of(point, metric))
    close = [p for p in points if metric_of(p, metric) <= _NEARLY_AS_GOOD * metric_of(best, metric)]
    chosen = min(close, key=lambda point: point.numbers_per_iteration)
    title = {"network": "network MSE", "test": "test MSE", "msd": "server MSD"}[metric]
    if not has_best:
        reason = (
            "without an attack the error falls with the stepsize all the way to 0, so there is no best one; at the "
            f"scenario's own stepsize, M = {chosen.num_shared} has "
        )
    else:
        reason = f"M = {chosen.num_shared} at stepsize {chosen.stepsize:.4g} has "
    if not math.isfinite(metric_of(best, metric)):
        limit = f"{chosen.max_stepsize:.4g}"
        return chosen, f"no choice is stable at stepsize {chosen.stepsize:g}; choose one below {limit}"
    if chosen is best:
        return chosen, reason + f"the lowest {title} of all."
    lost = 10 * math.log10(metric_of(chosen, metric) / metric_of(best, metric))
    return chosen, reason + (
        f"a {title} only {lost:.2f} dB above the lowest (M = {best.num_shared}) and exchanges "
        f"{chosen.numbers_per_iteration} numbers per iteration instead of {best.numbers_per_iteration}."
    )
