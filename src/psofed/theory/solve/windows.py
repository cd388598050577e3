"""White inputs, round-robin with an offset per client: given offsets solved exactly, then averaged.

A prediction is (1/N) Σ_i m(o⁽ⁱ⁾) over sets of offsets o⁽ⁱ⁾, all of them if there are few. Else they are a sample, the
same every time, large enough that its standard error is at most 0.1 % of the network MSE and 0.25 % of the server MSD
at the scenario's stepsize; ``SteadyState.sampling_error`` reports it. ρ(𝓕) and stability take the largest over all
offsets equal and a few sampled ones.
"""

from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.metrics import SteadyState
from psofed.theory.moments.level import Level, Sources
from psofed.theory.solve.method import Method, by_source
from psofed.theory.solve.reduced import find_radius

if TYPE_CHECKING:
    from psofed.theory.maps.windows.problem import WindowProblem

_FIRST_SAMPLE = 64
_LARGEST_SAMPLE = 4096
_CURVE_SAMPLE = 32
_RADIUS_SAMPLE = 4
# Wanted of a sample of offsets: relative errors of network MSE and server MSD
SAMPLE_ERROR = Level(0.001, 0.0025)


class Windows(Method):
    """White inputs, round-robin with an offset per client."""

    needs = frozenset({"white", "scattered"})

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state, with its standard error where offsets are sampled."""
        found = self.by_source(self.masks, stepsize)
        total = found.sum(axis=1)
        error = total.std(axis=0, ddof=1) / np.sqrt(len(total)) if self.model.is_sampled else np.zeros(2)
        return SteadyState.of(found.mean(axis=0), error)

    def by_source(self, masks: FloatArray, stepsize: float) -> FloatArray:
        """Excess and MSD by source for each set of masks: (N, 4, 2)."""
        return by_source(
            self.model,
            lambda sources: self.problem.steady_states(masks, stepsize, sources),
            lambda sources: self.clean.problem.steady_states(masks, stepsize, sources),
        )

    def growth(self, stepsize: float) -> float:
        """Below one if and only if ρ(𝓕) is."""
        return max(self.problem.growth(mask, stepsize, 1.0) for mask in self._radius_masks)

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return max(
                find_radius(partial(self.problem.growth, mask, stepsize)) for mask in self._radius_masks
            )

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
    def masks(self) -> FloatArray:
        """Enough sets of masks for the asked precision at the scenario's own stepsize."""
        model, count = self.model, _FIRST_SAMPLE
        masks = model.window_masks(count)
        if not model.is_sampled or not self.is_stable(model.scenario.stepsize):
            return masks
        floor = float(model.fleet.noise_variance.mean())
        while count < _LARGEST_SAMPLE:
            levels = self.problem.steady_states(masks, model.scenario.stepsize, Sources())
            error, mean = levels.std(axis=0, ddof=1), levels.mean(axis=0) + np.array([floor, 0.0])
            wanted = mean * np.array([SAMPLE_ERROR.excess, SAMPLE_ERROR.server])
            needed = float(((error / wanted) ** 2).max())
            if needed <= count:
                break
            count = int(min(_LARGEST_SAMPLE, max(2 * count, 64 * np.ceil(needed / 64))))
            masks = model.window_masks(count)
        return masks

    @cached_property
    def _radius_masks(self) -> tuple[FloatArray, ...]:
        masks = self.model.window_masks(_RADIUS_SAMPLE)
        masks = masks[: _RADIUS_SAMPLE if self.model.drawn.clients < 30 else 1]
        aligned = np.broadcast_to(masks[0][:1], masks[0].shape).copy()  # all offsets equal: possible, too
        return (aligned, *masks)
