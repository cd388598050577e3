"""The settings of a federation's run, each declared once.

The Python signatures, the run description and the options of ``psofed federation run`` all follow from here. Nothing
of NumPy is imported, so that ``--help`` stays instant.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.protocol.bounds import MAX_SEED

# Headings in --help.
_RUN, _COLUMNS, _ROUNDS, _REPLIES = "Run", "Columns", "Rounds", "Bad and missing replies"

S = TypeVar("S", bound=Settings)


def _check_patience(name: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (value == 0 or 1 <= value < 1e300)
    ):
        raise InvalidValueError(name, value, "0, or a number at least 1")
    return float(value)


class ReplyLimits(Settings):
    """Bounds on replies, and the consequences of bad and missing ones.

    See :mod:`psofed.federation.server.patience` for `patience` and `grace`. Each further round in a row that a
    node leaves unanswered doubles its rest, up to 32 rounds.

    Examples
    --------
    >>> ReplyLimits(ban_after=-1)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: ban_after must be at least 0; got -1.
    """

    max_examples: int = option(
        group=_REPLIES,
        default=1_000_000,
        low=1,
        text="largest number of examples a client may claim for one round",
    )
    max_clients: int = option(
        group=_REPLIES,
        default=100,
        low=1,
        text="clients that one gateway may have at a time; over a whole run, ten times this number",
    )
    ban_after: int = option(
        group=_REPLIES,
        default=3,
        low=0,
        text="ban a client after this number of bad replies within 1,000 rounds; 0: never",
    )
    rest_rounds: int = option(
        group=_REPLIES,
        default=2,
        low=0,
        text="rounds for which a node is not asked after it failed or did not answer",
    )
    patience: float = option(
        group=_REPLIES,
        default=3.0,
        check=_check_patience,
        text="how many times longer than most nodes a node may take; 0: wait until the deadline",
    )
    grace: float = option(
        group=_REPLIES,
        default=10.0,
        low=0,
        metavar="SECONDS",
        text="total time by which a slow node may delay the others",
    )


class RoundPlan(Settings):
    """When rounds begin, and what nodes are sent.

    Examples
    --------
    >>> RoundPlan(newcomers="nothing")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: newcomers must be one of "current", "zeros"; got 'nothing'.
    """

    min_nodes: int = option(
        group=_ROUNDS,
        default=1,
        low=1,
        text="clients to wait for before the first round, those of gateways included; later rounds wait for one",
    )
    wait_for_nodes: float = option(
        group=_ROUNDS,
        default=60.0,
        low=0,
        metavar="SECONDS",
        text="how long to wait for --min-nodes before starting with the clients that are online",
    )
    interval: float = option(
        group=_ROUNDS,
        default=0.0,
        low=0,
        metavar="SECONDS",
        text="least time between the starts of two rounds; 0: no pause",
    )
    newcomers: str = option(
        group=_ROUNDS,
        default="current",
        choices=("current", "zeros"),
        text="what a new client starts from: the current model, or zeros as in the paper",
    )
    sync_every: int = option(
        group=_ROUNDS,
        default=0,
        low=0,
        text="send the full model to all participants of every N-th round; 0: never",
    )
    leave_out: Sequence[str] = option(
        group=_ROUNDS,
        default=(),
        metavar="A,B",
        text="clients that are never asked, such as one with a faulty sensor",
    )


def _with_default(kind: type[Settings], name: str, default: Any) -> Any:
    """Return the declaration of a setting of `kind` with another default."""
    return dataclasses.field(default=default, metadata=kind.options()[name].metadata)


class RunOptions(RoundPlan, ReplyLimits):
    """Settings of a run of the ready-made app, apart from its scenario."""

    seed: int = option(
        default=0, low=0, high=MAX_SEED, group=_RUN, text="random seed of masks and participants"
    )
    deadline: float = option(
        default=60.0,
        low=0,
        open_low=True,
        metavar="SECONDS",
        group=_RUN,
        text="longest duration of a round, even if replies are missing",
    )
    samples_per_round: int = option(
        default=0,
        low=0,
        group=_RUN,
        text="samples that arrive at each client per round; 0: whatever arrives (1 in synthetic runs)",
    )
    synthetic: bool = option(
        default=False,
        group=_RUN,
        text="let clients draw their data from the scenario, to compare with theory",
    )
    rounds: int | None = option(
        default=None,
        low=0,
        group=_RUN,
        text="rounds to run; 0: until stopped; by default the scenario's iterations",
    )
    dtype: str = option(
        default="float64", choices=("float64", "float32"), group=_RUN, text="number type of the model"
    )
    features: Sequence[str] = option(
        default=(),
        metavar="A,B,C",
        group=_COLUMNS,
        text="columns that every node learns from, in the order of the model; with --target-column",
    )
    target_column: str | None = option(
        default=None, metavar="NAME", group=_COLUMNS, text="column to predict; with --features"
    )
    units: Sequence[str] = option(
        default=(),
        metavar="A=UNIT,B=UNIT",
        group=_COLUMNS,
        text="units of these columns, kept with the model",
    )
    wait_for_nodes: float = _with_default(RoundPlan, "wait_for_nodes", 120.0)
    newcomers: str = _with_default(RoundPlan, "newcomers", "zeros")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.synthetic and not self.samples_per_round:
            object.__setattr__(self, "samples_per_round", 1)

    @property
    def plan(self) -> RoundPlan:
        """The plan of its rounds."""
        return _part(RoundPlan, self)

    @property
    def limits(self) -> ReplyLimits:
        """The limits on replies."""
        return _part(ReplyLimits, self)


def _part(kind: type[S], values: Settings) -> S:
    return kind(**{name: getattr(values, name) for name in kind.options()})
