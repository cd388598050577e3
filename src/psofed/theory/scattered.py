"""Round-robin masks with an offset for each client: the steady state averaged over offsets."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.scenario import Data, Scenario
from psofed.theory.models import Model
from psofed.theory.recursion import Level, Sources
from psofed.theory.steady import Solver, SteadyState, by_source
from psofed.theory.window_problem import WindowProblem

_FIRST_SAMPLE = 64
_LARGEST_SAMPLE = 4096
_CORRELATED_SAMPLE = 24
_LARGEST_CORRELATED_SAMPLE = 192
# Asked of the sample of offsets: relative errors of network MSE and server MSD
_SAMPLE_ERROR = Level(0.001, 0.0025)


@dataclass(frozen=True, eq=False)
class Scattered:
    """Averages a solver's model over the offsets of its clients.

    Parameters
    ----------
    solver : Solver
    """

    solver: Solver

    @property
    def model(self) -> Model:
        """The solver's model."""
        return self.solver.model

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state, with its standard error where offsets are sampled."""
        if not self.model.fleet.is_white:
            return self._correlated(stepsize)
        found = self.by_source(self.masks, stepsize)
        total = found.sum(axis=1)
        error = total.std(axis=0, ddof=1) / np.sqrt(len(total)) if self.model.is_sampled else np.zeros(2)
        return SteadyState.of(found.mean(axis=0), error)

    def by_source(self, masks: FloatArray, stepsize: float) -> FloatArray:
        """Excess and MSD by source for each set of masks: (N, 4, 2); white inputs."""

        def solve(model: Model, sources: Sources) -> FloatArray:
            problem = self.windows if model is self.model else self.solver.clean.scattered.windows
            return problem.steady_states(masks, stepsize, sources)

        return by_source(self.model, solve)

    @cached_property
    def windows(self) -> WindowProblem:
        """The compiled recursions of white inputs."""
        return WindowProblem.of(self.model)

    @cached_property
    def masks(self) -> FloatArray:
        """Enough sets of masks for the asked precision at the scenario's own stepsize."""
        model, count = self.model, _FIRST_SAMPLE
        masks = model.window_masks(count)
        if not model.is_sampled or not self.solver.is_stable(model.scenario.stepsize):
            return masks
        floor = float(model.fleet.noise_variance.mean())
        while count < _LARGEST_SAMPLE:
            levels = self.windows.steady_states(masks, model.scenario.stepsize, Sources())
            error, mean = levels.std(axis=0, ddof=1), levels.mean(axis=0) + np.array([floor, 0.0])
            wanted = mean * np.array([_SAMPLE_ERROR.excess, _SAMPLE_ERROR.server])
            needed = float(((error / wanted) ** 2).max())
            if needed <= count:
                break
            count = int(min(_LARGEST_SAMPLE, max(2 * count, 64 * np.ceil(needed / 64))))
            masks = model.window_masks(count)
        return masks

    def _correlated(self, stepsize: float) -> SteadyState:
        """Average over offsets; a sample is corrected by white inputs of the same variances, where many are cheap."""
        model, given = self.model, self.solver.given
        if not model.is_sampled:
            found = [given(branch, stepsize) for branch in model.offset_branches(0)]
            return SteadyState.of(np.mean(found, axis=0), np.zeros(2))
        floor = np.array([float(model.fleet.noise_variance.mean()), 0.0])
        wanted = np.array([_SAMPLE_ERROR.excess, _SAMPLE_ERROR.server])
        branches = model.offset_branches(_LARGEST_CORRELATED_SAMPLE)
        found = [given(branch, stepsize) for branch in branches[:_CORRELATED_SAMPLE]]
        while True:
            mean, error = self._corrected(np.array(found), stepsize)
            if np.all(error <= wanted * (mean.sum(axis=0) + floor)) or len(found) == len(branches):
                return SteadyState.of(mean, error)
            found += [given(branch, stepsize) for branch in branches[len(found) : 2 * len(found)]]

    def _corrected(self, values: FloatArray, stepsize: float) -> tuple[FloatArray, FloatArray]:
        """Mean over a sample of offsets and its standard error, with the white solution as control variate."""
        white, count = self._white, len(values)
        if white.is_stable(stepsize) and white.clean.is_stable(stepsize):
            masks = self.model.window_masks(_LARGEST_CORRELATED_SAMPLE)[:count]
            paired = white.scattered.by_source(masks, stepsize)
            centre = white.scattered.by_source(white.scattered.masks, stepsize).mean(axis=0)
            deviation = paired - paired.mean(axis=0)
            slope = (deviation * values).sum(axis=0) / np.maximum((deviation**2).sum(axis=0), 1e-300)
            values = values - slope * (paired - centre)
        total = values.sum(axis=1)
        return np.asarray(values.mean(axis=0)), total.std(axis=0, ddof=2) / np.sqrt(count)

    @cached_property
    def _white(self) -> Solver:
        """The same fleet with white inputs of the same variances."""
        return Solver(Model(_whitened(self.model)))


def _whitened(model: Model) -> Scenario:
    scenario = model.scenario
    data = dataclasses.replace(
        Data(),
        input_variance=tuple(model.fleet.input_variance.tolist()),
        noise_variance=tuple(model.fleet.noise_variance.tolist()),
    )
    return scenario.replace(data=data)
