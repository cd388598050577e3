"""Settings of :func:`psofed.read_data` and ``--data``: how a table becomes the clients' streams."""

from collections.abc import Sequence

from psofed.common.options import option
from psofed.common.settings import Settings


class StreamSettings(Settings):
    """How the rows of a client become the samples that it learns from."""

    group = "Your data"

    epochs: int = option(default=1, low=1, text="passes of each client through its rows")
    warmup: int = option(default=20, low=2, text="rows of each client that only feed its running means and deviations")
    clip: float = option(
        default=5.0, low=0, open_low=True, flag=None, text="inputs are limited to this many standard deviations"
    )
    min_rows: int | None = option(
        default=None, low=1, text="leave out clients with fewer rows; by default the warm-up plus 10"
    )
    leave_out: Sequence[str] = option(
        default=(), metavar="A,B", text="clients to leave out, such as one with a faulty sensor"
    )


class DataSettings(StreamSettings, kw_only=False):
    """How a table is read: its columns, and the samples that clients learn from.

    Examples
    --------
    >>> DataSettings("station", "temperature", features=["wind"]).features
    ('wind',)
    """

    client_column: str = option(metavar="NAME", text="column with the client IDs")
    target_column: str = option(metavar="NAME", text="column to predict")
    features: Sequence[str] | None = option(
        default=None, metavar="A,B,C", text="columns to predict from; all other numeric columns by default"
    )


class ArraySettings(StreamSettings):
    """How arrays become the clients' streams."""

    features: Sequence[str] | None = option(
        default=None,
        check=lambda name, value: tuple(map(str, value)),
        text="names of the columns of X; x1, x2, … by default",
    )
