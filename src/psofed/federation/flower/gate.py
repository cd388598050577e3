"""The front door's rule together with what it remembers of each node; no clock, no network, no files.

:func:`psofed.federation.flower.why_refused` judges a call by itself. The gate knows, too, what the SuperLink has handed
to whom, because all answers pass through it. A node may then

- fetch the objects of messages that it was handed, and confirm those messages;
- answer each of them once, and repeat that very answer a few times in case it gets lost; with its content within the
  message only if the question was of that kind, since only then the SuperLink keeps nothing of it;
- send the objects that the SuperLink has asked it for, once each;
- ask about the runs that its messages belong to.

So a refused push opens no session in the SuperLink, nobody can delete another's message, and what a node can leave
behind in the SuperLink grows with the messages it was sent, not with those it invents.

The SuperLink keeps one entry for all objects with the same content, with the children that were announced first. The
gate therefore refuses an announcement that gives other children to an object which the server has sent to anybody.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from psofed.federation.flower.calls import RefusedCallError, Sender, activated_id, read_call
from psofed.federation.flower.inline import is_inline
from psofed.federation.flower.trees import MAX_OBJECTS, BadTreeError, list_objects

NOTED = ("activate-node", "pull-messages", "push-messages", "push-object")
"""Calls whose answers the gate must be told."""

_QUESTIONS, _SESSIONS, _RUNS = 8, 8, 8  # remembered of each node
_REPLIES = 3  # to one message
_OBJECTS = 1 << 14  # of the server, whose children are remembered


@dataclass
class _Handed:
    """A message that a node was handed."""

    run_id: int
    objects: frozenset[str]
    inline: bool = False
    replies_left: int = _REPLIES
    answer: bytes = b""  # the one that was given


@dataclass
class _Record:
    """State of one node."""

    node_id: int | None = None
    messages: "OrderedDict[str, _Handed]" = field(default_factory=OrderedDict)
    sessions: "OrderedDict[str, set[str]]" = field(default_factory=OrderedDict)
    runs: "OrderedDict[int, None]" = field(default_factory=OrderedDict)
    passes: int = 0  # questions for a message that are not held


class Gate:
    """Decides which calls are passed on to the SuperLink.

    Examples
    --------
    >>> gate = Gate()
    >>> gate.why_refused("pull-messages", bytes.fromhex("0a020807"), b"key")
    'not-activated'
    """

    def __init__(self) -> None:
        self._records: dict[bytes, _Record] = {}
        self._children: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def node_id(self, public_key: bytes) -> int | None:
        """Return Flower's id of a key's node; None until the SuperLink has activated it."""
        return self._record(public_key).node_id

    def may_pass(self, public_key: bytes) -> bool:
        """Whether a node's question for a message must not be held until the bell rings; each call counts.

        The message that the bell was rung for may be waiting behind others, and nobody will ring again. Either the node
        was handed one and has left it unanswered, because it is not for the node or no node can read it: then its next
        question passes. Or it was handed nothing, because the SuperLink came upon a message that was withdrawn while
        the node was away: then a few of its questions pass, one for each such message.
        """
        record = self._record(public_key)
        passes = record.passes > 0
        record.passes -= passes
        return passes

    def why_refused(
        self, call: str, body: bytes, public_key: bytes, most_objects: int = MAX_OBJECTS
    ) -> str | None:
        """Return why a call is not passed on, in one line, or None if it is. A reply that passes is counted."""
        record = self._record(public_key)
        try:
            request = read_call(call, body, Sender(public_key, record.node_id), most_objects)
        except RefusedCallError as error:
            return str(error)
        if call == "deactivate-node" and any(
            other.node_id == request.node_id for key, other in self._records.items() if key != public_key
        ):
            return f"{call}: the node id is another key's"
        reason = _judge(call, request, record)
        if reason is None and call == "push-messages":
            reason = self._judge_reply(request, body, record)
        return None if reason is None else f"{call}: {reason}"

    def note(self, call: str, public_key: bytes, body: bytes, answer: bytes, rung: bool = False) -> None:
        """Learn from the SuperLink's answer to a call of :data:`NOTED`; `rung` says that the bell had rung for it."""
        from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesResponse
        from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
        from google.protobuf.message import DecodeError

        record = self._record(public_key)
        try:
            if call == "activate-node":
                record.node_id = activated_id(answer)
            elif call == "pull-messages":
                pulled = PullMessagesResponse.FromString(answer)
                if pulled.messages_list or rung:
                    record.passes = 1 if pulled.messages_list else _QUESTIONS
                for message, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
                    _hand(record, message, tree)
                    for object_id, children in _children_in(tree):
                        _keep(self._children, object_id, children, _OBJECTS)
            elif call == "push-messages":
                record.passes = 0
                pushed = PushMessagesResponse.FromString(answer)
                _keep(record.sessions, pushed.session_id, set(pushed.objects_to_push), _SESSIONS)
            elif call == "push-object" and PushObjectResponse.FromString(answer).stored:
                request = PushObjectRequest.FromString(body)
                record.sessions.get(request.session_id, set()).discard(request.object_id)
        except (DecodeError, BadTreeError, ValueError):
            pass  # an answer that says nothing; the node will be refused and ask again

    def _judge_reply(self, request: Any, body: bytes, record: _Record) -> str | None:
        handed = record.messages[request.messages_list[0].metadata.reply_to_message_id]
        digest = sha256(body).digest()
        if not handed.replies_left or handed.answer not in (b"", digest):
            return "this node has answered that message already"
        if is_inline(request.messages_list[0]) and not handed.inline:
            return "content within an answer to a message that came without"
        for object_id, children in _children_in(request.message_object_trees[0]):
            if self._children.get(object_id, children) != children:
                return "an object of the server with other children"
        handed.replies_left -= 1
        handed.answer = digest
        return None

    def _record(self, public_key: bytes) -> _Record:
        return self._records.setdefault(public_key, _Record())


def _judge(call: str, request: Any, record: _Record) -> str | None:
    if call in ("get-run", "get-fab") and request.run_id not in record.runs:
        return "this node has no message of that run"
    if call == "pull-object" and not any(
        request.object_id in handed.objects for handed in record.messages.values()
    ):
        return "this node was not sent that object"
    if call == "confirm-message-received" and request.message_object_id not in record.messages:
        return "this node was not sent that message"
    if call == "push-object" and request.object_id not in record.sessions.get(request.session_id, ()):
        return "the server has not asked this node for that object"
    if call == "push-messages":
        about = request.messages_list[0].metadata
        handed = record.messages.get(about.reply_to_message_id)
        if handed is None or handed.run_id != about.run_id:
            return "this node was not sent the message that it answers"
    return None


def _hand(record: _Record, message: Any, tree: Any) -> None:
    about = message.metadata
    objects = frozenset(list_objects(tree, 1 << 16))  # the server's own: no bound but on memory
    handed = _Handed(about.run_id, objects, is_inline(message))
    _keep(record.messages, about.message_id, handed, _QUESTIONS)
    _keep(record.runs, about.run_id, None, _RUNS)


def _children_in(tree: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each object of a tree with its children."""
    left = [tree]
    while left:
        node = left.pop()
        yield node.object_id, tuple(child.object_id for child in node.children)
        left.extend(node.children)


def _keep(remembered: "OrderedDict[Any, Any]", key: Any, value: Any, most: int) -> None:
    """Add an entry, and forget the oldest if there are more than `most`."""
    remembered[key] = value
    remembered.move_to_end(key)
    while len(remembered) > most:
        remembered.popitem(last=False)
