"""Momentum of each client, held by the server or the clients (:class:`Momentum`)."""

from typing import NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray
from psofed.engine.compiling import kernel_part
from psofed.parts.plain import LARGEST, MOST_MEMORY
from psofed.parts.traffic import Momentum


class Memories(NamedTuple):
    """Memories of all clients in several trials.

    Attributes
    ----------
    is_on : bool
        Whether there are any.
    keep, take, absent : float
        As in :class:`Momentum`.
    values : array (K, N, lanes)
        What is remembered.
    place : int array (K, lanes)
        Scratch to work in: −1 everywhere.
    """

    is_on: bool
    keep: float
    take: float
    absent: float
    values: FloatArray
    place: IndexArray


def make_memories(momentum: Momentum | None, num_clients: int, numbers: int, lanes: int) -> Memories:
    """Return memories that are zero."""
    if momentum is None:
        return Memories(False, 0.0, 0.0, 0.0, np.zeros((0, 0, 0)), np.zeros((0, 0), np.int32))
    if num_clients * numbers > MOST_MEMORY:
        raise NotCoveredError(
            f"an algorithm with one momentum per client needs {num_clients * numbers:,} values of memory for "
            f"{num_clients} clients and {numbers} entries; the limit is {MOST_MEMORY:,}"
        )
    return Memories(
        True,
        momentum.keep,
        momentum.take,
        momentum.absent,
        np.zeros((num_clients, numbers, lanes)),
        np.full((num_clients, lanes), -1, np.int32),
    )


@kernel_part
def take_in(memories: Memories, clients: IndexArray, updates: FloatArray) -> None:
    """Update the memories with ``updates`` (P, N, lanes) of ``clients`` (P, lanes); too large values are dropped."""
    values, place = memories.values, memories.place
    num_clients, numbers, lanes = values.shape
    for p in range(clients.shape[0]):
        for lane in range(lanes):
            place[clients[p, lane], lane] = p
    for k in range(num_clients):
        for i in range(numbers):
            for lane in range(lanes):
                p = place[k, lane]
                factor, new = memories.absent, 0.0
                if p >= 0 and abs(updates[p, i, lane]) <= LARGEST:
                    factor, new = memories.keep, memories.take * updates[p, i, lane]
                values[k, i, lane] = factor * values[k, i, lane] + new
        for lane in range(lanes):
            place[k, lane] = -1


@kernel_part
def read_out(memories: Memories, clients: IndexArray, out: FloatArray) -> None:
    """Write the memories of ``clients`` (P, lanes) into ``out`` (P, N, lanes)."""
    for p in range(out.shape[0]):
        for i in range(out.shape[1]):
            for lane in range(out.shape[2]):
                out[p, i, lane] = memories.values[clients[p, lane], i, lane]
