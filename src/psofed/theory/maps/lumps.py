"""Large fleets as a few clients that each count many times: exact sums over clients by Gauss quadrature.

With covariances ς_k² T a client's moments are f₀(ς²) + σ_ν² f₁(ς²) with smooth f₀ and f₁, the same for all clients that
attack equally often: ς_k² enters through the LMS step, σ_νk² only as a source, and both act on other clients through
sums alone. So for the sums Σ_k f(ς_k²) and Σ_k σ_νk² f(ς_k²) the fleet may be replaced by the nodes of the Gauss
quadrature of its input variances: node j counts W_j times (the quadrature's weight) and has the noise variance
S_j / W_j, with S_j = Σ_k σ_νk² ℓ_j(ς_k²) and ℓ_j the Lagrange polynomials of the nodes. Where fleets have few
different variances the nodes are these, and nothing is approximated; else the error falls geometrically with the
number of nodes, and is checked. Eigenvectors are not smooth (they sit on the slowest or fastest clients), so spectral
radius and largest stable stepsize are computed for the fleet as it is.

ς² = ``input_variance``, σ_ν² = ``noise_variance``, W = ``copies``.
"""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray

NODES = (16, 32, 64, 128)
_PRECISION = 1e-10

# Above this size sums of polynomials take the place of vectors of all clients; they are formed chunk by chunk.
_LARGE, _CHUNK = 1_000, 16_384

# Variances in clusters, or far out, make the polynomials nearly dependent: the least ratio of their norms.
_WELL_CONDITIONED = 1e-3


@dataclass(frozen=True, eq=False)
class Lumps:
    """Nodes that each stand for many clients.

    Attributes
    ----------
    input_variance, noise_variance, chance : array (n,)
        ς², σ_ν² and the chance to attack of each node.
    copies : array (n,)
        W: the number of clients it stands for; the sum is K.
    limit : float
        Largest input variance that is lumped: each client above it is a node by itself.
    """

    input_variance: FloatArray
    noise_variance: FloatArray
    chance: FloatArray
    copies: FloatArray
    limit: float = np.inf

    @classmethod
    def of(
        cls,
        input_variance: FloatArray,
        noise_variance: FloatArray,
        chance: FloatArray,
        nodes: int,
        limit: float = np.inf,
    ) -> "Lumps":
        """Lump the clients of a fleet up to `limit` into at most `nodes` for each different chance.

        Examples
        --------
        >>> variance = np.random.default_rng(0).uniform(0.2, 1.2, 5000)
        >>> lumps = Lumps.of(variance, np.full(5000, 0.1), np.zeros(5000), 16)
        >>> lumps.copies.size, round(float(lumps.copies.sum()), 6)
        (16, 5000.0)
        >>> exact, lumped = np.mean(1 / variance), lumps.copies @ (1 / lumps.input_variance) / 5000
        >>> bool(abs(lumped / exact - 1) < 1e-11)
        True
        """
        parts = []
        if limit < np.inf:  # a large fleet is not copied for nothing
            apart, rest = input_variance > limit, input_variance <= limit
            ones = np.ones(np.count_nonzero(apart))
            parts.append((input_variance[apart], noise_variance[apart], chance[apart], ones))
            input_variance, noise_variance, chance = input_variance[rest], noise_variance[rest], chance[rest]
        for value in np.unique(chance):
            member = chance == value
            found, counts, noise = _gauss(input_variance[member], noise_variance[member], nodes)
            parts.append((found, noise, np.full(found.size, value), counts))
        variance, noise, chances, copies = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return cls(variance, noise, chances, copies, limit)

    def is_precise(self, input_variance: FloatArray, pole: float, condition: float = 1.0) -> bool:
        """Whether sums over clients are exact for the functions that occur.

        The hardest are 1/(a + c b), from the decay of two clients at small stepsizes, c = `condition` the ratio of
        eigenvalues of their covariances, and 1/(pole − a), a client's own moment near the stepsize at which it would
        diverge on its own; `pole` must be above all variances that are lumped.
        """
        lumps = self.input_variance <= self.limit
        if self.limit < np.inf:
            input_variance = input_variance[input_variance <= self.limit]
        low, high = float(input_variance.min()), float(input_variance.max())
        if not pole > high:
            return False
        centres = np.array([-condition * low - 1e-300, -high, pole])
        lumped = self.copies[lumps] @ (1.0 / (self.input_variance[lumps, None] - centres))
        exact = np.array([(1.0 / (input_variance - centre)).sum() for centre in centres])
        return bool(np.abs(lumped / exact - 1.0).max() < _PRECISION)


def lumped_up_to(nodes: int, low: float, pole: float) -> float:
    """Return the largest h such that `nodes` of the variances in [`low`, h] are precise for 1/(pole − a).

    The error of n nodes is some ten times ϱ⁻²ⁿ, with (ϱ + 1/ϱ)/2 the distance of the pole from the interval's middle
    in units of half its length.

    Examples
    --------
    >>> round(lumped_up_to(16, 0.2, 1.2), 3), round(lumped_up_to(64, 0.2, 1.2), 3)
    (1.058, 1.19)
    """
    rate = float((0.1 * _PRECISION) ** (-0.5 / nodes))
    return low + 2.0 * (pole - low) / (1.0 + (rate + 1.0 / rate) / 2.0)


def _gauss(variance: FloatArray, noise: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes, weights and noise variances of the Gauss quadrature of a set of input variances."""
    # Sorting a large fleet takes longer than all the rest; that there are many variances is seen in a few.
    if np.unique(variance[: 8 * count]).size <= count:
        distinct, index, counts = np.unique(variance, return_inverse=True, return_counts=True)
        if distinct.size <= count:
            return distinct, counts.astype(np.float64), np.bincount(index, noise) / counts
    if variance.size > _LARGE and (rule := _rule_of_moments(variance, noise, count)) is not None:
        return rule
    nodes, weights, lagrange = _rule(variance, count)
    return nodes, weights, (noise @ lagrange) / weights


def _rule_of_moments(
    variance: FloatArray, noise: FloatArray, count: int
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Return the same for a large fleet, from sums of Chebyshev polynomials; None if these do not determine it.

    With x the variances scaled to [−1, 1], m_j = Σ_k T_j(x_k) gives the Gram matrix of T_0 … T_{n−1},
    G_ij = (m_{i+j} + m_{|i−j|})/2, and that with x in between, since x T_j = (T_{j+1} + T_{|j−1|})/2. G = LLᵀ makes the
    polynomials orthonormal, and x in that basis is the Jacobi matrix, whose eigenvalues are the nodes.
    """
    low, high = float(variance.min()), float(variance.max())
    middle, reach = (low + high) / 2.0, (high - low) / 2.0
    moments, noise_moments = np.zeros(2 * count), np.zeros(count)
    for first in range(0, variance.size, _CHUNK):
        x = (variance[first : first + _CHUNK] - middle) / reach
        part = noise[first : first + _CHUNK]
        before, now = np.ones_like(x), x
        moments[0] += x.size
        noise_moments[0] += part.sum()
        for j in range(1, 2 * count):
            moments[j] += now.sum()
            if j < count:
                noise_moments[j] += (part * now).sum()
            before, now = now, 2.0 * x * now - before
    row, column = np.indices((count, count))
    total, apart = row + column, row - column
    gram = (moments[total] + moments[np.abs(apart)]) / 2.0
    with_x = sum(moments[np.abs(place)] for place in (total + 1, total - 1, apart - 1, apart + 1)) / 4.0
    try:
        factor = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        return None
    if factor.diagonal().min() < _WELL_CONDITIONED * factor.diagonal().max():
        return None
    jacobi = np.linalg.solve(factor, np.linalg.solve(factor, with_x).T)
    nodes, vectors = np.linalg.eigh((jacobi + jacobi.T) / 2.0)
    scale = np.sqrt(variance.size) * vectors[0]
    sums = np.linalg.solve(factor, noise_moments) @ vectors
    return middle + reach * nodes, scale**2, sums / scale


def _rule(variance: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gauss nodes, weights and the Lagrange polynomials at `variance`, (K, n), by Lanczos, fully reorthogonalised."""
    size = variance.size
    basis = np.zeros((size, count))
    diagonal, side = np.zeros(count), np.zeros(count)
    vector = np.full(size, 1.0 / np.sqrt(size))
    used = count
    for j in range(count):
        basis[:, j] = vector
        vector = variance * vector
        diagonal[j] = basis[:, j] @ vector
        for _ in range(2):
            vector = vector - basis[:, : j + 1] @ (basis[:, : j + 1].T @ vector)
        side[j] = np.linalg.norm(vector)
        if side[j] < 1e-13 * np.abs(variance).max():
            used = j + 1
            break
        vector = vector / side[j]
    jacobi = np.diag(diagonal[:used]) + np.diag(side[: used - 1], 1) + np.diag(side[: used - 1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    scale = np.sqrt(size) * vectors[0]
    return nodes, scale**2, scale * (basis[:, :used] @ vectors)
