"""White inputs, round-robin with an offset per client: given offsets solved exactly, then averaged.

A prediction is (1/N) Σ_i m(o⁽ⁱ⁾) over sets of offsets o⁽ⁱ⁾, all of them if there are few. Else they are a sample, the
same every time, large enough that its standard error is at most 0.1 % of the network MSE and 0.25 % of the server MSD
at the scenario's stepsize; ``SteadyState.sampling_error`` reports it. ρ(𝓕) and stability take the largest over all
offsets equal and a few sampled ones.
"""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.metrics import SteadyState
from psofed.theory.moments.level import Level, Sources
from psofed.theory.solve.method import Method, by_source

if TYPE_CHECKING:
    from psofed.theory.maps.windows.problem import WindowProblem

_FIRST_SAMPLE = 16
_LARGEST_SAMPLE = 4096
_SEARCH_SAMPLE = 8
_CURVE_SAMPLE = 32
_RADIUS_SAMPLE = 4
# Wanted of a sample of offsets: relative errors of network MSE and server MSD
SAMPLE_ERROR = Level(0.001, 0.0025)


class Windows(Method):
    """White inputs, round-robin with an offset per client."""

    needs: ClassVar[frozenset[str]] = frozenset({"white", "scattered"})

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state, with its standard error where offsets are sampled."""
        levels = self.levels(stepsize)
        return SteadyState.of(levels.mean(axis=0), _standard_error(levels) if self.model.is_sampled else None)

    def levels(self, stepsize: float) -> FloatArray:
        """Excess and MSD by source for each set of offsets of the sample: (N, 4, 2)."""
        if stepsize == self.model.scenario.common_stepsize and self._sampled.size:
            return self._sampled
        masks = self.model.window_masks(max(len(self._sampled), _FIRST_SAMPLE))
        return self.by_source(masks, stepsize)

    def rough_level(self, stepsize: float) -> Level:
        """Excess and MSD for a few sets of offsets, the same at every stepsize."""
        levels = self.problem.steady_states(self.model.window_masks(_SEARCH_SAMPLE), stepsize, Sources())
        return Level(*levels.mean(axis=0).tolist())

    def by_source(self, masks: FloatArray, stepsize: float) -> FloatArray:
        """Excess and MSD by source for each set of masks: (N, 4, 2)."""
        return by_source(
            self.model,
            lambda sources: self.problem.steady_states(masks, stepsize, sources),
            lambda sources: self.clean.problem.steady_states(masks, stepsize, sources),
        )

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕), the largest over all offsets equal and a few sampled ones."""
        with np.errstate(over="ignore", invalid="ignore"):
            return max(self.problem.spectral_radius(mask, stepsize) for mask in self._radius_masks)

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        excess, server = self.problem.curves(self.model.window_masks(_CURVE_SAMPLE), stepsize, iterations)
        return excess, server

    @cached_property
    def problem(self) -> "WindowProblem":
        """The compiled recursions."""
        # Nothing else in the theory needs Numba, which takes a while to import.
        from psofed.theory.maps.windows.problem import WindowProblem

        return WindowProblem(self.model)

    @cached_property
    def _sampled(self) -> FloatArray:
        """The levels at the scenario's own stepsize, of enough offsets for the asked precision; none if unstable."""
        model, stepsize = self.model, self.model.scenario.common_stepsize
        if not (self.is_stable(stepsize) and self.clean.is_stable(stepsize)):
            return np.zeros((0, 4, 2))
        count = _FIRST_SAMPLE
        levels = self.by_source(model.window_masks(count), stepsize)
        floor = np.array([float(model.fleet.noise_variance.mean()), 0.0])
        wanted = np.array([SAMPLE_ERROR.excess, SAMPLE_ERROR.server])
        while model.is_sampled and count < _LARGEST_SAMPLE:
            mean = levels.sum(axis=1).mean(axis=0) + floor
            needed = count * float(((_standard_error(levels) / (wanted * mean)) ** 2).max())
            if needed <= count:
                break
            # A larger sample begins with the smaller one, so only what is new is solved.
            count = int(min(_LARGEST_SAMPLE, max(2 * count, 16 * np.ceil(needed / 16))))
            more = self.by_source(model.window_masks(count)[len(levels) :], stepsize)
            levels = np.concatenate([levels, more])
        return levels

    @cached_property
    def _radius_masks(self) -> tuple[FloatArray, ...]:
        masks = self.model.window_masks(_RADIUS_SAMPLE)
        masks = masks[: _RADIUS_SAMPLE if self.model.drawn.clients < 30 else 1]
        aligned = np.broadcast_to(masks[0][:1], masks[0].shape).copy()  # all offsets equal: possible, too
        return (aligned, *masks)


def _standard_error(levels: FloatArray) -> FloatArray:
    """Return the standard error of the mean of all sources together, (2,)."""
    return np.asarray(levels.sum(axis=1).std(axis=0, ddof=1) / np.sqrt(len(levels)))
