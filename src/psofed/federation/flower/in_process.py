"""A Grid within one process, to try a strategy and ClientApps in milliseconds instead of seconds."""

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import DEFAULT_TTL, Context, Error, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

_SERVER = 1  # Flower's number of the server
_RAISED = 2  # Flower's code of an exception in a ClientApp


class InProcessGrid(Grid):
    """Nodes that live in this process and answer at once.

    Parameters
    ----------
    apps : mapping of int to ClientApp
        By node id; may be changed at any time.

    Attributes
    ----------
    contexts : dict
        What each node keeps.

    Examples
    --------
    >>> grid = InProcessGrid({1: ClientApp(), 2: ClientApp()})
    >>> grid.get_node_ids()
    [1, 2]
    """

    def __init__(self, apps: Mapping[int, ClientApp]) -> None:
        self.apps: dict[int, ClientApp] = dict(apps)
        self.contexts: dict[int, Context] = {}
        self._ids = itertools.count(1)
        self._replies: dict[str, list[Message]] = {}

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """There is no run to describe."""
        raise NotImplementedError("an in-process grid has no run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str = "", ttl: float | None = None
    ) -> Message:
        """Return a message, also outside of a process that Flower has started."""
        metadata = Metadata(
            1, "", _SERVER, dst_node_id, reply_to_message_id="", group_id=group_id, created_at=time.time(),
            ttl=ttl or DEFAULT_TTL, message_type=message_type,
        )  # fmt: skip
        message: Message = Message(content=content, metadata=metadata)  # type: ignore[call-overload]
        return message

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.apps)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let the nodes answer, and return the ids to pull the answers by."""
        ids = []
        for message in messages:
            ids.append(str(next(self._ids)))
            self._replies[ids[-1]] = [self._answer(message)]
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies."""
        return [reply for message_id in message_ids for reply in self._replies.pop(message_id, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = self.contexts.setdefault(node, Context(1, node, {}, RecordDict(), {}))
        # The node gets a message of its own: what it does to it must not change what was sent.
        arrived: Message = Message(content=RecordDict(dict(message.content)), metadata=message.metadata)  # type: ignore[call-overload]
        try:
            return self.apps[node](arrived, context)
        except Exception as error:
            return Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
