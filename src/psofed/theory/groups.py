"""Groups of clients that can stand for each other, so that a fleet of any size has a few dozen rows.

Clients are alike if they have the same stepsize μ_k, availability and attack. They may still differ in input variance
ς_k² and noise. Sums over clients that enter the recursion are then

    Σ_k f(x_k),    Σ_k σ_k² f(x_k),    x_k = μ_k ς_k²,

with functions f that are smooth in x. A Gauss rule of n nodes x_j with weights W_j replaces them by Σ_j W_j f(x_j),
exact for polynomials of degree 2n − 1. Each node is a group: W_j = ``copies`` clients with variance x_j/μ. Noise
enters linearly, so a node carries the noise that keeps Σ_k σ_k² f(x_k) exact for polynomials of degree n − 1.

f has a pole where a client alone would diverge. How many nodes reach 1e-10 follows from the distance of the poles to
the interval of all x (the rate of convergence of Gauss rules). Clients too close to a pole stay apart, and so do the
fastest and slowest ones where an eigenvalue is wanted, because eigenvectors concentrate on them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, PoisonedSamples

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel

_FEWEST_NODES, _MOST_NODES = 16, 64
_PRECISION = 1e-10
_SAMPLED_PRECISION = 1e-7  # where a sample of offsets is averaged over
_DIRECT = 4096  # clients up to which a Gauss rule is computed from all of them


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of exchangeable clients; arrays over the n groups.

    Attributes
    ----------
    copies : array (n,)
        W_j: the clients in a group.
    stepsize : array (n,)
        μ_j.
    covariance : array (n, d, d)
        R_j; d = 1 for white inputs.
    noise_variance : array (n,)
        σ_j².
    added_variance : array (n,)
        Variance that attacks which only add noise put on an upload, times their chance.
    statement : array of int (n,)
        Which of the model's other attacks the clients belong to; −1 for none.
    chance : array (n,)
        Probability with which they attack so.
    availability : array (n,)
        Share of time that they are available.
    window : array of int (n,)
        Offset of the clients' windows, where each client has its own.
    target_offsets : array (n, D) or None
        d_j: distance of the clients' own target from w*.
    honest : array (n,)
        Weight of each client in the honest clients' MSE; 0 where groups mix honest and Byzantine clients.
    """

    copies: FloatArray
    stepsize: FloatArray
    covariance: FloatArray
    noise_variance: FloatArray
    added_variance: FloatArray
    statement: NDArray[np.int64]
    chance: FloatArray
    availability: FloatArray
    window: NDArray[np.int64]
    target_offsets: FloatArray | None
    honest: FloatArray

    @property
    def size(self) -> int:
        """The number n of groups."""
        return self.copies.size


def group_clients(
    model: "TheoryModel",
    stepsize: float,
    apart: int = 0,
    lumped: bool = True,
    offsets: NDArray[np.int64] | None = None,
) -> Groups:
    """Return the groups of a model's clients at a mean stepsize.

    Parameters
    ----------
    apart : int
        The number of fastest and of slowest clients that stay groups of their own.
    lumped : bool
        False: every client is a group.
    offsets : array of int (K,), optional
        Offsets of the clients' windows; clients of one group have the same.
    """
    fleet, clients = model.fleet, model.scenario.num_clients
    steps = model.stepsizes(stepsize)
    windows = np.zeros(clients) if offsets is None else offsets.astype(np.float64)
    honest = (
        model.honest if model.tells_honest and not apart else np.zeros(clients)
    )  # eigenvalues need no split
    traits = np.stack([*_attacks(model), model.availability, steps, windows, honest])
    x = steps * fleet.input_variance
    values = np.stack([fleet.noise_variance, _added_variance(model)])
    copies = np.ones(clients)
    is_lumped = lumped and model.is_lumpable and (offsets is not None or not model.is_scattered)
    if is_lumped:
        traits, x, copies, values = _lump(model, traits, x, values, apart)
    kind, chance, availability, steps, windows, honest = traits
    covariance = (x / steps)[:, None, None]
    if not fleet.is_white:
        matrices = fleet.covariances()
        covariance = covariance * (matrices[0] / fleet.input_variance[0]) if is_lumped else matrices
    noise, added = values
    statement = kind.astype(np.int64)
    return Groups(
        copies,
        steps,
        covariance,
        noise,
        added,
        statement,
        chance,
        availability,
        windows.astype(np.int64),
        fleet.target_offsets,
        honest,
    )


def _attacks(model: "TheoryModel") -> tuple[FloatArray, FloatArray]:
    """Return the statement that each client belongs to, −1 for none, and its chance; added noise is left out."""
    kind, chance = np.full(model.scenario.num_clients, -1.0), np.zeros(model.scenario.num_clients)
    for index, (statement, chances) in enumerate(model.statements):
        if not (isinstance(statement, Affine) and statement.is_isotropic):
            member = chances.chance > 0
            kind[member], chance[member] = index, chances.chance[member]
    return kind, chance


def _added_variance(model: "TheoryModel") -> FloatArray:
    added = np.zeros(model.scenario.num_clients)
    for statement, chances in model.statements:
        if isinstance(statement, Affine) and statement.is_isotropic:
            added += chances.chance * statement.variance
    return added


def _lump(
    model: "TheoryModel", traits: FloatArray, x: FloatArray, values: FloatArray, apart: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return traits (6, n), x (n,), copies (n,) and values (2, n) of the nodes."""
    pole, condition = _pole(model)
    # An eigenvalue needs few nodes, since eigenvectors concentrate on the clients that stay apart.
    precision = _SAMPLED_PRECISION if model.is_scattered else _PRECISION
    index, firsts = _classes(traits)
    nodes, limit = _FEWEST_NODES, np.inf
    if not apart:
        nodes, limit = _number_of_nodes(x, pole, condition, precision, len(firsts))
    alone = x > limit
    if apart:
        edge = min(apart, x.size // 2)
        alone |= (x >= np.partition(x, -edge)[-edge]) | (x <= np.partition(x, edge - 1)[edge - 1])
    parts = [(traits[:, alone], x[alone], np.ones(int(alone.sum())), values[:, alone])]
    for label, first in enumerate(firsts):
        is_member = (index == label) & ~alone
        members: NDArray[np.bool_] | slice = slice(None) if is_member.all() else is_member
        if is_member.any():
            node, weight, carried = gauss_rule(x[members], values[:, members], nodes)
            parts.append((np.repeat(traits[:, [first]], node.size, axis=1), node, weight, carried))
    joined = [np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)]
    return joined[0], joined[1], joined[2], joined[3]


def _classes(traits: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of each client by its traits (t, K), (K,), and the first client of each class."""
    index, firsts = np.zeros(traits.shape[1], dtype=np.int64), np.zeros(1, dtype=np.int64)
    for trait in traits:
        if np.ptp(trait):
            labels = np.unique(trait, return_inverse=True)[1]
            _, firsts, index = np.unique(
                index * (labels.max() + 1) + labels, return_index=True, return_inverse=True
            )
    return index, firsts


def _pole(model: "TheoryModel") -> tuple[float, float]:
    """Return the x at which a client alone diverges at the latest, and the condition of its covariance."""
    fleet, size = model.fleet, model.fleet.target.size
    poison = [one.input_noise_variance for one, _ in model.statements if isinstance(one, PoisonedSamples)]
    widest = float(fleet.input_variance.max())
    share = widest / (widest + max(poison, default=0.0))
    if fleet.is_white:
        return share * 2.0 / (size + 2.0), 1.0
    values = np.linalg.eigvalsh(fleet.covariances()[0]) / fleet.input_variance[0]
    return share * 2.0 / (2.0 * values[-1] + size), float(values[0] / values[-1])


def _number_of_nodes(
    x: FloatArray, pole: float, condition: float, precision: float, classes: int
) -> tuple[int, float]:
    """Return the number of nodes of each class, and the largest x to lump: those with the fewest groups in all."""
    low, high = float(x.min()), float(x.max())
    choices = []  # (whether the pole at −condition · low is far enough, groups, nodes, limit)
    for nodes in range(_FEWEST_NODES if precision == _PRECISION else 6, _MOST_NODES, 2):
        rate = (0.1 * precision) ** (-0.5 / nodes)
        reach = 2.0 / (
            1.0 + 0.5 * (rate + 1.0 / rate)
        )  # of an interval, as a share of the distance to its pole
        limit = low + reach * (pole - low)
        is_near = min(limit, high) - low > reach / (1.0 - reach) * (1.0 + condition) * low
        groups = classes * nodes + (np.count_nonzero(x > limit) if limit < high else 0)
        choices.append((is_near, groups, nodes, limit))
        if limit >= high and not is_near:
            break
    _, _, nodes, limit = min(choices)
    return nodes, limit


def gauss_rule(x: FloatArray, values: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the Gauss rule of points x (m,): nodes (n,), weights (n,) and the values (v, n) carried by the nodes.

    With Lagrange polynomials L_j of the nodes, node j carries Σ_k values_k L_j(x_k)/W_j.

    Examples
    --------
    >>> points = np.linspace(0.0, 1.0, 1000)
    >>> node, weight, (carried,) = gauss_rule(points, points[None] ** 2, 4)
    >>> bool(np.isclose(weight @ node**7, (points**7).sum())), bool(np.isclose(weight @ carried, (points**2).sum()))
    (True, True)
    """
    weights = np.ones(x.size)
    if np.unique(x[:500]).size < 100 or x.size <= 5 * _DIRECT:
        distinct, index = np.unique(x, return_inverse=True)
        if distinct.size <= nodes:
            weight = np.bincount(index).astype(np.float64)
            return distinct, weight, np.stack([np.bincount(index, row) / weight for row in values])
    if x.size > _DIRECT:
        x, weights, values = _at_chebyshev_nodes(x, values, 2 * nodes + 2)
    return _lanczos(x, weights, values, nodes)


def _at_chebyshev_nodes(
    x: FloatArray, values: FloatArray, count: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Replace many points by `count` Chebyshev nodes: exact for polynomials of lower degree."""
    low, high = float(x.min()), float(x.max())
    node = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    sums = np.zeros((count, 1 + len(values)))
    for start in range(0, x.size, 16384):
        part = slice(start, start + 16384)
        now = (2.0 * x[part] - low - high) / (high - low)
        rows = np.stack([np.ones(now.size), *values[:, part]], axis=1)
        point, before = now, np.ones(now.size)
        sums[0] += rows.sum(axis=0)
        for degree in range(1, count):
            sums[degree] += now @ rows
            before, now = now, 2.0 * point * now - before
    sums[1:] *= 2.0
    table = np.cos(np.outer(np.arccos(node), np.arange(count))) @ sums / count
    if table[:, 0].min() <= 0.0:
        return x, np.ones(x.size), values
    return (node * (high - low) + low + high) / 2.0, table[:, 0], table[:, 1:].T / table[:, 0]


def _lanczos(
    x: FloatArray, weights: FloatArray, values: FloatArray, nodes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Golub and Welsch: nodes are eigenvalues of the Jacobi matrix, which Lanczos' process finds."""
    basis, diagonal, beside = np.zeros((x.size, nodes)), np.zeros(nodes), np.zeros(nodes)
    root = np.sqrt(weights)
    vector = root / np.linalg.norm(root)
    for j in range(nodes):
        basis[:, j] = vector
        vector = x * vector
        diagonal[j] = basis[:, j] @ vector
        for _ in range(2):
            vector = vector - basis[:, : j + 1] @ (basis[:, : j + 1].T @ vector)
        beside[j] = np.linalg.norm(vector)
        vector = vector / beside[j]
    node, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1))
    scale = np.linalg.norm(root) * vectors[0]
    lagrange = (basis @ vectors) / root[:, None]  # times scale: the Lagrange polynomials at the points
    return node, scale**2, (weights * values) @ lagrange / scale
