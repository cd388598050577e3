"""Settings of :func:`psofed.simulate` and ``psofed simulate``."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.common.validation import check_executor

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from psofed.common.types import ProgressCallback


class TrialSettings(Settings, kw_only=False):
    """How trials are run."""

    group = "Run"

    trials: int = option(
        default=100, low=1, text="independent repetitions: new data, participants, masks and attacks; same fleet"
    )
    seed: int = option(default=0, low=0, text="random seed (the fleet has its own)")
    threads: int | None = option(
        default=None, low=1, text="number of threads; all cores by default; never changes the result"
    )
    tail: float = option(
        default=0.2,
        low=0,
        open_low=True,
        kw_only=True,
        text="iterations at the end that count as steady state: a number, or a fraction below 1",
    )
    progress: "ProgressCallback | None" = option(
        default=None, flag=None, kw_only=True, text="called now and then with (done, total) trial-iterations"
    )


def check_metrics(name: str, value: Any) -> tuple[Any, ...]:
    """Return metrics as a tuple; one may stand alone."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def check_precision(name: str, value: Any) -> float:
    """Return a precision in dB, given as a number, or relative as text in per cent.

    Examples
    --------
    >>> check_precision("precision", 0.1), round(check_precision("precision", "2%"), 4)
    (0.1, 0.086)
    """
    text = str(value).strip()
    try:
        percent = float(text.removesuffix("%")) if text.endswith("%") else None
        decibels = float(text) if percent is None else 10 * math.log10(1 + percent / 100)
    except ValueError:
        decibels = math.nan
    if isinstance(value, bool) or not 0 < decibels < math.inf:
        raise InvalidValueError(name, value, "a positive number of dB, such as 0.1, or per cent, such as 2%")
    return decibels


class MeasuringSettings(TrialSettings, kw_only=False):
    """Metrics to measure, and their precision."""

    metrics: Sequence[Any] = option(
        default=(),
        flag="--metric",
        metavar="NAME",
        repeat=True,
        check=check_metrics,
        kw_only=True,
        text="also measure this metric: honest_mse, or your own from a plugin; repeatable",
    )
    precision: str | float | None = option(
        default=None,
        metavar="DB",
        check=check_precision,
        kw_only=True,
        text="stop as soon as the 95 % interval of the first --metric (the network MSE by default) is at most this far "
        "to each side, in dB (0.1) or per cent (2%); trials is then the most",
    )


class SimulationSettings(MeasuringSettings, kw_only=False):
    """How a scenario is simulated.

    Examples
    --------
    >>> SimulationSettings(trials=200).seed
    0
    """

    keep_trials: bool = option(
        default=False, flag=None, kw_only=True, text="keep the learning curve of every trial (needs more memory)"
    )
    executor: "Executor | None" = option(
        default=None,
        flag=None,
        kw_only=True,
        check=check_executor,
        text="where blocks run instead of on threads: processes, or a Dask cluster's Client.get_executor()",
    )
