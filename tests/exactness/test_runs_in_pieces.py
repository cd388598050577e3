"""A run in pieces, and trials in another block, are the same bit for bit, whatever is simulated.

Most tests run fewer iterations than a chunk has, and fewer trials than a vector of lanes: all of theirs begin at 0.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from psofed.engine.lanes import WIDTH

sys.path.insert(0, str(Path(__file__).parent))
from every_kind import KINDS, start

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_pieces_and_in_another_block_is_the_same(kind: str) -> None:
    whole, pieces = np.empty((12, 3, 2 * WIDTH)), np.empty((12, 3, WIDTH))
    run, again = start(kind, range(2 * WIDTH)), start(kind, range(WIDTH, 2 * WIDTH))
    run.advance(0, whole)
    for first, last in ((0, 4), (4, 5), (5, 12)):
        again.advance(first, pieces[first:last])
    assert np.array_equal(whole[:, :, WIDTH:], pieces)
    assert np.array_equal(run.server[:, WIDTH:], again.server)
    assert not np.array_equal(whole[:, :, :WIDTH], pieces)
    if kind == "a table":
        assert np.array_equal(run.client_squares[:, WIDTH:], again.client_squares)
        assert (again.client_squares > 0.0).all(axis=1).tolist() == [True, False, *[True] * 5]
