"""Settings of :func:`psofed.predict`, :func:`psofed.compare` and :func:`psofed.tune`, and of their commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.common.validation import check_integer
from psofed.settings.simulation import TrialSettings

if TYPE_CHECKING:
    from psofed.common.types import ProgressCallback

THEORIES = ("exact", "paper", "independence")
THEORY_TITLES = {
    "exact": "exact theory",
    "paper": "paper theory",
    "independence": "theory under the independence assumption",
}
METRICS = ("network", "honest", "test", "msd")


class PredictionSettings(Settings, kw_only=False):
    """Which theory predicts a scenario."""

    group = "Theory"

    theory: str = option(
        default="exact",
        choices=THEORIES,
        text="theory: exact (the equations as simulated), paper (download and upload taken as independent) or "
        "independence (exact, but with inputs taken as independent over time)",
    )
    small_stepsize: bool = option(default=False, text="drop terms of order stepsize squared (only in the paper theory)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small_stepsize and self.theory != "paper":
            raise InvalidValueError("theory", self.theory, '"paper" if small_stepsize is set')


class ComparisonSettings(TrialSettings, kw_only=False):
    """How a scenario is simulated, and which theory it is compared with."""

    trials: int = option(default=200, low=2, text="independent repetitions")
    theory: str = option(default="exact", choices=THEORIES, kw_only=True, group="Theory", text="theory to compare with")


def check_counts(name: str, value: Any) -> tuple[int, ...]:
    """Return numbers of shared parameters, given as a list or as text: ``1..5``, ``1,2,5`` or ``3``.

    Examples
    --------
    >>> check_counts("shared", "2..4"), check_counts("shared", "1,5"), check_counts("shared", [3])
    ((2, 3, 4), (1, 5), (3,))
    """
    if isinstance(value, str):
        low, dots, high = value.partition("..")
        try:
            counts = list(range(int(low), int(high) + 1)) if dots else [int(part) for part in value.split(",")]
        except ValueError:
            counts = []
    else:
        counts = list(value) if isinstance(value, Sequence | range) else []
    if not counts:
        raise InvalidValueError(name, value, "numbers of shared parameters, such as 1..5 or 1,2,5")
    return tuple(check_integer(name, count, 1) for count in counts)


class TuningSettings(Settings, kw_only=False):
    """Target and theory of a tuning."""

    group = "Tuning"

    metric: str = option(
        default="network",
        choices=METRICS,
        text="error to minimise: network MSE, honest clients' MSE, test MSE or MSD of the server's model",
    )
    shared: Sequence[int] | None = option(
        default=None,
        check=check_counts,
        metavar="1..D",
        text="numbers of shared parameters to try, such as 1..5 or 1,2,5; all by default",
    )
    budget: int | None = option(
        default=None,
        low=1,
        text="also choose the number of participants, such that they receive and send at most this many values per "
        "iteration together: 2 x participants x M",
    )
    theory: str = option(default="exact", choices=THEORIES, text="theory that predicts the errors")
    horizon: int | None = option(
        default=None,
        low=1,
        text="minimise the mean error over the first N iterations; by default the steady state's error, or the mean "
        "error over the whole run with your own data and where the steady state has no best stepsize",
    )
    progress: "ProgressCallback | None" = option(
        default=None, flag=None, text="called with (done, total) numbers of shared parameters"
    )
