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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel

PRECISION = 1e-10  # relative error of an answer, but for large fleets and sampled offsets
_MOST_NODES = 64
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
    attack : array of int (n,)
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
    attack: NDArray[np.int64]
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
    precision: float = PRECISION,
    apart: int = 0,
    lumped: bool = True,
    offsets: NDArray[np.int64] | None = None,
) -> Groups:
    """Return the groups of a model's clients at a mean stepsize.

    Parameters
    ----------
    precision : float
        Relative error that lumping may have.
    apart : int
        The number of fastest and of slowest clients that stay groups of their own.
    lumped : bool
        False: every client is a group.
    offsets : array of int (K,), optional
        Offsets of the clients' windows; clients of one group have the same.
    """
    fleet, zeros = model.fleet, np.broadcast_to(0.0, model.scenario.num_clients)
    steps = model.stepsizes(stepsize)
    windows = zeros if offsets is None else offsets.astype(np.float64)
    honest = model.honest if model.tells_honest and not apart else zeros  # eigenvalues need no split
    kind, chance, added = _attacks(model)
    traits = [kind, chance, model.availability, steps, windows, honest]
    x = steps * fleet.input_variance
    values: Any = (fleet.noise_variance, added)
    copies = np.ones(x.size)
    is_lumped = lumped and model.is_lumpable and (offsets is not None or not model.is_scattered)
    if is_lumped:
        traits, x, copies, values = _lump(model, traits, x, values, precision, apart)
    kind, chance, availability, steps, windows, honest = traits
    covariance = (x / steps)[:, None, None]
    if not fleet.is_white:
        matrices = fleet.covariances()
        covariance = covariance * (matrices[0] / fleet.input_variance[0]) if is_lumped else matrices
    noise, added = values
    return Groups(
        copies, steps, covariance, noise, added, kind.astype(np.int64), chance, availability, windows.astype(np.int64),
        fleet.target_offsets, honest,
    )  # fmt: skip


def _attacks(model: "TheoryModel") -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each client's attack (−1 for none) and its chance, those that only add noise left out, and that noise."""
    clients = model.scenario.num_clients
    kind, chance, added = (np.broadcast_to(value, clients) for value in (-1.0, 0.0, 0.0))
    for index, attack in enumerate(model.attacks):
        if attack.only_adds:
            added = added + attack.chance * attack.upload.variance
        else:
            member = attack.chance > 0
            kind, chance = np.where(member, index, kind), np.where(member, attack.chance, chance)
    return kind, chance, added


def _lump(
    model: "TheoryModel",
    traits: list[FloatArray],
    x: FloatArray,
    values: tuple[FloatArray, FloatArray],
    precision: float,
    apart: int,
) -> tuple[list[FloatArray], FloatArray, FloatArray, FloatArray]:
    """Return traits (n,), x (n,), copies (n,) and values (2, n) of the nodes."""
    classes = _classes(traits)
    if apart:  # an eigenvalue needs few nodes, since eigenvectors concentrate on the clients that stay apart
        nodes, edge = _fewest_nodes(precision), min(apart, x.size // 2)
        alone = (x >= np.partition(x, -edge)[-edge]) | (x <= np.partition(x, edge - 1)[edge - 1])
    else:
        nodes, limit = _number_of_nodes(x, *_pole(model), precision, len(classes))
        alone = x > limit
    columns = (*traits, x, np.broadcast_to(1.0, x.size), *values)
    parts = [[column[alone] for column in columns]]
    for members in classes:
        lumped = members[~alone[members]] if alone.any() else members
        if lumped.size:
            node, weight, carried = gauss_rule(x[lumped], np.stack([each[lumped] for each in values]), nodes)
            parts.append([*(np.repeat(trait[lumped[0]], node.size) for trait in traits), node, weight, *carried])
    *common, x, copies, noise, added = (np.concatenate(each) for each in zip(*parts, strict=True))
    return common, x, copies, np.stack([noise, added])


def _classes(traits: list[FloatArray]) -> list[NDArray[np.intp]]:
    """Return the clients of each class: those that have all traits, (K,) each, in common."""
    classes = [np.arange(traits[0].size)]
    for trait in traits:
        if trait.min() < trait.max():
            classes = [part for members in classes for part in _split(members, trait[members])]
    return classes


def _split(members: NDArray[np.intp], values: FloatArray) -> list[NDArray[np.intp]]:
    """Split clients by values; two are told apart without sorting, since fleets of 10⁷ clients have no more."""
    is_high, is_low = values == values.max(), values == values.min()
    if np.all(is_high | is_low):
        return [members] if np.all(is_high) else [members[is_low], members[is_high]]
    order = np.argsort(values, kind="stable")
    return np.split(members[order], np.flatnonzero(np.diff(values[order])) + 1)


def _fewest_nodes(precision: float) -> int:
    return 16 if precision <= PRECISION else 6


def _pole(model: "TheoryModel") -> tuple[float, float]:
    """Return the x at which a client alone diverges at the latest, and the condition of its covariance."""
    fleet, size = model.fleet, model.fleet.target.size
    widest = float(fleet.input_variance.max())
    share = widest / (widest + max((one.samples.input_noise_variance for one in model.attacks), default=0.0))
    if fleet.is_white:
        return share * 2.0 / (size + 2.0), 1.0
    values = np.linalg.eigvalsh(fleet.covariances()[0]) / fleet.input_variance[0]
    return share * 2.0 / (2.0 * values[-1] + size), float(values[0] / values[-1])


def _number_of_nodes(x: FloatArray, pole: float, condition: float, precision: float, classes: int) -> tuple[int, float]:
    """Return the number of nodes of each class, and the largest x to lump: those with the fewest groups in all."""
    low, high = float(x.min()), float(x.max())
    choices = []  # (whether the pole at −condition · low is far enough, groups, nodes, limit)
    for nodes in range(_fewest_nodes(precision), _MOST_NODES, 2):
        rate = (0.1 * precision) ** (-0.5 / nodes)
        reach = 2.0 / (1.0 + 0.5 * (rate + 1.0 / rate))  # of an interval, as a share of the distance to its pole
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


def _at_chebyshev_nodes(x: FloatArray, values: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
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
