"""Mosquitto as a child process: its access list, revocation at once, and the probe that refuses unsafe brokers."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from brokers import Fleet, free_port, next_instruction, received, running, wait_until

from psofed.common.errors import PsofedError
from psofed.federation.transport import broker as broker_module
from psofed.federation.transport.broker import Mosquitto, find_mosquitto, probe
from psofed.federation.transport.certificates import Certificates, Identity
from psofed.federation.transport.mqtt import Endpoint

pytestmark = pytest.mark.federation


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    with running(tmp_path_factory.mktemp("a plant #1"), ["a", "b", "c", "d"]) as fleet:
        yield fleet


@pytest.fixture
def fleet(plant):
    yield plant
    plant.close()


def test_the_probe_accepts_our_own_broker(fleet):
    probe(fleet.broker.endpoint, fleet.certificates)


def test_a_second_server_is_refused_before_it_disturbs_the_first(fleet):
    hub = fleet.hub()
    wait_until(lambda: hub.receive(0.1) == [] and hub._seen > 0)
    time.sleep(0.2)
    with pytest.raises(PsofedError, match="another server of the federation plant is connected"):
        probe(fleet.broker.endpoint, fleet.certificates)
    assert hub.is_connected
    hub.close()
    probe(fleet.broker.endpoint, fleet.certificates)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nodes/%u/in", "nodes/+/in", "a node may read psofed/plant/nodes/psofed-probe-stranger/in"),
        ("nodes/%u/out", "nodes/+/out", "a node may write psofed/plant/nodes/psofed-probe-stranger/out"),
        ("nodes/%u/presence", "nodes/+/presence", "may write psofed/plant/nodes/psofed-probe-stranger/presence"),
        (
            "pattern read psofed/{federation}/run",
            "pattern readwrite psofed/{federation}/run",
            "may write psofed/plant/run",
        ),
        ("pattern read", "pattern readwrite", r"a node may write psofed/plant/"),
        ("pattern write psofed/{federation}/nodes/%u/out", "", "does not deliver what a node sends"),
        ("pattern read psofed/{federation}/nodes/%u/in", "", "does not deliver what the server sends"),
        ("pattern read psofed/{federation}/model", "pattern read #", "a node may read psofed/plant/nodes/psofed-probe"),
    ],
)
def test_the_probe_refuses_a_broker_that_does_not_keep_nodes_apart(fleet, monkeypatch, old, new, problem):
    assert old in broker_module._ACCESS
    monkeypatch.setattr(broker_module, "_PROBE_SECONDS", 2.0)
    monkeypatch.setattr(broker_module, "_ACCESS", broker_module._ACCESS.replace(old, new))
    fleet.broker.reload()
    try:
        with pytest.raises(PsofedError, match=problem):
            probe(fleet.broker.endpoint, fleet.certificates)
    finally:
        monkeypatch.undo()
        fleet.broker.reload()


def test_the_probe_refuses_a_broker_where_client_ids_can_be_stolen(tmp_path, monkeypatch):
    lax = broker_module._CONFIG.replace("use_username_as_clientid true\n", "")
    monkeypatch.setattr(broker_module, "_CONFIG", lax)
    with running(tmp_path) as fleet, pytest.raises(PsofedError, match="by using its client id"):
        probe(fleet.broker.endpoint, fleet.certificates)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Paho leaves a refused socket open
def test_the_probe_says_why_it_cannot_connect(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(broker_module, "_PROBE_SECONDS", 1.0)
    with pytest.raises(PsofedError, match=r"cannot use mqtts://127.0.0.1:\d+ as probe: .*[Rr]efused"):
        probe(Endpoint("127.0.0.1", free_port()), fleet.certificates)
    other = Certificates(tmp_path / "credentials")
    other.make()
    with pytest.raises(PsofedError, match=r"certificate verify failed.*name that with --ca"):
        probe(fleet.broker.endpoint, other)


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_revoked_node_is_mute_and_deaf_at_once_and_cannot_connect_again(fleet, tmp_path, name):
    identity = Identity(Path(shutil.copy(fleet.certificates.bundle(name), tmp_path)))
    hub, revoked, other = fleet.hub(), fleet.link(name, identity=identity), fleet.link("b")
    hub.publish(run=b"run")
    wait_until(lambda: hub.present().keys() == {name, "b"})
    connection = hub.present()["b"].connection
    revoked.send(b"last words")
    wait_until(lambda: hub._pending)
    key = fleet.certificates.authority_key
    if name == "c":  # its authority's key is elsewhere: the list of revoked certificates cannot be written yet
        key.rename(key.with_name("elsewhere"))
    assert fleet.certificates.revoke([name]) == (name == "a")
    hub.revoke(fleet.certificates.revoked())
    assert hub.present().keys() == {"b"}
    assert hub.receive(0.0) == []
    assert not hub.dropped
    fleet.broker.deny(fleet.certificates.revoked())
    time.sleep(0.5)  # mosquitto looks for signals ten times a second
    while next_instruction(revoked, 0.1) is not None:
        pass
    revoked.send(b"hello?")
    revoked.announce(b"hello?")
    for node in (name, "b"):
        hub.send(node, b"do")
    assert next_instruction(other) == b"do"
    other.send(b"done")
    assert received(hub, 1) == [("b", b"done")]
    assert next_instruction(revoked, 0.5) is None
    assert hub.present()["b"].connection == connection, "the others keep their connections"
    assert not hub.dropped, "the broker lets nothing of it through"
    if name == "c":
        key.with_name("elsewhere").rename(key)
        assert fleet.certificates.revoke(["c"]), "with the key, the broker is told, too"
        fleet.broker.reload()
        time.sleep(0.5)
    again = fleet.link(name, identity=identity)
    wait_until(lambda: "is its certificate revoked" in again.problem)


def test_a_dead_broker_is_started_again_and_keeps_its_denials(fleet):
    denied = fleet.certificates.revoked()
    fleet.kill()
    wait_until(fleet.broker.attend)
    assert all(f"user {name}" in fleet.broker._access.read_text() for name in denied)
    fleet.link("d")
    hub = fleet.hub()
    wait_until(lambda: "d" in hub.present())


def test_a_certificate_of_another_authority_and_none_are_refused(fleet, tmp_path):
    other = Certificates(tmp_path / "credentials")
    other.make([], ["d"])
    hub = fleet.hub()

    class Forged(Identity):
        def tls(self, authority=None):
            context = super().tls(fleet.certificates.authority)
            context.load_cert_chain(other.bundle("d"))
            return context

    forged = fleet.link("d", identity=Forged(other.bundle("d")))
    wait_until(lambda: "is its certificate revoked or out of date" in forged.problem)
    assert hub.present() == {}


def test_the_broker_dies_with_a_killed_server(tmp_path):
    Fleet(tmp_path).broker.stop()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from psofed.federation.transport.broker import Mosquitto\n"
        "from psofed.federation.transport.certificates import Certificates\n"
        "home = Path(sys.argv[1])\n"
        "broker = Mosquitto(home, Certificates(home / 'credentials'), int(sys.argv[2]), '127.0.0.1')\n"
        "broker.start(); print(broker.pid, flush=True); time.sleep(60)\n"
    )
    server = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(free_port())], stdout=subprocess.PIPE)
    pid = int(server.stdout.readline())
    server.kill()
    server.wait()
    server.stdout.close()
    status = Path(f"/proc/{pid}/stat")
    wait_until(lambda: not status.exists() or " Z " in status.read_text())


def test_what_keeps_mosquitto_from_starting_is_said(fleet, tmp_path, monkeypatch):
    port = fleet.broker.endpoint.port
    with pytest.raises(PsofedError, match=f"Port {port} is already in use"):
        Mosquitto(tmp_path, fleet.certificates, port).start()
    with pytest.raises(PsofedError, match=r"ca\.pem: no such file; `psofed federation certs --home .*` makes it"):
        Mosquitto(tmp_path, Certificates(tmp_path / "none"), free_port()).start()
    with pytest.raises(PsofedError, match=r"mosquitto does not start: .*address"):
        Mosquitto(tmp_path, fleet.certificates, free_port(), "192.0.2.1").start()


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::"])
def test_a_broker_that_listens_at_all_addresses_is_reached_on_loopback(fleet, tmp_path, address):
    broker = Mosquitto(tmp_path, fleet.certificates, 1, address)
    assert str(broker.endpoint) == "mqtts://127.0.0.1:1"


def test_without_a_mosquitto_or_with_an_old_one_the_error_says_how_to_get_one(tmp_path, monkeypatch):
    advice = "apt install mosquitto.* or name a broker with --broker mqtts://HOST:PORT"
    monkeypatch.setattr(broker_module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(PsofedError, match=f"there is no MQTT broker: .*{advice}"):
        find_mosquitto()
    old = tmp_path / "mosquitto"
    monkeypatch.setattr(broker_module.shutil, "which", lambda *_, **__: str(old))
    for script, problem in (
        ("echo mosquitto version 1.6.9", "is mosquitto version 1.6.9"),
        ("exit 1", "no mosquitto that can be run"),
    ):
        old.write_text(f"#!/bin/sh\n{script}\n")
        old.chmod(0o700)
        with pytest.raises(PsofedError, match=f"{problem}: .*{advice}"):
            find_mosquitto()
