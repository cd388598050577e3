"""Answers about one model at any stepsize: steady state by source, stability, spectral radius and learning curve.

The moments of one period follow x' = 𝓕 x + s. The steady state solves x = 𝓕 x + s by GMRES; it exists if and only if
ρ(𝓕) < 1. 𝓕 takes covariances to covariances, so ρ(𝓕) is its largest real eigenvalue. A stepsize below the contraction
bound is stable, which is checked first.

By source, the steady state solves for each part of s alone, without the attack. The attack's term is what it adds to
the sum of these, so that terms add up.

Round-robin with an offset per client is solved given offsets, and averaged over sets of them: all if they are few, else
a sample that doubles until its standard error is small, up to 32 sets. Stability is that of all these sets and of those
known to be the least stable.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import ImpossibleResultError, NotCoveredError
from psofed.common.types import FloatArray
from psofed.scenario.describe import describe_scenario
from psofed.theory.clipping import check_reach, clips
from psofed.theory.groups import PRECISION
from psofed.theory.iteration import NO_SOURCES, Iteration, Moments, Sources
from psofed.theory.krylov import dominant_eigenvalue, solve_fixed_points
from psofed.theory.law import Law
from psofed.theory.metrics import Level, SteadyState
from psofed.theory.model import TheoryModel
from psofed.theory.stability import contraction_bound

_MOST_UNKNOWNS = 6_000_000  # beyond, an iteration takes a second and a steady state minutes
_SIDE_BY_SIDE = 200_000  # unknowns of sets of offsets that are solved at once
_LARGE = 100_000  # unknowns where each digit costs: eight are more than a prediction needs
_ROUGH, _SAMPLED = 1e-6, 1e-6  # precision of a comparison, and of a solution that is averaged over a sample
_APART, _APART_ROUGHLY = 8, 2  # fastest and slowest clients that are not lumped for an eigenvalue
_CLOSE = 3e-3  # distance of an eigenvalue from 1 that a rough one may be wrong by
_FIRST_SAMPLE, _LARGEST_SAMPLE = 4, 32
_SEARCH_SAMPLE = 4
_FIRST_LOOK, _SETTLED = 256, 1e-4  # iterations of a curve, and its distance from the steady state
_WANTED = np.array([0.002, 0.005])  # relative standard errors of network MSE and server MSD
_POWER_STEPS, _LEAST_STABLE, _MOVES = 40, 3, 6
_LARGE_SETS = 10_000  # unknowns beyond which only few sets are looked at for stability


@dataclass(frozen=True, eq=False)
class Recursion:
    """The iterations of one period: 𝓕 and s.

    Parameters
    ----------
    phases : tuple of (Iteration or None, int)
        The iteration of each phase and the index of its mask; None where nothing happens.
    precision : float
        Relative residual of a steady state; at least 1e-8 with many unknowns.
    """

    phases: tuple[tuple[Iteration | None, int], ...]
    precision: float = PRECISION

    @property
    def iteration(self) -> Iteration:
        """Any of the iterations; all have the same moments."""
        return next(iteration for iteration, _ in self.phases if iteration is not None)

    @property
    def period(self) -> int:
        """T."""
        return len(self.phases)

    def step(self, moments: Moments, n: int, sources: Sources | None = None) -> Moments:
        """Take the moments through iteration n."""
        iteration, mask = self.phases[n % self.period]
        return moments if iteration is None else iteration.step(moments, mask, sources)

    def linear(self, x: FloatArray) -> FloatArray:
        """𝓕 x of vectors (sets, unknowns)."""
        return self._through_period(x, NO_SOURCES)

    def _through_period(self, x: FloatArray, sources: Sources) -> FloatArray:
        moments = self.iteration.unpack(x)
        for n in range(self.period):
            moments = self.step(moments, n, sources)
        return moments.pack(self.iteration.sets)

    def steady_state(self, sources: Sources) -> tuple[FloatArray, Moments]:
        """Return the levels averaged over a period, (sets, 3), and the moments at its start."""
        iteration = self.iteration
        zero = np.zeros((iteration.sets, iteration.size))
        tolerance = max(self.precision, 0.0 if zero.size < _LARGE else 1e-8)
        moments = state = iteration.unpack(
            solve_fixed_points(self.linear, self._through_period(zero, sources), tolerance)
        )
        total = iteration.levels(moments, sources.direction)
        for n in range(self.period - 1):
            moments = self.step(moments, n, sources)
            total = total + iteration.levels(moments, sources.direction)
        return total / self.period, state

    def spectral_radius(self, tolerance: float = 1e-8) -> float:
        """ρ(𝓕) per iteration, the largest of all sets: that of all their moments side by side."""
        start = self.iteration.initial.pack(self.iteration.sets)
        noise = np.random.default_rng(0).standard_normal(start.size)
        start_vector = start.ravel() * (1.0 + 0.01 * noise)
        radius = dominant_eigenvalue(lambda x: self.linear(x.reshape(start.shape)).ravel(), start_vector, tolerance)
        return float(max(radius, 0.0) ** (1.0 / self.period))

    def growth(self) -> FloatArray:
        """Estimate ρ(𝓕) per iteration of each set by power iteration, (sets,)."""
        x = self.iteration.initial.pack(self.iteration.sets)
        norm = np.ones(len(x))
        for _ in range(-(-_POWER_STEPS // self.period)):
            x = self.linear(x)
            norm = np.linalg.norm(x, axis=1)
            x = x / np.where(norm > 0.0, norm, 1.0)[:, None]
        return np.asarray(norm ** (1.0 / self.period))

    def curve(self, iterations: int, start: int = 0) -> FloatArray:
        """Return the levels at iterations 0 … n − 1, (n, sets, 3), the first with the mask of phase `start`."""
        moments, levels = self.iteration.initial, np.full((iterations, self.iteration.sets, 3), np.inf)
        with np.errstate(over="ignore", invalid="ignore"):  # at an unstable stepsize
            for n in range(iterations):
                now = self.iteration.levels(moments)
                if not np.isfinite(now[:, :2]).all():
                    break
                levels[n] = now
                moments = self.step(moments, start + n)
        return levels


@dataclass(frozen=True, eq=False)
class Solver:
    """Solves one model at any stepsize.

    Parameters
    ----------
    model : TheoryModel
    precision : float
        Relative error that answers may have.
    """

    model: TheoryModel
    precision: float = PRECISION
    _radii: dict[tuple[float, float], float] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def clean(self) -> "Solver":
        """The solver of the model without the attack."""
        return self if self.model.clean is self.model else replace(self, model=self.model.clean)

    @cached_property
    def rough(self) -> "Solver":
        """A solver that is precise enough to compare stepsizes."""
        return self if self.precision >= _ROUGH else replace(self, precision=_ROUGH)

    @cached_property
    def by_honesty(self) -> "Solver":
        """The solver that knows the honest clients' error."""
        model = self.model
        if model.tells_honest:
            return self
        return replace(self, model=replace(model, measured=model.fleet, by_honesty=True))

    def steady_state(self, stepsize: float) -> SteadyState:
        """Return the steady state by source, with its standard error where offsets are sampled; μ must be stable."""
        self.check_reach(stepsize)
        offsets = self._offsets(_LARGEST_SAMPLE)
        if offsets is None or not self.model.is_sampled:
            return SteadyState.of(self._checked(self._by_source(stepsize, offsets)).mean(axis=0))
        levels = self._checked(self._by_source(stepsize, offsets[:_FIRST_SAMPLE]))
        floor = np.array([float(self.model.fleet.noise_variance.mean()), 0.0])
        while True:
            totals = levels.sum(axis=1)
            error = totals.std(axis=0, ddof=1) / np.sqrt(len(totals))
            if len(levels) == len(offsets) or np.all(error[:2] <= _WANTED * (totals.mean(axis=0)[:2] + floor)):
                return SteadyState.of(levels.mean(axis=0), error)
            more = self._by_source(stepsize, offsets[len(levels) : 2 * len(levels)])
            levels = np.concatenate([levels, self._checked(more)])

    def level(self, stepsize: float) -> Level:
        """Return all sources' levels at a stable stepsize; over few sets where offsets are sampled."""
        recursions = self.recursions(stepsize, self._offsets(_SEARCH_SAMPLE))
        levels = np.concatenate([recursion.steady_state(Sources())[0] for recursion in recursions])
        return Level(*self._checked(levels[:, None])[:, 0].mean(axis=0))

    def spectral_radius(self, stepsize: float, tolerance: float = 1e-8) -> float:
        """ρ(𝓕): the factor by which the influence of the start shrinks per iteration, in the end."""
        if (stepsize, tolerance) not in self._radii:
            with np.errstate(over="ignore", invalid="ignore"):
                recursions = self.recursions(stepsize, self._least_stable(stepsize), directed=False, apart=_APART)
                radius = max(recursion.spectral_radius(tolerance) for recursion in recursions)
            self._radii[stepsize, tolerance] = radius
        return self._radii[stepsize, tolerance]

    def is_stable(self, stepsize: float) -> bool:
        """Whether all second moments stay bounded; an eigenvalue of few digits decides if it is not close to 1."""
        model = self.model
        if model.is_bounded and stepsize < contraction_bound(model.fleet):
            return True
        if model.is_lumpable and not model.is_scattered:
            recursions = self.recursions(stepsize, directed=False, apart=_APART_ROUGHLY, precision=_ROUGH)
            with np.errstate(over="ignore", invalid="ignore"):
                radius = max(recursion.spectral_radius(_ROUGH) for recursion in recursions)
            if abs(radius - 1.0) > _CLOSE:
                return radius < 1.0
        return self.spectral_radius(stepsize) < 1.0

    def curve(self, stepsize: float, iterations: int) -> FloatArray:
        """Excess network MSE, server MSD and honest clients' excess over the iterations, (3, n)."""
        total, count = np.zeros((iterations, 3)), 0
        for recursion in self.recursions(stepsize, self._offsets(_LARGEST_SAMPLE)):
            # Offsets one window apart are the same masks one iteration apart: enumerated offsets leave those out,
            # so every phase is a start; a sample of offsets has them all.
            is_cyclic = self.model.scenario.algorithm.holds_models and not self.model.is_sampled
            for start in range(recursion.period if is_cyclic else 1):
                levels = recursion.curve(iterations, start)
                total, count = total + levels.sum(axis=1), count + levels.shape[1]
        return np.asarray(self._checked(total[:, None] / count)[:, 0].T)

    def mean_level(self, stepsize: float, iterations: int) -> Level:
        """Mean levels over the learning curve at a stable stepsize, computed until it has settled."""
        length = iterations if self.model.is_scattered or iterations < 4 * _FIRST_LOOK else _FIRST_LOOK
        while True:
            curve = self.curve(stepsize, length)
            total = curve.sum(axis=1)
            if length == iterations:
                return Level(*(total / iterations).tolist())
            level = self.rough.level(stepsize)
            steady = np.array([level.excess, level.server, level.honest])
            far = np.abs(curve[:, -length // 4 :] - steady[:, None]) > _SETTLED * steady[:, None]
            if not np.any(far):
                return Level(*((total + (iterations - length) * steady) / iterations).tolist())
            length = min(4 * length, iterations)

    def check_reach(self, stepsize: float) -> None:
        """Refuse a stable stepsize at which links clip values, which the theory assumes they do not."""
        if clips(self.model.scenario):
            offsets = self._offsets(1)
            recursion = next(self.recursions(stepsize, None if offsets is None else offsets[:1]))
            check_reach(self.model, recursion.steady_state(Sources())[1], stepsize)

    def num_moments(self, stepsize: float) -> int:
        """Count the numbers that one iteration of a curve computes."""
        law = Law(self.model, stepsize)
        return self._unknowns(law)

    # By source

    def _by_source(self, stepsize: float, offsets: NDArray[np.int64] | None) -> FloatArray:
        """Levels by source of each set of offsets: (N, 4, 3), rows data, attack, drift, targets."""
        model = self.model
        attacked = list(self.recursions(stepsize, offsets))
        # An additive attack leaves the linear part as it is: one recursion serves both.
        base = attacked if model.is_additive else list(self.clean.recursions(stepsize, offsets))

        def solve(recursions: list[Recursion], sources: Sources) -> FloatArray:
            return np.concatenate([recursion.steady_state(sources)[0] for recursion in recursions])

        data = solve(base, Sources(1.0, 0.0, 0.0, direction=False))
        levels = np.zeros((len(data), 4, 3))
        levels[:, 0] = data
        if model.walk:
            levels[:, 2] = solve(base, Sources(0.0, 0.0, 1.0, direction=False))
        if model.clean.has_direction:
            levels[:, 3] = solve(base, Sources(0.0, 0.0, 0.0, direction=True))
        if model.is_additive:
            levels[:, 1] = solve(attacked, Sources(0.0, 1.0, 0.0, direction=False))
        elif model.attacks:
            levels[:, 1] = solve(attacked, Sources()) - levels.sum(axis=1)
        return levels

    def _checked(self, levels: FloatArray) -> FloatArray:
        """Return levels (N, sources, 3); refuse those that no error can have."""
        totals, sizes = levels.sum(axis=1), np.abs(levels).sum(axis=1)
        totals[:, 2:] = np.nan_to_num(totals[:, 2:])  # honest clients may not be told apart
        floor = 1e-15 * float(self.model.fleet.target @ self.model.fleet.target)
        if not np.all(totals >= np.nan_to_num(-1e-8 * sizes) - floor):
            excess, server, _ = totals.min(axis=0)
            raise ImpossibleResultError(
                f"the theory predicts an excess MSE of {excess:g} and a server MSD of {server:g} "
                f"({describe_scenario(self.model.scenario)})"
            )
        return levels

    # Recursions

    def _offsets(self, count: int) -> NDArray[np.int64] | None:
        """Return sets of offsets to average over, (N, K); None unless windows are scattered."""
        return self.model.windows.offsets(count) if self.model.is_scattered else None

    def _least_stable(self, stepsize: float) -> NDArray[np.int64] | None:
        """Return sets of offsets, (N, K), whose moments grow fastest.

        They are sought among those known to be bad and the sample, and then by moving one client's window at a time.
        """
        if not self.model.is_scattered:
            return None
        is_large = self.model.is_lumpable or self._unknowns(Law(self.model, stepsize)) > _LARGE_SETS
        sample = self.model.windows.offsets(_LARGEST_SAMPLE)[: _FIRST_SAMPLE if is_large else None]
        offsets = np.concatenate([self.model.windows.extreme(self.model.attack_chance > 0), sample])
        growth = self._growths(stepsize, offsets)
        for _ in range(_MOVES if self.model.is_sampled and not is_large else 0):
            nearby = self.model.windows.neighbours(offsets[np.argmax(growth)])
            moved = self._growths(stepsize, nearby)
            is_better = moved.max() > growth.max() * (1.0 + 1e-9)
            offsets, growth = np.concatenate([offsets, nearby]), np.concatenate([growth, moved])
            if not is_better:
                break
        return np.unique(offsets[np.argsort(growth)[-_LEAST_STABLE:]], axis=0)

    def _growths(self, stepsize: float, offsets: NDArray[np.int64]) -> FloatArray:
        """Estimate ρ(𝓕) for each set of offsets by power iteration."""
        recursions = self.recursions(stepsize, offsets, directed=False, apart=_APART)
        growths = np.concatenate([recursion.growth() for recursion in recursions])
        return np.asarray(np.nan_to_num(growths, nan=np.inf))

    def recursions(
        self, stepsize: float, offsets: NDArray[np.int64] | None = None, **options: Any
    ) -> Iterator[Recursion]:
        """Yield recursions for as many sets of offsets at a time as are solved side by side."""
        # An average over a sample of offsets is not more precise than the sample.
        precision = max(self.precision, _SAMPLED if self.model.is_sampled else 0.0)
        options = {"precision": precision} | options
        if offsets is not None and self.model.is_lumpable:  # each set has its own groups
            for row in offsets:
                law = Law(self.model, stepsize, offsets=row, **options)
                masks, _ = self.model.masks(law.groups.window[None])
                iteration = Iteration(self._affordable(law), masks)
                yield Recursion(tuple((iteration, n) for n in range(len(masks))), precision)
            return
        laws = {
            count: self._affordable(Law(self.model, stepsize, participants=count or None, **options))
            for count in self._exchanges
        }
        chunk = max(1, _SIDE_BY_SIDE // self._unknowns(next(iter(laws.values()))))
        for first in range(0, 1 if offsets is None else len(offsets), chunk):
            masks, sets = self.model.masks(None if offsets is None else offsets[first : first + chunk])
            iterations = {count: Iteration(law, masks, sets) if count else None for count, law in laws.items()}
            if len(masks) > 1:
                (single,) = iterations.values()
                yield Recursion(tuple((single, n) for n in range(len(masks))), precision)
            else:
                yield Recursion(tuple((iterations[count], 0) for count in self._exchanges), precision)

    def _affordable(self, law: Law) -> Law:
        """Refuse a law with too many unknowns."""
        unknowns, groups = self._unknowns(law), law.groups.size
        if unknowns > _MOST_UNKNOWNS:
            raise NotCoveredError(
                f"{groups} clients of num_clients = {self.model.scenario.num_clients} differ so much that the theory "
                f"would keep the moments of all their pairs, {unknowns:,} numbers; use at most "
                f"{int(groups * (_MOST_UNKNOWNS / unknowns) ** 0.5)} clients, or simulate"
            )
        return law

    @cached_property
    def _exchanges(self) -> tuple[int, ...]:
        """P_n of one period; 0 where clients that hold no model save their budget up."""
        scenario = self.model.scenario
        if scenario.algorithm.holds_models:
            return (scenario.num_participants,)
        traffic = scenario.algorithm.traffic(scenario)
        cost = traffic.group * max(traffic.bits_up, traffic.bits_down)
        return tuple(traffic.exchanges_in(n) for n in range(cost // math.gcd(cost, traffic.budget)))

    def _unknowns(self, law: Law) -> int:
        width = law.block * (law.delay + 1 + 2 * law.groups.size)
        return self.model.entries.size * width * (width + len(law.products))
