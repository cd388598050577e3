"""Attackers that say what one honest client says."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Attack, option
from psofed.parts.contexts import Conspiracy
from psofed.parts.vectors import inner, part_of


class Mimic(Attack):
    """All attackers copy one honest client, whose upload then counts too often.

    Nothing they send is out of the ordinary, so no rule can tell them from honest clients; siding with the same client
    all the time, they bias the model towards its data. The victim is chosen to bias most (``victim = "variance"``). In
    the first `warm_up` iterations attackers watch all clean updates u_k and estimate the direction z in which these
    vary most; the client with the largest |Σ_n zᵀu_k,n| ranks first. After that the ranking stands, and in each
    iteration the client is copied that ranks first of those who participate and do not attack (during the warm-up, by
    what is known so far). Where all participate, that is one fixed victim. With ``victim = "lowest"`` it is, entry by
    entry, the one with the lowest number. An entry that the victim does not share is sent honestly. Its strength is how
    often it does so.

    Notes
    -----
    The paper follows z by Oja's rule. Here the second moments of u_k around their running mean are kept, and z makes a
    step of the power method on them in each iteration of the warm-up, which does not depend on the updates' scale.

    References
    ----------
    Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    knows = "everyone"
    not_affine_because = "which client is copied depends on who participates and who attacks, so the copy is not affine"

    victim: str = option(default="variance", choices=("variance", "lowest"), text="which honest client is copied")
    warm_up: int = option(default=200, low=1, text="iterations until the choice of the victim is final")

    def group_memory_size(self, num_clients: int, dimension: int) -> int:
        """Return memory for what is known of the updates: second moments, mean, z, and a sum for each client."""
        if self.victim == "lowest":
            return 0
        return 1 + dimension * (dimension + 3 + num_clients)

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Copy the victim."""
        honest, shared = conspiracy.honest, conspiracy.honest_shared
        count, size = honest.shape
        if self.victim == "lowest":
            for a in range(out.shape[0]):
                for i in range(size):
                    for h in range(count - 1, -1, -1):
                        if shared[h, i]:
                            out[a, i] = honest[h, i]
            return
        dimension = conspiracy.dimension
        # Rows of D numbers: second moments, mean, z and scratch; then each client's sum, since clients may join.
        table = part_of(conspiracy.memory, 1, (dimension + 3 + conspiracy.num_clients, dimension))
        axis, sums = table[dimension + 1], table[dimension + 3 :]
        if conspiracy.memory[0] < self.warm_up:
            _watch(conspiracy, table[:dimension], table[dimension], axis, sums, table[dimension + 2])
            conspiracy.memory[0] += 1.0
        best, victim = -1.0, -1
        for h in range(count):
            score = abs(inner(axis, sums[conspiracy.honest_clients[h]]))
            if score > best * (1.0 + 1e-9):
                best, victim = score, h
        for a in range(out.shape[0]):
            for i in range(size):
                if victim >= 0 and shared[victim, i]:
                    out[a, i] = honest[victim, i]


def _watch(
    conspiracy: Conspiracy,
    moments: FloatArray,
    mean: FloatArray,
    axis: FloatArray,
    sums: FloatArray,
    scratch: FloatArray,
) -> None:
    """Take in the clean updates of an iteration, and turn the axis towards where they vary most."""
    honest, entries, clients = conspiracy.honest, conspiracy.entries, conspiracy.honest_clients
    count, size = honest.shape
    seen = conspiracy.memory[0]
    for i in range(size):
        if count > 0:
            mean[entries[i]] += (np.sum(honest[:, i]) / count - mean[entries[i]]) / (1.0 + seen)
        if axis[entries[i]] == 0.0:
            axis[entries[i]] = 1.0 / (1.0 + entries[i])  # anything but perpendicular to what is sought
    for h in range(count):
        for i in range(size):
            sums[clients[h], entries[i]] += honest[h, i]
            deviation = honest[h, i] - mean[entries[i]]
            for j in range(size):
                moments[entries[i], entries[j]] += deviation * (honest[h, j] - mean[entries[j]])
    total = 0.0
    for i in range(conspiracy.dimension):
        scratch[i] = inner(moments[i], axis)
        total += scratch[i] * scratch[i]
    if total > 0.0:
        for i in range(conspiracy.dimension):
            axis[i] = scratch[i] / math.sqrt(total)
