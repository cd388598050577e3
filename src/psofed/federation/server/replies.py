"""Sorting a round's replies: which count, client by client, and what is wrong with the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psofed.federation.protocol.instructions import PART
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.replies import FAILED, LEARNED, LOST, BadReplyError, Reply, decode_reply
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.checks import check_replies
from psofed.federation.server.questions import NodeQuestion


@dataclass(frozen=True)
class Expectation:
    """Required content of a round's replies.

    Attributes
    ----------
    session, round_number
        Of the instructions they answer.
    length : int
        M.
    layout : ModelLayout
        Of the model; if its columns have names, a reply must say that it was learned with these.
    limits : ReplyLimits
        Bounds on what they say.
    """

    session: str
    round_number: int
    length: int
    layout: ModelLayout
    limits: ReplyLimits


@dataclass(frozen=True)
class SortedReplies:
    """A round's replies: those that count so far, and what was wrong with the others, both by client name."""

    valid: dict[str, Reply] = field(default_factory=dict)
    bad: dict[str, BadReplyError] = field(default_factory=dict)


def sort_replies(
    questions: Sequence[NodeQuestion], frames: Mapping[int, bytes], expected: Expectation
) -> SortedReplies:
    """Return the valid replies by client, and what was wrong with the others.

    A frame that cannot be read is the fault of its node, and so of all its clients that were asked.

    Parameters
    ----------
    frames : mapping
        The reply to each question, by sequence number.
    """
    replies = SortedReplies()
    for question in questions:
        try:
            if question.sequence not in frames:
                raise BadReplyError("no-reply")
            _sort(frames[question.sequence], question, expected, replies)
        except BadReplyError as error:
            replies.bad.update((client.name, error) for client in question.clients.values())
    return replies


def _sort(frame: bytes, question: NodeQuestion, expected: Expectation, replies: SortedReplies) -> None:
    """Sort the parts of one node's reply, or raise BadReplyError if nothing of it can count."""
    layout = expected.layout
    answer = decode_reply(frame, len(question.clients), expected.length, layout.dtype)
    if (answer.session, answer.round_number) != (expected.session, expected.round_number):
        raise BadReplyError("stale-round", f"round {answer.round_number} of {answer.session}")
    if answer.error:
        raise BadReplyError("error", answer.error)
    said = [*(part.client for part in answer.replies), *answer.refused]
    if not {*said} <= question.clients.keys():
        raise BadReplyError("malformed", "answers for a client that was not asked")
    errors = {**check_replies(answer.replies, expected.limits), **answer.refused}
    # Clients that know no names of columns may say nothing about them.
    wrong_columns = (answer.digest != "" or layout.columns is not None) and answer.digest != layout.digest
    for part in answer.replies:
        error = errors.get(part.client)
        if error is None and part.status == FAILED:
            error = BadReplyError("error", part.remark)
        if error is None and part.status == LOST and question.kinds[part.client] != PART:
            error = BadReplyError("malformed", "says that it needs the full model, which it was given")
        if error is None and part.status == LEARNED and wrong_columns:
            columns = layout.columns or "without names"
            error = BadReplyError("wrong-columns", f"the run's columns are {columns}")
        if error is None:
            replies.valid[question.clients[part.client].name] = part
        else:
            errors[part.client] = error
    errors |= {client: BadReplyError("no-reply") for client in question.clients if client not in said}
    replies.bad.update((question.clients[client].name, error) for client, error in errors.items())
