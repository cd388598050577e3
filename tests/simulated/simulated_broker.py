"""A broker on simulated time, and the two ends of a transport over it, by the rules of `transport/hub.py`.

Frames are delayed, overtake each other, arrive twice, and get lost with a connection, those for the server excepted.
Nothing overtakes a run description or a presence. A name has one connection: a second one ends the first. Whoever loses
a connection makes it again, after a second or so; a node that was replaced waits for a minute, a server ends. Nothing
survives a restart of the broker.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from simulated_time import World

from psofed.common.errors import PsofedError
from psofed.federation.transport.hub import INSTRUCTION, RUN, Arrival, NodePresence

SERVER = "server"
MAX_FRAME = 20_000
IN, OUT, PRESENCE, MODEL = "in", "out", "presence", "model"
_PENDING = 16  # frames of a node that wait for the server
_EXPIRY = 600.0  # seconds, of a frame that waits for a server without a connection

Topic = tuple[str, str]
"""A box and the node that it belongs to, nobody for a run and a model."""


class Violation(Exception):  # noqa: N818 - a result
    """A broken promise."""


@dataclass
class Line:
    """The network between a machine and the broker."""

    random: Random
    delay: Callable[[], float]
    accident: Callable[[], str] = lambda: ""
    is_down: Callable[[], bool] = lambda: False


@dataclass(eq=False)
class Connection:
    """A connection of an endpoint; `ordered` is when the last message that may not be overtaken arrives."""

    endpoint: "Endpoint"
    number: int
    is_open: bool = True
    ordered: float = 0.0


class Broker:
    """The broker.

    Attributes
    ----------
    retained : dict
        The newest value of each retained topic.
    kept : list
        What waits for a server that has lost its connection: when it arrived, its topic and content.
    revoked : set of str
        Names without access.
    misdelivered : dict
        Who else gets the next instruction for a node.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.began = 0.0
        self.retained: dict[Topic, bytes] = {}
        self.connections: dict[str, Connection] = {}
        self.kept: list[tuple[float, Topic, bytes]] = []
        self.revoked: set[str] = set()
        self.misdelivered: dict[str, Callable[[bytes], None]] = {}
        self._session: Endpoint | None = None
        self._number = 0

    def restart(self, seconds: float) -> None:
        """Lose all connections and all content, and be back after `seconds`."""
        self.up = False
        self.retained.clear()
        self.kept.clear()
        self._session = None
        for connection in list(self.connections.values()):
            self.end(connection)
        self.began = self.world.now + seconds
        self.world.at(self.began, lambda: setattr(self, "up", self.world.now >= self.began))

    def may_publish(self, name: str, topic: Topic) -> bool:
        """Whether the access list allows a name to publish."""
        box, node = topic
        return name == SERVER or (node == name and box in (OUT, PRESENCE))

    def accept(self, endpoint: "Endpoint") -> tuple[Connection, bool]:
        """Return a new connection, and whether the broker remembers an earlier one of the same process."""
        if (older := self.connections.get(endpoint.name)) is not None:
            self.end(older, replaced=older.endpoint is not endpoint)
            self._bury(older)
        self._number += 1
        connection = self.connections[endpoint.name] = Connection(endpoint, self._number)
        is_known = self._session is endpoint
        if endpoint.name == SERVER:
            if not is_known:
                self._session, self.kept = endpoint, []
            kept, self.kept = self.kept, []
            for since, topic, payload in kept:
                if self.world.now - since < _EXPIRY:
                    self._deliver(connection, topic, payload)
        wanted = PRESENCE if endpoint.name == SERVER else RUN
        for topic, payload in list(self.retained.items()):
            if topic[0] == wanted:
                self._deliver(connection, topic, payload)
        return connection, is_known

    def end(self, connection: Connection, replaced: bool = False, unnoticed: float = 0.0) -> None:
        """End a connection; the broker notices after `unnoticed` seconds, and publishes the last will."""
        if not connection.is_open:
            return
        connection.is_open = False
        connection.endpoint.lose(replaced)
        self.world.at(self.world.now + unnoticed, lambda: self._bury(connection))
        if not unnoticed:
            self._bury(connection)

    def _bury(self, connection: Connection) -> None:
        name = connection.endpoint.name
        if self.connections.get(name) is connection:
            del self.connections[name]
            if name != SERVER and self.up:
                self.publish(name, (PRESENCE, name), b"")

    def publish(self, name: str, topic: Topic, payload: bytes) -> None:
        """Take a message of a name, and pass it on to those who read the topic."""
        box, node = topic
        if name in self.revoked or not self.may_publish(name, topic):
            return
        if box in (RUN, MODEL, PRESENCE):
            self.retained[topic] = payload
            if not payload:
                del self.retained[topic]
        if box == IN and node in self.misdelivered:
            self.misdelivered.pop(node)(payload)
        readers = {IN: [node], OUT: [SERVER], PRESENCE: [SERVER], MODEL: []}.get(box)
        for reader in [*self.connections] if readers is None else readers:
            connection = self.connections.get(reader)
            if connection is not None and (reader != SERVER or box != RUN):
                self._deliver(connection, topic, payload)
            elif reader == SERVER and self._session is not None:
                self.kept.append((self.world.now, topic, payload))

    def _deliver(self, connection: Connection, topic: Topic, payload: bytes) -> None:
        def arrive() -> None:
            if connection.is_open:
                connection.endpoint.arrive(topic, payload)
            elif connection.endpoint is self._session:
                current = self.connections.get(SERVER)
                if current is not None and current.endpoint is self._session and current.is_open:
                    self._deliver(current, topic, payload)
                else:
                    self.kept.append((self.world.now, topic, payload))

        connection.endpoint.travel(connection, topic, arrive)

    def revoke(self, names: Collection[str]) -> None:
        """Refuse names, and end their connections."""
        self.revoked = set(names)
        for name in self.revoked & self.connections.keys():
            self.end(self.connections[name])


class Endpoint:
    """What both ends of the transport have in common: a connection that restores itself.

    Attributes
    ----------
    unsent : list
        Messages that the broker has not acknowledged; they are sent again with the next connection.
    online_since : float or None
        When the current connection was made.
    """

    def __init__(self, broker: Broker, name: str, line: Line) -> None:
        self.broker, self.world, self.name, self.line = broker, broker.world, name, line
        self.process = broker.world.process
        self.connection: Connection | None = None
        self.unsent: list[tuple[Topic, bytes]] = []
        self.online_since: float | None = None
        self.is_replaced = self.is_closed = False
        self._failures = 0
        self._news = self.world.event()
        self._dial(0.0)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as this end knows."""
        return self.connection is not None

    def _dial(self, after: float) -> None:
        self.world.at(self.world.now + after, self._connect)

    def _connect(self) -> None:
        if self.is_closed or self.connection is not None or not self.process.alive:
            return
        if not self.broker.up or self.line.is_down() or self.name in self.broker.revoked:
            self._failures += 1
            self._dial(self.line.random.uniform(0.5, 1.5) * min(2.0**self._failures, 60.0))
            return
        self._failures = 0
        connection, is_known = self.broker.accept(self)
        if not connection.is_open:  # lost again at once
            return
        self.connection, self.online_since = connection, self.world.now
        for topic, payload in list(self.unsent):
            self._transmit(topic, payload)
        self.opened(not is_known)

    def lose(self, replaced: bool) -> None:
        """Take note of a lost connection, and make another one."""
        if not self.process.alive:
            return
        self.connection = self.online_since = None
        random = self.line.random
        self.is_replaced = replaced
        if self.name != SERVER and random.random() < 0.3:
            self.unsent.clear()
        if not replaced:
            self._dial(random.uniform(0.5, 1.5))
        elif self.name != SERVER:
            self._dial(random.uniform(60.0, 120.0))
        self._news.set()

    def travel(self, connection: Connection, topic: Topic, arrive: Callable[[], None]) -> None:
        """Let a message arrive at the other end of a connection, unless there is an accident."""
        accident = self.line.accident()
        if accident == "lost":
            self.broker.end(connection, unnoticed=self.line.random.choice((0.0, 5.0)))
        for _ in range(2 if accident == "doubled" else 1):
            due = max(self.world.now + self.line.delay(), connection.ordered)
            if topic[0] not in (IN, OUT):
                connection.ordered = due
            self.world.at(due, arrive)

    def transmit(self, topic: Topic, payload: bytes) -> None:
        """Send a message at least once, whenever there is a connection."""
        self.world.check_alive()
        self.unsent.append((topic, payload))
        self._transmit(topic, payload)

    def _transmit(self, topic: Topic, payload: bytes) -> None:
        connection = self.connection
        if connection is None:
            return

        def arrive() -> None:
            if connection.is_open:
                self.broker.publish(self.name, topic, payload)
                self.world.at(self.world.now + self.line.delay(), acknowledge)

        def acknowledge() -> None:
            if connection.is_open and (topic, payload) in self.unsent:
                self.unsent.remove((topic, payload))

        self.travel(connection, topic, arrive)

    def close(self) -> None:
        """Say goodbye."""
        if self.process.alive:
            self.is_closed = True
            if self.connection is not None:
                self.broker.end(self.connection)

    def opened(self, is_new: bool) -> None:
        """Act on a connection; `is_new` if the broker remembers none of this process."""

    def arrive(self, topic: Topic, payload: bytes) -> None:
        """Take a message."""


class SimulatedHub(Endpoint):
    """The server's end."""

    def __init__(self, broker: Broker, line: Line) -> None:
        self._present: dict[str, NodePresence] = {}
        self.pending: dict[str, list[bytes]] = {}
        self._retained: dict[Topic, bytes] = {}
        super().__init__(broker, SERVER, line)

    def present(self) -> dict[str, NodePresence]:
        return {name: here for name, here in self._present.items() if name not in self.broker.revoked}

    def send(self, node: str, frame: bytes) -> None:
        self.transmit((IN, node), frame)

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        if not self.pending and not self.is_replaced:
            self._news.clear()
            self._news.wait(seconds)
        if self.is_replaced:
            raise PsofedError("another server has connected to the broker; this one ends")
        pending, self.pending = self.pending, {}
        return [(node, frame) for node, frames in pending.items() for frame in frames]

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        for box, payload in ((RUN, run), (MODEL, model)):
            if payload is not None:
                self._retained[box, ""] = payload
                self.transmit((box, ""), payload)

    def revoke(self, names: Collection[str]) -> None:
        for name in set(names) - self.broker.revoked:
            self.pending.pop(name, None)
        self.broker.revoke(names)

    def opened(self, is_new: bool) -> None:
        if is_new:
            self._present.clear()
            for topic, payload in self._retained.items():
                self._transmit(topic, payload)

    def arrive(self, topic: Topic, payload: bytes) -> None:
        box, name = topic
        if box == PRESENCE:
            self._present.pop(name, None)
            if payload and name not in self.broker.revoked:
                self._present[name] = NodePresence(payload[:32].decode(), payload[32:])
        elif len(payload) <= MAX_FRAME and name not in self.broker.revoked:
            frames = self.pending.setdefault(name, [])
            if len(frames) < _PENDING:
                frames.append(payload)
            self._news.set()


class SimulatedLink(Endpoint):
    """A node's end."""

    def __init__(self, broker: Broker, name: str, line: Line) -> None:
        self.arrivals: list[Arrival] = []
        self._announced: bytes | None = None
        super().__init__(broker, name, line)

    def announce(self, body: bytes) -> None:
        self.world.check_alive()
        self._announced = body
        if self.connection is not None:
            self._transmit((PRESENCE, self.name), f"{self.connection.number:032x}".encode() + body)

    def receive(self, seconds: float) -> Arrival | None:
        if not self.arrivals:
            self._news.clear()
            self._news.wait(seconds)
        return self.arrivals.pop(0) if self.arrivals else None

    def send(self, frame: bytes) -> None:
        self.transmit((OUT, self.name), frame)

    def opened(self, is_new: bool) -> None:
        if self._announced is not None:
            self.announce(self._announced)

    def arrive(self, topic: Topic, payload: bytes) -> None:
        self.arrivals.append(Arrival(RUN if topic[0] == RUN else INSTRUCTION, payload))
        self._news.set()
