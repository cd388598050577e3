"""The loop of a node over a link, in threads: it announces itself, answers, and learns what arrives."""

import json
import queue
import threading

import numpy as np
import pytest
from stations import gateway, settings_of, write_table

from psofed.federation.client.node import serve
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.protocol.messages import Announcement
from psofed.federation.server.ready_made import run_ready_made
from psofed.federation.transport.hub import INSTRUCTION, RUN, Arrival, NodePresence

pytestmark = pytest.mark.federation


class QueueHub:
    """A hub and links within this process, with a queue in each direction."""

    is_connected = True

    def __init__(self, names):
        self.links = {name: QueueLink(self, name) for name in names}
        self.online, self.replies, self.run, self.model = {}, queue.Queue(), b"", b""

    def present(self):
        return dict(self.online)

    def send(self, node, frame):
        self.links[node].arrivals.put(Arrival(INSTRUCTION, frame))

    def receive(self, seconds):
        try:
            return [self.replies.get(timeout=seconds)]
        except queue.Empty:
            return []

    def publish(self, run=None, model=None):
        if run is not None:
            for link in self.links.values():
                link.arrivals.put(Arrival(RUN, run))
        self.model = model or self.model

    def revoke(self, names):
        pass

    def close(self):
        pass


class QueueLink:
    def __init__(self, hub, name):
        self.hub, self.name, self.arrivals = hub, name, queue.Queue()

    def announce(self, body):
        self.hub.online[self.name] = NodePresence("1", body)

    def receive(self, seconds):
        try:
            return self.arrivals.get(timeout=seconds)
        except queue.Empty:
            return None

    def send(self, frame):
        self.hub.replies.put((self.name, frame))

    def close(self):
        self.hub.online.pop(self.name, None)


def test_nodes_in_threads_learn_and_leave(tmp_path):
    tables = {name: write_table(tmp_path / f"{name}.csv", [f"{name}-{k}" for k in (0, 1)]) for name in "ab"}
    hub, ended = QueueHub("ab"), threading.Event()
    nodes = {name: ready_made_node(name, gateway(path), tmp_path / name) for name, path in tables.items()}
    threads = [threading.Thread(target=serve, args=(node, hub.links[name], ended)) for name, node in nodes.items()]
    for thread in threads:
        thread.start()
    try:
        settings = settings_of(4, 30, min_nodes=4, wait_for_nodes=30.0)
        server = run_ready_made(settings, hub)
        assert not server.strikes.counts
        assert sorted(server.state.seen) == ["a-0", "a-1", "b-0", "b-1"]
        announced = Announcement.from_bytes(hub.online["a"].body)
        assert announced == Announcement(server.state.session, ("a-0", "a-1"))
    finally:
        ended.set()
        for thread in threads:
            thread.join(10.0)
    assert hub.online == {}
    published = json.loads(hub.model)
    assert published["round"] == 30
    np.testing.assert_array_equal(published["model"]["0"], server.state.model)
    assert published["columns"] == {"features": ["a", "b"], "target": "y"}
