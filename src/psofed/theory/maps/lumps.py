"""Large fleets as a few clients that each count many times: exact sums over clients by Gauss quadrature.

Over white inputs a client's moments are f₀(ς²) + σ_ν² f₁(ς²) with smooth f₀ and f₁, the same for all clients that
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


@dataclass(frozen=True, eq=False)
class Lumps:
    """Nodes that each stand for many clients.

    Attributes
    ----------
    input_variance, noise_variance, chance : array (n,)
        ς², σ_ν² and the chance to attack of each node.
    copies : array (n,)
        W: the number of clients it stands for; the sum is K.
    """

    input_variance: FloatArray
    noise_variance: FloatArray
    chance: FloatArray
    copies: FloatArray

    @classmethod
    def of(
        cls, input_variance: FloatArray, noise_variance: FloatArray, chance: FloatArray, nodes: int
    ) -> "Lumps":
        """Lump a fleet into at most `nodes` for each different chance.

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
        for value in np.unique(chance):
            member = chance == value
            found, copies, noise = _gauss(input_variance[member], noise_variance[member], nodes)
            parts.append((found, noise, np.full(found.size, value), copies))
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def is_precise(self, input_variance: FloatArray, pole: float) -> bool:
        """Whether sums over clients are exact for the functions that occur.

        The hardest are 1/(a + b), from the decay of two clients at small stepsizes, and 1/(pole − a), a client's own
        moment near the stepsize at which it would diverge on its own; `pole` must be above all variances.
        """
        if not pole > float(input_variance.max()):
            return False
        centres = np.array([-float(input_variance.min()) - 1e-300, -float(input_variance.max()), pole])
        lumped = self.copies @ (1.0 / (self.input_variance[:, None] - centres))
        exact = (1.0 / (input_variance[:, None] - centres)).sum(axis=0)
        return bool(np.abs(lumped / exact - 1.0).max() < _PRECISION)


def _gauss(variance: FloatArray, noise: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes, weights and noise variances of the Gauss quadrature of a set of input variances."""
    distinct, index, counts = np.unique(variance, return_inverse=True, return_counts=True)
    if distinct.size <= count:
        return distinct, counts.astype(np.float64), np.bincount(index, noise) / counts
    nodes, weights, lagrange = _rule(variance, count)
    return nodes, weights, (noise @ lagrange) / weights


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
