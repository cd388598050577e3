"""Sending a round's questions and collecting the replies until a deadline.

Only the first answer to the very question that is open at a node counts, and only from that node: the hub proves names,
and the sequence number says which question is meant. A node is blamed for its own reply and for nothing else.

Until more than half of the nodes asked have answered, a round waits for all of them, up to its deadline. Let t be the
time by which they had. The others have until max(`grace`, `patience` · t). A node that has not answered then rests
(:class:`psofed.federation.server.clients.Strikes`), longer each time. So a slow or silent node delays few rounds, and a
minority that answers at once cannot cut the others off.

A node that has reconnected may not have received its question, or its reply may be lost. One that announces something
else, say that it is ready for this run after all, may have ignored it. Such a node is asked again, and answers from its
memory if it has worked already; so are all nodes once the hub itself has reconnected. A node that is gone is waited for
a short while. While the hub is not connected nobody is taken for gone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from psofed.common.scheduler import scheduler
from psofed.federation.protocol.frames import REPLY, FrameError, frame_sequence
from psofed.federation.protocol.masks import PARTICIPANTS, derive_words
from psofed.federation.protocol.messages import ClientTask
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.clients import Client
from psofed.federation.transport.hub import Hub, NodePresence


@dataclass(frozen=True, eq=False)
class NodeQuestion:
    """One instruction to a node, and the clients that it asks.

    Attributes
    ----------
    node : str
        Whom it asks.
    sequence : int
        That the reply must repeat.
    frame : bytes
        As it is sent.
    clients, tasks : mapping
        Those asked, and what, by their name at the node.
    """

    node: str
    sequence: int
    frame: bytes
    clients: Mapping[str, Client]
    tasks: Mapping[str, ClientTask]


Questions = Sequence[NodeQuestion]
"""Those of a round, one to each node."""


def draw_participants(seed: int, round_number: int, clients: Collection[int], count: int) -> tuple[int, ...]:
    """Return S_n: the `count` clients with the smallest words of the stream (seed, client, round), in ascending order.

    A client's word does not depend on the others, so one that joins or leaves changes at most one other participant.

    Examples
    --------
    >>> draw_participants(1, 1, clients=[10, 20, 30, 40], count=2)
    (20, 30)
    """

    def word(client: int) -> tuple[int, int]:
        return int(derive_words(seed, client, round_number, PARTICIPANTS, 1)[0]), client

    return tuple(sorted(sorted(clients, key=word)[:count]))


_SLICE = 0.25  # seconds, after which presence is looked at
_GONE = 4.0  # seconds for which a node that has gone offline may come back


def exchange(
    hub: Hub, questions: Questions, deadline: float, limits: ReplyLimits, attend: Callable[[], None]
) -> dict[int, bytes]:
    """Send `questions` and return the replies that arrive within `deadline` seconds, by sequence number."""
    start = looked = scheduler().monotonic()
    waiting = {question.node: question for question in questions}
    replies: dict[int, bytes] = {}
    presences = dict(hub.present())
    for question in questions:
        hub.send(question.node, question.frame)
    gone: dict[str, float] = {}
    ends = deadline
    while waiting:
        attend()
        pause = start + ends - scheduler().monotonic()
        for node, frame in hub.receive(max(0.0, min(pause, _SLICE))):
            if node in waiting and _answers(waiting[node], frame):
                replies[waiting.pop(node).sequence] = frame
                if len(replies) == len(questions) // 2 + 1:
                    ends = wait_for_others(scheduler().monotonic() - start, deadline, limits)
        if pause <= 0.0:
            break
        if not hub.is_connected:
            presences.clear()  # what was sent may be lost, or was ignored by nodes that another server had meanwhile
        elif scheduler().monotonic() - looked >= _SLICE:
            looked = scheduler().monotonic()
            for node in _look(hub, waiting, presences, gone):
                del waiting[node]
    return replies


def wait_for_others(seconds: float, deadline: float, limits: ReplyLimits) -> float:
    """Return when a round ends at the latest, once more than half of its nodes have answered within `seconds`.

    Examples
    --------
    >>> [wait_for_others(t, 60.0, ReplyLimits(patience=3.0, grace=2.0)) for t in (0.1, 1.0, 30.0)]
    [2.0, 3.0, 60.0]
    """
    return min(deadline, max(limits.grace, limits.patience * seconds)) if limits.patience else deadline


def _answers(question: NodeQuestion, frame: bytes) -> bool:
    """Whether a node's frame is its reply to `question`: one that cannot be read is, too, since nobody else sent it."""
    try:
        return frame_sequence(frame, REPLY) == question.sequence
    except FrameError:
        return True


def _look(
    hub: Hub, waiting: Mapping[str, NodeQuestion], presences: dict[str, NodePresence], gone: dict[str, float]
) -> list[str]:
    """Ask nodes whose presence has changed again, and return the nodes that are gone for good."""
    present, now = hub.present(), scheduler().monotonic()
    for node, question in waiting.items():
        if node not in present:
            gone.setdefault(node, now)
            continue
        gone.pop(node, None)
        if present[node] != presences.get(node):
            presences[node] = present[node]
            hub.send(node, question.frame)
    return [node for node in waiting if now - gone.get(node, now) >= _GONE]
