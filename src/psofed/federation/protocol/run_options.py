"""The settings of a federation's run, each declared once.

The Python signatures, the run description and the options of ``psofed federation run`` all follow from here. Nothing
of NumPy is imported, so that ``--help`` stays instant.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.protocol.bounds import MAX_SEED

# Settings by their heading in --help.
_run: Any = partial(option, group="Run")
_column: Any = partial(option, group="Columns")
_round: Any = partial(option, group="Rounds")
_reply: Any = partial(option, group="Bad and missing replies")
_seconds: Any = partial(_round, low=0, metavar="SECONDS")


def _check_patience(name: str, value: Any) -> float:
    if type(value) in (int, float) and (value == 0 or 1 <= value < 1e300):
        return float(value)
    raise InvalidValueError(name, value, "0, or a number at least 1")


class ReplyLimits(Settings):
    """Bounds on replies, and the consequences of bad and missing ones.

    See :mod:`psofed.federation.server.exchange` for `patience` and `grace`. Each further round in a row that a
    node leaves unanswered doubles its rest, up to 32 rounds.

    Examples
    --------
    >>> ReplyLimits(ban_after=-1)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: ban_after must be at least 0; got -1.
    """

    max_examples: int = _reply(
        default=1_000_000, low=1, text="largest number of examples a client may claim for one round"
    )
    max_clients: int = _reply(
        default=100, low=1, text="clients that one gateway may have at a time; over a whole run, ten times this number"
    )
    ban_after: int = _reply(
        default=3, low=0, text="ban a client after this number of bad replies within 1,000 rounds; 0: never"
    )
    rest_rounds: int = _reply(
        default=2, low=0, text="rounds for which a node is not asked after it failed or did not answer"
    )
    patience: float = _reply(
        default=3.0,
        check=_check_patience,
        text="how many times longer than most nodes a node may take; 0: wait until the deadline",
    )
    grace: float = _reply(
        default=2.0, low=0, metavar="SECONDS", text="time that every node has to answer, however fast the others are"
    )


class RoundPlan(Settings):
    """When rounds begin, and what nodes are sent.

    Examples
    --------
    >>> RoundPlan(newcomers="nothing")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: newcomers must be one of "current", "zeros"; got 'nothing'.
    """

    min_nodes: int = _round(
        default=1,
        low=1,
        text="clients to wait for before the first round, those of gateways included; later rounds wait for one",
    )
    wait_for_nodes: float = _seconds(
        default=60.0, text="how long to wait for --min-nodes before starting with the clients that are online"
    )
    interval: float = _seconds(default=0.0, text="least time between the starts of two rounds; 0: no pause")
    newcomers: str = _round(
        default="current",
        choices=("current", "zeros"),
        text="what a new client starts from: the current model, or zeros as in the paper",
    )
    leave_out: Sequence[str] = _round(
        default=(), metavar="A,B", text="clients that are never asked, such as one with a faulty sensor"
    )


def with_default(kind: type[Settings], name: str, default: Any) -> Any:
    """Return the declaration of a setting of `kind` with another default."""
    return dataclasses.field(default=default, metadata=kind.options()[name].metadata)


class RunOptions(RoundPlan, ReplyLimits):
    """Settings of a run of the ready-made app, apart from its scenario."""

    seed: int = _run(default=0, low=0, high=MAX_SEED, text="random seed of masks and participants")
    deadline: float = _seconds(
        group="Run", default=60.0, open_low=True, text="longest duration of a round, even if replies are missing"
    )
    samples_per_round: int = _run(
        default=0, low=0, text="samples that arrive at each client per round; 0: whatever arrives (1 in synthetic runs)"
    )
    synthetic: bool = _run(default=False, text="let clients draw their data from the scenario, to compare with theory")
    rounds: int | None = _run(
        default=None, low=0, text="rounds to run; 0: until stopped; by default the scenario's iterations"
    )
    dtype: str = _run(default="float64", choices=("float64", "float32"), text="number type of the model")
    features: Sequence[str] = _column(
        default=(),
        metavar="A,B,C",
        text="columns that every node learns from, in the order of the model; with --target-column",
    )
    target_column: str | None = _column(default=None, metavar="NAME", text="column to predict; with --features")
    wait_for_nodes: float = with_default(RoundPlan, "wait_for_nodes", 120.0)
    newcomers: str = with_default(RoundPlan, "newcomers", "zeros")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.synthetic and not self.samples_per_round:
            object.__setattr__(self, "samples_per_round", 1)

    @property
    def plan(self) -> RoundPlan:
        """The plan of its rounds."""
        return self.shared_with(RoundPlan)

    @property
    def limits(self) -> ReplyLimits:
        """The limits on replies."""
        return self.shared_with(ReplyLimits)
