"""Which replies count: every check on a reply, and the record of bad replies by client."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.replies import LEARNED, BadReplyError, Reply
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.patience import Patience

KINDS = {
    "nan": "a value is not a number",
    "infinite": "a value is infinite",
    "wrong-length": "not the M values asked for",
    "wrong-dtype": "not the model's number type",
    "wrong-columns": "learned from different columns or with a different layout",
    "inflated-examples": "a claimed number of examples that is negative or beyond the limit",
    "stale-round": "an answer to another round or run",
    "malformed": "not readable as a reply at all",
    "error": "the client's training raised an exception, or its node is unavailable",
    "no-reply": "no answer in time: before the deadline, or while most other nodes had answered long before",
}
"""Kinds of bad replies, as they are counted in the result."""

_ACCIDENTS = ("no-reply", "error")  # the node rests but is not banned
_STRIKE_ROUNDS = 1000  # for which a bad reply counts: in months an honest node may send a few
_LONGEST_REST = 32  # rounds; a node that has recovered need not wait longer


@dataclass
class Strikes:
    """Bad replies by client name and kind: which clients are banned or rest, and which nodes are waited for.

    Examples
    --------
    >>> strikes = Strikes(ReplyLimits(ban_after=2))
    >>> strikes.note("pump-1", "nan", round_number=1); strikes.note("pump-1", "infinite", round_number=2)
    >>> strikes.banned, strikes.may_take_part("pump-1", 3), strikes.may_take_part("pump-2", 3)
    ({'pump-1'}, False, True)
    >>> strikes.forget_old(1001)
    >>> strikes.banned, strikes.count("pump-1")
    (set(), 1)
    """

    limits: ReplyLimits = field(default_factory=ReplyLimits)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    struck: dict[str, list[int]] = field(default_factory=dict)
    resting: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.limits.patience, self.limits.grace, self.waits)
        self.waits = self.patience.used

    def note(self, client: str, kind: str, round_number: int) -> None:
        """Count one bad reply of `client`."""
        if kind not in KINDS:
            raise InvalidValueError("kind", kind, ", ".join(KINDS))
        self.counts.setdefault(client, Counter())[kind] += 1
        if kind not in _ACCIDENTS:
            self.struck.setdefault(client, []).append(round_number)
        else:
            times = 1
            if kind == "no-reply":
                self.missed[client] = self.missed.get(client, 0) + 1
                times = 2 ** min(self.missed[client] - 1, 5)
            longest = max(_LONGEST_REST, self.limits.rest_rounds)
            self.resting[client] = round_number + min(times * self.limits.rest_rounds, longest)

    def forgive(self, client: str) -> None:
        """End the rest of a client that has answered."""
        self.resting.pop(client, None)
        self.missed.pop(client, None)

    def forget_old(self, round_number: int) -> None:
        """Forget the strikes that are too old to count in a round."""
        recent = {
            client: [n for n in rounds if n > round_number - _STRIKE_ROUNDS]
            for client, rounds in self.struck.items()
        }
        self.struck = {client: rounds for client, rounds in recent.items() if rounds}

    def count(self, client: str) -> int:
        """How many of the client's bad replies count towards a ban."""
        return len(self.struck.get(client, ()))

    @property
    def banned(self) -> set[str]:
        """The clients that are no longer asked."""
        if not self.limits.ban_after:
            return set()
        return {client for client in self.struck if self.count(client) >= self.limits.ban_after}

    def may_take_part(self, client: str, round_number: int) -> bool:
        """Whether `client` may be drawn in `round_number`."""
        banned = bool(self.limits.ban_after) and self.count(client) >= self.limits.ban_after
        return not banned and self.resting.get(client, 0) < round_number

    def to_mapping(self) -> dict[str, Any]:
        """Return plain dicts, as JSON holds them."""
        return {
            "counts": {node: dict(counts) for node, counts in sorted(self.counts.items())},
            "struck": {client: [*rounds] for client, rounds in sorted(self.struck.items())},
            "resting": dict(sorted(self.resting.items())),
            "missed": dict(sorted(self.missed.items())),
            "waits": dict(sorted(self.waits.items())),
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], limits: ReplyLimits) -> "Strikes":
        """Read what :meth:`to_mapping` gave."""
        counts = {node: Counter(counts) for node, counts in mapping["counts"].items()}
        struck = {node: [int(n) for n in rounds] for node, rounds in mapping.get("struck", {}).items()}
        resting = {node: int(until) for node, until in mapping["resting"].items()}
        missed = {node: int(count) for node, count in mapping.get("missed", {}).items()}
        waits = {node: float(seconds) for node, seconds in mapping.get("waits", {}).items()}
        return cls(limits, counts, struck, resting, missed, waits)


def check_replies(replies: Sequence[Reply], limits: ReplyLimits) -> dict[str, BadReplyError]:
    """Return what is wrong with well-formed replies, by the clients' names at their node.

    The values of all clients are checked together, so fifty clients of a gateway cost little more than one.
    """
    found: dict[str, BadReplyError] = {}
    learned = [reply for reply in replies if reply.status == LEARNED]
    for reply in learned:
        if not 0 <= reply.num_examples <= limits.max_examples:
            found[reply.client] = BadReplyError(
                "inflated-examples", f"{reply.num_examples} of at most {limits.max_examples}"
            )
    if not learned:
        return found
    rows = [np.asarray(reply.values) for reply in learned]
    values = rows[0][None] if len(rows) == 1 else np.stack(rows)
    finite = np.isfinite(values)
    if finite.all():
        return found
    for k in np.flatnonzero(~finite.all(axis=1)):
        found.setdefault(learned[k].client, _what_is_wrong(values[k]))
    return found


def _what_is_wrong(values: Vector) -> BadReplyError:
    if count := int(np.isnan(values).sum()):
        return BadReplyError("nan", f"{count} values")
    return BadReplyError("infinite", f"{int(np.isinf(values).sum())} values")
