"""Vectors of lanes do what loops over lanes do, bit for bit."""

import numpy as np
import pytest
from numba import types

from psofed.engine.compiling import compiled
from psofed.engine.lanes import WIDTH, Lanes, _Arithmetic, empty_lanes
from psofed.engine.normals import WORDS_AHEAD, fill_standard_normal, next_normals
from psofed.engine.participation import draw_participants
from psofed.engine.streams import Stream, make_stream

pytestmark = pytest.mark.engine


@compiled
def draw_as_vectors(counter, gamma, scratch, out):  # type: ignore[no-untyped-def]
    for lane in range(0, counter.size, WIDTH):
        next_normals(lane, counter, gamma, scratch, out)


@pytest.mark.parametrize("words", [1, WORDS_AHEAD, 2 * WORDS_AHEAD + 3])
@pytest.mark.parametrize("vectors", [1, 3])
def test_normals_are_the_same_alone_and_as_vectors(words: int, vectors: int) -> None:
    lanes = vectors * WIDTH
    stream = make_stream(3, "data", range(lanes))
    one_by_one, at_once = np.empty((2 * words, lanes), np.float32), np.empty((2 * words, lanes), np.float32)
    for lane in range(lanes):
        column = np.empty((2 * words, 1), np.float32)
        fill_standard_normal(stream.key[lane : lane + 1], stream.gamma[lane : lane + 1], 0, column)
        one_by_one[:, lane] = column[:, 0]
    counter = stream.key.copy()
    draw_as_vectors(counter, stream.gamma, np.empty((WORDS_AHEAD, lanes), np.uint64), at_once)
    assert np.array_equal(one_by_one, at_once)
    assert np.array_equal(counter, stream.key + np.uint64(words) * stream.gamma)


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (7, 3), (7, 7), (24, 24), (25, 25), (200, 24), (200, 40)]
)
def test_choices_are_the_same_alone_and_in_lanes_and_without_repetition(size: int, count: int) -> None:
    stream = make_stream(4, "participation", range(WIDTH))
    together = np.empty((9, count, WIDTH), np.int32)
    draw_participants(stream.key, stream.gamma, 5, size, together)
    for lane in range(WIDTH):
        alone = np.empty((9, count, 1), np.int32)
        one = Stream(stream.key[lane : lane + 1], stream.gamma[lane : lane + 1])
        draw_participants(one.key, one.gamma, 5, size, alone)
        assert np.array_equal(alone[:, :, 0], together[:, :, lane])
    chosen = np.sort(together, axis=1)
    assert (np.diff(chosen, axis=1) > 0).all()
    assert chosen.min() >= 0
    assert chosen.max() < size


@pytest.mark.parametrize("shape", [(16,), (3, 16), (5, 2, 32)])
def test_lanes_are_aligned(shape: tuple[int, ...]) -> None:
    array = empty_lanes(*shape)
    assert array.shape == shape
    assert array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0


def test_arithmetic_without_vectors_is_left_to_numba() -> None:
    """Else a part whose body adds what cannot be added would be told of lanes, which it knows nothing of."""
    number, vector = types.float64, Lanes(types.float64)
    assert _Arithmetic.generic(None, (number, number), {}) is None
    for both in ((vector, number), (number, vector), (vector, vector)):
        assert _Arithmetic.generic(None, both, {}).return_type == vector
