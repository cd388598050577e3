"""Sending a round's messages and collecting the replies until a deadline, one by one.

Flower's ``send_and_receive`` polls every three seconds and pulls all replies in one go, so that one reply
which cannot be put together again takes the others with it. Here every reply is pulled by itself, as soon as the
doorbell (:mod:`psofed.federation.protocol.bell`) says that its node is done; without a bell by looking now and then.

Only the answer to the very message that was sent, from the very node that it was sent to, is taken for a reply
(:mod:`psofed.federation.flower.replies`). A node is blamed for the objects of its own reply and for nothing else.

A node can announce a reply and never send all of it, because it was killed or because it means harm. So replies are
pulled in threads of their own, and one that is not whole at the deadline is left behind. What nobody has answered is
withdrawn, and an answer that arrives later is deleted.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from psofed.common.errors import PsofedError
from psofed.common.scheduler import scheduler
from psofed.federation.flower import (
    BadTreeError,
    IncompleteReplyError,
    ReplyBounds,
    most_objects,
    pull_reply,
    withdraw,
)
from psofed.federation.protocol.bell import Bell
from psofed.federation.protocol.packing import is_packed, pack, unpack
from psofed.federation.server.nodes import Node
from psofed.federation.server.patience import Patience

_log = logging.getLogger("psofed.federation")

_LOOK_EVERY = 1.0  # with a bell: for a node whose ring was lost
_POLL_EVERY = 0.25  # without one
_ROLL_CALL_EVERY = 2.0
_PATIENCE = 0.5  # for a reply to be pulled; after that the others go on
_SLOW_LOOK_EVERY = 0.05  # while a reply is being pulled
_LIFE_AFTER_DEADLINE = 600.0  # seconds, of a message; clocks of server and nodes may differ by as much
_REPLY_BYTES = 4 << 20  # of a reply, besides the model's


@dataclass(frozen=True)
class Answers:
    """What came of a round's messages.

    Attributes
    ----------
    replies : list of Message
        All replies that arrived in time.
    unreadable : set of str
        Ids of messages whose reply could not be put together.
    """

    replies: list[Message] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)


class _Pull:
    """A reply on its way from the SuperLink, in a thread of its own."""

    def __init__(self, grid: Grid, message_id: str, node_id: int, bounds: ReplyBounds) -> None:
        self.message: Message | None = None
        self.error: Exception | None = None
        self.packed = False
        self._task = scheduler().start(partial(self._work, grid, message_id, node_id, bounds), "reply")

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether it is done."""
        return self._task.wait(seconds)

    def _work(self, grid: Grid, message_id: str, node_id: int, bounds: ReplyBounds) -> None:
        try:
            message = pull_reply(grid, message_id, node_id, bounds)
            if message is not None and message.has_content():
                self.packed = is_packed(message.content)
                try:
                    message.content = unpack(message.content)
                except ValueError as error:
                    raise BadTreeError(str(error)) from None
            self.message = message
        except Exception as error:
            self.error = error


class MessageExchange:
    """Sends messages and collects replies, and remembers which nodes pack theirs.

    Parameters
    ----------
    bell : Bell, optional
        By default the one that this process was told of by its environment.
    """

    def __init__(self, bell: Bell | None = None) -> None:
        self.bell: Bell = bell or Bell.from_environment()
        self._packing: set[int] = set()
        self._model_bytes = 0
        self._unanswered: dict[str, float] = {}  # until when a reply may still arrive, by message id

    def say_size(self, model_bytes: int) -> None:
        """Say how large a model is, for the bounds on replies, here and at the front door."""
        self._model_bytes = model_bytes
        self.bell.say_size(model_bytes)

    def __call__(
        self,
        grid: Grid,
        messages: Sequence[Message],
        timeout: float,
        nodes: Mapping[int, Node],
        patience: Patience | None = None,
    ) -> Answers:
        """Push `messages` and pull their replies for at most `timeout` seconds.

        `nodes` are the nodes by Flower's id. A node that goes offline meanwhile is not waited for, and neither is one
        that has used up the `patience` of the others.
        """
        answers = Answers()
        if not messages:
            return answers
        start = scheduler().monotonic()
        numbers = {node_id: node.number for node_id, node in nodes.items()}
        waiting = self._push(grid, messages, numbers, timeout)
        self._withdraw(grid)
        look_every = _LOOK_EVERY if self.bell.is_connected else _POLL_EVERY
        next_look = start if not self.bell.is_connected else start + look_every
        next_roll_call = start + _ROLL_CALL_EVERY
        under_way: dict[str, _Pull] = {}
        sent = list(waiting)
        names = {key: nodes[node_id].name for key, node_id in waiting.items() if node_id in nodes}
        wait = (patience or Patience(0.0, 0.0)).begin(list(names.values()), timeout)

        def end() -> float:
            return start + wait.ends([names[key] for key in waiting if key in names])

        def pull(message_id: str, seconds: float) -> None:
            """Pull one reply, and go on without it if that takes longer than `seconds`."""
            if message_id not in under_way:
                bounds = ReplyBounds(
                    objects=most_objects(self._model_bytes),
                    bytes=2 * self._model_bytes + _REPLY_BYTES,
                    seconds=start + timeout - scheduler().monotonic(),
                )
                under_way[message_id] = _Pull(grid, message_id, waiting[message_id], bounds)
            if under_way[message_id].wait(seconds):
                self._take(under_way.pop(message_id), message_id, waiting, numbers, answers)
                if message_id not in waiting and message_id in names:
                    wait.answered(names[message_id], scheduler().monotonic() - start)

        while waiting:
            now = scheduler().monotonic()
            pause = max(0.0, min(next_look, end()) - now)
            heard = self.bell.wait(min(pause, _SLOW_LOOK_EVERY) if under_way else pause)
            now = scheduler().monotonic()
            everybody = now >= next_look or now >= end()
            if everybody:
                next_look = now + look_every
            for message_id, node_id in list(waiting.items()):
                if message_id in under_way:
                    pull(message_id, 0.0)
                elif everybody or numbers.get(node_id) in heard:
                    pull(message_id, _PATIENCE)
            if waiting and now >= end():
                break
            if waiting and now >= next_roll_call:
                next_roll_call = now + _ROLL_CALL_EVERY
                online = set(grid.get_node_ids())
                for message_id in [key for key, node_id in waiting.items() if node_id not in online]:
                    pull(message_id, _PATIENCE)
                    waiting.pop(message_id, None)
        wait.close(scheduler().monotonic() - start)
        expiry = start + timeout + _LIFE_AFTER_DEADLINE
        answered = {message.metadata.reply_to_message_id for message in answers.replies} | answers.unreadable
        self._unanswered |= {key: expiry for key in sent if key not in answered and key not in under_way}
        return answers

    def _withdraw(self, grid: Grid) -> None:
        """Delete messages of earlier rounds that nobody has answered, and answers that came too late."""
        for message_id, expiry in list(self._unanswered.items()):
            if withdraw(grid, message_id) or scheduler().monotonic() > expiry:
                del self._unanswered[message_id]

    def _push(
        self, grid: Grid, messages: Sequence[Message], numbers: Mapping[int, int], timeout: float
    ) -> dict[str, int]:
        """Send the messages, packed for those who pack, and return the nodes by message id."""
        contents = [message.content for message in messages]
        try:
            for message in messages:
                message.metadata.ttl = timeout + _LIFE_AFTER_DEADLINE
                if numbers.get(message.metadata.dst_node_id) in self._packing:
                    message.content = pack(message.content)
            sent = grid.push_messages(messages)
        finally:
            for message, content in zip(messages, contents, strict=True):
                message.content = content
        destinations = [message.metadata.dst_node_id for message in messages]
        waiting = {
            message_id: node_id for message_id, node_id in zip(sent, destinations, strict=False) if message_id
        }
        if not waiting and not set(destinations).isdisjoint(grid.get_node_ids()):
            # The nodes are there, so it is not they who are gone: a round of refused messages would be no round.
            raise PsofedError("Flower accepted none of the round's messages, so the run is over")
        self.bell.ring(numbers[node_id] for node_id in waiting.values() if node_id in numbers)
        return waiting

    def _take(
        self,
        pull: _Pull,
        message_id: str,
        waiting: dict[str, int],
        numbers: Mapping[int, int],
        answers: Answers,
    ) -> None:
        """Add a reply that was pulled, if there was one."""
        error = pull.error
        if isinstance(error, httpx.HTTPError | ConnectionError):
            raise error  # the SuperLink is gone, which is no client's fault
        if error is not None:
            if isinstance(error, BadTreeError):
                answers.unreadable.add(message_id)  # its objects, which nobody else can have sent
            elif not isinstance(error, IncompleteReplyError):
                _log.warning("a reply was lost: %s: %s", type(error).__name__, error)
            waiting.pop(message_id, None)
        elif pull.message is not None:
            answers.replies.append(pull.message)
            number = numbers.get(waiting.pop(message_id, 0), 0)
            # A node that fails may have been replaced by one that does not unpack: it gets plain messages again.
            self._packing.add(number) if pull.packed else self._packing.discard(number)
