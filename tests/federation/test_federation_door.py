"""The front door by itself, with a small TLS server in the SuperLink's place."""

import asyncio
import base64
import contextlib
import hashlib
import http.server
import socket
import ssl
import threading
import time
from types import SimpleNamespace

import calls
import pytest
from calls import FORGERIES
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesRequest,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed.common.errors import PsofedError
from psofed.federation.deploy import node, upstream
from psofed.federation.deploy.credentials import make_credentials, make_node_key
from psofed.federation.deploy.door import FrontDoor
from psofed.federation.deploy.limits import DoorLimits
from psofed.federation.deploy.processes import free_port, is_listening, wait_until
from psofed.federation.deploy.requests import KeyRing, RefusedError, Request, read_head
from psofed.federation.deploy.traffic import Meter, SocketTraffic, read_traffic
from psofed.federation.flower import (
    KEY_HEADER,
    FleetConnection,
    ForgottenError,
    UnknownKeyError,
    UnreachableError,
    WrongAuthorityError,
    public_key_of,
)
from psofed.federation.flower.trees import list_objects
from psofed.federation.protocol.bell import Bell, BellService

pytestmark = [pytest.mark.federation, pytest.mark.takes(11)]

GOOD_HEAD = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a:1\r\nContent-Length: 5\r\nX-Key: q=\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        GOOD_HEAD.replace(b"fleet", b"control"),
        GOOD_HEAD.replace(b"fleet", b"runtime"),
        GOOD_HEAD.replace(b"pull-messages", b"../control/start-run"),
        GOOD_HEAD.replace(b"pull-messages", b"%2e%2e/control/start-run"),
        GOOD_HEAD.replace(b"pull-messages", b"pull-messages?x=1"),
        GOOD_HEAD.replace(b"POST", b"GET"),
        GOOD_HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        GOOD_HEAD.replace(b"Host: a:1", b"Transfer-Encoding: chunked"),
        GOOD_HEAD.replace(b"Host: a:1", b"Transfer-Encoding : chunked"),
        GOOD_HEAD.replace(b"Host: a:1", b"Upgrade: websocket"),
        GOOD_HEAD.replace(b"Host: a:1", b"Content-Length: 6"),
        GOOD_HEAD.replace(b"Content-Length: 5", b"Content-Length: +5"),
        GOOD_HEAD.replace(b"Content-Length: 5", b"Content-Length: 9999999999999"),
        GOOD_HEAD.replace(b"Content-Length: 5\r\n", b""),
        GOOD_HEAD.replace(b"\r\nX-Key", b"\nX-Key"),
        GOOD_HEAD.replace(b"X-Key", b" X-Key"),
        GOOD_HEAD.replace(b"q=", b"\x00"),
        b"\r\n\r\n",
        b"",
    ],
)
def test_only_plain_requests_of_nodes_are_read(head):
    assert read_head(GOOD_HEAD).length == 5
    with pytest.raises(RefusedError):
        read_head(head)


@given(
    head=st.one_of(
        st.binary(max_size=200), st.binary(max_size=9).map(lambda b: GOOD_HEAD[:-4] + b + b"\r\n\r\n")
    )
)
def test_no_head_crashes_the_reader(head):
    with contextlib.suppress(RefusedError):
        assert read_head(head).length >= 0


NODE_ID = 77


class SuperLink(http.server.BaseHTTPRequestHandler):
    """Activates every node as number 77, hands out the test's questions, and wants every object that is announced."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        call = self.path.rsplit("/", 1)[1]
        self.server.seen.append((self.path, len(body), time.monotonic()))
        answer = b""
        if call == "activate-node":
            answer = ActivateNodeResponse(node_id=NODE_ID).SerializeToString()
        elif call == "pull-messages" and self.server.questions:
            answer = self.server.questions.pop(0).SerializeToString()
        elif call == "push-messages":
            (tree,) = PushMessagesRequest.FromString(body).message_object_trees
            answer = PushMessagesResponse(
                session_id=calls.SESSION, objects_to_push=list_objects(tree, 100)
            ).SerializeToString()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class House:
    """A front door, what is behind it, and a node's key."""

    def __init__(self, folder, **limits):
        self.credentials = make_credentials(folder / "credentials", [], ["pump-1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.credentials.make_link_certificate()
        context.load_cert_chain(self.credentials.link_certificate, self.credentials.link_key)
        self.link = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SuperLink)
        self.link.daemon_threads = True
        self.link.seen, self.link.questions = [], []
        self.link.socket = context.wrap_socket(self.link.socket, server_side=True)
        threading.Thread(target=self.link.serve_forever, daemon=True).start()
        self.bell = str(folder / "bell")
        self.counts = folder / "traffic.bin"
        self.door = FrontDoor(
            "127.0.0.1",
            0,
            self.link.server_address[1],
            self.credentials,
            self.counts,
            self.bell,
            DoorLimits(**limits),
        )

    def __enter__(self):
        self.door.__enter__()
        return self

    def __exit__(self, *error):
        self.door.__exit__(*error)
        self.link.shutdown()
        self.link.server_close()

    def fleet(self, key=None, authority=None):
        return FleetConnection(
            f"127.0.0.1:{self.door.port}",
            key or self.credentials.node_key("pump-1"),
            authority or self.credentials.authority,
        )

    def hand(self, fleet, name="question"):
        """Activate a node and let it be handed a question."""
        fleet.activate()
        self.link.questions.append(calls.question(NODE_ID, name))
        assert fleet.ask() is not None
        self.link.seen.clear()

    def tls(self):
        trusting = ssl.create_default_context(cafile=str(self.credentials.authority))
        raw = socket.create_connection(("127.0.0.1", self.door.port), timeout=120)
        return trusting.wrap_socket(raw, server_hostname="127.0.0.1")


def ended(connection):
    """Whether the other side has closed the connection."""
    try:
        return connection.recv(4096) == b""
    except (ConnectionError, ssl.SSLError):
        return True


@pytest.mark.parametrize(("answer", "status"), [(b"", 504), (b"HTTP/1.1 200 OK\r\n\r\n", 502), (None, 502)])
def test_a_superlink_that_gives_no_answer_is_told_as_a_status(monkeypatch, answer, status):
    """Nothing in time; an answer whose length nobody knows; the end of the connection."""

    async def ask():
        ended = asyncio.Event()

        async def answer_so(reader, writer):
            with contextlib.suppress(ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
                if answer is not None:
                    writer.write(answer)
                    await reader.read()  # until the door hangs up
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(answer_so, "127.0.0.1", 0)
        async with server:
            link = upstream.Upstream(server.sockets[0].getsockname()[1], None)
            with pytest.raises(upstream.UpstreamError) as told:
                await link.exchange(b"POST / HTTP/1.1\r\n\r\n", b"", None, 5.0)
            await asyncio.wait_for(ended.wait(), 180.0)
        return told.value.status

    monkeypatch.setattr(upstream, "_ANSWER_SECONDS", 0.05 if answer == b"" else 5.0)
    assert asyncio.run(ask()) == status


def test_a_meter_adds_what_it_is_told_alone_and_goes_on_after_a_restart(tmp_path):
    path = tmp_path / "counts" / "traffic.bin"
    with Meter(path) as meter:
        for told in ({"up": 3}, {"down": 5}, {"connections": 7}, {"up": 11, "down": 13}):
            meter.count(**told)
        assert read_traffic(path) == meter.traffic == SocketTraffic(up=14, down=18, connections=7)
    with Meter(path) as meter:
        before = meter.traffic
        meter.count(up=1, connections=2)
        assert meter.traffic == SocketTraffic(up=15, down=18, connections=9)
        assert meter.traffic.since(before) == SocketTraffic(up=1, down=0, connections=2)


def test_a_node_gets_through_and_its_bytes_are_counted(tmp_path):
    with House(tmp_path) as house, house.fleet() as fleet:
        assert fleet.activate() == NODE_ID
        counted = read_traffic(house.counts)
        assert counted.connections == 1
        assert counted.up > 1000  # a TLS handshake and a signed head at least
        assert counted.down > 500
        assert [path for path, _, _ in house.link.seen] == ["/v1/fleet/activate-node"]
    assert read_traffic(house.counts).up >= counted.up  # the counts outlive the door
    assert read_traffic(tmp_path / "absent") is None


def test_strangers_are_refused_before_anything_is_opened_inward(tmp_path):
    make_node_key(tmp_path / "stranger.key")
    other = make_credentials(tmp_path / "other", [], [])
    with House(tmp_path) as house:
        with house.fleet(key=tmp_path / "stranger.key") as fleet, pytest.raises(UnknownKeyError):
            fleet.activate()
        with house.fleet(authority=other.authority) as fleet, pytest.raises(WrongAuthorityError):
            fleet.activate()
        with house.tls() as keyless:
            keyless.sendall(GOOD_HEAD)
            assert b"403" in keyless.recv(4096)
        # A known key without its signature is not enough.
        with house.fleet() as fleet:
            fleet._client._interceptors[1]._private_key = (
                house.fleet(key=tmp_path / "stranger.key")._client._interceptors[1]._private_key
            )
            with pytest.raises(UnreachableError, match="wrong-signature"):
                fleet.activate()
        assert house.link.seen == []


@pytest.mark.parametrize("jump", [-60.0, 600.0])
def test_a_node_follows_the_servers_clock(tmp_path, monkeypatch, jump):
    with House(tmp_path, hold_seconds=0.01) as house, house.fleet() as fleet:
        fleet.activate()
        clock = SimpleNamespace(time=lambda: time.time() + jump, monotonic=time.monotonic)
        monkeypatch.setattr("psofed.federation.deploy.requests.time", clock)
        assert fleet.ask() is None


def test_a_node_is_told_that_its_clock_is_a_day_off(tmp_path, monkeypatch):
    """The server's clock is the wrong one here; the node cannot tell."""
    with House(tmp_path) as house, house.fleet() as fleet:
        clock = SimpleNamespace(time=lambda: time.time() + 86_400.0, monotonic=time.monotonic)
        monkeypatch.setattr("psofed.federation.deploy.requests.time", clock)
        with pytest.raises(UnreachableError, match="its clock and this machine's are too far apart"):
            fleet.activate()
        assert house.link.seen == []


def test_a_revoked_key_is_refused_on_an_open_connection_too(tmp_path):
    with House(tmp_path) as house, house.fleet() as fleet:
        fleet.activate()
        (house.credentials.folder / "pump-1.pub").unlink()
        with pytest.raises(UnknownKeyError):
            fleet.activate()


def test_slow_and_idle_connections_are_ended(tmp_path):
    with House(tmp_path, head_seconds=0.5) as house, house.tls() as half:
        half.sendall(GOOD_HEAD[:40])
        with socket.create_connection(("127.0.0.1", house.door.port), timeout=120) as idle:
            assert ended(half)
            assert ended(idle)


def test_a_flood_of_guests_pushes_out_itself_and_no_node(tmp_path):
    with House(tmp_path, guests=20, guests_per_address=10) as house, house.fleet() as fleet:
        fleet.activate()
        flood = [socket.create_connection(("127.0.0.1", house.door.port), timeout=120) for _ in range(60)]
        try:
            for _ in range(5):
                fleet.activate()
                with house.fleet() as another:
                    another.activate()
            assert len(house.door._guests) <= 10
            assert ended(flood[0])
        finally:
            for connection in flood:
                connection.close()
        assert len(house.link.seen) == 11


def test_bodies_are_limited_by_the_models_size_and_by_a_quota(tmp_path):
    with (
        contextlib.ExitStack() as stack,
        House(tmp_path, base_body=10_000, polling_rate=0.0, hold_seconds=0.1) as house,
        house.fleet() as fleet,
    ):
        house.hand(fleet)
        sizes = (20_000, 55_000)
        objects = [hashlib.sha256(b"x" * size).hexdigest() for size in sizes]
        fleet._call("PushMessages", calls.reply(NODE_ID, objects=objects))

        def push(size):
            fleet._call("PushObject", calls.push_object(NODE_ID, b"x" * size))

        with pytest.raises(UnreachableError, match="bytes"):
            push(20_000)
        bell = stack.enter_context(Bell(house.bell))
        bell.say_size(50_000)
        wait_until(lambda: house.door._quotas.max_body == 60_000, 180.0, "the size to arrive")
        bell.ring([fleet.number])
        wait_until(
            lambda: house.door._quotas._left[fleet.number].bytes > 200_000, 180.0, "the quota to be filled up"
        )
        for _ in range(3):
            push(55_000)
        with pytest.raises(UnreachableError, match="quota"):
            [push(55_000) for _ in range(3)]
        bell.ring([fleet.number])
        wait_until(
            lambda: house.door._quotas._left[fleet.number].bytes > 200_000, 180.0, "the quota to be filled up"
        )
        push(55_000)


def test_a_key_ring_knows_a_node_by_its_own_key_alone(tmp_path):
    credentials = make_credentials(tmp_path, [], ["node-0", "node-1"])
    ring = KeyRing(credentials.folder)
    mine, other = (public_key_of(path) for path in credentials.public_keys())

    def knows(key):
        return ring.knows(Request("pull-messages", 0, {} if key is None else {KEY_HEADER: key}), mine)

    assert knows(base64.b64encode(mine).decode())
    for wrong in (
        base64.b64encode(other).decode(),
        base64.b64encode(b"nobody").decode(),
        "not base64!",
        "",
        None,
    ):
        assert not knows(wrong)


def test_a_node_learns_from_what_arrives_between_rounds_until_it_ends(monkeypatch):
    ended, learned, said = threading.Event(), [], []

    def learn(context):
        learned.append(context)
        if len(learned) == 3:
            ended.set()
        if len(learned) > 1:
            raise ValueError("no such file")

    monkeypatch.setattr(node, "_LEARN_EVERY", 0.001)
    one = SimpleNamespace(
        _ended=ended,
        _context="mine",
        _lock=threading.Lock(),
        app=SimpleNamespace(learn_arrived=learn),
        say=said.append,
    )
    node.LongLivedNode._learn_arrived(one)
    assert learned == ["mine"] * 3
    assert said == ["cannot learn from what arrives: no such file"]  # once


def test_a_ring_while_nobody_asks_counts_for_the_next_question_and_no_other():
    async def ask():
        rung = []
        service = BellService("", lambda size: None, rung.append)
        service._ring(3)
        await asyncio.wait_for(service.hold(3, 60.0), 10.0)
        waiting = asyncio.ensure_future(service.hold(3, 60.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        service._ring(3)
        await asyncio.wait_for(waiting, 10.0)
        await service.hold(3, 0.0)
        assert (rung, service._waiting, service._rung) == ([3, 3], {}, set())

    asyncio.run(ask())


def test_a_question_waits_for_the_bell_and_says_that_the_node_is_idle(tmp_path):
    with House(tmp_path, hold_seconds=30.0) as house, house.fleet() as fleet, Bell(house.bell) as bell:
        fleet.activate()
        house.link.seen.clear()
        asking = threading.Thread(target=fleet.ask)
        asking.start()
        assert bell.wait(180.0) == {fleet.number}
        assert house.link.seen == []
        bell.ring([fleet.number])
        asking.join(timeout=180)
        assert len(house.link.seen) == 1
        bell.ring([fleet.number])  # while nobody asks: the next question passes at once and is no news
        time.sleep(0.2)
        fleet.ask()
        assert bell.wait(0.0) == set()


def test_a_question_of_a_node_that_has_gone_is_not_passed_on(tmp_path):
    with House(tmp_path, hold_seconds=30.0) as house, house.fleet() as fleet, Bell(house.bell) as bell:
        fleet.activate()
        house.link.seen.clear()
        body = PullMessagesRequest(node=Node(node_id=NODE_ID)).SerializeToString()
        request = fleet._client._client.build_request(
            "POST", "https://a/v1/fleet/pull-messages", content=body
        )
        fleet._client._interceptors[1].intercept(type("Call", (), {"request": request}), lambda context: None)
        headers = "".join(f"{k}: {v}\r\n" for k, v in request.headers.items() if k.startswith("flwr"))
        with house.tls() as connection:
            connection.sendall(
                f"POST /v1/fleet/pull-messages HTTP/1.1\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
                + body
            )
            assert bell.wait(180.0) == {fleet.number}
        time.sleep(0.3)
        bell.ring([fleet.number])
        time.sleep(0.3)
        assert house.link.seen == []


def test_a_certificate_is_renewed_while_the_door_is_open(tmp_path):
    def shown():
        return ssl.get_server_certificate(("127.0.0.1", house.door.port))

    with House(tmp_path) as house:
        before = shown()
        key = house.credentials.key.read_bytes()
        make_credentials(house.credentials.folder, ["new.example"], [])
        new = house.credentials.key.read_bytes()
        house.credentials.key.write_bytes(key)
        with pytest.raises(ssl.SSLError):
            house.door.renew(house.credentials)
        assert shown() == before, "a certificate without its key is not taken up"
        house.credentials.key.write_bytes(new)
        house.door.renew(house.credentials)
        assert shown() == house.credentials.certificate.read_text()
        assert shown() != before


def test_a_taken_port_is_a_clear_error(tmp_path):
    credentials = make_credentials(tmp_path / "c", [], [])
    credentials.make_link_certificate()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert is_listening("127.0.0.1", port)
        door = FrontDoor("127.0.0.1", port, 9, credentials, tmp_path / "t", str(tmp_path / "bell"))
        with pytest.raises(PsofedError, match=f"cannot listen on 127.0.0.1:{port}"):
            door.__enter__()
    assert not is_listening("127.0.0.1", free_port())


def test_what_the_rule_refuses_is_refused_at_the_door(tmp_path):
    with House(tmp_path, hold_seconds=0.1) as house, house.fleet() as fleet:
        with pytest.raises(ForgottenError):
            fleet.ask()
        house.hand(fleet)
        assert fleet.ask() is None
        house.link.seen.clear()
        for forge in FORGERIES.values():
            forged = calls.reply(NODE_ID)
            forge(forged)
            with pytest.raises(UnreachableError, match="push-messages: "):
                fleet._call("PushMessages", forged)
        assert house.link.seen == []
        fleet._call("PushMessages", calls.reply(NODE_ID))
        assert len(house.link.seen) == 1


@settings(max_examples=25, deadline=None)
@given(call=calls.honest_calls(NODE_ID, key=b"somebody else's"))
def test_no_generated_call_gets_through_unless_it_is_the_nodes_own(shared_house, call):
    """The grammar of calls, with TLS and signatures: what is passed on names the node and what it was handed."""
    house, fleet = shared_house
    before = len(house.link.seen)
    with contextlib.suppress(PsofedError):
        send_raw(house, fleet, call.name, call.body)
    passed = len(house.link.seen) - before
    assert passed == (call.name in ("deactivate-node", "send-node-heartbeat", "pull-messages"))


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory):
    limits = {"hold_seconds": 0.01, "request_rate": 1e6, "polling_rate": 1e9}
    with House(tmp_path_factory.mktemp("house"), **limits) as house, house.fleet() as fleet:
        fleet.activate()
        yield house, fleet


def signed(fleet, path):
    """Return the headers that Flower's client signs a request with."""
    request = fleet._client._client.build_request("POST", f"https://a{path}", content=b"")
    fleet._client._interceptors[1].intercept(type("Call", (), {"request": request}), lambda context: None)
    return "".join(f"{k}: {v}\r\n" for k, v in request.headers.items() if k.startswith("flwr"))


def send_raw(house, fleet, call, body, headers=None):
    """Send one request on a new connection and return the answer's head."""
    path = f"/v1/fleet/{call}"
    headers = signed(fleet, path) if headers is None else headers
    with house.tls() as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
        )
        return connection.recv(4096).decode("latin-1")


def test_signed_headers_are_good_for_one_request_only(tmp_path):
    with House(tmp_path, hold_seconds=0.01) as house, house.fleet() as fleet:
        fleet.activate()
        body = PullMessagesRequest(node=Node(node_id=NODE_ID)).SerializeToString()
        headers = signed(fleet, "/v1/fleet/pull-messages")
        assert " 200 " in send_raw(house, fleet, "pull-messages", body, headers)
        house.link.seen.clear()
        for call in ("pull-messages", "deactivate-node"):
            assert "used-signature" in send_raw(house, fleet, call, body, headers)
        assert house.link.seen == []


def test_no_two_requests_carry_the_same_signed_time(tmp_path, monkeypatch):
    with House(tmp_path, hold_seconds=0.01) as house, house.fleet() as fleet:
        moment = time.time()
        monkeypatch.setattr(
            "psofed.federation.flower.signing.scheduler", lambda: SimpleNamespace(time=lambda: moment)
        )
        fleet.activate()
        assert fleet.ask() is None


def test_a_key_makes_as_many_requests_as_its_messages_need(tmp_path):
    """A flood of small requests is slowed down and then refused; a message from the server pays for its answer."""
    limits = {"request_rate": 10.0, "requests_per_message": 20, "longest_wait": 0.5, "hold_seconds": 0.0}
    with House(tmp_path, **limits) as house, house.fleet() as fleet, Bell(house.bell) as bell:
        fleet.activate()

        beat = SendNodeHeartbeatRequest(node=Node(node_id=NODE_ID), heartbeat_interval=10.0)

        def flood():
            """Send from several hands until one is refused; return how many were taken, and the seconds it took."""
            started, refused, reasons = time.monotonic(), threading.Event(), []

            def send():
                with house.fleet() as hand:
                    hand.node_id = NODE_ID
                    while not refused.is_set():
                        try:
                            hand._call("SendNodeHeartbeat", beat)
                        except UnreachableError as error:
                            reasons.append(str(error))
                            refused.set()

            house.link.seen.clear()
            hands = [threading.Thread(target=send) for _ in range(7)]
            for hand in hands:
                hand.start()
            for hand in hands:
                hand.join(timeout=180)
            assert any("quota" in reason for reason in reasons)
            return len(house.link.seen), time.monotonic() - started

        sent, took = flood()
        assert sent <= 40 + 5 + 10.0 * took
        bell.ring([fleet.number])
        wait_until(
            lambda: house.door._quotas._left[fleet.number].requests > 0, 180.0, "the quota to be filled up"
        )
        again, took = flood()
        assert 15 <= again <= 20 + 5 + 10.0 * (took + 10.0)
