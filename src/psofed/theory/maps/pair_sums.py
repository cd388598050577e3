"""Sums over all pairs of clients in time linear in the number of clients.

In the steady state the moment of a pair (k, l) is a smooth function of (ς_k², ς_l²) times numbers that belong to k or
to l alone, so that the sums over pairs are

    r_{al} = Σ_b Σ_{k≠l} h_ab(ς_k², ς_l²) w_k f_{b,kl},    f_{b,kl} = Σ_j x_{jb,k} y_{jb,l},

with small a and b. Such a kernel h is, to rounding, Φ H Φᵀ with H = ``table`` its values on n Chebyshev nodes and
Φ = ``nodes.weights`` the interpolation from the nodes to the clients. One sum then costs O(Kn) instead of O(K²).
w = ``counted`` is the factor with which a client counts, and ``same`` holds h at k = l, which the sums leave out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray

_DISTINCT = 24  # up to this number of different input variances the nodes are these variances themselves
_MOST_NODES = 1024
_INTERPOLATION_ERROR = 1e-11


class Term(NamedTuple):
    """One product weight · left_k · right_l that pairs gain in some rows b.

    Attributes
    ----------
    rows : slice
        b.
    weight : float
    left, right : array (rows or 1, K or 1, S or 1)
        Factors of the two clients, for S states side by side; 1 where they are the same for all.
    """

    rows: slice
    weight: float
    left: FloatArray
    right: FloatArray


@dataclass(frozen=True, eq=False)
class ClientNodes:
    """Interpolation nodes in the input variance, and how clients hang on them.

    Clients with different `own` (the factor of their models in their uploads) have separate nodes. A *site* is the
    pair (ς², own), stacked: an array (2, …).

    Attributes
    ----------
    sites : array (2, n)
        Of the nodes.
    weights : array (K, n) or None
        Φ: a smooth function's values at the clients from those at the nodes; None if the nodes are the clients.
    clients : array (2, K)
        Sites of the clients.
    """

    sites: FloatArray
    weights: FloatArray | None
    clients: FloatArray

    @classmethod
    def of(
        cls,
        variance: FloatArray,
        probe: Callable[[FloatArray, FloatArray], FloatArray],
        own: FloatArray | None = None,
    ) -> "ClientNodes":
        """Choose enough nodes for a kernel as hard as `probe`, a function of two input variances.

        Examples
        --------
        >>> nodes = ClientNodes.of(np.linspace(0.2, 1.2, 500), lambda a, b: 1 / (1.1 - (1 - 0.1 * a) * (1 - 0.1 * b)))
        >>> nodes.sites.shape[1] < 100
        True
        """
        labels = np.ones_like(variance) if own is None else own
        sites, blocks = [], []
        for label in np.unique(labels):
            member = labels == label
            values, weights = _nodes(variance[member], probe)
            sites.append(np.stack([values, np.full(values.size, label)]))
            block = np.zeros((variance.size, values.size))
            block[member] = weights
            blocks.append(block)
        return cls(np.concatenate(sites, axis=1), np.hstack(blocks), np.stack([variance, labels]))

    def gather(self, values: FloatArray) -> FloatArray:
        """Φᵀ `values`: numbers of clients (…, K, S) summed up at the nodes (…, n, S)."""
        return values if self.weights is None else np.asarray(self.weights.T @ values)

    def spread(self, values: FloatArray) -> FloatArray:
        """Φ `values`: numbers at the nodes (…, n, S) interpolated to the clients (…, K, S)."""
        return values if self.weights is None else np.asarray(self.weights @ values)


@dataclass(frozen=True, eq=False)
class PairKernel:
    """Kernels h_ab of two sites, a and b small, in the form in which sums over clients need them.

    Attributes
    ----------
    nodes : ClientNodes
    table : array (A, B, n, n)
        Values at pairs of nodes.
    same : array (A, B, K)
        Values at k = l.
    counted : array (K,)
        w_k.
    copies : array (K,) or None
        Number of clients that each row stands for; None if each is one.
    """

    nodes: ClientNodes
    table: FloatArray
    same: FloatArray
    counted: FloatArray
    copies: FloatArray | None = None

    @classmethod
    def of(
        cls,
        nodes: ClientNodes,
        kernel: Callable[[FloatArray, FloatArray], FloatArray],
        counted: FloatArray,
        copies: FloatArray | None = None,
    ) -> "PairKernel":
        """Tabulate `kernel`, which returns an array (A, B, …) for two arrays of sites."""
        table = kernel(nodes.sites[:, :, None], nodes.sites[:, None, :])
        return cls(nodes, table, kernel(nodes.clients, nodes.clients), counted, copies)

    def sum(self, terms: Sequence[Term]) -> FloatArray:
        """Return r of the module's docstring for all a and l, (A, K, S), with f the sum of the terms."""
        states = max(max(term.left.shape[-1], term.right.shape[-1]) for term in terms)
        left = np.zeros((self.table.shape[1], self.counted.size, states))
        right, others = np.zeros_like(left), []
        # A factor that is the same for all clients leaves the sum over k, or all of it, to be taken once.
        for term in terms:
            if term.weight == 0.0:
                continue
            if term.left.shape[1:] == (1, 1):
                right[term.rows] += (term.weight * term.left) * term.right
            elif term.right.shape[1:] == (1, 1):
                left[term.rows] += (term.weight * term.right) * term.left
            else:
                others.append(term)
        total = np.einsum("abl,bls->als", self._ones, right) + self._apply(left)
        for term in others:
            shape = (term.rows.stop - term.rows.start, *left.shape[1:])
            factors = (np.broadcast_to(x, shape) for x in (term.weight * term.left, term.right))
            # The right factor stands outside the sum over k, one row b at a time.
            for b, x, y in zip(range(term.rows.start, term.rows.stop), *factors, strict=True):
                total += y * self._apply(x[None], slice(b, b + 1))
        return np.asarray(total)

    def _apply(self, weight: FloatArray, rows: slice = slice(None)) -> FloatArray:
        """Σ_b Σ_{k≠l} h_{ab,kl} w_k weight_{bk} for every a and l; `weight` is (B, K, S), the result (A, K, S)."""
        weight = self.counted[:, None] * weight
        many = self.nodes.gather(weight if self.copies is None else self.copies[:, None] * weight)
        size = self.table.shape[-1]
        # One matrix from all (b, node) to all (a, node), so that a sum is one product
        matrix = self._flat_table[:, rows].reshape(-1, many.shape[0] * size)
        at_nodes = (matrix @ many.reshape(-1, many.shape[-1])).reshape(-1, size, many.shape[-1])
        return np.asarray(self.nodes.spread(at_nodes) - np.einsum("abk,bks->aks", self.same[:, rows], weight))

    @cached_property
    def _flat_table(self) -> FloatArray:
        """The table as (A · n, B, n): target node and kernel row a, then b, then source node."""
        rows, columns, size, _ = self.table.shape
        return np.ascontiguousarray(self.table.transpose(0, 3, 1, 2)).reshape(rows * size, columns, size)

    @cached_property
    def _ones(self) -> FloatArray:
        """Σ_{k≠l} h_{ab,kl} w_k, (A, B, K)."""
        many = self.counted if self.copies is None else self.copies * self.counted
        at_nodes = np.einsum("abmn,m->abn", self.table, self.nodes.gather(many[:, None])[:, 0])
        return np.asarray(self.nodes.spread(at_nodes[..., None])[..., 0] - self.counted * self.same)


def _nodes(
    variance: FloatArray, probe: Callable[[FloatArray, FloatArray], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Node values and the interpolation from them to `variance`."""
    distinct, index = np.unique(variance, return_inverse=True)
    if distinct.size <= _DISTINCT:
        return distinct, np.eye(distinct.size)[index]
    sample = distinct[np.linspace(0, distinct.size - 1, 40).astype(int)]
    truth = probe(sample[:, None], sample[None, :])
    count = 16
    while True:
        nodes, weights = _chebyshev(distinct[0], distinct[-1], count, sample)
        error = np.abs(weights @ probe(nodes[:, None], nodes[None, :]) @ weights.T - truth).max()
        if error < _INTERPOLATION_ERROR * np.abs(truth).max() or count >= _MOST_NODES:
            break
        count *= 2
    return _chebyshev(distinct[0], distinct[-1], count, variance)


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
