"""Stepsizes and numbers of shared parameters that do best on a table: what the advice and the explorer start from."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.search import Tried

# How often the grid of stepsizes is extended if the best is the smallest, and by how many.
_EXTENSIONS, _ADDED = 2, 3
# Client updates that tuned_federation may spend, a few seconds, and the samples of each client that it uses at least.
_MOST_UPDATES, _FEWEST_SAMPLES = 8_000_000, 100


class Tuner:
    """Tries stepsizes and numbers of shared parameters on a table, and keeps notes on what it met."""

    def __init__(self, trier: Trier) -> None:
        self._trier = trier
        self.notes: list[str] = []

    def tune(
        self, name: str, grid: FloatArray, run: Callable[[FloatArray], FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Run stepsizes, and smaller ones while the smallest is best; errors are (…, stepsizes, blocks, K)."""
        errors = run(grid)
        for extension in range(_EXTENSIONS + 1):
            flat = errors.reshape(-1, *errors.shape[-2:])
            scores = self._trier.judge.past_errors(flat, len(self._trier.blocks.counts))
            best = int(np.argmin(scores.sum(axis=1))) % len(grid)
            if best or extension == _EXTENSIONS:
                break
            lower = grid[0] * self._trier.factor ** -np.arange(_ADDED, 0.0, -1.0)
            grid, errors = np.concatenate([lower, grid]), np.concatenate([run(lower), errors], axis=-3)
        if best in (0, len(grid) - 1):
            why = "it hardly learns" if best == 0 else "larger ones could overshoot on single rows"
            which = "smallest" if best == 0 else "largest"
            self.notes.append(
                f"the best stepsize of {name}, {grid[best]:.3g}, is the {which} that was tried: {why}."
            )
        return grid, errors

    def federation(self, counts: Sequence[int]) -> Tried:
        """Run the federation of all clients with these numbers of shared parameters."""
        base = self._trier.scenario

        def settings(grid: FloatArray) -> list[Scenario]:
            return [base.replace(num_shared=count, stepsize=float(mu)) for count in counts for mu in grid]

        def run(grid: FloatArray) -> FloatArray:
            errors = self._trier.federations(settings(grid))
            return errors.reshape(len(counts), len(grid), *errors.shape[1:])

        start = self._trier.stepsizes(base.iterations, base.num_participants)
        grid, errors = self.tune("the federation", start, run)
        return Tried(settings(grid), errors.reshape(-1, *errors.shape[2:]))


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
    full = AdviceSettings()
    counts = [scenario.num_shared] if keep_shared else None
    plain = scenario.replace(defence=None)  # whose threshold at every stepsize would take too long
    trier = Trier(plain, full)
    stepsizes = trier.stepsizes(scenario.iterations, scenario.num_participants)
    runs = len(stepsizes) * len(counts or trier.shared())
    affordable = _MOST_UPDATES // (runs * scenario.num_clients)  # iterations times trials
    length = min(scenario.iterations, max(affordable, _FEWEST_SAMPLES))
    trials = min(full.trials, max(affordable // length, 1))
    if (length, trials) != (scenario.iterations, full.trials):
        trier = Trier(_first_rows(plain, length), full.replace(trials=trials))
    tried = Tuner(trier).federation(counts or trier.shared())
    best = trier.judge.choose(tried.errors, tried.costs).last
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
