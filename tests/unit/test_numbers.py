"""Numbers that results are made of."""

import pytest
from scipy.special import stdtrit

from psofed.common.numbers import student_quantile


@pytest.mark.parametrize("probability", [0.5, 0.6, 0.9, 0.975, 0.995, 0.9999])
def test_student_quantiles_are_scipys(probability: float) -> None:
    for degrees in (1, 2, 3, 4, 7, 31, 99, 100, 299, 300, 301, 1000, 10**7):
        assert student_quantile(probability, degrees) == pytest.approx(
            stdtrit(degrees, probability), rel=1e-9, abs=1e-12
        )
