"""Pulling the reply to one message from the SuperLink, and nothing else that lies there.

Flower's ``HttpGrid.pull_messages`` returns, besides the replies asked for, whatever message is addressed to the
SuperLink, and it fetches and builds all of them before it returns any. One message that cannot be built, or whose
objects never arrive, then takes the reply with it. Here the SuperLink's list is read first: only the answer to the
message that was sent, by the node that it was sent to, is fetched. So whatever is wrong with its objects is that node's
own doing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from psofed.common.scheduler import scheduler
from psofed.federation.flower.calls import SUPERLINK
from psofed.federation.flower.trees import BadTreeError, collect_message

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds, between two looks for an object


class IncompleteReplyError(Exception):
    """A reply that was announced and did not arrive whole in time, or that the SuperLink has lost."""


@dataclass(frozen=True)
class ReplyBounds:
    """How large a reply may be, and how long to wait for its objects."""

    objects: int
    bytes: int
    seconds: float


def pull_reply(
    grid: Grid,
    message_id: str,
    node_id: int,
    bounds: ReplyBounds,
) -> Message | None:
    """Return the reply of node `node_id` to message `message_id`, or None if there is none yet.

    Raises
    ------
    BadTreeError
        If the node's objects make up no reply to the message, or too large a one.
    IncompleteReplyError
        If the objects have not arrived in time.
    """
    client = getattr(grid, "_runtime_client", None)
    if client is None:  # a grid within this process
        for message in grid.pull_messages([message_id]):
            if _answers(message.metadata, message_id, node_id, message.has_error()):
                return message
        return None
    found = None
    for proto in _pull_all(client, message_id):
        if found is None and _answers(proto.metadata, message_id, node_id, proto.HasField("error")):
            found = proto.metadata
        else:
            _forget(client, proto.metadata.run_id, proto.metadata.message_id)  # neither fetched nor kept
    if found is None:
        return None
    message = _collect(client, found, bounds)
    # The object's own metadata is the sender's word; the SuperLink has checked those that it lists.
    if not _answers(message.metadata, message_id, node_id, message.has_error()):
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
        replies = list(_pull_all(client, message_id))
        for proto in replies:
            _forget(client, run_id, proto.metadata.message_id)
    except IncompleteReplyError:
        return True
    return bool(replies)


def _pull_all(client: Any, message_id: str) -> Iterator[Any]:
    """Yield what the SuperLink gives for a message, each as a protobuf message; the object trees are of no use."""
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    pulled = _call(client.PullMessages, PullAppMessagesRequest(message_ids=[message_id]))
    yield from pulled.messages_list


def _answers(metadata: Any, message_id: str, node_id: int, is_error: bool) -> bool:
    """Whether a message is the node's answer to another; that a node is gone is said by the SuperLink."""
    senders = (node_id, SUPERLINK) if is_error else (node_id,)
    return metadata.reply_to_message_id == message_id and metadata.src_node_id in senders


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
