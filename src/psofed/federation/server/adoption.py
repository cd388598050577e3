"""Adopting columns: a run that does not name its columns takes, before the first round, those of most of its nodes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from psofed.common.errors import PsofedError
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.wire import BadReplyError

_log = logging.getLogger("psofed.federation")

ADOPT = "adopt"
"""Value of ``PSOFed(columns=…)`` by which the run takes the names of its columns from the nodes."""

_ASK_EVERY = 2.0  # seconds


@dataclass(frozen=True)
class Descriptions:
    """Answers of the nodes that were asked for the names of their columns, by node name."""

    replies: Mapping[str, tuple[ColumnNames | None, str]]  # and why a node cannot know yet
    errors: Mapping[str, BadReplyError]


def adopt_columns(ask: Callable[[], Descriptions], dimension: int, seconds: float) -> ColumnNames | None:
    """Return the names that most nodes have, or None if most nodes' columns are unnamed.

    Nodes whose data have not begun to arrive are asked again, for at most `seconds`, until half of them all agree: the
    first to know must not decide for the others.

    Parameters
    ----------
    ask : callable
        Asks all nodes.
    dimension : int
        D; names of another number of features do not count.
    """
    until = scheduler().monotonic() + seconds
    while True:
        answers = ask()
        reasons = {name: str(error) for name, error in answers.errors.items()}
        described: dict[str, ColumnNames | None] = {}
        for name, (columns, remark) in answers.replies.items():
            if remark:
                reasons[name] = remark
            elif columns is not None and len(columns.features) != dimension:
                reasons[name] = f"{len(columns.features)} features where the run's dimension is {dimension}"
            else:
                described[name] = columns
        for name, reason in reasons.items():
            _log.warning("%s cannot name its columns: %s", name, reason)
        agreed = agreeing(described)
        is_settled = 2 * len(agreed) >= len(answers.replies) or not any(
            map(itemgetter(1), answers.replies.values())
        )
        over = scheduler().monotonic() >= until
        if agreed and (is_settled or over):
            columns = next(iter(agreed.values()))
            _log.info("columns: %s", columns or "without names")
            return columns
        hopeless = not answers.replies and all(error.kind == "error" for error in answers.errors.values())
        if hopeless or over:
            listed = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())[:3])
            raise PsofedError(f"no node could name its columns ({listed})")
        scheduler().sleep(_ASK_EVERY)


def agreeing(described: Mapping[str, ColumnNames | None]) -> dict[str, ColumnNames | None]:
    """Return the largest group of nodes that name the same columns, in any order, and among them the same units.

    Parameters
    ----------
    described : mapping
        By node name; None for a node whose columns have no names.

    Examples
    --------
    >>> ab, ba, c = (ColumnNames(tuple(names), "y") for names in ("ab", "ba", "c"))
    >>> list(agreeing({"1": c, "2": ba, "3": ab}))
    ['2', '3']
    """
    found = dict(sorted(described.items()))
    for aspect in (_names, _units):
        votes: dict[object, list[str]] = {}
        for node, columns in found.items():
            votes.setdefault(None if columns is None else aspect(columns), []).append(node)
        found = {node: found[node] for node in max(votes.values(), key=len, default=[])}
    return found


def _names(columns: ColumnNames) -> object:
    return frozenset(columns.features), columns.target


def _units(columns: ColumnNames) -> object:
    return frozenset(zip((*columns.features, columns.target), columns.units, strict=False))
