"""Correlated inputs, round-robin with an offset per client: few offsets solved in full, corrected by white inputs.

Each solution takes long, so the sample is small. The same offsets over white inputs of the same variances are cheap,
and their average x̄ is known from a large sample. With y_i a correlated and x_i a white solution for the same
offsets, the mean of

    y_i − β (x_i − x̄),    β = Cov(x, y)/Var(x),

has the same expectation as that of y_i and a smaller variance (a control variate).
"""

import dataclasses
from functools import cached_property
from typing import ClassVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.scenario import Data
from psofed.theory.metrics import SteadyState
from psofed.theory.model import Branch, TheoryModel
from psofed.theory.moments.level import Level, Sources
from psofed.theory.solve.full import Full
from psofed.theory.solve.windows import SAMPLE_ERROR, Windows

_LARGEST_SAMPLE = 192


class Scattered(Full):
    """Correlated inputs, round-robin with an offset per client."""

    needs: ClassVar[frozenset[str]] = frozenset({"correlated", "scattered"})
    sample: ClassVar[int] = 12  # at first; more if their spread asks for it
    radius_sample: ClassVar[int] = 4

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state, with its standard error where offsets are sampled."""
        model = self.model
        branches = model.offset_branches(_LARGEST_SAMPLE)
        if not model.is_sampled:
            return SteadyState.of(self._by_source(stepsize, branches).mean(axis=0))
        floor = np.array([float(model.fleet.noise_variance.mean()), 0.0])
        wanted = np.array([SAMPLE_ERROR.excess, SAMPLE_ERROR.server])
        values = self._by_source(stepsize, branches[: self.sample])
        while True:
            mean, error = self._corrected(values, stepsize)
            if np.all(error <= wanted * (mean.sum(axis=0) + floor)) or len(values) == len(branches):
                return SteadyState.of(mean, error)
            more = self._by_source(stepsize, branches[len(values) : 2 * len(values)])
            values = np.concatenate([values, more])

    def rough_level(self, stepsize: float) -> Level:
        """Excess and MSD for a few sets of offsets, the same at every stepsize."""
        if not self.model.is_sampled:
            return super().rough_level(stepsize)
        branches = self._branches(self.radius_sample)
        levels = [self._solved(stepsize, branch, True).level(Sources()) for branch in branches]
        return Level(*np.mean(levels, axis=0).tolist())

    def _branches(self, count: int) -> tuple[Branch, ...]:
        branches = super()._branches(count)
        return branches[:count] if count == self.radius_sample else branches  # a few are enough for ρ(𝓕)

    def _corrected(self, values: FloatArray, stepsize: float) -> tuple[FloatArray, FloatArray]:
        """Mean over a sample of offsets and its standard error, with the white solution as control variate."""
        white, count = self._white, len(values)
        if white.is_stable(stepsize) and white.clean.is_stable(stepsize):
            masks = self.model.window_masks(_LARGEST_SAMPLE)[:count]
            paired = white.by_source(masks, stepsize)
            centre = white.levels(stepsize).mean(axis=0)
            values = _control(values, paired, centre)
        total = values.sum(axis=1)
        return np.asarray(values.mean(axis=0)), total.std(axis=0, ddof=2) / np.sqrt(count)

    @cached_property
    def _white(self) -> Windows:
        """The same fleet with white inputs of the same variances."""
        fleet = self.model.fleet
        data = dataclasses.replace(
            Data(),
            input_variance=tuple(fleet.input_variance.tolist()),
            noise_variance=tuple(fleet.noise_variance.tolist()),
        )
        return Windows(TheoryModel(self.model.scenario.replace(data=data)))


def _control(values: FloatArray, paired: FloatArray, centre: FloatArray) -> FloatArray:
    """Return values y_i − β (x_i − x̄), with x = `paired` and x̄ = `centre`."""
    deviation = paired - paired.mean(axis=0)
    slope = (deviation * values).sum(axis=0) / np.maximum((deviation**2).sum(axis=0), 1e-300)
    return np.asarray(values - slope * (paired - centre))
