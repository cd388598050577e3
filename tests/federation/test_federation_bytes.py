"""Bytes counted at the socket, between the nodes and the server, by the test's own counter."""

import socket
import threading
import time

import pytest

from psofed import Data, Scenario
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.demo import start_demo_node
from psofed.federation.deploy.server import Server, serve
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, submit
from psofed.federation.deploy.superlink import Home

pytestmark = pytest.mark.federation

DIMENSION = 1_000_000
NODES = 2
ROUNDS = 2


class CountingProxy:
    """Relays bytes between nodes and server, and records when, how many, and in which direction."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.log: list[tuple[float, str, int]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def counted(self, way: str, begin: float, end: float) -> int:
        return sum(
            size for when, direction, size in list(self.log) if direction == way and begin <= when <= end
        )

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes up the thread that accepts
        self.listener.close()
        for thread in self.threads:
            thread.join(timeout=180)

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            try:
                outer = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                inner.close()
                continue
            self.threads.append(threading.Thread(target=self._relay, args=(inner, outer), daemon=True))
            self.threads[-1].start()

    def _relay(self, inner: socket.socket, outer: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(outer, inner, "down"), daemon=True)
        with inner, outer:
            back.start()
            self._pump(inner, outer, "up")
            back.join(timeout=180)

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while chunk := source.recv(1 << 16):
                self.log.append((time.time(), way, len(chunk)))
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def settings_for(num_shared: int) -> RunSettings:
    scenario = Scenario(
        num_clients=NODES,
        dimension=DIMENSION,
        num_participants=NODES,
        num_shared=num_shared,
        stepsize=1e-7,
        iterations=ROUNDS,
        data=Data(input_variance=1.0, noise_variance=0.01, test_instances=1),
    )
    return RunSettings(scenario=scenario, synthetic=True, dtype="float32", min_nodes=NODES)


@pytest.mark.slow
def test_one_percent_costs_at_most_one_and_a_half_percent_of_full_sharing(tmp_path, record_property):
    home = Home(tmp_path / "server")
    names = [f"node-{k}" for k in range(NODES)]
    make_credentials(home.credentials.folder, [], names)
    per_message: dict[str, dict[str, float]] = {}
    with serve(home) as server:
        proxy = CountingProxy(server.door.port)
        through = Server(home, server.supervisor, _At(proxy.port), server.control, server.superlink)
        for k, name in enumerate(names):
            start_demo_node(through, name, k, byzantine=False)
        for label, num_shared in (("one percent", DIMENSION // 100), ("full", DIMENSION)):
            result = follow(
                home, submit(home, settings_for(num_shared), force=True), 120.0, check=server.supervisor.check
            )
            traffic = result["communication"]
            assert result["bad_replies"] == {}
            assert traffic["values_down"] == traffic["values_up"] == num_shared * NODES * ROUNDS
            for way in ("down", "up"):
                counted = proxy.counted(way, *result["window"])
                assert traffic[f"socket_bytes_{way}"] == pytest.approx(counted, rel=0.01)
                per_message.setdefault(label, {})[way] = counted / (NODES * ROUNDS)
    proxy.close()  # the nodes and the server have gone, so no connection is left
    for label, counts in per_message.items():
        print(f"{label}: {counts['down']:,.0f} bytes down, {counts['up']:,.0f} up per message")
        record_property(label, counts)
    partial, full = (sum(per_message[label].values()) for label in ("one percent", "full"))
    assert partial <= 0.015 * full  # and this with Flower's fixed cost, polling included


class _At:
    """Where the nodes are to connect, in place of the front door."""

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self.port = port
