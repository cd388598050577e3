"""Steady state, spectral radius and learning curve of a model, each by the cheapest exact way there is."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.scenario import Data, Scenario
from psofed.theory.models import Branch, Model
from psofed.theory.recursion import Level, Recursion, Sources, State
from psofed.theory.reduced import ReducedRecursion, can_reduce
from psofed.theory.windows import WindowProblem

_FIRST_SAMPLE = 64
_LARGEST_SAMPLE = 4096
_CORRELATED_SAMPLE = 24
_LARGEST_CORRELATED_SAMPLE = 192
_CURVE_SAMPLE = 32
_RADIUS_SAMPLE = 4
_SAMPLE_ERROR = Level(
    0.001, 0.0025
)  # asked of the sample of offsets: relative errors of network MSE and server MSD


_NOTHING = Level(0.0, 0.0)
_ALONE = (Sources(1.0, 0.0, 0.0), Sources(0.0, 1.0, 0.0), Sources(0.0, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class SteadyState:
    """Levels of the steady state by source, and the standard error of the average over offsets.

    Attributes
    ----------
    data : Level
        Due to the clients' observation noise: E_φ, and its part of the server's MSD.
    attack : Level
        Due to the attack: E_ω, likewise.
    sampling_error : Level
        Standard error where offsets were sampled, else zero.
    drift : Level
        Due to the target's random walk: the lag behind it.
    """

    data: Level
    attack: Level
    sampling_error: Level
    drift: Level = _NOTHING

    @property
    def total(self) -> Level:
        """All sources together."""
        return self.data + self.attack + self.drift


@dataclass(frozen=True, eq=False)
class Solver:
    """Solves one model at any stepsize.

    Parameters
    ----------
    model : Model
    """

    model: Model

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state; the stepsize must be stable."""
        return self._scattered(stepsize) if self.model.is_scattered else self._by_branch(stepsize)

    def _by_branch(self, stepsize: float) -> SteadyState:
        data = attack = drift = Level(0.0, 0.0)
        for branch in self.model.branches:
            recursion = self.model.recursion(stepsize, branch)
            known = self._solved.get((stepsize, id(branch)))
            level = known[0] if known else _solve(recursion, Sources(1.0, 0.0, 0.0))
            data += level.scaled(branch.weight)
            if np.any(self.model.poison):
                attack += _solve(recursion, Sources(0.0, 1.0, 0.0)).scaled(branch.weight)
            if self.model.walk:
                drift += _solve(recursion, Sources(0.0, 0.0, 1.0)).scaled(branch.weight)
        return SteadyState(data, attack, Level(0.0, 0.0), drift)

    def growth(self, stepsize: float, eigenvalue: float = 1.0) -> float:
        """Below one if and only if ρ(𝓕) is below `eigenvalue`."""
        return max(growth(stepsize, eigenvalue) for growth in self._growths)

    def is_stable(self, stepsize: float) -> bool:
        """Whether all second moments stay bounded."""
        if (
            not self._has_growth
            and not self.model.is_scattered
            and np.all(self.model.fleet.noise_variance > 0)
        ):
            return all(self._noise_state(stepsize, branch)[1] for branch in self.model.branches)
        return self.growth(stepsize) < 1.0

    def _noise_state(self, stepsize: float, branch: Branch) -> tuple[Level, bool]:
        """Steady state due to the noise alone, and whether it is one.

        A map F of covariances to covariances with ρ(F) ≥ 1 has x = F x + s solved by no covariance if s excites
        everything: with F's left eigenvector φ, φ·x (1 − ρ) = φ·s > 0. So the solution tells whether F is stable, and
        the eigenvalue need not be found.
        """
        key = (stepsize, id(branch))
        if key not in self._solved:
            recursion = self.model.recursion(stepsize, branch)
            try:
                level, state = recursion.steady_state(Sources(1.0, 0.0, 0.0))
                self._solved[key] = (level, is_covariance(recursion, state))
            except PsofedError:
                self._solved[key] = (Level(math.inf, math.inf), recursion.spectral_radius() < 1.0)
        return self._solved[key]

    @cached_property
    def _solved(self) -> dict[tuple[float, int], tuple[Level, bool]]:
        return {}

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕): by how much what is left of the start shrinks per iteration."""
        if not self._has_growth:
            return max(
                self.model.recursion(stepsize, branch).spectral_radius() for branch in self._radius_branches
            )
        return max(_radius(growth, stepsize) for growth in self._growths)

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        model = self.model
        if model.is_scattered and model.fleet.is_white:
            masks = model.window_masks(_CURVE_SAMPLE)
            excess, server = self._windows.curves(masks, stepsize, iterations)
            return excess, server
        excess, server = np.zeros(iterations), np.zeros(iterations)
        branches = model.offset_branches(_CORRELATED_SAMPLE) if model.is_scattered else model.branches
        for branch in branches:
            # Offsets one window apart are the same masks one iteration apart: enumerated offsets leave those out,
            # so every phase is a start; a sample of offsets has them all.
            starts = range(1 if model.is_sampled else len(branch.exchanges))
            recursion = model.recursion(stepsize, branch)
            for start in starts:
                part = recursion.curve(iterations, start)
                excess += part[0] * branch.weight / len(starts)
                server += part[1] * branch.weight / len(starts)
        return excess, server

    @property
    def sample_size(self) -> int:
        """How many sets of offsets are averaged; 0 if none have to be."""
        return len(self._masks) if self.model.is_scattered and self.model.fleet.is_white else 0

    # Spectral radius

    @property
    def _has_growth(self) -> bool:
        if self.model.is_scattered:
            return self.model.fleet.is_white
        return can_reduce(self.model.recursion(self.model.scenario.stepsize, self.model.branches[0]))

    @cached_property
    def _radius_branches(self) -> tuple[Branch, ...]:
        if not self.model.is_scattered:
            return self.model.branches
        return self.model.offset_branches(_RADIUS_SAMPLE)[:_RADIUS_SAMPLE]

    @cached_property
    def _growths(self) -> tuple[Callable[[float, float], float], ...]:
        model = self.model
        if not self._has_growth:
            return (lambda stepsize, eigenvalue: self.spectral_radius(stepsize) / eigenvalue,)
        if model.is_scattered:
            windows = self._windows
            masks = model.window_masks(_RADIUS_SAMPLE)[: _RADIUS_SAMPLE if model.drawn.clients < 30 else 1]
            aligned = np.broadcast_to(masks[0][:1], masks[0].shape).copy()  # all offsets equal: possible, too
            return tuple(
                lambda stepsize, eigenvalue, m=mask: windows.growth(m, stepsize, eigenvalue)
                for mask in (aligned, *masks)
            )
        branch = model.branches[0]

        def growth(stepsize: float, eigenvalue: float) -> float:
            reduced = ReducedRecursion(model.recursion(stepsize, branch), eigenvalue)
            return reduced.growth() if reduced.pair_bound < eigenvalue else np.inf

        return (growth,)

    # Round-robin masks with an offset for each client

    @cached_property
    def _windows(self) -> WindowProblem:
        model, drawn = self.model, self.model.drawn
        return WindowProblem(
            probabilities=np.array([drawn.single, drawn.pair, drawn.only_first, drawn.neither]),
            participants=drawn.participants,
            shift=model.scenario.num_shared,
            redrawn=model.scenario.uplink == "redrawn",
            input_variance=model.fleet.input_variance,
            noise_variance=model.fleet.noise_variance,
            poison=model.poison,
            walk=model.walk,
        )

    @cached_property
    def _masks(self) -> FloatArray:
        """Enough sets of masks for the asked precision at the scenario's own stepsize."""
        model, count = self.model, _FIRST_SAMPLE
        masks = model.window_masks(count)
        if not model.is_sampled or not self.is_stable(model.scenario.stepsize):
            return masks
        floor = float(model.fleet.noise_variance.mean())
        while count < _LARGEST_SAMPLE:
            levels = self._windows.steady_states(masks, model.scenario.stepsize, Sources())
            error, mean = levels.std(axis=0, ddof=1), levels.mean(axis=0) + np.array([floor, 0.0])
            wanted = mean * np.array([_SAMPLE_ERROR.excess, _SAMPLE_ERROR.server])
            needed = float(((error / wanted) ** 2).max())
            if needed <= count:
                break
            count = int(min(_LARGEST_SAMPLE, max(2 * count, 64 * np.ceil(needed / 64))))
            masks = model.window_masks(count)
        return masks

    def _scattered(self, stepsize: float) -> SteadyState:
        model = self.model
        if not model.fleet.is_white:
            return self._scattered_correlated(stepsize)
        found = self._by_source(self._masks, stepsize)
        total = found.sum(axis=1)
        error = total.std(axis=0, ddof=1) / np.sqrt(len(total)) if model.is_sampled else np.zeros(2)
        return _state(found.mean(axis=0), error)

    def _scattered_correlated(self, stepsize: float) -> SteadyState:
        """Average over offsets; a sample is corrected by white inputs of the same variances, where many are cheap."""
        model = self.model
        if not model.is_sampled:
            found = [self._given(branch, stepsize) for branch in model.offset_branches(0)]
            return _state(np.mean(found, axis=0), np.zeros(2))
        floor = np.array([float(model.fleet.noise_variance.mean()), 0.0])
        wanted = np.array([_SAMPLE_ERROR.excess, _SAMPLE_ERROR.server])
        branches = model.offset_branches(_LARGEST_CORRELATED_SAMPLE)
        found = [self._given(branch, stepsize) for branch in branches[:_CORRELATED_SAMPLE]]
        while True:
            mean, error = self._corrected(np.array(found), stepsize)
            if np.all(error <= wanted * (mean.sum(axis=0) + floor)) or len(found) == len(branches):
                return _state(mean, error)
            found += [self._given(branch, stepsize) for branch in branches[len(found) : 2 * len(found)]]

    def _given(self, branch: Branch, stepsize: float) -> FloatArray:
        """Excess and MSD by noise, attack and drift, given the offsets: (3, 2)."""
        recursion = self.model.recursion(stepsize, branch)
        levels = np.zeros((len(_ALONE), 2))
        for row, (sources, drives) in enumerate(zip(_ALONE, self._drives, strict=True)):
            if drives:
                level = _solve(recursion, sources)
                levels[row] = level.excess, level.server
        return levels

    def _corrected(self, values: FloatArray, stepsize: float) -> tuple[FloatArray, FloatArray]:
        """Mean over a sample of offsets and its standard error, with the white solution as control variate."""
        white, count = self._white, len(values)
        if white.is_stable(stepsize):
            masks = self.model.window_masks(_LARGEST_CORRELATED_SAMPLE)[:count]
            paired = white._by_source(masks, stepsize)
            state = white.steady_state(stepsize)
            centre = np.array([[x.excess, x.server] for x in (state.data, state.attack, state.drift)])
            deviation = paired - paired.mean(axis=0)
            slope = (deviation * values).sum(axis=0) / np.maximum((deviation**2).sum(axis=0), 1e-300)
            values = values - slope * (paired - centre)
        total = values.sum(axis=1)
        return np.asarray(values.mean(axis=0)), total.std(axis=0, ddof=2) / np.sqrt(count)

    @property
    def _drives(self) -> tuple[bool, bool, bool]:
        """Whether there is noise, an attack, a walk."""
        return True, bool(np.any(self.model.poison)), self.model.walk > 0

    @cached_property
    def _white(self) -> "Solver":
        return Solver(Model(_whitened(self.model)))

    def _by_source(self, masks: FloatArray, stepsize: float) -> FloatArray:
        """Excess and MSD by noise, attack and drift, for each set of masks: (N, 3, 2)."""
        levels = np.zeros((len(masks), len(_ALONE), 2))
        for row, (sources, drives) in enumerate(zip(_ALONE, self._drives, strict=True)):
            if drives:
                levels[:, row] = self._windows.steady_states(masks, stepsize, sources)
        return levels


def _state(levels: FloatArray, error: FloatArray) -> SteadyState:
    data, attack, drift = (Level(*level) for level in levels)
    return SteadyState(data, attack, Level(*error), drift)


def is_covariance(recursion: Recursion, state: State) -> bool:
    """Whether the average moments of server and clients are a covariance matrix, to rounding."""
    clients, size, drawn = recursion.drawn.clients, recursion.entries.dimension, recursion.drawn
    v = state.clients.mixed(drawn)
    joint = np.empty((clients + 1, clients + 1, size, size))
    shape = (size, size)
    joint[0, 0] = v.server.reshape(shape)
    joint[0, 1:] = v.cross1.reshape(-1, *shape)
    joint[1:, 0] = joint[0, 1:].swapaxes(-1, -2)
    joint[1:, 1:] = state.pairs.average(drawn, recursion.entries).reshape(clients, clients, *shape)
    k = np.arange(clients)
    joint[1 + k, 1 + k] = v.own1.reshape(-1, *shape)
    values = np.linalg.eigvalsh(joint.swapaxes(1, 2).reshape((clients + 1) * size, -1))
    return bool(np.isfinite(values).all() and values[0] >= -1e-6 * values[-1] and values[-1] > 0)


def _solve(recursion: Recursion, sources: Sources) -> Level:
    if can_reduce(recursion):
        return ReducedRecursion(recursion).steady_state(sources)[0]
    return recursion.steady_state(sources)[0]


def _radius(growth: Callable[[float, float], float], stepsize: float) -> float:
    """Find λ with growth(λ) = 1, which is ρ(𝓕), by secants in log λ; growth falls with λ, about as ρ(𝓕)/λ."""
    before, value_before = 0.0, math.log(growth(stepsize, 1.0))
    now = max(value_before, -0.7) if math.isfinite(value_before) else 0.7
    for _ in range(60):
        raw = growth(stepsize, math.exp(now))
        if not math.isfinite(raw):
            now = 0.5 * (now + before)  # below what a pair alone grows by: λ is too small
            continue
        value = math.log(raw)
        if abs(value) < 1e-9 or now == before:
            break
        slope = (value - value_before) / (now - before)
        before, value_before = now, value
        now += min(max(-value / min(slope, -0.2), -0.7), 0.7)
        if abs(now - before) < 1e-9:
            break
    return math.exp(now)


def _whitened(model: Model) -> Scenario:
    """Return the model's scenario with white inputs of the same variances."""
    scenario = model.scenario
    data = dataclasses.replace(
        Data(),
        input_variance=tuple(model.fleet.input_variance.tolist()),
        noise_variance=tuple(model.fleet.noise_variance.tolist()),
    )
    return scenario.replace(data=data)
