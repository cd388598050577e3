"""Numbers that results are made of."""

import pytest
from scipy.special import bdtr, stdtrit

from psofed.common.numbers import student_quantile
from psofed.results.estimates import sign_test_rank

pytestmark = [pytest.mark.common, pytest.mark.results]


@pytest.mark.parametrize("probability", [0.5, 0.6, 0.9, 0.975, 0.995, 0.9999])
def test_student_quantiles_are_scipys(probability: float) -> None:
    for degrees in (1, 2, 3, 4, 7, 31, 99, 100, 299, 300, 301, 1000, 10**7):
        assert student_quantile(probability, degrees) == pytest.approx(
            stdtrit(degrees, probability), rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.9999])
def test_ranks_of_the_sign_test_are_the_largest_that_hold_the_confidence(confidence: float) -> None:
    for count in (*range(1, 60), 1000, 9999):
        rank = sign_test_rank(count, confidence)
        assert 2 * bdtr(rank - 1.0, count, 0.5) <= 1 - confidence or rank == 0
        assert 2 * bdtr(float(rank), count, 0.5) > 1 - confidence or rank == count // 2
