"""A Grid within one process, to try a strategy and a ClientApp in milliseconds instead of seconds.

Messages become bytes and are read again on their way, as on the network. Needs nothing but Flower.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from psofed.federation.flower import error_reply, identify, records_from_bytes, records_to_bytes

Tamper = Callable[[Message], Iterable[Message]]
"""Turns one reply into none, one or several."""


class InProcessGrid(Grid):
    """Nodes that live in this process and answer at once.

    Parameters
    ----------
    apps : mapping of int to ClientApp
        A ClientApp for each node id.
    tamper : callable, optional
        Given each reply, yields what arrives instead, to rehearse faults.
    node_config : mapping of int to mapping, optional
        Settings of each node.

    Examples
    --------
    >>> grid = InProcessGrid({1: ClientApp(), 2: ClientApp()})
    >>> grid.get_node_ids()
    [1, 2]
    """

    is_immediate = True
    """Whether :meth:`pull_messages` never waits; one that may is called in a thread for each reply."""

    def __init__(
        self,
        apps: Mapping[int, ClientApp],
        tamper: Tamper | None = None,
        node_config: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        identify(run=1, node=1)
        self.apps: dict[int, ClientApp] = dict(apps)
        self.tamper = tamper
        self.contexts: dict[int, Context] = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=dict((node_config or {}).get(node, {})),
                state=RecordDict(),
                run_config={},
            )
            for node in self.apps
        }
        self.silent: set[int] = set()
        self.sent: list[Message] = []
        self._replies: dict[str, list[Message]] = {}

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """There is no run to describe."""
        raise NotImplementedError("an in-process grid has no run")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.apps)

    def forget(self, node: int) -> None:
        """Restart a node: it loses what it held in memory."""
        self.contexts[node].state = RecordDict()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let the nodes answer, and return the ids to pull the answers by."""
        ids = []
        for message in messages:
            message_id = sha256(b"message %d" % len(self.sent)).hexdigest()
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node in self.silent:
                self._replies[message_id] = []
                continue
            reply = self._answer(carry(message), node)
            self._replies[message_id] = list(self.tamper(reply)) if self.tamper else [reply]
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there."""
        return [reply for message_id in message_ids for reply in self._replies.pop(message_id, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message, node: int) -> Message:
        # A reply is made by the node: its identity is the node's while it works, as in a process of its own.
        identify(run=1, node=node)
        try:
            return carry(self.apps[node](message, self.contexts[node]))
        except Exception as error:
            return error_reply(f"{type(error).__name__}: {error}", message)
        finally:
            identify(run=1, node=1)


def carry(message: Message) -> Message:
    """Return the message as it arrives after a journey as bytes."""
    if not message.has_content():
        return message
    content = records_from_bytes(records_to_bytes(message.content))
    arrived: Message = Message(content=content, metadata=message.metadata)  # type: ignore[call-overload]
    return arrived
