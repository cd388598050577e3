"""Numbers that results are made of."""

import pytest
from scipy.special import bdtr

from psofed.results.estimates import sign_test_rank

pytestmark = pytest.mark.results


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.9999])
def test_ranks_of_the_sign_test_are_the_largest_that_hold_the_confidence(confidence: float) -> None:
    for count in (*range(1, 60), 1000, 9999):
        rank = sign_test_rank(count, confidence)
        assert 2 * bdtr(rank - 1.0, count, 0.5) <= 1 - confidence or rank == 0
        assert 2 * bdtr(float(rank), count, 0.5) > 1 - confidence or rank == count // 2
