"""Sending a round's messages and collecting the replies until a deadline.

Flower's ``send_and_receive`` polls every three seconds, and one reply which cannot be put together takes the others
with it. Here replies are pulled as soon as the doorbell (:mod:`psofed.federation.protocol.bell`) says that their nodes
are done, without a bell by looking now and then. What is wrong with one of them concerns its sender alone.

Only the answer to the very message that was sent, from the very node that it was sent to, is taken for a reply
(:mod:`psofed.federation.flower.replies`). A node is blamed for the content of its own reply and for nothing else.

Nodes that offer it are sent messages that carry their content, and answer alike; then there is nothing to fetch. Other
replies consist of objects. A node can announce them and never send them all, because it was killed or because it means
harm. So they are fetched in threads of their own, and a reply that is not whole at the deadline is left behind. What
nobody has answered is withdrawn, and an answer that arrives later is deleted.
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
    AnnouncedReply,
    BadTreeError,
    IncompleteReplyError,
    PulledReply,
    ReplyBounds,
    collect_reply,
    most_objects,
    pull_replies,
    push_inline,
    untested_version,
    withdraw,
)
from psofed.federation.protocol.bell import Bell
from psofed.federation.protocol.packing import is_packed, offers_inline, pack, unpack
from psofed.federation.server.nodes import Node
from psofed.federation.server.patience import Patience

_log = logging.getLogger("psofed.federation")

_LOOK_EVERY = 1.0  # with a bell: for a node whose ring was lost
_POLL_EVERY = 0.25  # without one
_ROLL_CALL_EVERY = 2.0
_AFTER_RETURN = 4.0  # seconds, for a node that has come back to answer what it may not have fetched before
_PATIENCE = 0.5  # for a reply to be pulled; after that the others continue
_SLOW_LOOK_EVERY = 0.05  # while a reply is being pulled
_LIFE_AFTER_DEADLINE = 600.0  # seconds, of a message; clocks of server and nodes may differ by as much
_REPLY_BYTES = 4 << 20  # of a reply, besides the model's


@dataclass(frozen=True)
class NodeAnswers:
    """Result of a round's messages.

    Attributes
    ----------
    replies : list of Message
        All replies that arrived in time.
    unreadable : set of str
        Ids of messages whose reply could not be put together.
    late : list of Message
        Replies to messages of earlier rounds.
    """

    replies: list[Message] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    late: list[Message] = field(default_factory=list)


class _Pull:
    """A reply whose objects are on their way from the SuperLink, in a separate thread."""

    def __init__(self, grid: Grid, reply: AnnouncedReply, bounds: ReplyBounds) -> None:
        self.outcome: PulledReply | None = reply
        self._task = scheduler().start(partial(self._work, grid, reply, bounds), "reply")

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether it is done."""
        return self._task.wait(seconds)

    def _work(self, grid: Grid, reply: AnnouncedReply, bounds: ReplyBounds) -> None:
        try:
            self.outcome = collect_reply(grid, reply, bounds)
        except Exception as error:
            self.outcome = error


class MessageExchange:
    """Sends messages and collects replies, and remembers which nodes pack theirs or take them whole.

    Parameters
    ----------
    bell : Bell, optional
        By default the one that this process was told of by its environment.
    """

    def __init__(self, bell: Bell | None = None) -> None:
        self.bell: Bell = bell or Bell.from_environment()
        self._packing: set[int] = set()
        self._inline: set[int] = set()
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
        late: Mapping[str, int] | None = None,
    ) -> NodeAnswers:
        """Push `messages` and pull their replies for at most `timeout` seconds.

        `nodes` are the nodes by Flower's id. A node that goes offline meanwhile is not waited for, and neither is one
        that has used up the `patience` of the others. One that has left and come back may have taken its message with
        it: it has a few seconds. `late` are messages of earlier rounds whose replies still count, with their nodes.
        """
        answers = NodeAnswers()
        if not messages:
            return answers
        start = scheduler().monotonic()
        numbers = {node_id: node.number for node_id, node in nodes.items()}
        waiting = self._push(grid, messages, numbers, timeout)
        late = late or {}
        self._withdraw(grid, late)
        look_every = _LOOK_EVERY if self.bell.is_connected else _POLL_EVERY
        next_look = start if not self.bell.is_connected else start + look_every
        next_roll_call = start + _ROLL_CALL_EVERY
        under_way: dict[str, _Pull] = {}
        left: dict[str, float] = {}  # when it was noticed that a node has left, and come back
        sent = dict(waiting)
        names = {key: nodes[node_id].name for key, node_id in waiting.items() if node_id in nodes}
        wait = (patience or Patience(0.0, 0.0)).begin(list(names.values()), timeout)

        def end() -> float:
            return start + wait.ends([names[key] for key in waiting if key in names])

        def take(message_id: str, outcome: PulledReply, whole: bool = False) -> None:
            number = numbers.get(waiting.pop(message_id, 0), 0)
            self._take(outcome, message_id, number, answers, whole)
            if message_id in names:
                wait.answered(names[message_id], scheduler().monotonic() - start)

        def pull(message_ids: Sequence[str]) -> None:
            """Take the replies that are there, and begin to fetch those that consist of objects."""
            asked = {key: waiting[key] for key in message_ids}
            for message_id, outcome in pull_replies(grid, asked).items() if asked else ():
                if not isinstance(outcome, AnnouncedReply):
                    take(message_id, outcome, whole=True)
                    continue
                bounds = ReplyBounds(
                    objects=most_objects(self._model_bytes),
                    bytes=2 * self._model_bytes + _REPLY_BYTES,
                    seconds=start + timeout - scheduler().monotonic(),
                )
                under_way[message_id] = _Pull(grid, outcome, bounds)

        def finish(message_ids: Sequence[str], seconds: float) -> None:
            """Take the replies that are fetched, each within `seconds`, and continue without the others."""
            for message_id in message_ids:
                if message_id not in under_way or not under_way[message_id].wait(seconds):
                    continue
                if (outcome := under_way.pop(message_id).outcome) is not None:
                    take(message_id, outcome)

        while waiting:
            now = scheduler().monotonic()
            pause = max(0.0, min(next_look, end()) - now)
            heard = self.bell.wait(min(pause, _SLOW_LOOK_EVERY) if under_way else pause)
            now = scheduler().monotonic()
            everybody = now >= next_look or now >= end()
            if everybody:
                next_look = now + look_every
            finish(list(under_way), 0.0)
            done = [
                message_id
                for message_id, node_id in waiting.items()
                if message_id not in under_way and (everybody or numbers.get(node_id) in heard)
            ]
            pull(done)
            finish(done, _PATIENCE)
            if waiting and now >= end():
                break
            if waiting and now >= next_roll_call:
                next_roll_call = now + _ROLL_CALL_EVERY
                online = {int(info.node_id): info.last_activated_at for info in grid.get_nodes()}
                for key, node_id in waiting.items():
                    if node_id in nodes and online.get(node_id) != nodes[node_id].activated:
                        left.setdefault(key, now)
                gone = [
                    key
                    for key, node_id in waiting.items()
                    if node_id not in online or now - left.get(key, now) >= _AFTER_RETURN
                ]
                pull([key for key in gone if key not in under_way])
                finish(gone, _PATIENCE)
                for message_id in gone:
                    waiting.pop(message_id, None)
        if late:
            self._pull_late(grid, late, numbers, answers)
        wait.close(scheduler().monotonic() - start)
        expiry = start + timeout + _LIFE_AFTER_DEADLINE
        answered = {message.metadata.reply_to_message_id for message in answers.replies} | answers.unreadable
        self._unanswered |= {key: expiry for key in sent if key not in answered and key not in under_way}
        # Who does not answer may have been replaced by a node that cannot read such messages.
        self._inline -= {numbers[sent[key]] for key in sent if key not in answered and sent[key] in numbers}
        return answers

    def _pull_late(
        self, grid: Grid, late: Mapping[str, int], numbers: Mapping[int, int], answers: NodeAnswers
    ) -> None:
        """Take the replies to earlier messages that are there by now."""
        for message_id, announced in pull_replies(grid, late).items():
            found = NodeAnswers()
            outcome: PulledReply | None = announced
            whole = not isinstance(announced, AnnouncedReply)
            if isinstance(announced, AnnouncedReply):
                bounds = ReplyBounds(
                    objects=most_objects(self._model_bytes),
                    bytes=2 * self._model_bytes + _REPLY_BYTES,
                    seconds=_PATIENCE,
                )
                pull = _Pull(grid, announced, bounds)
                outcome = pull.outcome if pull.wait(2 * _PATIENCE) else IncompleteReplyError("too slow")
            if outcome is None:
                continue  # not there yet
            self._take(outcome, message_id, numbers.get(late[message_id], 0), found, whole)
            self._unanswered.pop(message_id, None)
            answers.late.extend(found.replies)

    def _withdraw(self, grid: Grid, late: Mapping[str, int]) -> None:
        """Delete unanswered messages of earlier rounds, and answers that came too `late` to count."""
        for message_id, expiry in list(self._unanswered.items()):
            counts = message_id in late
            if scheduler().monotonic() > expiry or (not counts and withdraw(grid, message_id)):
                del self._unanswered[message_id]

    def _push(
        self, grid: Grid, messages: Sequence[Message], numbers: Mapping[int, int], timeout: float
    ) -> dict[str, int]:
        """Send the messages, packed for those who pack, and return the nodes by message id."""
        contents = [message.content for message in messages]
        plain, inline = list[Message](), list[Message]()
        reads_inline = self.bell.is_connected and untested_version() is None  # the SuperLink, if it is ours
        try:
            for message in messages:
                message.metadata.ttl = timeout + _LIFE_AFTER_DEADLINE
                number = numbers.get(message.metadata.dst_node_id)
                if number in self._packing:
                    message.content = pack(message.content)
                whole = reads_inline and number in self._inline and is_packed(message.content)
                (inline if whole else plain).append(message)
            sent = list(zip(grid.push_messages(plain), plain, strict=False)) if plain else []
            sent += zip(push_inline(grid, inline), inline, strict=True) if inline else []
        finally:
            for message, content in zip(messages, contents, strict=True):
                message.content = content
        waiting = {message_id: message.metadata.dst_node_id for message_id, message in sent if message_id}
        destinations = {message.metadata.dst_node_id for message in messages}
        if not waiting and not destinations.isdisjoint(grid.get_node_ids()):
            # The nodes are there, so it is not they who are gone: a round of refused messages would be no round.
            raise PsofedError("Flower accepted none of the round's messages, so the run is over")
        self.bell.ring(numbers[node_id] for node_id in waiting.values() if node_id in numbers)
        return waiting

    def _take(
        self,
        outcome: PulledReply,
        message_id: str,
        number: int,
        answers: NodeAnswers,
        whole: bool,
    ) -> None:
        """Add a reply of node `number`, which came `whole` or as objects, or note why it is missing."""
        if isinstance(outcome, httpx.HTTPError | ConnectionError):
            raise outcome  # the SuperLink is gone, which is no client's fault
        packed = inline = False
        if isinstance(outcome, Message):
            try:
                if outcome.has_content():
                    packed = is_packed(outcome.content)
                    inline = packed and (whole or offers_inline(outcome.content))
                    outcome.content = unpack(outcome.content)
                answers.replies.append(outcome)
            except ValueError:
                answers.unreadable.add(message_id)
        elif isinstance(outcome, BadTreeError):
            answers.unreadable.add(message_id)  # its content, which nobody else can have sent
        elif not isinstance(outcome, IncompleteReplyError):
            _log.warning("a reply was lost: %s: %s", type(outcome).__name__, outcome)
        # A node that fails may have been replaced by one that does not unpack: it gets plain messages again.
        self._packing.add(number) if packed else self._packing.discard(number)
        self._inline.add(number) if inline else self._inline.discard(number)
