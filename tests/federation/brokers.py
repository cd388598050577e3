"""A real broker with certificates for tests, skipped where there is no mosquitto unless PSOFED_BROKER=required."""

import os
import signal
import socket
import time
from contextlib import contextmanager

import pytest

from psofed.common.errors import PsofedError
from psofed.federation.transport.broker import Mosquitto, Tester, find_mosquitto
from psofed.federation.transport.certificates import SERVER, Certificates, Identity
from psofed.federation.transport.mqtt import MqttHub, MqttLink

FEDERATION = "plant"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


class Fleet:
    """Certificates, a broker, and connections to it that are closed at the end."""

    def __init__(self, home, nodes=(), gateways=None, **broker):
        try:
            find_mosquitto()
        except PsofedError as error:
            if os.environ.get("PSOFED_BROKER") == "required":
                raise
            pytest.skip(str(error))
        self.certificates = Certificates(home / "credentials")
        self.certificates.make([], nodes, gateways)
        self.broker = Mosquitto(home, self.certificates, free_port(), "127.0.0.1", federation=FEDERATION, **broker)
        self.broker.start()
        self._opened = []

    def identity(self, name):
        return Identity(self.certificates.bundle(name))

    def hub(self, names=None, **options):
        names = names or self.certificates.names
        hub = MqttHub(self.broker.endpoint, self.identity(SERVER), names, **options)
        self._opened.append(hub)
        wait_until(lambda: hub.is_connected)
        return hub

    def link(self, name, body=b"", identity=None):
        link = MqttLink(self.broker.endpoint, identity or self.identity(name))
        self._opened.append(link)
        link.announce(body)
        return link

    def tester(self, name, topics=()):
        tester = Tester(self.broker.endpoint, self.identity(name), topics)
        self._opened.append(tester)
        wait_until(lambda: tester.connections and (tester.is_connected or not topics))
        return tester

    def kill(self):
        os.kill(self.broker.pid, signal.SIGKILL)
        wait_until(lambda: not self.broker.pid)

    def close(self):
        """Close all connections, so that the next test begins with none."""
        for connection in self._opened:
            connection.close()
        self._opened = []


@contextmanager
def running(home, *arguments, **options):
    fleet = Fleet(home, *arguments, **options)
    try:
        yield fleet
    finally:
        fleet.close()
        fleet.broker.stop()


def topic(node, box):
    return f"psofed/{FEDERATION}/nodes/{node}/{box}"


def received(hub, count, seconds=20.0):
    """Return the next frames of a hub, at least `count`."""
    frames, deadline = [], time.monotonic() + seconds
    while len(frames) < count and time.monotonic() < deadline:
        frames += hub.receive(0.2)
    return frames


def next_instruction(link, seconds=20.0):
    """Return the next instruction of a link, or None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        arrival = link.receive(deadline - time.monotonic())
        if arrival is not None and arrival.kind == "instruction":
            return arrival.body
    return None
