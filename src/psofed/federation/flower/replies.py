"""Pulling replies from the SuperLink, and nothing else that lies there.

Flower's ``HttpGrid.pull_messages`` returns, besides the replies asked for, whatever message is addressed to the
SuperLink, and it fetches and builds all of them before it returns any. One message that cannot be built, or whose
objects never arrive, then takes the others with it. Here the SuperLink's list is read first: only the answer to a
message that was sent, by the node that it was sent to, is taken or fetched. So whatever is wrong with it is that node's
own doing, and costs nobody else a reply.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from psofed.common.scheduler import scheduler
from psofed.federation.flower.calls import SUPERLINK
from psofed.federation.flower.inline import is_inline, read_inline, write_inline
from psofed.federation.flower.trees import BadTreeError, collect_message

_MESSAGES_AT_ONCE = 32  # in a request or an answer, at most a megabyte each
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds, between two looks for an object


class IncompleteReplyError(Exception):
    """A reply that was announced and did not arrive whole in time, or that the SuperLink has lost."""


@dataclass(frozen=True)
class ReplyBounds:
    """How large a reply may be, and how long to wait for its objects."""

    objects: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class AnnouncedReply:
    """A reply that has to be fetched by :func:`collect_reply`, which may take long.

    Attributes
    ----------
    message_id, node_id
        Of the message that it answers, and of the node that was asked.
    about
        Its metadata; None if the grid does not say whether there is one.
    """

    message_id: str
    node_id: int
    about: Any = None


PulledReply = Message | AnnouncedReply | Exception
"""A reply, one that has to be fetched, or why there will be none."""


def push_inline(grid: Any, messages: Sequence[Message]) -> list[str]:
    """Send messages with their content, and return their ids; an empty one if the SuperLink refused the message."""
    from flwr.proto.runtime_pb2 import PushAppMessagesRequest

    ids: list[str] = []
    for begin in range(0, len(messages), _MESSAGES_AT_ONCE):
        written = [write_inline(message) for message in messages[begin : begin + _MESSAGES_AT_ONCE]]
        request = PushAppMessagesRequest(
            messages_list=[proto for proto, _ in written], message_object_trees=[tree for _, tree in written]
        )
        ids += grid._runtime_client.PushMessages(request).message_ids
    return ids


def pull_replies(grid: Grid, asked: Mapping[str, int]) -> dict[str, PulledReply]:
    """Return the replies that are there, by the id of the message that they answer.

    Parameters
    ----------
    grid : Grid
        Where the messages were sent.
    asked : mapping of str to int
        Node that each message was sent to, by the message's id.
    """
    client = getattr(grid, "_runtime_client", None)
    if client is None:  # a grid within this process
        if getattr(grid, "is_immediate", False):
            return {key: found for key in asked if (found := _pull_one(grid, key, asked)) is not None}
        return {key: AnnouncedReply(key, node_id) for key, node_id in asked.items()}
    ids = list(asked)
    replies: dict[str, PulledReply] = {}
    for begin in range(0, len(ids), _MESSAGES_AT_ONCE):
        pulled, lost = _pull_all(client, ids[begin : begin + _MESSAGES_AT_ONCE])
        replies |= lost
        for proto, tree in pulled:
            about = proto.metadata
            if about.reply_to_message_id not in replies and _answers(about, asked, proto.HasField("error")):
                replies[about.reply_to_message_id] = _take(proto, tree, asked[about.reply_to_message_id])
            elif not is_inline(proto):
                _forget(client, about.run_id, about.message_id)  # neither fetched nor kept
    return replies


def collect_reply(grid: Any, reply: AnnouncedReply, bounds: ReplyBounds) -> Message | None:
    """Fetch the objects of a reply and build it; None if the reply has not arrived yet.

    Raises
    ------
    BadTreeError
        If the node's objects make up no reply to the message, or too large a one.
    IncompleteReplyError
        If the objects have not arrived in time.
    """
    asked = {reply.message_id: reply.node_id}
    if reply.about is None:
        return _find(grid.pull_messages([reply.message_id]), asked)
    message = _collect(grid._runtime_client, reply.about, bounds)
    # The object's own metadata is the sender's word; the SuperLink has checked those that it lists.
    if not _answers(message.metadata, asked, message.has_error()):
        raise BadTreeError("a reply that claims to be another")
    return message


def withdraw(grid: Grid, message_id: str) -> bool:
    """Delete a message's objects and its reply, if there is one; return whether there was.

    A node that has not fetched the message then never sees it. A reply can still arrive later.
    """
    client = getattr(grid, "_runtime_client", None)
    if client is None:
        return True
    run_id = int(grid.run.run_id)
    try:
        _forget(client, run_id, message_id)
        replies, lost = _pull_all(client, [message_id])
        for proto, _ in replies:
            if not is_inline(proto):
                _forget(client, run_id, proto.metadata.message_id)
    except IncompleteReplyError:
        return True
    return bool(replies or lost)


def _find(messages: Iterable[Message], asked: Mapping[str, int]) -> Message | None:
    return next((m for m in messages if _answers(m.metadata, asked, m.has_error())), None)


def _pull_one(grid: Grid, message_id: str, asked: Mapping[str, int]) -> PulledReply | None:
    try:
        return _find(grid.pull_messages([message_id]), {message_id: asked[message_id]})
    except Exception as error:  # whatever a grid raises concerns this reply alone
        return error


def _take(proto: Any, tree: Any, node_id: int) -> PulledReply:
    if not is_inline(proto):
        return AnnouncedReply(proto.metadata.reply_to_message_id, node_id, proto.metadata)
    try:
        return read_inline(proto, tree)
    except BadTreeError as error:
        return error


def _pull_all(
    client: Any, message_ids: Sequence[str]
) -> tuple[list[tuple[Any, Any]], dict[str, IncompleteReplyError]]:
    """Return what the SuperLink gives for messages, each with its object tree, and the messages it fails at."""
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    try:
        pulled = _call(client.PullMessages, PullAppMessagesRequest(message_ids=message_ids))
    except IncompleteReplyError as error:
        if len(message_ids) == 1:
            return [], {message_ids[0]: error}
        # A message that the SuperLink no longer has fails the whole request: each by itself, then.
        each = [_pull_all(client, [message_id]) for message_id in message_ids]
        return [entry for found, _ in each for entry in found], {
            key: why for _, lost in each for key, why in lost.items()
        }
    return list(zip(pulled.messages_list, pulled.message_object_trees, strict=True)), {}


def _answers(metadata: Any, asked: Mapping[str, int], is_error: bool) -> bool:
    """Whether a message is the answer of a node that was asked; that a node is gone is said by the SuperLink."""
    node_id = asked.get(metadata.reply_to_message_id)
    senders = (node_id, SUPERLINK) if is_error else (node_id,)
    return node_id is not None and metadata.src_node_id in senders


def _collect(client: Any, about: Any, bounds: ReplyBounds) -> Message:
    from flwr.proto.message_pb2 import PullObjectRequest
    from flwr.proto.node_pb2 import Node

    deadline = scheduler().monotonic() + bounds.seconds

    def pull(object_id: str) -> bytes:
        pause = _SHORTEST_PAUSE
        while True:
            request = PullObjectRequest(
                node=Node(node_id=SUPERLINK), run_id=about.run_id, object_id=object_id
            )
            answer = _call(client.PullObject, request)
            if answer.object_available:
                return bytes(answer.object_content)
            if not answer.object_found or scheduler().monotonic() + pause > deadline:
                raise IncompleteReplyError(f"object {object_id[:8]} has not arrived")
            scheduler().sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    try:
        return collect_message(about.message_id, pull, bounds.objects, bounds.bytes)
    finally:
        _forget(client, about.run_id, about.message_id)


def _forget(client: Any, run_id: int, message_id: str) -> None:
    """Let the SuperLink delete a message's objects."""
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
    from flwr.proto.node_pb2 import Node

    node = Node(node_id=SUPERLINK)
    request = ConfirmMessageReceivedRequest(node=node, run_id=run_id, message_object_id=message_id)
    _call(client.ConfirmMessageReceived, request)


def _call(method: Callable[[Any], Any], request: Any) -> Any:
    """Call the SuperLink; an error within it concerns this reply alone, while a SuperLink that is gone is raised."""
    try:
        return method(request)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            raise IncompleteReplyError("the SuperLink failed to hand out a reply") from None
        raise
