"""Round-robin windows with an offset per client, over white inputs: many sets of offsets, each solved exactly.

Given all offsets the masks are certain, and the recursion is that of
:class:`psofed.theory.steps.exchange.FixedMasks`, of which this is the compiled form. Pairs are eliminated
(:mod:`.pairs`), and x = F x + s solved by GMRES for a few sets of masks side by side, on all cores. ρ(𝓕) is that of
the full map, pairs included. First moments obey a linear recursion of their own, which is solved directly: with Q_k
and r_k such that a client's mean is Q_k g + r_k, g is a D × D system.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.krylov import SAMPLED_TOLERANCE, dominant_eigenvalue, solve_fixed_points
from psofed.theory.maps.windows import kernels
from psofed.theory.maps.windows.arguments import WindowDrive, WindowSystem
from psofed.theory.maps.windows.clients import step_first
from psofed.theory.maps.windows.pairs import close_cycles
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import NO_SOURCES, Sources
from psofed.theory.steps.lms import WhiteLms, lms_of

_TOGETHER = 8  # sets of masks that one solution takes side by side: more would leave the processor's cache
_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class WindowProblem:
    """The compiled recursions of one model.

    Parameters
    ----------
    model : TheoryModel
        Round-robin masks with an offset per client, over white inputs.
    """

    model: TheoryModel

    def steady_states(self, masks: FloatArray, stepsize: float, sources: Sources) -> FloatArray:
        """Excess network MSE and server MSD for each of N sets of masks (N, K, D); shape (N, 2)."""
        system, drive = self._system(stepsize), self._drive(stepsize, sources)
        nothing = self._drive(stepsize, NO_SOURCES)
        offsets = self._offsets if sources.direction else np.zeros((0, 1))
        tolerance = SAMPLED_TOLERANCE if self.model.is_sampled else _TOLERANCE
        out = np.empty((len(masks), 2))

        def solve(part: slice) -> None:
            sets = np.ascontiguousarray(masks[part].swapaxes(1, 2))
            count, dimension, clients = sets.shape
            firsts = self._steady_first(sets, system, drive)
            befores = np.zeros_like(firsts)
            closed = np.empty((count, np.gcd(dimension, system.shift), clients, clients))
            for mask, first, before, cycles in zip(sets, firsts, befores, closed, strict=True):
                close_cycles(mask, system, cycles)
                if drive.directed:
                    step_first(first.copy(), mask, system, drive, before)

            def step(x: FloatArray, driven: WindowDrive) -> FloatArray:
                result = np.empty_like(x)
                kernels.reduced_steps(
                    np.ascontiguousarray(x), sets, system, driven, firsts, befores, closed, result
                )
                return result

            source = step(np.zeros((count, dimension * (5 * clients + 2))), drive)
            x = solve_fixed_points(lambda v: step(v, nothing), source, tolerance)
            for i, numbers in enumerate(x):
                v = kernels.unpacked(numbers, dimension, clients)
                out[part][i] = kernels.level(v, firsts[i], self._clean_variance, offsets, system)

        _in_parts(solve, len(masks), _TOGETHER)
        return out

    def spectral_radius(self, mask: FloatArray, stepsize: float) -> float:
        """ρ(𝓕) for one set of masks (K, D)."""
        clients, dimension = mask.shape
        system, nothing = self._system(stepsize), self._drive(stepsize, NO_SOURCES)
        first, turned = np.zeros((2 * clients + 1, dimension, 1)), np.ascontiguousarray(mask.T)

        def step(x: FloatArray) -> FloatArray:
            out = np.zeros_like(x)
            kernels.full_step(x, turned, system, nothing, first, first, first, out)
            return out

        # Numbers of pairs that do not exist (l ≤ k) are not read and become 0.
        return dominant_eigenvalue(step, step(np.ones(dimension * (2 + 5 * clients + clients**2))))

    def curves(self, masks: FloatArray, stepsize: float, iterations: int) -> FloatArray:
        """Excess network MSE and server MSD over the iterations, averaged over the sets of masks; shape (2, n)."""
        out = np.empty((masks.shape[0], 2, iterations))
        system, drive = self._system(stepsize), self._drive(stepsize, Sources())
        start = np.array(self.model.entries.vector(self.model.fleet.target)[0])
        if self.model.entries.kinds == 1:
            start = np.full(1, np.sqrt(np.mean(self.model.fleet.target**2)))

        def run(part: slice) -> None:
            sets = np.ascontiguousarray(masks[part].swapaxes(1, 2))
            kernels.curves(sets, system, drive, start, self._clean_variance, self._offsets, out[part])

        _in_parts(run, len(masks), 1)
        return np.asarray(out.mean(axis=0))

    @property
    def _clean_variance(self) -> FloatArray:
        return self.model.fleet.input_variance

    @property
    def _offsets(self) -> FloatArray:
        """Displacements of the clients' own targets, (K, V); none if they have none."""
        displacement = self.model.mixture.clean.displacement
        # A copy: Numba compiles all kernels once more for arrays that must not be written to.
        return np.zeros((0, 1)) if displacement is None else np.array(displacement[:, 0])

    def _lms(self, stepsize: float) -> WhiteLms:
        lms = lms_of(self.model.mixture, stepsize, self.model.entries)
        assert isinstance(lms, WhiteLms)
        return lms

    def _system(self, stepsize: float) -> WindowSystem:
        drawn, corruption, lms = self.model.drawn, self.model.law.corruption, self._lms(stepsize)
        keep, trace = lms.own_factors
        return WindowSystem(
            single=drawn.single,
            pair=drawn.pair,
            only=drawn.only_first,
            neither=drawn.neither,
            participants=drawn.participants,
            shift=self.model.scenario.num_shared,
            redrawn=self.model.is_redrawn,
            decay=np.asarray(lms.means.decay),
            keep=keep,
            trace=np.array(trace),
            swing=lms.decay_swing,
            own=corruption.own,
            server=corruption.server,
            chance=corruption.attackers.chance,
            affine_own=float(corruption.affine.own),
            affine_server=float(corruption.affine.server),
            covariance=float(corruption.attackers.covariance),
        )

    def _drive(self, stepsize: float, sources: Sources) -> WindowDrive:
        model, lms, corruption = self.model, self._lms(stepsize), self.model.law.corruption
        affine, clients, kinds = corruption.affine, model.drawn.clients, model.entries.kinds
        branches = model.mixture.branches
        noise = np.zeros(clients)
        displacement = np.zeros((len(branches), clients, kinds))
        for b, (weight, samples) in enumerate(branches):
            level = sources.noise * samples.noise_variance + sources.attack * samples.residual_variance
            noise += weight * stepsize**2 * samples.covariance * level
            if samples.displacement is not None:
                displacement[b] = samples.displacement[:, 0]
        push = np.zeros((2, clients, kinds))
        if lms.means.push is not None:
            push[0] = -stepsize * lms.means.push[:, 0]
        if model.mixture.poisoned is not None and lms.means.push_swing is not None:
            push[1] = -stepsize * lms.means.push_swing[:, 0]
        constant = np.zeros(kinds) if corruption.constant is None else np.array(corruption.constant[0])
        return WindowDrive(
            noise=noise,
            variance=float(sources.attack * (affine.variance + affine.common_variance)),
            common=float(sources.attack * corruption.attackers.pair_factor * affine.common_variance),
            walk=float(sources.drift * model.walk),
            directed=bool(sources.direction and model.has_direction),
            constant=constant,
            weight=np.array([weight for weight, _ in branches]),
            scaled=np.array([stepsize * samples.covariance for _, samples in branches]),
            displacement=displacement,
            push=push,
            push_swing=-stepsize * np.broadcast_to(lms.means.swing, clients).copy(),
            push_covariance=float(model.mixture.covariance),
        )

    def _steady_first(self, sets: FloatArray, system: WindowSystem, drive: WindowDrive) -> FloatArray:
        """First moments in the steady state for each set of masks (N, D, K): (N, 2K + 1, D, V)."""
        count, dimension, clients = sets.shape
        shape = (count, 2 * clients + 1, dimension, drive.constant.size)
        if not drive.directed:
            return np.zeros(shape)

        def step(x: FloatArray) -> FloatArray:
            firsts, before = x.reshape(shape).copy(), np.empty(shape[1:])
            for first, mask in zip(firsts, sets, strict=True):
                step_first(first, mask, system, drive, before)
            return firsts.reshape(count, -1)

        source = step(np.zeros(shape))
        return solve_fixed_points(lambda x: step(x) - source, source, _TOLERANCE).reshape(shape)


def _in_parts(work: Callable[[slice], None], count: int, step: int) -> None:
    """Call `work` on slices of `step` that make up ``range(count)``, on all cores; the kernels let go of the GIL."""
    parts = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(parts))) as pool:
        list(pool.map(work, parts))
