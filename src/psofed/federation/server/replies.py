"""Sorting a round's replies into those that count and those that do not, each client's judged by itself."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict

from psofed.federation.protocol.answers import (
    DESCRIBED,
    EVALUATED,
    FAILED,
    LEARNED,
    LEFT,
    LOST,
    NodeReply,
    Reply,
    decode_reply,
)
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.protocol.wire import DESCRIBE, EVALUATE, PART, BadReplyError
from psofed.federation.server.checks import check_replies
from psofed.federation.server.instructions import NodeQuestion
from psofed.federation.server.nodes import Node


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
    """A round's replies.

    Attributes
    ----------
    valid : dict
        Those that count so far, by client name.
    bad : list of (str, BadReplyError)
        Clients and what was wrong with their replies.
    nodes : list of (Node, NodeReply)
        What each node said besides.
    """

    valid: dict[str, Reply] = field(default_factory=dict)
    bad: list[tuple[str, BadReplyError]] = field(default_factory=list)
    nodes: list[tuple[Node, NodeReply]] = field(default_factory=list)


def sort_replies(
    messages: Iterable[Message],
    asked: Sequence[NodeQuestion],
    unreadable: Collection[str],
    expected: Expectation,
) -> SortedReplies:
    """Return the valid replies by client, and what was wrong with the others.

    Messages that do not answer one of `asked`, come from a node that was not asked, or answer a second time, are
    ignored. A message that cannot be read is the fault of its node, and so of all its clients that were asked.

    Parameters
    ----------
    messages : iterable of Message
        Whatever has arrived.
    asked : sequence of NodeQuestion
        The round's instructions, as they were sent.
    unreadable : collection of str
        Ids of instructions whose reply could not even be put together.
    expected : Expectation
        What the replies must hold.
    """
    questions = {question.message.metadata.message_id: question for question in asked}
    found = SortedReplies()
    answered: set[str] = set()
    for message in messages:
        about = message.metadata
        identity = about.reply_to_message_id
        question = questions.get(identity)
        # A message that answers no question of this round, or not from the node asked, proves nothing about any node.
        # A dead node's error reply comes from the SuperLink: only the question says whose it is.
        if question is None or identity in answered:
            continue
        if not (message.has_error() or about.src_node_id == question.message.metadata.dst_node_id):
            continue
        answered.add(identity)
        try:
            _sort_message(message, question, expected, found)
        except BadReplyError as error:
            found.bad.extend((client.name, error) for client in question.clients.values())
    for identity, question in questions.items():
        if identity in unreadable:
            problem = BadReplyError("malformed", "objects that fit no message")
        elif identity not in answered:
            problem = BadReplyError("no-reply")
        else:
            continue
        found.bad.extend((client.name, problem) for client in question.clients.values())
    return found


def _sort_message(
    message: Message, question: NodeQuestion, expected: Expectation, found: SortedReplies
) -> None:
    """Sort the parts of one node's reply, or raise BadReplyError if nothing of it can count."""
    if message.has_error():
        raise BadReplyError("error", message.error.reason or "")
    answer = read_reply(message.content if message.has_content() else RecordDict(), expected)
    strangers = [part.client for part in answer.replies if part.client not in question.clients]
    if strangers or not answer.refused.keys() <= question.clients.keys():
        raise BadReplyError("malformed", "answers for a client that was not asked")
    errors = {**check_replies(answer.replies, expected.limits), **answer.refused}
    layout = expected.layout
    declares = answer.digest != "" or layout.columns is not None  # nodes that know no names may say nothing
    wrong_columns = declares and answer.digest != layout.digest
    for part in answer.replies:
        error = errors.get(part.client) or _misplaced(part, question.kinds[part.client], answer)
        if error is None and part.status == LEARNED and wrong_columns:
            error = BadReplyError(
                "wrong-columns", f"the run's columns are {layout.columns or 'without names'}"
            )
        if error is None:
            found.valid[question.clients[part.client].name] = part
        else:
            errors[part.client] = error
    said = {part.client for part in answer.replies} | answer.refused.keys()
    errors |= {client: BadReplyError("no-reply") for client in question.clients if client not in said}
    found.bad.extend((question.clients[client].name, error) for client, error in errors.items())
    node = next(iter(question.clients.values())).node
    found.nodes.append((node, answer))


def read_reply(content: RecordDict, expected: Expectation) -> NodeReply:
    """Return the reply that a message holds, or raise BadReplyError if it cannot be an answer to this round."""
    answer = decode_reply(content, expected.length, expected.layout.dtype)
    if answer.session != expected.session:
        raise BadReplyError("foreign-session", answer.session[:40])
    if answer.round_number != expected.round_number:
        raise BadReplyError("stale-round", f"round {answer.round_number} in round {expected.round_number}")
    return answer


def _misplaced(part: Reply, kind: str, answer: NodeReply) -> BadReplyError | None:
    """Return what is wrong with a status in answer to a message of this kind."""
    status = part.status
    if status == FAILED:
        return BadReplyError("error", part.remark)
    if status == LEFT or (status == DESCRIBED and (kind == DESCRIBE or (answer.roster and not part.client))):
        return None  # a gateway that nobody knew as one names its clients
    if status == LOST and kind != PART:
        return BadReplyError("malformed", "says that it needs the full model, which it was given")
    if (status == DESCRIBED) != (kind == DESCRIBE) or (status == EVALUATED) != (kind == EVALUATE):
        return BadReplyError("malformed", f"status {status} to another kind of message")
    return None
