"""The paper's matrices written out, for tiny K and D: the reference the operators are tested against.

Expectations over participants and masks are taken by going through all of them, so nothing of the appendix's case
distinctions is used here.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import draw_fleet
from psofed.scenario import Scenario


def dense_selection_matrices(scenario: Scenario) -> tuple[FloatArray, FloatArray, FloatArray]:
    """𝓠_𝓐, 𝓠_𝓑 and 𝓠_𝓒, each (K+1)²D² square, in the order of an array (K+1, K+1, D, D).

    Masks are random, one for all clients if coordinated, else independent.
    """
    clients, size = scenario.num_clients, scenario.dimension
    blocks = (clients + 1) ** 2 * size**2
    totals = [np.zeros((blocks, blocks)) for _ in range(3)]
    count = 0
    for participants, masks in _outcomes(scenario):
        a = np.zeros((clients + 1, clients + 1, size, size))
        b, c = a.copy(), a.copy()
        a[0, 0] = b[0, 0] = np.eye(size)
        for k in range(clients):
            taken = participants[k] * np.diag(masks[k])
            share = taken / scenario.num_participants
            a[1 + k, 0], a[1 + k, 1 + k] = taken, np.eye(size) - taken
            b[0, 0] = b[0, 0] - share
            b[0, 1 + k] = c[0, 1 + k] = share
            b[1 + k, 1 + k] = np.eye(size)
        for total, matrix in zip(totals, (a, b, c), strict=True):
            total += _block_kronecker(matrix, matrix)
        count += 1
    return totals[0] / count, totals[1] / count, totals[2] / count


def dense_data_matrices(scenario: Scenario) -> tuple[FloatArray, FloatArray]:
    """𝓚 and 𝓗, entry by entry as the paper's Appendix B has them (Isserlis)."""
    clients, size = scenario.num_clients, scenario.dimension
    covariances = draw_fleet(scenario).covariances()
    identity = np.zeros((clients + 1, clients + 1, size, size))
    r = identity.copy()
    for k in range(clients + 1):
        identity[k, k] = np.eye(size)
    for k in range(clients):
        r[1 + k, 1 + k] = covariances[k]
    kappa = _block_kronecker(identity, r) + _block_kronecker(r, identity)
    fourth = _block_kronecker(r, r).reshape((clients + 1, clients + 1, size, size) * 2)
    for k in range(clients):
        s = covariances[k]
        own = np.einsum("im,jn->ijmn", s, s) + np.einsum("ij,mn->ijmn", s, s) + np.einsum("in,jm->ijmn", s, s)
        fourth[1 + k, 1 + k, :, :, 1 + k, 1 + k] = own
    return kappa, fourth.reshape(kappa.shape)


def _block_kronecker(a: FloatArray, b: FloatArray) -> FloatArray:
    """Matrix of P → a P bᵀ on arrays (N, N, d, d)."""
    big = np.einsum("acim,bejn->abijcemn", a, b)
    side = int(np.prod(big.shape[:4]))
    return np.asarray(big.reshape(side, side))


def _outcomes(scenario: Scenario) -> Iterator[tuple[FloatArray, FloatArray]]:
    clients, size = scenario.num_clients, scenario.dimension
    masks = [
        np.isin(np.arange(size), chosen).astype(float)
        for chosen in itertools.combinations(range(size), scenario.num_shared)
    ]
    for chosen in itertools.combinations(range(clients), scenario.num_participants):
        participants = np.isin(np.arange(clients), chosen).astype(float)
        if scenario.selection.coordinated:
            for mask in masks:
                yield participants, np.tile(mask, (clients, 1))
        else:
            for own in itertools.product(masks, repeat=clients):
                yield participants, np.array(own)
