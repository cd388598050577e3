"""Remembered clipping on small updates, worked by hand, compiled and as plain Python."""

import numpy as np
import pytest

from psofed.parts.aggregations import CentredClipping, RememberedClipping
from psofed.parts.plain import combine_uploads

pytestmark = [pytest.mark.parts, pytest.mark.takes(8)]

NAN = np.nan
HALF = RememberedClipping(decay=0.5, factor=1e9, iterations=1)  # nothing is clipped
RULE = RememberedClipping()


def combine(rule, updates, memory, clients=None, how=combine_uploads):
    """The server's move from 0; memories (K, D) are changed."""
    updates, clients = np.array(updates, dtype=float), None if clients is None else np.array(clients)
    return how(
        rule, updates, np.zeros(updates.shape[1]), memory=memory.ravel(), clients=clients, num_clients=len(memory)
    )


def test_a_memory_is_an_average_over_time() -> None:
    memory = np.zeros((2, 1))
    assert combine(HALF, [[4.0], [8.0]], memory) == pytest.approx([3.0])  # the mean of 2 and 4
    assert memory.ravel().tolist() == [2.0, 4.0]
    assert combine(HALF, [[4.0], [-3.0]], memory) == pytest.approx([1.75])  # of 3 and 0.5
    assert memory.ravel().tolist() == [3.0, 0.5]


def test_memories_are_as_long_in_iterations_for_every_number_of_entries() -> None:
    """One of two entries is sent every other time, so it keeps 0.5² of what was."""
    memory = np.array([[4.0, 4.0]])
    combine(HALF, [[0.0, NAN]], memory)
    assert memory.tolist() == [[1.0, 4.0]]
    combine(HALF, [[0.0, 0.0]], memory)
    assert memory.tolist() == [[0.5, 2.0]]


def test_an_entry_moves_by_the_share_of_participants_that_sent_it() -> None:
    """Memories after the updates: (0, 3) and (1.5, 0). Entry 0 was sent by one of two, entry 1 by nobody."""
    memory = np.array([[0.0, 3.0], [0.0, 0.0]])
    assert combine(HALF, [[NAN, NAN], [2.0, NAN]], memory) == pytest.approx([0.375, 0.0])
    assert memory.tolist() == [[0.0, 3.0], [1.5, 0.0]]


def test_absent_clients_are_remembered_and_unknown_ones_do_not_count() -> None:
    memory = np.zeros((4, 1))
    combine(HALF, [[4.0], [8.0]], memory, clients=[3, 1])
    assert memory.ravel().tolist() == [0.0, 4.0, 0.0, 2.0]
    # Client 1 is away and held; of two known ones the mean is (4 + 3)/2.
    assert combine(HALF, [[4.0]], memory, clients=[3]) == pytest.approx([3.5])


def test_memories_are_clipped_around_their_centre() -> None:
    """Of memories 1, 2 and 100 the median distance from 0 is 2: clipped at 1, all of them."""
    memory = np.array([[1.0], [2.0], [100.0]])
    once = RememberedClipping(decay=0.5, factor=0.5, iterations=1)
    assert combine(once, [[1.0], [2.0], [100.0]], memory) == pytest.approx([1.0])
    twice = RememberedClipping(decay=0.5, factor=0.5, iterations=2)
    # From 1 the distances are 0, 1 and 99: the radius is 0.5, and the centre moves by (0 + 0.5 + 0.5)/3.
    assert combine(twice, [[1.0], [2.0], [100.0]], memory) == pytest.approx([4 / 3])


def test_without_memory_and_with_all_present_it_is_centred_clipping() -> None:
    updates = np.random.default_rng(0).normal(size=(7, 3))
    plain = combine_uploads(CentredClipping(factor=0.5, iterations=5), updates, np.zeros(3))
    assert combine(RememberedClipping(decay=0.0), updates, np.zeros((7, 3))) == pytest.approx(plain, rel=1e-12)


def test_distances_are_over_all_entries() -> None:
    """A memory that is far off in an entry that nobody sent spends its radius there."""
    rule = RememberedClipping(decay=0.5, factor=1.0, iterations=1)
    memory = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 300.0]])
    # Half of D entries: kept 0.25 of 0, so memories are (3, 1), (−3, −1) and (400, 300); the radius is √10.
    change = combine(rule, [[4.0, NAN], [-4.0, NAN], [1600.0 / 3.0, NAN]], memory)
    assert memory[2].tolist() == [400.0, 300.0]
    assert change == pytest.approx([np.sqrt(10.0) * 0.8 / 3.0, 0.0])


def test_a_client_that_pushes_with_honest_length_is_outweighed_by_memory() -> None:
    """Honest updates are noise of length 1 around a small step; the Byzantine one always points elsewhere."""
    rng, memory, changes, without = np.random.default_rng(1), np.zeros((5, 4)), [], []
    for _ in range(400):
        updates = rng.normal(size=(5, 4)) / 2.0
        updates[0] = [-1.0, 0.0, 0.0, 0.0]
        updates[1:, 0] += 0.1
        changes.append(combine(RULE, updates, memory)[0])
        without.append(combine_uploads(CentredClipping(factor=1.0, iterations=5), updates, np.zeros(4))[0])
    assert np.mean(without) < 0.0 < np.mean(changes)
