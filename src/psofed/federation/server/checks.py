"""Which replies count: every check on a reply, client by client, and the record of bad replies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.federation.protocol.instructions import PART
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.replies import FAILED, LEARNED, LOST, BadReplyError, Reply, decode_reply
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.questions import NodeQuestion

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
    """Bad replies by client name and kind: which clients are banned or rest.

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

    def note(self, client: str, kind: str, round_number: int) -> None:
        """Count one bad reply of `client`."""
        if kind not in KINDS:
            raise InvalidValueError("kind", kind, ", ".join(KINDS))
        self.counts.setdefault(client, Counter())[kind] += 1
        if kind not in _ACCIDENTS:
            self.struck.setdefault(client, []).append(round_number)
            return
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
        oldest = round_number - _STRIKE_ROUNDS
        recent = {client: [n for n in rounds if n > oldest] for client, rounds in self.struck.items()}
        self.struck = {client: rounds for client, rounds in recent.items() if rounds}

    def count(self, client: str) -> int:
        """How many of the client's bad replies count towards a ban."""
        return len(self.struck.get(client, ()))

    @property
    def banned(self) -> set[str]:
        """The clients that are no longer asked."""
        return {client for client in self.struck if self._is_banned(client)}

    def may_take_part(self, client: str, round_number: int) -> bool:
        """Whether `client` may be drawn in `round_number`."""
        return not self._is_banned(client) and self.resting.get(client, 0) < round_number

    def _is_banned(self, client: str) -> bool:
        return 0 < self.limits.ban_after <= self.count(client)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain dicts, as JSON holds them."""
        records = ("struck", "resting", "missed")
        counts = {client: dict(counts) for client, counts in sorted(self.counts.items())}
        return {"counts": counts} | {name: dict(sorted(getattr(self, name).items())) for name in records}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], limits: ReplyLimits) -> "Strikes":
        """Read what :meth:`to_mapping` gave."""
        records: dict[str, Any] = {name: dict(record) for name, record in mapping.items()}
        records["counts"] = {client: Counter(counts) for client, counts in mapping["counts"].items()}
        records["struck"] = {client: list(rounds) for client, rounds in mapping.get("struck", {}).items()}
        return cls(limits, **records)


def sort_replies(
    questions: Sequence[NodeQuestion],
    frames: Mapping[int, bytes],
    state: ServerState,
    round_number: int,
    length: int,
    limits: ReplyLimits,
) -> tuple[dict[str, Reply], dict[str, BadReplyError]]:
    """Return the valid replies of a round, and what was wrong with the others, both by client name.

    A frame that cannot be read is the fault of its node, and so of all its clients that were asked. `frames` are the
    replies by sequence number, `length` is M.
    """
    valid: dict[str, Reply] = {}
    bad: dict[str, BadReplyError] = {}
    for question in questions:
        try:
            if question.sequence not in frames:
                raise BadReplyError("no-reply")
            frame, count = frames[question.sequence], len(question.clients)
            answer = decode_reply(frame, count, length, state.layout.dtype)
            if (answer.session, answer.round_number) != (state.session, round_number):
                raise BadReplyError("stale-round", f"round {answer.round_number} of {answer.session}")
            if answer.error:
                raise BadReplyError("error", answer.error)
            parts = {part.client: part for part in answer.replies}
            if not parts.keys() | answer.refused.keys() <= question.clients.keys():
                raise BadReplyError("malformed", "answers for a client that was not asked")
        except BadReplyError as error:
            bad |= dict.fromkeys((client.name for client in question.clients.values()), error)
            continue
        for local, client in question.clients.items():
            try:
                if local in answer.refused:
                    raise answer.refused[local]
                if local not in parts:
                    raise BadReplyError("no-reply")
                _check(parts[local], question.tasks[local].kind, answer.digest, state.layout, limits)
                valid[client.name] = parts[local]
            except BadReplyError as error:
                bad[client.name] = error
    return valid, bad


def _check(part: Reply, kind: str, digest: str, layout: ModelLayout, limits: ReplyLimits) -> None:
    """Raise BadReplyError if one client's part of a well-formed reply cannot count."""
    if part.status == FAILED:
        raise BadReplyError("error", part.remark)
    if part.status == LOST and kind != PART:
        raise BadReplyError("malformed", "says that it needs the full model, which it was given")
    if part.status != LEARNED or part.values is None:
        return
    if not 0 <= part.num_examples <= limits.max_examples:
        raise BadReplyError("inflated-examples", f"{part.num_examples} of at most {limits.max_examples}")
    if count := int(np.isnan(part.values).sum()):
        raise BadReplyError("nan", f"{count} values")
    if count := int(np.isinf(part.values).sum()):
        raise BadReplyError("infinite", f"{count} values")
    # Clients that know no names of columns may say nothing about them.
    if (digest or layout.columns is not None) and digest != layout.digest:
        raise BadReplyError("wrong-columns", f"the run's columns are {layout.columns or 'without names'}")
