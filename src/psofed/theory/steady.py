"""Steady state, spectral radius and learning curve of a model, each by the cheapest exact way there is."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.models import Branch, Model
from psofed.theory.recursion import Level, Recursion, Sources, State
from psofed.theory.reduced import ReducedRecursion, can_reduce
from psofed.theory.stability import contraction_bound

if TYPE_CHECKING:
    from psofed.theory.scattered import Scattered

_CURVE_SAMPLE = 32
_CORRELATED_SAMPLE = 24
_RADIUS_SAMPLE = 4

_NOTHING = Level(0.0, 0.0)
# Each source alone: noise, attack, walk, and targets of the clients' own
ALONE = (
    Sources(1.0, 0.0, 0.0, direction=False),
    Sources(0.0, 1.0, 0.0, direction=False),
    Sources(0.0, 0.0, 1.0, direction=False),
    Sources(0.0, 0.0, 0.0, direction=True),
)
ATTACK = 1


@dataclass(frozen=True, eq=False)
class SteadyState:
    """Levels of the steady state by source, and the standard error of the average over offsets.

    Attributes
    ----------
    data : Level
        Due to the clients' observation noise, without the attack: E_φ, and its part of the server's MSD.
    attack : Level
        What the attack adds to the same fleet without it: E_ω, and its part of the server's MSD. All products of what
        the attack does with noise, walk and targets count here. Negative if the attack does good.
    sampling_error : Level
        Standard error where offsets were sampled, else zero.
    drift : Level
        Due to the target's random walk, without the attack: the lag behind it.
    targets : Level
        Due to clients that have targets of their own, without the attack.
    """

    data: Level
    attack: Level
    sampling_error: Level
    drift: Level = _NOTHING
    targets: Level = _NOTHING

    @property
    def total(self) -> Level:
        """All sources together."""
        return self.data + self.attack + self.drift + self.targets

    @classmethod
    def of(cls, levels: FloatArray, error: FloatArray) -> "SteadyState":
        """Name the rows of levels (4, 2): excess and MSD by :data:`ALONE`."""
        data, attack, drift, targets = (Level(*level) for level in levels)
        return cls(data, attack, Level(*error), drift, targets)


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
        if self.model.is_scattered:
            return self.scattered.steady_state(stepsize)
        levels = np.zeros((len(ALONE), 2))
        for branch in self.model.branches:
            levels += branch.weight * self.given(branch, stepsize)
        return SteadyState.of(levels, np.zeros(2))

    def given(self, branch: Branch, stepsize: float) -> FloatArray:
        """Excess and MSD by source, given the offsets: (4, 2)."""
        found: dict[int, Recursion | ReducedRecursion] = {}  # all sources of a model share one recursion

        def solve(model: Model, sources: Sources) -> FloatArray:
            known = self._solved.get((stepsize, id(branch)))
            if known and model is self.model and sources == ALONE[0]:
                return np.array([known[0].excess, known[0].server])
            if id(model) not in found:
                recursion = model.recursion(stepsize, branch)
                found[id(model)] = ReducedRecursion(recursion) if can_reduce(recursion) else recursion
            level = found[id(model)].steady_state(sources)[0]
            return np.array([level.excess, level.server])

        return by_source(self.model, solve)

    @cached_property
    def clean(self) -> "Solver":
        """The same without the attack."""
        return self if self.model.clean is self.model else Solver(self.model.clean)

    @cached_property
    def scattered(self) -> "Scattered":
        """Round-robin masks with an offset for each client."""
        from psofed.theory.scattered import Scattered

        return Scattered(self)

    def growth(self, stepsize: float, eigenvalue: float = 1.0) -> float:
        """Below one if and only if ρ(𝓕) is below `eigenvalue`."""
        return max(growth(stepsize, eigenvalue) for growth in self._growths)

    def is_stable(self, stepsize: float) -> bool:
        """Whether all second moments stay bounded."""
        with np.errstate(over="ignore", invalid="ignore"):  # far beyond the limit moments grow to infinity
            return self._is_stable(stepsize)

    def _is_stable(self, stepsize: float) -> bool:
        if self.model.is_contraction and stepsize < contraction_bound(self.model.fleet):
            return True
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
                level, state = recursion.steady_state(ALONE[0])
                self._solved[key] = (level, is_covariance(recursion, state))
            except PsofedError:
                self._solved[key] = (Level(math.inf, math.inf), recursion.spectral_radius() < 1.0)
        return self._solved[key]

    @cached_property
    def _solved(self) -> dict[tuple[float, int], tuple[Level, bool]]:
        return {}

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕): by how much what is left of the start shrinks per iteration."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._spectral_radius(stepsize)

    def _spectral_radius(self, stepsize: float) -> float:
        if not self._has_growth:
            return max(
                self.model.recursion(stepsize, branch, lumped=False).spectral_radius()
                for branch in self._radius_branches
            )
        return max(_radius(growth, stepsize) for growth in self._growths)

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        model = self.model
        if model.is_scattered and model.fleet.is_white:
            masks = model.window_masks(_CURVE_SAMPLE)
            excess, server = self.scattered.windows.curves(masks, stepsize, iterations)
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
            windows = self.scattered.windows
            masks = model.window_masks(_RADIUS_SAMPLE)[: _RADIUS_SAMPLE if model.drawn.clients < 30 else 1]
            aligned = np.broadcast_to(masks[0][:1], masks[0].shape).copy()  # all offsets equal: possible, too
            return tuple(
                lambda stepsize, eigenvalue, m=mask: windows.growth(m, stepsize, eigenvalue)
                for mask in (aligned, *masks)
            )
        branch = model.branches[0]

        def growth(stepsize: float, eigenvalue: float) -> float:
            reduced = ReducedRecursion(model.recursion(stepsize, branch, lumped=False), eigenvalue)
            return reduced.growth() if reduced.pair_bound < eigenvalue else np.inf

        return (growth,)


def by_source(model: Model, solve: Callable[[Model, Sources], FloatArray]) -> FloatArray:
    """Solve for each source that there is: (…, 4, 2), rows as in :data:`ALONE`.

    The attack's row is what it adds to the fleet without it, so that the rows add up.
    """
    # What an additive attack adds has nothing to do with the rest: one model serves both.
    clean = model if model.is_additive else model.clean
    drives = (True, False, model.walk > 0, model.clean.has_direction)
    rows = [solve(clean, sources) if there else None for sources, there in zip(ALONE, drives, strict=True)]
    known = [row for row in rows if row is not None]
    levels = np.stack([np.zeros_like(known[0]) if row is None else row for row in rows], axis=-2)
    if model.statement is not None:
        if model.is_additive:
            levels[..., ATTACK, :] = solve(model, ALONE[ATTACK])
        else:
            levels[..., ATTACK, :] = solve(model, Sources()) - levels.sum(axis=-2)
    return levels


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
