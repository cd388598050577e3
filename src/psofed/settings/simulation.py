"""Settings of :func:`psofed.simulate` and ``psofed simulate``."""

from typing import TYPE_CHECKING

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
        default=100,
        low=1,
        text="independent repetitions: new data, participants, masks and attacks; same fleet",
    )
    seed: int = option(default=0, low=0, text="random seed (the fleet has its own)")
    threads: int | None = option(
        default=None,
        low=1,
        text="number of threads; all cores by default; never changes the result",
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


class SimulationSettings(TrialSettings, kw_only=False):
    """How a scenario is simulated.

    Examples
    --------
    >>> SimulationSettings(trials=200).seed
    0
    """

    keep_trials: bool = option(
        default=False,
        flag=None,
        kw_only=True,
        text="keep the learning curve of every trial (needs more memory)",
    )
    executor: "Executor | None" = option(
        default=None,
        flag=None,
        kw_only=True,
        check=check_executor,
        text="where blocks run instead of on threads: processes, or a Dask cluster's Client.get_executor()",
    )
