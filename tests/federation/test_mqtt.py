"""Hub and links over a real mosquitto: nothing is lost, nothing is forged, and nobody starves the others."""

import socket
import threading
import time
import uuid
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from brokers import FEDERATION, next_instruction, received, running, topic, wait_until
from nodes import make_hub, make_node
from nodes import run as run_in_process
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from psofed.common.errors import PsofedError
from psofed.federation.client.node import serve
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.loop import Server
from psofed.federation.transport import broker, mqtt
from psofed.federation.transport.hub import RUN, Arrival
from psofed.federation.transport.mqtt import Endpoint

pytestmark = pytest.mark.federation

LIMIT = 200_000


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    home = tmp_path_factory.mktemp("plant")
    names = ["a", "b", "renewed", "sørpumpe", "11", "12", "13"]
    with patch.object(broker, "MAX_FRAME", LIMIT), running(home, names, {"hall": 50}) as fleet:
        yield fleet


@pytest.fixture
def fleet(plant):
    yield plant
    plant.close()


def began(hub, *links):
    """Publish a new run description, wait until all links have it and are present, and return it."""
    run = uuid.uuid4().bytes
    hub.publish(run=run)
    for link in links:
        wait_until(lambda link=link: link.receive(1.0) == Arrival(RUN, run))  # an earlier one may be retained
    wait_until(lambda: hub.present().keys() >= {link.identity.name for link in links})
    return run


def test_frames_go_both_ways(fleet):
    hub, a, b = fleet.hub(), fleet.link("a", b"one"), fleet.link("sørpumpe", b"two")
    began(hub, a, b)
    assert {name: presence.body for name, presence in hub.present().items()} == {"a": b"one", "sørpumpe": b"two"}
    frames = {"a": bytes(range(256)), "sørpumpe": b"\0" * LIMIT}
    for name, frame in frames.items():
        hub.send(name, frame)
    for link in (a, b):
        link.send(next_instruction(link))
    assert dict(received(hub, 2)) == frames
    assert a.receive(0.2) is None, "the other's instruction"
    a.announce(b"three")
    wait_until(lambda: hub.present()["a"].body == b"three")
    a.close()
    wait_until(lambda: "a" not in hub.present())
    assert hub.is_connected
    assert not hub.dropped


def test_a_run_description_reaches_who_connects_later_and_a_removed_one_does_not(fleet):
    hub = fleet.hub()
    hub.publish(run=b"first", model=b"weights")
    hub.publish(run=b"second")
    hub.close()
    late = fleet.link("a")
    assert late.receive(20.0) == Arrival(RUN, b"second")
    reader = fleet.tester("b", [f"psofed/{FEDERATION}/model"])
    wait_until(lambda: reader.has(f"psofed/{FEDERATION}/model", b"weights"))
    fleet.hub().publish(run=b"", model=b"")
    wait_until(lambda: reader.has(f"psofed/{FEDERATION}/model", b""))
    assert fleet.link("sørpumpe").receive(0.5) is None


def test_nobody_can_write_or_read_the_topics_of_others(fleet):
    hub, victim = fleet.hub(), fleet.link("a", b"honest")
    began(hub, victim)
    presence = hub.present()
    boxes = [topic("a", box) for box in ("in", "out", "presence")]
    boxes += [f"psofed/{FEDERATION}/{kind}" for kind in ("run", "model", "server")]
    thief = fleet.tester("b", ["#", f"psofed/{FEDERATION}/#", topic("+", "in"), topic("+", "out"), *boxes, "$SYS/#"])
    for box in (*boxes, topic("b", "in"), topic("b", "out")):
        thief.publish(box, b"f" * 64)
        thief._client.publish(box, b"g" * 64, qos=0, retain=True)
    assert received(hub, 1) == [("b", b"f" * 64)], "its own topic; what is retained is dropped"
    hub.send("a", b"do")
    assert next_instruction(victim) == b"do", "and nothing before"
    victim.send(b"done")
    assert received(hub, 1) == [("a", b"done")]
    assert hub.present() == presence
    allowed = {f"psofed/{FEDERATION}/{kind}" for kind in ("run", "model", "server")}
    assert {box for box, _ in thief.take()} <= allowed
    assert thief.connections == 1
    thief._client.publish(topic("b", "out"), b"", retain=True)


def test_what_a_broker_changes_or_repeats_elsewhere_is_not_obeyed(fleet, caplog):
    hub, a, b = fleet.hub(), fleet.link("a"), fleet.link("b")
    began(hub, a, b)
    sealed = mqtt._seal(hub.identity, topic("a", "in"), b"do")
    forged = mqtt._seal(a.identity, topic("b", "in"), b"obey", a.identity.certificate)
    hub.close()
    operator = fleet.tester("server")
    for payload in (sealed, forged, b"do", b"\xff\xff\xff", sealed[:-1], b"", forged[:40]):
        operator.publish(topic("b", "in"), payload)
    run = f"psofed/{FEDERATION}/run"
    operator.publish(run, mqtt._seal(a.identity, run, b"my run", a.identity.certificate))
    operator.publish(topic("b", "in"), mqtt._seal(hub.identity, topic("b", "in"), b"the last"))
    assert b.receive(20.0) == Arrival("instruction", b"the last")
    assert a.receive(0.3) is None
    assert "is not signed by the server" in caplog.text


def test_unknown_retained_oversize_and_malformed_messages_are_dropped(fleet, monkeypatch):
    monkeypatch.setattr(mqtt, "MAX_FRAME", 1000)
    known = ["a", "b"]
    hub = fleet.hub(lambda: known)
    a = fleet.link("a")
    began(hub, a)
    b = fleet.tester("b")
    b._client.publish(topic("b", "out"), b"kept", qos=1, retain=True)
    b.publish(topic("b", "out"), b"x" * 1001)
    for presence in (b"short", b"Z" * 40, b"0" * 32 + b"x" * ((1 << 20) + 1), b"\0" * 100):
        b.publish(topic("b", "presence"), presence)
    stranger = fleet.link("hall", b"known later")
    stranger.send(b"who am I?")
    wait_until(lambda: hub.dropped["hall", "no certificate of it is known here"] == 1)
    a.send(b"y" * 1000)
    assert received(hub, 1) == [("a", b"y" * 1000)]
    assert hub.present().keys() == {"a"}
    assert hub.dropped["b", "replies are not retained"] == 1
    assert hub.dropped["b", "its frame is larger than 1,000 bytes"] == 1
    assert hub.dropped["b", "its presence is not what nodes announce"] == 3
    assert b.connections == 1
    known.append("hall")
    wait_until(lambda: "hall" in hub.present())
    hub.close()
    assert fleet.hub().receive(0.5) == [], "a retained reply does not arrive later either"
    b._client.publish(topic("b", "out"), b"", retain=True)


def test_a_frame_larger_than_the_broker_takes_is_not_sent_or_ends_its_senders_connection(fleet):
    hub, a, hostile = fleet.hub(), fleet.link("a"), fleet.tester("b")
    began(hub, a)
    connection = hub.present()["a"].connection
    hostile._client.publish(topic("b", "out"), b"x" * (LIMIT + 5000), qos=1)
    wait_until(lambda: hostile.connections > 1)
    a.send(b"x" * (LIMIT + 5000))
    a.send(b"small")
    assert received(hub, 1) == [("a", b"small")]
    assert hub.present()["a"].connection == connection


def test_the_same_certificate_twice_does_not_become_a_war(fleet, monkeypatch):
    monkeypatch.setattr(mqtt, "_DELAY", 0.1)
    hub, first = fleet.hub(), fleet.link("a", b"first")
    began(hub, first)
    second = fleet.link("a", b"second")
    connections, deadline = [], time.monotonic() + 5.0
    while time.monotonic() < deadline:
        present = hub.present()
        if "a" in present and present["a"].connection not in connections:
            connections.append(present["a"].connection)
        time.sleep(0.002)
    assert 3 <= len(connections) <= 16, "each waits twice as long as the last time"
    assert first._delay >= 0.8
    assert "does another process use the certificate of a?" in first.problem + second.problem
    second.close()
    wait_until(lambda: hub.present().get("a", None) and hub.present()["a"].body == b"first", 30.0)


def test_of_two_servers_one_ends(fleet):
    first = fleet.hub()
    wait_until(lambda: first.receive(0.1) == [] and first._seen > 0)
    second = fleet.hub()  # one that has not looked whether there is another
    ended = []

    def run(hub):
        try:
            while not ended:
                hub.receive(0.1)
        except PsofedError as error:
            ended.append((hub, str(error)))

    threads = [threading.Thread(target=run, args=(hub,)) for hub in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(ended) == 1
    assert "another server has connected to" in ended[0][1]
    survivor = second if ended[0][0] is first else first
    wait_until(lambda: survivor.is_connected)
    assert survivor.receive(0.1) == []


def test_a_server_that_its_broker_tells_of_another_ends(fleet):
    hub = fleet.hub()
    flags = SimpleNamespace(is_disconnect_packet_from_server=True)
    hub._on_disconnect(None, None, flags, ReasonCode(PacketTypes.DISCONNECT, "Session taken over"), None)
    with pytest.raises(PsofedError, match="another server has connected to mqtts://127"):
        hub.receive(10.0)


def test_a_node_that_dies_without_a_word_is_gone(fleet):
    hub, a = fleet.hub(), fleet.link("a")
    began(hub, a)
    a._client.loop_stop()
    a._client.socket().close()
    wait_until(lambda: "a" not in hub.present(), 3.0)


def test_replies_sent_while_the_server_has_no_connection_arrive(fleet):
    hub, a, b = fleet.hub(), fleet.link("a"), fleet.link("b")
    began(hub, a, b)
    hub._client.socket().shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not hub.is_connected)
    for number in range(10):
        a.send(b"%d" % number)
    b.close()
    assert received(hub, 10) == [("a", b"%d" % number) for number in range(10)]
    wait_until(lambda: hub.present().keys() == {"a"})


def test_a_killed_broker_comes_back_and_nothing_is_lost(fleet):
    hub, a, b = fleet.hub(), fleet.link("a", b"one"), fleet.link("b", b"two")
    run = began(hub, a, b)
    hub.publish(model=b"weights")
    before = hub.present()
    fleet.kill()
    wait_until(lambda: not hub.is_connected and not a.is_connected)
    hub.send("a", b"sent without a broker")
    b.send(b"replied without a broker")
    wait_until(fleet.broker.attend)
    wait_until(lambda: hub.is_connected and hub.present().keys() == {"a", "b"})
    after = hub.present()
    for name, presence in before.items():
        assert after[name].connection != presence.connection, "so the server asks again"
        assert after[name].body == presence.body
    hub.send("a", b"again")
    instructions = {next_instruction(a)}
    if b"again" not in instructions:
        instructions.add(next_instruction(a))
    assert instructions <= {b"again", b"sent without a broker"}
    assert b"again" in instructions
    b.send(b"answered from memory")
    assert ("b", b"answered from memory") in received(hub, 1) + received(hub, 1, 0.5)
    late = fleet.link("hall")
    assert late.receive(20.0) == Arrival(RUN, run)
    reader = fleet.tester("renewed", [f"psofed/{FEDERATION}/model"])
    wait_until(lambda: reader.has(f"psofed/{FEDERATION}/model", b"weights"))


def test_a_packet_that_cannot_be_read_costs_a_connection_and_not_the_node(fleet, monkeypatch):
    hub, a = fleet.hub(), fleet.link("a")
    began(hub, a)
    connection = hub.present()["a"].connection
    handle = a._client._handle_publish

    def fail_once():
        a._client._handle_publish = handle
        raise ValueError("malformed")

    a._client._handle_publish = fail_once
    hub.send("a", b"lost")
    wait_until(lambda: "a" in hub.present() and hub.present()["a"].connection != connection)
    hub.send("a", b"again")
    assert next_instruction(a) == b"again"


def test_a_run_over_mqtt_has_the_bits_of_one_in_process_also_when_the_broker_dies(fleet):
    plan, limits = RoundPlan(min_nodes=3), ReplyLimits(ban_after=0)
    initial = {"0": np.arange(6.0)}
    reference = run_in_process(make_hub(), rounds=30, plan=plan, initial=initial)
    hub, ended = fleet.hub(), threading.Event()
    nodes = [
        threading.Thread(target=serve, args=(make_node(name), fleet.link(name), ended)) for name in ("11", "12", "13")
    ]
    for node in nodes:
        node.start()

    def interrupt(round_number, _model):
        if round_number == 10:
            fleet.kill()
            wait_until(lambda: not hub.is_connected)
            wait_until(fleet.broker.attend)
            wait_until(lambda: hub.is_connected and len(hub.present()) == 3)  # a round takes who is there

    try:
        server = Server(2, rounds=plan, aggregation="mean", limits=limits)
        server.run(hub, initial, 30, 60.0, evaluate=interrupt)
    finally:
        ended.set()
        for node in nodes:
            node.join()
    assert server.state.round_number == 30
    assert server.state.model.tobytes() == reference.state.model.tobytes()


def test_500_retained_presences_are_all_seen(fleet):
    names = [f"node-{number}" for number in range(500)]
    publisher = fleet.tester("server")
    for name in names:
        publisher._client.publish(topic(name, "presence"), b"0" * 32 + name.encode(), qos=1, retain=True)
    publisher._last = publisher._client.publish(topic("last", "presence"), b"", qos=1)
    publisher._last.wait_for_publish(20.0)
    publisher.close()
    hub = fleet.hub(lambda: names)
    wait_until(lambda: len(hub.present()) == 500)
    assert all(presence.body == name.encode() for name, presence in hub.present().items())
    hub.revoke(names)
    assert hub.present() == {}
    hub.revoke([])
    wait_until(lambda: not hub._present)


def test_a_flood_does_not_starve_others_and_is_denied_by_the_broker(fleet, monkeypatch):
    monkeypatch.setattr(mqtt, "_FLOOD", 100)  # messages in a second, which any machine can send
    hub, a = fleet.hub(), fleet.link("a")
    began(hub, a)

    def exchange(count=100):
        for _ in range(count):
            hub.send("a", b"x" * 200)
            a.send(next_instruction(a))
            while ("a", b"x" * 200) not in received(hub, 1):
                pass

    exchange()
    flooder = fleet.tester("b")
    ended = threading.Event()

    def flood():
        while not ended.is_set():
            if len(flooder._client._out_messages) < 2000:
                flooder.publish(topic("b", "out"), b"y" * 200)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        wait_until(lambda: hub.receive(0.01) is not None and "b" in hub.flooding())
        fleet.broker.deny(hub.flooding())
        before = sum(hub.dropped.values())
        exchange()
    finally:
        ended.set()
        thread.join()
    assert sum(hub.dropped.values()) - before < 5000
    assert "b" not in hub.present()
    assert len([1 for name, _ in hub.receive(0.1) if name == "b"]) == 0
    fleet.broker.deny([])


def test_a_renewed_certificate_is_taken_up_at_the_next_connection(fleet):
    hub, node = fleet.hub(), fleet.link("renewed")
    began(hub, node)
    serial = node.identity.certificate
    fleet.certificates.renew(["renewed"])
    assert fleet.identity("renewed").certificate != serial
    taken = []
    node._tls.load_cert_chain, load = lambda path: (taken.append(path), load(path)), node._tls.load_cert_chain
    connection = hub.present()["renewed"].connection
    node._client.socket().shutdown(socket.SHUT_RDWR)
    wait_until(lambda: hub.present().get("renewed") and hub.present()["renewed"].connection != connection)
    assert taken == [node.identity.path]


@pytest.mark.parametrize(
    "text",
    ["broker", "mqtt://b", "mqtts://", "mqtts://b:0", "mqtts://b:99999", "mqtts://b:x", "mqtts://b/t", "mqtts://u@b"],
)
def test_a_broker_that_is_not_an_address_is_refused(text):
    with pytest.raises(PsofedError, match=r"--broker must be mqtts://HOST"):
        Endpoint.parse(text)


def test_addresses_and_federations():
    assert str(Endpoint.parse("mqtts://[::1]:1")) == "mqtts://[::1]:1"
    assert Endpoint.parse("mqtts://b/") == Endpoint("b", 8883)
    for federation in ("", "a/b", "+", "#", "a b", "x" * 65):
        with pytest.raises(PsofedError, match="--federation must be"):
            Endpoint("broker", federation=federation)
