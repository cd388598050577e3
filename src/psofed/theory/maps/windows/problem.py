"""Round-robin masks with an offset for each client, over white inputs: many offsets, each solved exactly, compiled.

Given all offsets the masks are certain, and the recursion is that of :class:`psofed.theory.fixed_masks.FixedMasks`, of
which this is the compiled form (a test holds the two together). The law of the server's error involves the
offsets of all clients at once, so no finite set of moments averaged over offsets closes; what can be done is to
solve the recursion for given offsets and to average the solutions, over all offsets or over a sample of them.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.krylov import dominant_eigenvalue
from psofed.theory.maps.windows import kernels
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import NO_SOURCES, Sources
from psofed.theory.steps.lms import WhiteLms, lms_of


@dataclass(frozen=True, eq=False)
class WindowProblem:
    """The compiled recursions of one model.

    Parameters
    ----------
    model : TheoryModel
        Round-robin masks with an offset for each client, over white inputs.
    """

    model: TheoryModel

    @classmethod
    def of(cls, model: TheoryModel) -> "WindowProblem":
        """Make the problem of a model."""
        return cls(model)

    def steady_states(self, masks: FloatArray, stepsize: float, sources: Sources) -> FloatArray:
        """Excess network MSE and server MSD for each of N sets of masks (N, K, D); shape (N, 2)."""
        out = np.empty((masks.shape[0], 2))
        system, drive = self._system(stepsize), self._drive(stepsize, sources)
        nothing = self._drive(stepsize, NO_SOURCES)
        offsets = self._offsets if sources.direction else np.zeros((0, 1))

        def solve(part: slice) -> None:
            firsts = self._steady_first(masks[part], system, drive)
            kernels.steady_states(
                masks[part], system, drive, nothing, firsts, self._clean_variance, offsets, out[part]
            )

        _in_parts(solve, len(masks))
        return out

    def growth(self, mask: FloatArray, stepsize: float, eigenvalue: float) -> float:
        """Spectral radius of the reduced step at λ = `eigenvalue`, for one set of masks (K, D)."""
        clients, dimension = mask.shape
        system, nothing = self._system(stepsize), self._drive(stepsize, NO_SOURCES)
        first = np.zeros((2 * clients + 1, dimension, 1))

        def step(x: FloatArray) -> FloatArray:
            out = np.empty_like(x)
            kernels.reduced_step(x, mask, system, nothing, first, first, eigenvalue, out)
            return out

        return dominant_eigenvalue(step, np.ones(kernels.packed_size(clients, dimension)))

    def curves(self, masks: FloatArray, stepsize: float, iterations: int) -> FloatArray:
        """Excess network MSE and server MSD over the iterations, averaged over the sets of masks; shape (2, n)."""
        out = np.empty((masks.shape[0], 2, iterations))
        system, drive = self._system(stepsize), self._drive(stepsize, Sources())
        start = np.array(self.model.entries.vector(self.model.fleet.target)[0])
        if self.model.entries.kinds == 1:
            start = np.full(1, np.sqrt(np.mean(self.model.fleet.target**2)))

        def run(part: slice) -> None:
            kernels.curves(masks[part], system, drive, start, self._clean_variance, self._offsets, out[part])

        _in_parts(run, len(masks))
        return np.asarray(out.mean(axis=0))

    @property
    def _clean_variance(self) -> FloatArray:
        return self.model.fleet.input_variance

    @property
    def _offsets(self) -> FloatArray:
        """Displacements of the clients' own targets, (K, V); none if they have none."""
        displacement = self.model.mixture.clean.displacement
        # A copy: of an array that must not be written to, Numba would compile all kernels once more.
        return np.zeros((0, 1)) if displacement is None else np.array(displacement[:, 0])

    def _lms(self, stepsize: float) -> WhiteLms:
        lms = lms_of(self.model.mixture, stepsize, self.model.entries)
        assert isinstance(lms, WhiteLms)
        return lms

    def _system(self, stepsize: float) -> kernels.System:
        drawn, corruption, lms = self.model.drawn, self.model.law.corruption, self._lms(stepsize)
        keep, trace = lms.own_factors()
        return kernels.System(
            probabilities=np.array([drawn.single, drawn.pair, drawn.only_first, drawn.neither]),
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

    def _drive(self, stepsize: float, sources: Sources) -> kernels.Drive:
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
        if lms.means.push_swing is not None:
            push[1] = -stepsize * lms.means.push_swing[:, 0]
        constant = np.zeros(kinds) if corruption.constant is None else np.array(corruption.constant[0])
        return kernels.Drive(
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

    def _steady_first(self, masks: FloatArray, system: kernels.System, drive: kernels.Drive) -> FloatArray:
        """First moments after the download, in the steady state of each set of masks: (N, 2K + 1, D, V)."""
        count, clients, dimension = masks.shape
        kinds = drive.constant.size
        found = np.zeros((count, 2 * clients + 1, dimension, kinds))
        if not drive.directed:
            return found
        p, s = system.probabilities[0], system.participants
        roll = np.roll(np.eye(dimension), system.shift, axis=1)  # (roll x)_c = x_{c + shift}
        decay, push = system.decay[:, None, None], np.repeat(drive.push[0][:, None], dimension, axis=1)
        for i, mask in enumerate(masks):
            # y_k, the mean before an exchange, is Q_k g + r_k in the steady state, with g the server's after it.
            kept = np.eye(dimension) - decay * roll * (1 - p * mask)[:, None, :]
            answer = np.linalg.solve(
                kept, np.concatenate([decay * roll * (p * mask)[:, None, :], push], axis=2)
            )
            if system.redrawn:
                taking = answer
            else:
                taking = decay * (roll @ ((1 - mask)[:, :, None] * answer))
                taking[:, :, :dimension] += decay * roll * mask[:, None, :]
                taking[:, :, dimension:] += push
            sent = p / s * mask[:, :, None] * system.own[:, None, None] * taking
            hold = p / s * (mask * (1 - system.server)[:, None]).sum(axis=0)
            matrix = np.eye(dimension) - roll + hold[:, None] * roll - sent[:, :, :dimension].sum(axis=0)
            right = sent[:, :, dimension:].sum(axis=0)
            right = right + p / s * (mask * system.chance[:, None]).sum(axis=0)[:, None] * drive.constant
            server = np.linalg.solve(matrix, right)
            idle = answer[:, :, :dimension] @ server + answer[:, :, dimension:]
            found[i, 0] = server
            found[i, 1 : 1 + clients] = np.where(mask[:, :, None] > 0, server, idle)
            found[i, 1 + clients :] = idle
        return found


def _in_parts(work: Callable[[slice], None], count: int) -> None:
    """Call `work` on slices that make up ``range(count)``, on all cores; the kernels let go of the GIL."""
    workers = min(os.cpu_count() or 1, count)
    step = max(1, -(-count // (4 * workers)))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, [slice(start, start + step) for start in range(0, count, step)]))
