"""Sums over all pairs of clients in time linear in the number of clients.

In the steady state the moment of a pair (k, l) is a smooth function of (ς_k², ς_l²) times numbers that belong to
k or to l alone. Such a kernel h(ς_k², ς_l²) is, to rounding, Φ H Φᵀ with H its values on n Chebyshev nodes and Φ the
interpolation from the nodes to the clients, so that Σ_{k≠l} h_kl w_k costs O(Kn) instead of O(K²).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray

_DISTINCT = 24  # up to so many different input variances the nodes are these variances themselves
_MOST_NODES = 1024


@dataclass(frozen=True, eq=False)
class ClientNodes:
    """Interpolation nodes in the input variance, and how clients hang on them.

    Attributes
    ----------
    values : array (n,)
        Input variances of the nodes.
    weights : array (K, n)
        Φ: a smooth function's values at the clients from those at the nodes.
    variance : array (K,)
        ς_k² of the clients.
    """

    values: FloatArray
    weights: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, variance: FloatArray, probe: Callable[[FloatArray, FloatArray], FloatArray]) -> "ClientNodes":
        """Choose enough nodes for a kernel as hard as `probe`, a function of two input variances.

        Examples
        --------
        >>> nodes = ClientNodes.of(np.linspace(0.2, 1.2, 500), lambda a, b: 1 / (1.1 - (1 - 0.1 * a) * (1 - 0.1 * b)))
        >>> nodes.values.size < 100
        True
        """
        distinct, index = np.unique(variance, return_inverse=True)
        if distinct.size <= _DISTINCT:
            return cls(distinct, np.eye(distinct.size)[index], variance)
        sample = distinct[np.linspace(0, distinct.size - 1, 40).astype(int)]
        truth = probe(sample[:, None], sample[None, :])
        count = 16
        while True:
            nodes, weights = _chebyshev(distinct[0], distinct[-1], count, sample)
            error = np.abs(weights @ probe(nodes[:, None], nodes[None, :]) @ weights.T - truth).max()
            if error < 1e-11 * np.abs(truth).max() or count >= _MOST_NODES:
                break
            count *= 2
        nodes, weights = _chebyshev(distinct[0], distinct[-1], count, variance)
        return cls(nodes, weights, variance)

    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Input variances of all pairs of nodes, to be broadcast."""
        return self.values[:, None], self.values[None, :]


@dataclass(frozen=True, eq=False)
class PairKernel:
    """Kernels h_{ab}(ς_k², ς_l²), a and b small, as sums over clients see them.

    Attributes
    ----------
    nodes : ClientNodes
    table : array (A, B, n, n)
        Values at pairs of nodes.
    same : array (A, B, K)
        Values at k = l, which the sums leave out.
    """

    nodes: ClientNodes
    table: FloatArray
    same: FloatArray

    @classmethod
    def of(cls, nodes: ClientNodes, kernel: Callable[[FloatArray, FloatArray], FloatArray]) -> "PairKernel":
        """Tabulate `kernel`, which returns an array (A, B, …) for two arrays of input variances."""
        return cls(nodes, kernel(*nodes.grid()), kernel(nodes.variance, nodes.variance))

    def sum(self, weight: FloatArray) -> FloatArray:
        """Σ_b Σ_{k≠l} h_{ab,kl} weight_{bk} for every a and l; `weight` is (B, K), the result (A, K)."""
        phi = self.nodes.weights
        at_nodes = (self._flat_table @ (weight @ phi).ravel()).reshape(-1, phi.shape[1])
        return np.asarray(at_nodes @ phi.T - np.einsum("abk,bk->ak", self.same, weight))

    def sum_scaled(self, weight: FloatArray) -> FloatArray:
        """Σ_b weight_{bl} Σ_{k≠l} h_{ab,kl} for every a and l."""
        return np.asarray(np.einsum("abl,bl->al", self._ones, weight))

    @cached_property
    def _flat_table(self) -> FloatArray:
        # One matrix from all (b, node) to all (a, node), so that a sum is one product
        rows, columns, size, _ = self.table.shape
        return np.ascontiguousarray(self.table.transpose(0, 3, 1, 2).reshape(rows * size, columns * size))

    @cached_property
    def _ones(self) -> FloatArray:
        phi = self.nodes.weights
        return np.asarray(np.einsum("abmn,m->abn", self.table, phi.sum(axis=0)) @ phi.T - self.same)


def _chebyshev(low: float, high: float, count: int, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chebyshev nodes of the second kind and the barycentric interpolation matrix to `at`."""
    angle = np.pi * np.arange(count) / (count - 1)
    nodes = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angle)
    signs = (-1.0) ** np.arange(count)
    signs[[0, -1]] *= 0.5
    gap = at[:, None] - nodes[None, :]
    hit_row, hit_column = np.nonzero(gap == 0.0)
    gap[hit_row] = 1.0
    weights = signs / gap
    weights[hit_row] = 0.0
    weights[hit_row, hit_column] = 1.0
    return nodes, weights / weights.sum(axis=1, keepdims=True)
