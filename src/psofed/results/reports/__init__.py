"""What results say: the reports and charts of simulations and of their differences.

Nothing here decides a number, so nothing here counts in the key of a sweep's store (`psofed.sweeps.cell`).
"""

from psofed.render import Measured
from psofed.results.estimates import Estimate


def measured(value: Estimate) -> Measured:
    """Return what to show of an estimate: the mean, or the median where tails are heavy or trials diverged.

    Examples
    --------
    >>> measured(Estimate(0.1, 0.001, (0.098, 0.102)))
    Measured(value=0.1, low=0.098, high=0.102, remark='')
    """
    middle, low, high = value.typical
    is_median = not value.is_typical and middle == value.median and value.mean != value.median
    return Measured(middle, low, high, "median" if is_median else "")
