"""Replies that arrive after their round: counted with a weight, so that a slow node costs nobody a round.

A reply to round r that arrives in round n is l = n − r rounds late. With the weight α of
:class:`~psofed.federation.protocol.run_options.ReplyLimits` and g the server's model in round n, its upload u counts as
g + αˡ (u − g) on the entries S_{k,r+1} that it was made with, and is then judged and joined as any other: the *delay*
of a simulation (``[delay]``, grouped together). With α = 0 late replies are dropped.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict

from psofed.federation.protocol.answers import LEARNED, Reply
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import MaskSource
from psofed.federation.protocol.wire import BadReplyError
from psofed.federation.server.instructions import NodeQuestion
from psofed.federation.server.plausibility import Upload
from psofed.federation.server.replies import Expectation, sort_replies

LONGEST = 20  # rounds for which a reply is waited for


@dataclass(frozen=True)
class LateReply:
    """A reply to round `round_number` of the client with this `number`, weighted by `weight`."""

    reply: Reply
    number: int
    round_number: int
    weight: float

    def upload(self, model: Vector, masks: MaskSource) -> Upload:
        """Return the upload as it counts for the server's current model."""
        shared = masks.indices(self.round_number + 1, self.number)
        assert self.reply.values is not None  # it says LEARNED
        now = model[shared]
        return shared, (now + self.weight * (self.reply.values - now)).astype(model.dtype)


class LateReplies:
    """The questions of earlier rounds that may still be answered.

    Parameters
    ----------
    weight : float
        α.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self._open: dict[str, tuple[int, NodeQuestion]] = {}

    def waiting(self) -> dict[str, int]:
        """Return the messages that may still be answered, with Flower's ids of their nodes."""
        return {key: question.message.metadata.dst_node_id for key, (_, question) in self._open.items()}

    def remember(self, round_number: int, asked: Sequence[NodeQuestion], answered: Collection[str]) -> None:
        """Keep waiting for a round's unanswered messages, and stop waiting for those that are too old."""
        if not self.weight:
            return
        for question in asked:
            if question.message.metadata.message_id not in answered:
                question.message.content = RecordDict()  # only its address is needed
                self._open[question.message.metadata.message_id] = (round_number, question)
        self._open = {key: found for key, found in self._open.items() if found[0] + LONGEST > round_number}

    def sort(
        self,
        round_number: int,
        messages: Iterable[Message],
        expected: Callable[[int], Expectation],
        answered: Collection[str],
    ) -> tuple[dict[str, LateReply], list[tuple[str, BadReplyError]]]:
        """Return the late replies that count in a round, by client, and what was wrong with others.

        Of several replies of a client the newest counts; none, if it is among those who have `answered` in time.
        """
        late: dict[str, LateReply] = {}
        bad: list[tuple[str, BadReplyError]] = []
        for message in messages:
            asked, question = self._open.pop(message.metadata.reply_to_message_id, (0, None))
            if question is None:
                continue
            found = sort_replies([message], [question], (), expected(asked))
            bad += [(name, error) for name, error in found.bad if error.kind != "error"]
            clients = {client.name: client for client in question.clients.values()}
            for name, reply in found.valid.items():
                newer = name in late and late[name].round_number > asked
                if reply.status == LEARNED and name not in answered and not newer:
                    weight = self.weight ** (round_number - asked)
                    late[name] = LateReply(reply, clients[name].number, asked, weight)
        return late, bad
