"""Which calls of a node the front door passes on: one pure function of the call, its body and its sender.

Flower checks that a request's node id belongs to the key that signed it, and trusts everything else in the body. A
message with an empty ``reply_to_message_id`` is then taken for the SuperLink's own, whoever sent it. So every body is
read here first, and it must be exactly what Flower's own client would write:

- The bytes are those that protobuf writes for the values read from them. This refuses unknown and repeated fields,
  trailing bytes, wrong types, padded numbers and any other second way of writing the same.
- Whatever names a node names the sender. Replies go to the SuperLink and answer a message; nodes send nothing to nodes.
- Ids have the form of ids, numbers are finite, lists have one entry, object trees are small and repeat nothing.
- A message that carries its content is bounded, of one form, matches its id and announces no objects besides.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from psofed.federation.flower.inline import check_inline, is_inline
from psofed.federation.flower.trees import MAX_OBJECTS, BadTreeError, is_object_id, list_objects

SUPERLINK = 1
"""Flower's node id of the SuperLink, in whose name the server speaks."""

SHORTEST_HEARTBEAT, LONGEST_HEARTBEAT = 10.0, 30.0
"""Bounds on the interval a node may choose, in seconds: ours and a stock SuperNode's."""

NOT_ACTIVATED = "not-activated"
"""Reason for refusing a node whose id is unknown; it should activate itself again."""

_SESSION = re.compile(r"[0-9a-f-]{36}")
_WORD = re.compile(r"[\x21-\x7e]{1,64}")
_GROUP = re.compile(r"[\x20-\x7e]{0,64}")
_LONGEST_REASON = 1 << 14  # of an error reply, in characters
_LONGEST_LIFE = 31 * 86_400.0  # of a message, in seconds


@dataclass(frozen=True)
class Sender:
    """The node that has signed a request.

    Attributes
    ----------
    public_key : bytes
        Its key as Flower sends it.
    node_id : int or None
        Flower's id of it; None until the SuperLink has activated it.
    """

    public_key: bytes
    node_id: int | None


class RefusedCallError(ValueError):
    """A call that is not passed on."""


def why_refused(call: str, body: bytes, sender: Sender, most_objects: int = MAX_OBJECTS) -> str | None:
    """Return why a call is not passed on, in one line, or None if it is.

    Parameters
    ----------
    call : str
        Last part of the path, such as ``push-messages``.
    body : bytes
        The request's body.
    sender : Sender
        Who has signed it.
    most_objects : int
        Objects that a message may have; see :func:`psofed.federation.flower.trees.most_objects`.

    Examples
    --------
    >>> why_refused("pull-messages", bytes.fromhex("0a020807"), Sender(b"", 7)) is None
    True
    >>> why_refused("pull-messages", bytes.fromhex("0a020808"), Sender(b"", 7))
    'pull-messages: the node id is not that of the key'
    >>> why_refused("register-node", b"", Sender(b"", 7))
    'register-node: not a call of a node'
    """
    try:
        read_call(call, body, sender, most_objects)
    except RefusedCallError as error:
        return str(error)
    return None


def read_call(call: str, body: bytes, sender: Sender, most_objects: int = MAX_OBJECTS) -> Any:
    """Return a call's request as a protobuf message; RefusedCallError says why it is not passed on."""
    try:
        return _check(call, body, sender, most_objects)
    except (RefusedCallError, BadTreeError) as error:
        reason = str(error) if str(error) == NOT_ACTIVATED else f"{call}: {error}"
        raise RefusedCallError(reason) from None


def activated_id(answer: bytes) -> int:
    """Return the node id in the SuperLink's answer to ``activate-node``; ValueError if it has no node id."""
    from flwr.proto.fleet_pb2 import ActivateNodeResponse
    from google.protobuf.message import DecodeError

    try:
        node_id = int(ActivateNodeResponse.FromString(answer).node_id)
    except DecodeError as error:
        raise ValueError(f"not an answer to activate-node: {error}") from None
    if node_id in (0, SUPERLINK):
        raise ValueError(f"a node cannot have the id {node_id}")
    return node_id


def _check(call: str, body: bytes, sender: Sender, most_objects: int) -> Any:
    found = _rules().get(call)
    if found is None:
        raise RefusedCallError("not a call of a node")
    kind, rule = found
    request = _read(kind, body)
    if call == "activate-node":
        _demand(request.public_key == sender.public_key, "the public key is not the one that signed")
        _check_interval(request.heartbeat_interval)
        return request
    if call == "deactivate-node":
        # A node that was killed takes its leave before it activates itself again; Flower compares id and key too.
        _demand(sender.node_id in (None, request.node_id), "the node id is not that of the key")
        return request
    _demand(sender.node_id is not None, NOT_ACTIVATED)
    _demand(request.node.node_id == sender.node_id, "the node id is not that of the key")
    rule(request, most_objects)
    return request


def _read(kind: Any, body: bytes) -> Any:
    """Parse `body`, and refuse it unless it is what protobuf writes for what was read."""
    from google.protobuf.message import DecodeError

    try:
        request = kind.FromString(body)
        request.DiscardUnknownFields()
        canonical = request.SerializeToString(deterministic=True)
    except (DecodeError, ValueError):
        raise RefusedCallError("the body cannot be read") from None
    _demand(canonical == body, "the body is not written as Flower writes it")
    return request


@lru_cache(maxsize=1)
def _rules() -> dict[str, tuple[Any, Callable[[Any, int], None]]]:
    """Return each call's protobuf type and what is asked of it besides the node's id."""
    from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

    return {
        "activate-node": (fleet_pb2.ActivateNodeRequest, _nothing_more),
        "deactivate-node": (fleet_pb2.DeactivateNodeRequest, _nothing_more),
        "send-node-heartbeat": (heartbeat_pb2.SendNodeHeartbeatRequest, _check_heartbeat),
        "pull-messages": (fleet_pb2.PullMessagesRequest, _check_pull_messages),
        "push-messages": (fleet_pb2.PushMessagesRequest, _check_push_messages),
        "get-run": (run_pb2.GetRunRequest, _nothing_more),
        "get-fab": (fab_pb2.GetFabRequest, _check_get_fab),
        "push-object": (message_pb2.PushObjectRequest, _check_push_object),
        "pull-object": (message_pb2.PullObjectRequest, _check_pull_object),
        "confirm-message-received": (message_pb2.ConfirmMessageReceivedRequest, _check_confirm),
    }


def _nothing_more(request: Any, most_objects: int) -> None:
    pass


def _check_heartbeat(request: Any, most_objects: int) -> None:
    _check_interval(request.heartbeat_interval)


def _check_pull_messages(request: Any, most_objects: int) -> None:
    _demand(not request.message_ids, "a node does not choose its messages")


def _check_get_fab(request: Any, most_objects: int) -> None:
    _demand(is_object_id(request.hash_str), "the app's hash is not one")


def _check_push_object(request: Any, most_objects: int) -> None:
    _demand(is_object_id(request.object_id), "the object id is not one")
    _demand(_SESSION.fullmatch(request.session_id) is not None, "the session is not one")


def _check_pull_object(request: Any, most_objects: int) -> None:
    _demand(is_object_id(request.object_id), "the object id is not one")


def _check_confirm(request: Any, most_objects: int) -> None:
    _demand(is_object_id(request.message_object_id), "the message id is not one")


def _check_push_messages(request: Any, most_objects: int) -> None:
    _demand(len(request.messages_list) == 1, "one message at a time")
    _demand(len(request.message_object_trees) == 1, "one object tree at a time")
    _demand(len(request.clientapp_runtime_list) <= 1, "one runtime at a time")
    _demand(all(0.0 <= seconds < 1e9 for seconds in request.clientapp_runtime_list), "a runtime that is none")
    (message,), (tree,) = request.messages_list, request.message_object_trees
    about = message.metadata
    _demand(about.src_node_id == request.node.node_id, "the message is not from the node that sends it")
    _demand(about.dst_node_id == SUPERLINK, "the message is not to the server")
    _demand(is_object_id(about.reply_to_message_id), "the message answers none")
    _demand(is_object_id(about.message_id), "the message id is not one")
    _demand(about.reply_to_message_id != about.message_id, "the message answers itself")
    _demand(_WORD.fullmatch(about.message_type) is not None, "the message has no type")
    _demand(_GROUP.fullmatch(about.group_id) is not None, "the message's group is not a short text")
    _demand(0.0 < about.ttl <= _LONGEST_LIFE, "the message's lifetime is out of bounds")
    _demand(math.isfinite(about.created_at), "the message has no date")
    _demand(
        message.HasField("content") != message.HasField("error"), "neither a content nor an error, or both"
    )
    _demand(len(message.error.reason) <= _LONGEST_REASON, "the reason of an error is too long")
    _demand(tree.object_id == about.message_id, "the object tree is of another message")
    list_objects(tree, most_objects)
    if is_inline(message):
        check_inline(message, tree)


def _check_interval(seconds: float) -> None:
    _demand(
        SHORTEST_HEARTBEAT <= seconds <= LONGEST_HEARTBEAT,
        f"the heartbeat interval is not between {SHORTEST_HEARTBEAT:g} and {LONGEST_HEARTBEAT:g} s",
    )


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise RefusedCallError(otherwise)
