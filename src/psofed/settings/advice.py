"""Settings of :func:`psofed.advise` and ``psofed advise``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.settings.data import StreamSettings

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from psofed.common.types import ProgressCallback
    from psofed.parts.base import Aggregation


class AdviceSettings(Settings, kw_only=False):
    """How ways to learn from a table are compared."""

    group = "Comparison"

    client_column: str | None = option(
        default=None, flag=None, text="column with the client IDs, if the table is not read yet"
    )
    target_column: str | None = option(default=None, flag=None, text="column to predict, if the table is not read yet")
    features: Sequence[str] | None = option(
        default=None, flag=None, text="columns to predict from; all other numeric columns by default"
    )
    byzantine: float | None = option(
        default=None,
        low=0,
        high=0.5,
        open_high=True,
        kw_only=True,
        metavar="FRACTION",
        text="fraction of Byzantine clients in the what-if analysis; the scenario's or 0.2 by default; 0 skips it",
    )
    rule: "str | Aggregation | None" = option(
        default=None,
        check=lambda name, value: value,  # a part or its name, looked up when the scenario is known
        kw_only=True,
        metavar="RULE",
        text="robust aggregation rule to try besides the mean; the scenario's rule or the median by default",
    )
    trials: int = option(
        default=16, low=1, kw_only=True, text="draws of participants, masks and attacks over which errors are averaged"
    )
    seed: int = option(default=0, low=0, kw_only=True, text="random seed of these draws and of the Byzantine clients")
    min_rows: int | None = option(
        default=None,
        low=1,
        flag=None,
        kw_only=True,
        text="leave out clients with fewer rows; by default the warm-up plus 10",
    )
    warmup: int = option(
        default=StreamSettings.warmup,
        low=2,
        flag=None,
        kw_only=True,
        text="rows of each client that only feed its running means, if the table is not read yet",
    )
    executor: "Executor | None" = option(
        default=None, flag=None, kw_only=True, text="where federations run; threads by default"
    )
    progress: "ProgressCallback | None" = option(
        default=None, flag=None, kw_only=True, text="called now and then with (done, total) runs"
    )
