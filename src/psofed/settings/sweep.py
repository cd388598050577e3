"""Settings of :func:`psofed.sweep` and ``psofed sweep``."""

from pathlib import Path
from typing import TYPE_CHECKING

from psofed.common.options import option
from psofed.common.validation import check_executor
from psofed.settings.simulation import MeasuringSettings

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from psofed.common.types import ProgressCallback


class SweepSettings(MeasuringSettings, kw_only=False):
    """How every point of a grid is simulated."""

    trials: int = option(default=100, low=1, text="independent repetitions of every point")
    seed: int = option(default=0, low=0, text="random seed of every point, so that all comparisons are paired")
    threads: int | None = option(
        default=None, low=1, kw_only=True, text="points simulated at once; all cores by default"
    )
    executor: "Executor | None" = option(
        default=None,
        flag=None,
        kw_only=True,
        check=check_executor,
        text="where points are simulated instead: processes, or a Dask cluster's Client.get_executor()",
    )
    store: Path | str | None = option(
        default=None, flag=None, kw_only=True, text="folder that keeps finished points, which are not simulated again"
    )
    progress: "ProgressCallback | None" = option(
        default=None, flag=None, kw_only=True, text="called now and then with (done, total) points"
    )
