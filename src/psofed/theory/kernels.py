"""Sums over all pairs of clients in time linear in the number of clients.

In the steady state the moment of a pair (k, l) is a smooth function of (ς_k², ς_l²) times numbers that belong to
k or to l alone. Such a kernel h(ς_k², ς_l²) is, to rounding, Φ H Φᵀ with H its values on n Chebyshev nodes and Φ the
interpolation from the nodes to the clients, so that Σ_{k≠l} h_kl w_k costs O(Kn) instead of O(K²).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray

_DISTINCT = 24  # up to so many different input variances the nodes are these variances themselves
_MOST_NODES = 1024


@dataclass(frozen=True, eq=False)
class ClientNodes:
    """Interpolation nodes in the input variance, and how clients hang on them.

    Clients of different `own` (the factor of their models in what the server receives) have nodes of their own. A
    *site* is the pair (ς², own), stacked: an array (2, …).

    Attributes
    ----------
    sites : array (2, n)
        Of the nodes.
    weights : array (K, n)
        Φ: a smooth function's values at the clients from those at the nodes.
    clients : array (2, K)
        Sites of the clients.
    """

    sites: FloatArray
    weights: FloatArray
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
        sites, blocks, members = [], [], []
        for label in np.unique(labels):
            member = labels == label
            values, weights = _nodes(variance[member], probe)
            sites.append(np.stack([values, np.full(values.size, label)]))
            blocks.append(weights)
            members.append(member)
        table = np.zeros((variance.size, sum(block.shape[1] for block in blocks)))
        column = 0
        for member, block in zip(members, blocks, strict=True):
            table[member, column : column + block.shape[1]] = block
            column += block.shape[1]
        return cls(np.concatenate(sites, axis=1), table, np.stack([variance, labels]))

    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Sites of all pairs of nodes, to be broadcast."""
        return self.sites[:, :, None], self.sites[:, None, :]


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
        if error < 1e-11 * np.abs(truth).max() or count >= _MOST_NODES:
            break
        count *= 2
    return _chebyshev(distinct[0], distinct[-1], count, variance)


@dataclass(frozen=True, eq=False)
class PairKernel:
    """Kernels h_{ab}(site_k, site_l), a and b small, as sums over clients see them.

    Attributes
    ----------
    nodes : ClientNodes
    table : array (A, B, n, n)
        Values at pairs of nodes.
    same : array (A, B, K)
        Values at k = l, which the sums leave out.
    counted : array (K,)
        w_k: how much client k counts in the sums.
    copies : array (K,) or None
        How many clients each stands for; None if each is one.
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
        return cls(nodes, kernel(*nodes.grid()), kernel(nodes.clients, nodes.clients), counted, copies)

    def sum(self, weight: FloatArray) -> FloatArray:
        """Σ_b Σ_{k≠l} h_{ab,kl} w_k weight_{bk} for every a and l; `weight` is (B, K), the result (A, K)."""
        phi = self.nodes.weights
        weight = self.counted * weight
        many = weight if self.copies is None else self.copies * weight
        at_nodes = (self._flat_table @ (many @ phi).ravel()).reshape(-1, phi.shape[1])
        return np.asarray(at_nodes @ phi.T - np.einsum("abk,bk->ak", self.same, weight))

    def sum_scaled(self, weight: FloatArray) -> FloatArray:
        """Σ_b weight_{bl} Σ_{k≠l} h_{ab,kl} w_k for every a and l."""
        return np.asarray(np.einsum("abl,bl->al", self._ones, weight))

    def sum_products(self, products: "Products") -> FloatArray:
        """Σ_b Σ_{k≠l} h_{ab,kl} w_k f_{b,kl} for every a and l, f_b a sum of products (see :class:`Products`)."""
        total = self.sum_scaled(products.right) + self.sum(products.left)
        rows = self.table.shape[1]
        for left, right in products.others:
            # The right factor stands outside the sum over k, one row b at a time
            for b in range(rows):
                if np.any(left[b]) and np.any(right[b]):
                    total = total + right[b] * self._row(b).sum(left[b][None])
        return total

    def sum_terms(self, rows: Sequence[Sequence[tuple[float, FloatArray, FloatArray]]]) -> list[FloatArray]:
        """Σ_b Σ_{k≠l} h_{ab,kl} w_k f_{b,kl} for every a, with f_b = Σ weight · left_k · right_l; one tracked entry.

        Factors are (K or 1, S or 1) for S states side by side, and the results (K, S).
        """
        results: list[FloatArray | float] = [0.0] * self.table.shape[0]
        counted = self.counted[:, None]
        for b, terms in enumerate(rows):
            left: FloatArray | float = 0.0
            right: FloatArray | float = 0.0
            others = []
            for weight, x, y in terms:
                if weight == 0.0:
                    continue
                if x.shape == (1, 1):
                    right = right + (weight * x[0, 0]) * y
                elif y.shape == (1, 1):
                    left = left + (weight * y[0, 0]) * x
                else:
                    others.append((weight * counted * x, y))
            for a in range(len(results)):
                if not isinstance(right, float):
                    results[a] = results[a] + self._ones[a, b][:, None] * right
                if not isinstance(left, float):
                    results[a] = results[a] + self._apply(a, b, counted * left)
                for x, y in others:
                    results[a] = results[a] + y * self._apply(a, b, x)
        return [np.asarray(result) for result in results]

    def _apply(self, a: int, b: int, weight: FloatArray) -> FloatArray:
        many = weight if self.copies is None else self.copies[:, None] * weight
        if self.copies is not None:
            return np.asarray(self.table[a, b].T @ many - self.same[a, b][:, None] * weight)
        phi = self.nodes.weights
        return np.asarray(phi @ (self.table[a, b].T @ (phi.T @ many)) - self.same[a, b][:, None] * weight)

    def _row(self, b: int) -> "PairKernel":
        if b not in self._rows:
            self._rows[b] = PairKernel(
                self.nodes, self.table[:, b : b + 1], self.same[:, b : b + 1], self.counted, self.copies
            )
        return self._rows[b]

    @cached_property
    def _rows(self) -> "dict[int, PairKernel]":
        return {}

    @cached_property
    def _flat_table(self) -> FloatArray:
        # One matrix from all (b, node) to all (a, node), so that a sum is one product
        rows, columns, size, _ = self.table.shape
        return np.ascontiguousarray(self.table.transpose(0, 3, 1, 2).reshape(rows * size, columns * size))

    @cached_property
    def _ones(self) -> FloatArray:
        phi = self.nodes.weights
        many = self.counted if self.copies is None else self.copies * self.counted
        total = np.einsum("abmn,m->abn", self.table, many @ phi) @ phi.T
        return np.asarray(total - self.counted * self.same)


@dataclass(frozen=True, eq=False)
class Products:
    """What pairs of clients gain, in rows b: f_{b,kl} = left_{bk} + right_{bl} + Σ_j x_{jbk} y_{jbl}.

    Attributes
    ----------
    left, right : array (B, K)
    others : list of pairs of arrays (B, K)
    """

    left: FloatArray
    right: FloatArray
    others: list[tuple[FloatArray, FloatArray]]

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[tuple[float, FloatArray, FloatArray]]], clients: int, entries: int
    ) -> "Products":
        """Collect weight · left · right, with factors (K or 1, E or 1), for rows of E entries each."""
        size = len(rows) * entries
        left, right = np.zeros((size, clients)), np.zeros((size, clients))
        others = []
        for index, terms in enumerate(rows):
            part = slice(index * entries, (index + 1) * entries)
            for weight, x, y in terms:
                if weight == 0.0:
                    continue
                if x.shape == (1, 1):
                    right[part] += weight * x[0, 0] * y.T
                elif y.shape == (1, 1):
                    left[part] += weight * y[0, 0] * x.T
                else:
                    full = np.zeros((2, size, clients))
                    full[0, part], full[1, part] = weight * x.T, y.T
                    others.append((full[0], full[1]))
        return cls(left, right, others)


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
