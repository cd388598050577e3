"""Moments of algorithms under the mean whose clients hold no model: the server's error g alone.

In an exchange with P of K clients, client k's update arrives as d_k, in errors,

    d_k = A_k δ_k + L_k g + t_k (c − ε_k),    δ_k = −μ x_k x_kᵀ (g + e_k) − μ x_k ν_k,

with A_k = own, L_k = own + server − 1 and c as in :mod:`psofed.theory.steps.corruption` where models are sent. Where
updates are sent L = 0 and c = −offset. Given g its mean is N_k g + n_k, and clients are independent, so that with d̄ the
mean over the participants, N = Σ_k N_k and n = Σ_k n_k,

    E[d̄ | g]  = (N g + n)/K,
    E[d̄ d̄ᵀ] = Σ_k E[d_k d_kᵀ]/(KP) + (P − 1)/(PK(K − 1)) Σ_{k≠l} E[(N_k g + n_k)(N_l g + n_l)ᵀ].

The server adds d̄, so that with G = E[g gᵀ]

    G' = G + E[g d̄ᵀ] + E[d̄ gᵀ] + E[d̄ d̄ᵀ].

Over white inputs all entries are alike: matrices are 1 × 1, and a trace counts D times (``multiplicity``).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.periodic import PeriodicRecursion
from psofed.theory.moments.level import Level, Sources
from psofed.theory.steps.corruption import Corruption
from psofed.theory.steps.samples import Mixture, SampleLaw


class ServerMeans(NamedTuple):
    """Mean of g, (n,)."""

    server: FloatArray


class ServerMoments(NamedTuple):
    """G, (n, n)."""

    server: FloatArray


@dataclass(frozen=True, eq=False)
class ServerRecursion(PeriodicRecursion[ServerMoments, ServerMeans]):
    """The recursion of the server's moments; nothing happens in iterations without an exchange.

    Parameters
    ----------
    mixture : Mixture
        The clients' samples with covariances (K, n, n) and displacements (K, n), rescaled so that μ = 1
        (:func:`psofed.theory.steps.learning.rescaled`).
    corruption : Corruption
        Its constant is c, (n,).
    sends_model : bool
        Whether models are sent, or updates.
    participants : tuple of int
        P_n of one period, 0 in iterations without an exchange.
    target : array (D,)
        w*.
    covariance : array (n, n)
        Mean of the clients' covariances, by which errors are measured.
    has_direction : bool
        Whether means are needed at all.
    """

    mixture: Mixture
    corruption: Corruption
    sends_model: bool
    participants: tuple[int, ...]
    target: FloatArray
    covariance: FloatArray
    has_direction: bool

    @property
    def size(self) -> int:
        """n: D, or 1 over white inputs."""
        return int(self.mixture.clean.covariance.shape[-1])

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.target.size)

    @property
    def multiplicity(self) -> float:
        """Number of entries that each tracked one stands for."""
        return self.dimension / self.size

    @property
    def period(self) -> int:
        """T."""
        return len(self.participants)

    @cached_property
    def initial(self) -> ServerMoments:
        """The state when the model is 0: G is w* w*ᵀ."""
        if self.size > 1:
            return ServerMoments(np.outer(self.target, self.target))
        return ServerMoments(np.full((1, 1), np.mean(self.target**2)))

    @cached_property
    def initial_first(self) -> ServerMeans:
        """Means when the model is 0: w*."""
        return ServerMeans(self.target if self.size > 1 else np.sqrt(self.initial.server[0]))

    def level_of(self, v: ServerMoments, first: ServerMeans | None = None) -> Level:
        """Excess network MSE and server MSD of a state."""
        return Level(
            self.multiplicity * np.einsum("ij,ji->", self.covariance, v.server),
            self.multiplicity * np.trace(v.server),
        )

    def step(
        self,
        v: ServerMoments,
        n: int = 0,
        sources: Sources | None = None,
        first: ServerMeans | None = None,
    ) -> ServerMoments:
        """Take the moments through iteration n."""
        participants = self.participants[n % self.period]
        if not participants:
            return v
        sources = replace(sources or Sources(), direction=first is not None)
        mean = first or ServerMeans(np.zeros(self.size))
        # Rounding is not symmetric, and formulas that rely on symmetry may amplify it.
        v = ServerMoments(0.5 * (v.server + v.server.T))
        clients = len(self._matrices)
        matrix, vector = self._mean_update(sources.direction)
        share = (participants - 1) / (participants * clients * max(clients - 1, 1))
        square = self._own(v, mean.server, sources) / (clients * participants)
        square = square + share * self._others(v, mean.server, sources)
        toward = v.server @ matrix.T + np.outer(mean.server, vector)  # E[g d̄ᵀ]
        return ServerMoments(v.server + toward + toward.T + square)

    def step_first(self, v: ServerMeans, n: int = 0) -> ServerMeans:
        """Take the means through iteration n."""
        if not self.participants[n % self.period]:
            return v
        matrix, vector = self._mean_update(True)
        return ServerMeans(v.server + matrix @ v.server + vector)

    def _mean_update(self, directed: bool) -> tuple[FloatArray, FloatArray]:
        """N/K and n/K."""
        return self._matrices.mean(axis=0), float(directed) * self._vectors.mean(axis=0)

    @property
    def _loose(self) -> float:
        """L of a client that attacks."""
        affine = self.corruption.affine
        return affine.own + affine.server - 1.0 if self.sends_model else 0.0

    @cached_property
    def _pushes(self) -> tuple[FloatArray, FloatArray]:
        """μR_k and μR_k e_k, averaged over clean and poisoned samples: (K, n, n) and (K, n)."""
        parts = [(weight, *_scaled(samples)) for weight, samples in self.mixture.branches]
        return (
            sum(weight[:, None, None] * matrix for weight, matrix, _ in parts),  # type: ignore[return-value]
            sum(weight[:, None] * _times(matrix, moved) for weight, matrix, moved in parts),
        )

    @cached_property
    def _matrices(self) -> FloatArray:
        """N_k, (K, n, n)."""
        corruption, (pull, _) = self.corruption, self._pushes
        loose = (corruption.attackers.chance * self._loose)[:, None, None] * np.eye(self.size)
        return np.asarray(loose - corruption.own[:, None, None] * pull)

    @cached_property
    def _vectors(self) -> FloatArray:
        """n_k, (K, n)."""
        corruption, (_, push) = self.corruption, self._pushes
        return np.asarray(
            corruption.attackers.chance[:, None] * self._constant - corruption.own[:, None] * push
        )

    @property
    def _constant(self) -> FloatArray:
        constant = self.corruption.constant
        return np.zeros(self.size) if constant is None else constant

    def _own(self, v: ServerMoments, mean: FloatArray, sources: Sources) -> FloatArray:
        """Σ_k E[d_k d_kᵀ], (n, n)."""
        affine, chance = self.corruption.affine, self.corruption.attackers.chance
        directed, loose, c = float(sources.direction), self._loose, self._constant
        total = np.zeros((self.size, self.size))
        # t² = t: second moments of A, L and t are those of a client that attacks, times E[t].
        square, mixed = 1.0 + chance * (affine.own**2 - 1.0), chance * affine.own
        for weight, samples in self.mixture.branches:
            matrix, moved = _scaled(samples)
            moved = directed * moved
            shifted = moved[:, :, None] * mean[:, None].T  # e mᵀ
            seen = v.server + shifted + shifted.swapaxes(1, 2) + moved[:, :, None] * moved[:, None, :]
            left = matrix @ seen
            trace = self.multiplicity * np.trace(left, axis1=1, axis2=2)
            level = sources.noise * samples.noise_variance + sources.attack * samples.residual_variance
            step = 2.0 * left @ matrix + (trace + level)[:, None, None] * matrix
            total += np.tensordot(weight * square, step, axes=1)
            to_server = -matrix @ (v.server + shifted)  # E[δ gᵀ]
            to_constant = -_times(matrix, mean + moved)[:, :, None] * (directed * c)  # E[δ] cᵀ
            half = np.tensordot(weight * mixed, loose * to_server + to_constant, axes=1)
            total += half + half.T
        both = directed * loose * np.outer(mean, c)
        noise = sources.attack * (affine.variance + affine.common_variance) * np.eye(self.size)
        rest = loose**2 * v.server + both + both.T + directed * np.outer(c, c) + noise
        return np.asarray(total + chance.sum() * rest)

    def _others(self, v: ServerMoments, mean: FloatArray, sources: Sources) -> FloatArray:
        """Σ_{k≠l} E[d_k d_lᵀ], (n, n)."""
        directed, attackers = float(sources.direction), self.corruption.attackers
        parts = [(1.0, self._matrices, directed * self._vectors)]
        total = np.zeros((self.size, self.size))
        if attackers.covariance:
            # A redrawn Byzantine set correlates who attacks: the differences of an attacker from an honest client.
            affine, (pull, push) = self.corruption.affine, self._pushes
            slope = self._loose * np.eye(self.size) - (affine.own - 1.0) * pull
            constant = np.broadcast_to(self._constant, push.shape) - (affine.own - 1.0) * push
            parts.append((attackers.covariance, slope, directed * constant))
        if self.mixture.covariance:
            matrices, vectors = zip(
                *((m, _times(m, e)) for m, e in (_scaled(s) for _, s in self.mixture.branches)),
                strict=True,
            )
            swing = directed * (vectors[0] - vectors[1])
            parts.append((self.mixture.covariance, matrices[0] - matrices[1], swing))
        for weight, matrix, vector in parts:
            every = _square(matrix.sum(axis=0)[None], vector.sum(axis=0)[None], v.server, mean)
            total += weight * (every - _square(matrix, vector, v.server, mean))
        chance, common = attackers.chance, sources.attack * self.corruption.affine.common_variance
        pairs = attackers.pair_factor * (chance.sum() ** 2 - (chance**2).sum())
        return np.asarray(total + common * pairs * np.eye(self.size))


def _square(matrix: FloatArray, vector: FloatArray, server: FloatArray, mean: FloatArray) -> FloatArray:
    """Σ_k E[(N_k g + n_k)(N_k g + n_k)ᵀ]."""
    mixed = np.einsum("ki,kj->ij", _times(matrix, np.broadcast_to(mean, vector.shape)), vector)
    linear = np.einsum("kij,jl,kml->im", matrix, server, matrix, optimize=True)
    return np.asarray(linear + mixed + mixed.T + vector.T @ vector)


def _scaled(samples: SampleLaw) -> tuple[FloatArray, FloatArray]:
    """μR_k and e_k."""
    moved = samples.displacement
    return samples.covariance, np.zeros(samples.covariance.shape[:2]) if moved is None else moved


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray((matrices @ vectors[..., None])[..., 0])
