"""Seconds per round, CPU time and memory of broker and server with thousands of light clients over TLS on loopback.

    python -m benchmarks.scale 5000

The server, its hub and mosquitto are the real ones. One other process holds all connections of the clients, each with
its own certificate: they announce themselves and answer instructions at once, without learning anything.
"""

import argparse
import logging
import multiprocessing
import resource
import selectors
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks._timing import markdown_table
from psofed.federation import ReplyLimits, RoundPlan, Server
from psofed.federation.deploy.server import free_port
from psofed.federation.protocol.messages import (
    LEARNED,
    Announcement,
    NodeReply,
    Reply,
    RunDescription,
    decode_instruction,
    encode_reply,
)
from psofed.federation.transport.broker import Mosquitto
from psofed.federation.transport.certificates import SERVER, Certificates, Identity
from psofed.federation.transport.mqtt import _SEAL, Endpoint, MqttHub

DIMENSION, SHARED, ROUNDS = 10, 5, 20
WAIT = 300.0  # seconds, for all clients to connect


class LightClient:
    """A node's messages without its work; it trusts the broker, so it checks no signature."""

    def __init__(self, endpoint: Endpoint, identity: Identity) -> None:
        name = identity.name
        self.run_topic, self.inbox = endpoint.topic("run"), endpoint.node_topic(name, "in")
        self.out, self.presence = endpoint.node_topic(name, "out"), endpoint.node_topic(name, "presence")
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self.paho.tls_set_context(identity.tls())
        self.paho.on_message = self._answer
        self.paho.on_connect = lambda *_: self.paho.subscribe([(self.run_topic, 1), (self.inbox, 1)])
        self.paho.will_set(self.presence, b"", qos=1, retain=True)
        self.paho.connect(endpoint.host, endpoint.port, keepalive=600)

    def _answer(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        certificate, signature = _SEAL.unpack_from(message.payload)
        body = message.payload[_SEAL.size + certificate + signature :]
        if message.topic == self.run_topic:
            ready = Announcement(RunDescription.from_bytes(body).session).to_bytes()
            self.paho.publish(self.presence, b"0" * 32 + ready, qos=1, retain=True)
            return
        asked = decode_instruction(body)
        replies = (Reply(LEARNED, values=np.full(SHARED, 1e-3), num_examples=1),)
        reply = NodeReply(asked.session, asked.round_number, asked.sequence, replies, asked.digest)
        self.paho.publish(self.out, encode_reply(reply), qos=1)


def hold_clients(credentials: Path, endpoint: Endpoint, names: list[str]) -> None:
    """Hold the connections of all clients until the process is ended."""
    allow_files()
    certificates, selector = Certificates(credentials), selectors.DefaultSelector()
    clients = []
    for name in names:
        client = LightClient(endpoint, Identity(certificates.bundle(name))).paho
        selector.register(client.socket(), selectors.EVENT_READ, client)
        clients.append(client)
        for key, _ in selector.select(0.0):
            _serve(key.data)
    while True:
        for key, _ in selector.select(1.0):
            _serve(key.data)


def _serve(client: paho.Client) -> None:
    client.loop_read()
    while client.want_write():
        client.loop_write()


def allow_files() -> None:
    """Allow this process as many connections as the system does."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(clients: int) -> list[list[str]]:
    """Return a row for rounds of 100 participants, and one for rounds of all clients."""
    allow_files()
    names, rows = [f"light-{k}" for k in range(clients)], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        certificates = Certificates(home / "credentials")
        certificates.make(nodes=names)
        broker = Mosquitto(home, certificates, free_port(), "127.0.0.1")
        broker.start()
        identity = Identity(certificates.bundle(SERVER))
        hub = MqttHub(broker.endpoint, identity, certificates.names)
        arguments = (home / "credentials", broker.endpoint, names)
        holder = multiprocessing.get_context("spawn").Process(target=hold_clients, args=arguments, daemon=True)
        holder.start()
        try:
            for participants in sorted({min(100, clients), clients}):
                rows.append(_rounds(clients, participants, hub, psutil.Process(broker.pid)))
        finally:
            holder.terminate()
            holder.join(30)
            hub.close()
            broker.stop()
    return rows


def _rounds(clients: int, participants: int, hub: MqttHub, broker: psutil.Process) -> list[str]:
    used: list[tuple[float, float]] = []
    history: list[dict[str, Any]] = []

    def note(state: Any) -> None:
        used.append((sum(broker.cpu_times()[:2]), time.process_time()))
        history.append(state.history[-1])  # the state forgets earlier rounds of so many clients

    plan = RoundPlan(min_nodes=clients, wait_for_nodes=WAIT, newcomers="zeros")
    limits = ReplyLimits(patience=0.0, rest_rounds=0)
    server = Server(SHARED, num_participants=participants, rounds=plan, limits=limits, on_round=note)
    server.run(hub, {"0": np.zeros(DIMENSION)}, ROUNDS, deadline=60.0)
    answered = sum(len(entry["accepted"]) for entry in history)
    usual = statistics.median(entry["seconds"] for entry in history[1:])
    messages = 2 * participants * (ROUNDS - 1)
    per_message = [1e6 * (last - first) / messages for first, last in zip(used[0], used[-1], strict=True)]
    memory = [process.memory_info().rss / 2**20 for process in (broker, psutil.Process())]
    return [
        f"{clients:,}", f"{participants:,}", f"{answered / (participants * ROUNDS):.2%}", f"{usual:.3f}",
        *(f"{value:.0f}" for value in (*per_message, *memory)),
    ]  # fmt: skip


def run(clients: int = 1000) -> str:
    """Return a table of what a fleet costs."""
    logging.getLogger("psofed.federation").setLevel(logging.ERROR)
    heads = ("clients", "participants", "replies in time", "s per round")
    costs = ("broker, µs per message", "server, µs per message", "broker, MB", "server, MB")
    return markdown_table([*heads, *costs], measure(clients))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="?", type=int, default=1000)
    print(run(parser.parse_args().clients))
