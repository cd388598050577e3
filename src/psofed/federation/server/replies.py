"""Sorting a round's replies into those that count and those that do not, each judged by itself."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict

from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.protocol.wire import (
    DESCRIBE,
    DESCRIBED,
    LEARNED,
    LOST,
    PART,
    SETTINGS,
    BadReplyError,
    Reply,
    decode_reply,
)
from psofed.federation.server.checks import check_reply


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


def sort_replies(
    messages: Iterable[Message], asked: Sequence[Message], unreadable: Collection[str], expected: Expectation
) -> tuple[dict[int, Reply], list[tuple[int, BadReplyError]]]:
    """Return the valid replies by node, and what was wrong with the others, each with its node.

    Messages that answer none of `asked`, come from another node than the one asked, or answer a second time, are
    ignored.

    Parameters
    ----------
    messages : iterable of Message
        Whatever has arrived.
    asked : sequence of Message
        The round's instructions, as they were sent.
    unreadable : collection of str
        Ids of instructions whose reply could not even be put together.
    expected : Expectation
        What the replies must hold.
    """
    questions = {message.metadata.message_id: message.metadata.dst_node_id for message in asked}
    kinds = {message.metadata.message_id: message.content[SETTINGS]["kind"] for message in asked}
    valid: dict[int, Reply] = {}
    bad: list[tuple[int, BadReplyError]] = []
    answered: set[str] = set()
    for message in messages:
        question = message.metadata.reply_to_message_id
        node = questions.get(question)
        # A message that answers no question of this round, or not from the node asked, proves nothing about any node.
        # A dead node's error reply comes from the SuperLink: only the question says whose it is.
        if node is None or not (message.has_error() or message.metadata.src_node_id == node):
            continue
        if question in answered:
            continue
        answered.add(question)
        try:
            reply = judge(message, expected)
            if reply.status == LOST and kinds[question] != PART:
                raise BadReplyError("malformed", "says that it needs the full model, which it was given")
            if (reply.status == DESCRIBED) != (kinds[question] == DESCRIBE):
                raise BadReplyError("malformed", f"status {reply.status} to another kind of message")
            valid[node] = reply
        except BadReplyError as error:
            bad.append((node, error))
    for question, node in questions.items():
        if question in unreadable:
            bad.append((node, BadReplyError("malformed", "objects that fit no message")))
        elif question not in answered:
            bad.append((node, BadReplyError("no-reply")))
    return valid, bad


def judge(message: Message, expected: Expectation) -> Reply:
    """Return the reply in `message`, or raise BadReplyError."""
    if message.has_error():
        raise BadReplyError("error", message.error.reason or "")
    content = message.content if message.has_content() else RecordDict()
    layout = expected.layout
    reply = decode_reply(content, expected.length, layout.dtype)
    check_reply(reply, expected.session, expected.round_number, expected.limits)
    declares = reply.digest != "" or layout.columns is not None  # older nodes say nothing, and know no names
    if reply.status == LEARNED and declares and reply.digest != layout.digest:
        raise BadReplyError("wrong-columns", f"the run's columns are {layout.columns or 'without names'}")
    return reply
