"""The learners of a node: one training for each of its clients."""

from collections.abc import Callable, Sequence

from psofed.common.errors import PsofedError
from psofed.federation.client.gateway import TrainingRequest, TrainingResult
from psofed.federation.client.online import OnlineRegression, read_stream
from psofed.federation.client.shared_table import SharedTable
from psofed.federation.client.sources import Source
from psofed.federation.client.state import MemoryStore


class Learners:
    """The clients of a node, each with its own stream.

    Parameters
    ----------
    source : Source or SharedTable
        The samples of the one client, or the table that holds those of many.
    make : callable
        Given a client's samples and its name, returns its training.
    """

    def __init__(self, source: Source | SharedTable, make: Callable[[Source, str], OnlineRegression]) -> None:
        self.source = source
        self._make = make
        self._learners: dict[str, OnlineRegression] = {}

    @property
    def names(self) -> Callable[[], Sequence[str]] | None:
        """A function that returns the clients of a gateway; None if the node is not a gateway."""
        return self.source.names if isinstance(self.source, SharedTable) else None

    def learn(self, request: TrainingRequest) -> TrainingResult:
        """Let a client learn."""
        return self._of(request.client).learn(request)

    def learn_arrived(self, store: MemoryStore) -> int:
        """Let every client learn from what has arrived since the last call, and return how many samples these were."""
        memory = store.held
        if memory is None:
            return 0
        names = None if self.names is None else set(self.names())
        changed, problems, learned = {}, {}, 0
        for client, before in memory.clients.items():
            if names is not None and client not in names:
                continue
            try:
                following = self._of(client).learn_arrived(before)
            except PsofedError as error:
                problems[client] = str(error)
                continue
            if following is not None:
                changed[client] = following
                learned += read_stream(following.records).examples - read_stream(before.records).examples
        if changed:
            store.commit(memory, changed)
        for client, problem in problems.items():  # one is enough: the others' follow once it is fixed
            raise PsofedError(f"{client}: {problem}" if client else problem)
        return learned

    def _of(self, client: str) -> OnlineRegression:
        if client not in self._learners:
            source = self.source.source(client) if isinstance(self.source, SharedTable) else self.source
            self._learners[client] = self._make(source, client)
        return self._learners[client]
