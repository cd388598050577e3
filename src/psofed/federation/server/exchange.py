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
from collections.abc import Iterable, Mapping, Sequence
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


class _Collection:
    """The replies to one round's messages, while they are collected.

    Parameters
    ----------
    exchange : MessageExchange
        Whose messages they are.
    sent : mapping of str to int
        Node that each message was sent to, by the message's id.
    start : float
        When the round began, on the scheduler's clock.
    """

    def __init__(
        self,
        exchange: "MessageExchange",
        grid: Grid,
        sent: Mapping[str, int],
        nodes: Mapping[int, Node],
        timeout: float,
        patience: Patience,
        start: float,
    ) -> None:
        self.answers = NodeAnswers()
        self.under_way: dict[str, _Pull] = {}
        self._exchange, self._grid, self._nodes = exchange, grid, nodes
        self._sent, self._waiting = sent, dict(sent)
        self._start, self._deadline = start, start + timeout
        self._left: dict[str, float] = {}  # when it was noticed that a node has left, and come back
        self._names = {key: nodes[node_id].name for key, node_id in sent.items() if node_id in nodes}
        self.wait = patience.begin(list(self._names.values()), timeout)

    def collect(self) -> None:
        """Take replies until all have arrived, or no further one is waited for."""
        bell = self._exchange.bell
        look_every = _LOOK_EVERY if bell.is_connected else _POLL_EVERY
        next_look = self._start + (look_every if bell.is_connected else 0.0)
        next_roll_call = self._start + _ROLL_CALL_EVERY
        while self._waiting:
            pause = max(0.0, min(next_look, self._end()) - scheduler().monotonic())
            heard = bell.wait(min(pause, _SLOW_LOOK_EVERY) if self.under_way else pause)
            now = scheduler().monotonic()
            everybody = now >= next_look or now >= self._end()
            if everybody:
                next_look = now + look_every
            self._finish(list(self.under_way), 0.0)
            self._fetch(
                key
                for key, node_id in self._waiting.items()
                if key not in self.under_way
                and (everybody or (node_id in self._nodes and self._nodes[node_id].number in heard))
            )
            if self._waiting and now >= self._end():
                return
            if self._waiting and now >= next_roll_call:
                next_roll_call = now + _ROLL_CALL_EVERY
                self._call_roll(now)

    def unanswered(self) -> list[str]:
        """Return the messages without an answer, readable or not."""
        replied = {message.metadata.reply_to_message_id for message in self.answers.replies}
        return [key for key in self._sent if key not in replied and key not in self.answers.unreadable]

    def _end(self) -> float:
        missing = [self._names[key] for key in self._waiting if key in self._names]
        return self._start + self.wait.ends(missing)

    def _call_roll(self, now: float) -> None:
        """Wait no longer for nodes that have gone offline, or came back some time ago."""
        online = {int(info.node_id): info.last_activated_at for info in self._grid.get_nodes()}
        for key, node_id in self._waiting.items():
            if node_id in self._nodes and online.get(node_id) != self._nodes[node_id].activated:
                self._left.setdefault(key, now)
        gone = [
            key
            for key, node_id in self._waiting.items()
            if node_id not in online or now - self._left.get(key, now) >= _AFTER_RETURN
        ]
        self._fetch(gone)
        for message_id in gone:
            self._waiting.pop(message_id, None)

    def _fetch(self, message_ids: Iterable[str]) -> None:
        """Take the replies that are there; those that consist of objects are fetched beside, and may take longer."""
        looked_for = list(message_ids)
        asked = {key: self._waiting[key] for key in looked_for if key not in self.under_way}
        for message_id, outcome in pull_replies(self._grid, asked).items() if asked else ():
            if isinstance(outcome, AnnouncedReply):
                bounds = self._exchange.bounds(self._deadline - scheduler().monotonic())
                self.under_way[message_id] = _Pull(self._grid, outcome, bounds)
            else:
                self._take(message_id, outcome, whole=True)
        self._finish(looked_for, _PATIENCE)

    def _finish(self, message_ids: Sequence[str], seconds: float) -> None:
        """Take the replies that are fetched, each within `seconds`, and continue without the others."""
        for message_id in message_ids:
            if message_id not in self.under_way or not self.under_way[message_id].wait(seconds):
                continue
            if (outcome := self.under_way.pop(message_id).outcome) is not None:
                self._take(message_id, outcome)

    def _take(self, message_id: str, outcome: PulledReply, whole: bool = False) -> None:
        number = _number(self._nodes, self._waiting.pop(message_id, 0))
        self._exchange.take(outcome, message_id, number, self.answers, whole)
        if message_id in self._names:
            self.wait.answered(self._names[message_id], scheduler().monotonic() - self._start)


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
        if not messages:
            return NodeAnswers()
        start = scheduler().monotonic()
        sent = self._push(grid, messages, {key: node.number for key, node in nodes.items()}, timeout)
        late = late or {}
        self._withdraw(grid, late)
        round_ = _Collection(self, grid, sent, nodes, timeout, patience or Patience(0.0, 0.0), start)
        round_.collect()
        self._pull_late(grid, late, nodes, round_.answers)
        round_.wait.close(scheduler().monotonic() - start)
        unanswered = round_.unanswered()
        expiry = start + timeout + _LIFE_AFTER_DEADLINE
        self._unanswered |= {key: expiry for key in unanswered if key not in round_.under_way}
        # Who does not answer may have been replaced by a node that cannot read such messages.
        self._inline -= {nodes[sent[key]].number for key in unanswered if sent[key] in nodes}
        return round_.answers

    def bounds(self, seconds: float) -> ReplyBounds:
        """Return how large a reply may be, given how long to wait for it."""
        most_bytes = 2 * self._model_bytes + _REPLY_BYTES
        return ReplyBounds(objects=most_objects(self._model_bytes), bytes=most_bytes, seconds=seconds)

    def _pull_late(
        self, grid: Grid, late: Mapping[str, int], nodes: Mapping[int, Node], answers: NodeAnswers
    ) -> None:
        """Take the replies to earlier messages that are there by now."""
        for message_id, announced in pull_replies(grid, late).items() if late else ():
            found = NodeAnswers()
            outcome: PulledReply | None = announced
            whole = not isinstance(announced, AnnouncedReply)
            if isinstance(announced, AnnouncedReply):
                pull = _Pull(grid, announced, self.bounds(_PATIENCE))
                outcome = pull.outcome if pull.wait(2 * _PATIENCE) else IncompleteReplyError("too slow")
            if outcome is None:
                continue  # not there yet
            self.take(outcome, message_id, _number(nodes, late[message_id]), found, whole)
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
                about = message.metadata
                about.ttl = timeout + _LIFE_AFTER_DEADLINE
                number = numbers.get(about.dst_node_id)
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
        if not waiting and {message.metadata.dst_node_id for message in messages} & {*grid.get_node_ids()}:
            # The nodes are there, so it is not they who are gone: a round of refused messages would be no round.
            raise PsofedError("Flower accepted none of the round's messages, so the run is over")
        self.bell.ring(numbers[node_id] for node_id in waiting.values() if node_id in numbers)
        return waiting

    def take(
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


def _number(nodes: Mapping[int, Node], node_id: int) -> int:
    return nodes[node_id].number if node_id in nodes else 0
