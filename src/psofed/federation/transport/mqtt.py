"""Frames over an MQTT 5 broker, with TLS client certificates.

======================================  ============================================================================
``psofed/FEDERATION/run``               retained, signed: the run's description; server → all
``psofed/FEDERATION/model``             retained: the newest model; server → whoever may read it
``psofed/FEDERATION/server``            retained for a minute: which server process is online
``psofed/FEDERATION/nodes/NAME/in``     signed: an instruction; server → NAME
``psofed/FEDERATION/nodes/NAME/out``    a reply; NAME → server
``psofed/FEDERATION/nodes/NAME/presence``  retained: 32 hexadecimal digits that name the connection, then the
                                        announcement; empty when NAME is gone (its last will)
======================================  ============================================================================

The broker proves names and lets a node use its own topics only (:mod:`psofed.federation.transport.broker` writes
such an access list, and tries whether it holds). What the server sends is signed as well, so that whoever runs the
broker cannot give instructions; such a person can still suppress or repeat them.

**The same certificate twice.** A broker allows one connection per name and ends the older one, often without saying
why. A connection that did not last five minutes is made again after a pause that doubles, up to a minute, so that two
processes with one certificate do not chase each other; the server sees a new `connection` each time. A server that
finds another one in its place ends its run.

**Restarts of the broker.** Nothing need survive: nodes announce themselves again, the hub publishes its retained values
again, and a changed `connection` makes the server ask again.
"""

import contextlib
import math
import queue
import random
import re
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import log
from psofed.federation.protocol.bounds import MAX_DESCRIPTION
from psofed.federation.transport.certificates import Identity
from psofed.federation.transport.hub import INSTRUCTION, MAX_FRAME, RUN, Arrival, NodePresence

PORT = 8883
OVERHEAD = 4096
"""Bytes that a payload may have beyond its frame: signature and certificate, or the name of a connection."""

_CONNECTION = re.compile(rb"[0-9a-f]{32}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Lengths of the certificate, which only a run description has, and of the signature.
_SEAL = struct.Struct(">HB")
_EXPIRY = 600  # seconds after which an instruction or reply that was not delivered is worthless
_SESSION = 3600  # seconds for which the broker keeps what arrives for a server that has lost its connection
_SERVER_KEEPALIVE, _NODE_KEEPALIVE = 20, 60  # seconds; who has vanished is noticed after 1.5 times as long
_SERVER_SEEN = 60  # seconds for which the broker says that a server is online
_DELAY, _MAX_DELAY = 1.0, 60.0  # seconds before a reconnection, at first and at most
_STABLE = 300.0  # seconds of a connection after which the first delay counts again
_TAKEN_OVER = 0x8E  # a reason that brokers may give
_PENDING = 16  # frames of a node that wait for the server; an honest one sends one for each instruction
_FLOOD, _FLOOD_SECONDS = (1000, 600.0)  # unasked messages of a node in a second; for how long it is then refused


@dataclass(frozen=True)
class Endpoint:
    """A federation at a broker; `authority` vouches for the broker if the federation's own does not.

    Examples
    --------
    >>> Endpoint("broker.example.org", federation="plant").node_topic("north", "in")
    'psofed/plant/nodes/north/in'
    """

    host: str
    port: int = PORT
    authority: Path | None = None
    federation: str = "federation"

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.federation):
            allowed = "up to 64 ASCII letters, digits, '-', '_' and '.', a letter or digit first"
            raise InvalidValueError("--federation", self.federation, allowed)

    @classmethod
    def parse(cls, text: str, authority: Path | None = None, federation: str = "federation") -> "Endpoint":
        """Read ``mqtts://HOST[:PORT]``.

        Examples
        --------
        >>> Endpoint.parse("mqtts://broker.example.org")
        Endpoint(host='broker.example.org', port=8883, authority=None, federation='federation')
        """
        match = re.fullmatch(r"mqtts://(\[[0-9A-Fa-f:.]+\]|[^][:/@?#\s]+)(?::(\d{1,5}))?/?", text)
        host, port = (match[1].strip("[]"), int(match[2] or PORT)) if match else ("", 0)
        if not 0 < port < 1 << 16:
            raise InvalidValueError("--broker", text, f"mqtts://HOST or mqtts://HOST:PORT (without one, {PORT})")
        return cls(host, port, authority, federation)

    def __str__(self) -> str:
        return f"mqtts://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def topic(self, kind: str) -> str:
        """Return the topic ``run``, ``model`` or ``server``."""
        return f"psofed/{self.federation}/{kind}"

    def node_topic(self, name: str, box: str) -> str:
        """Return a node's topic ``in``, ``out`` or ``presence``."""
        return self.topic(f"nodes/{name}/{box}")


class _LastingClient(paho.Client):
    """Paho's client, which would give up its thread when a packet cannot be read, and keep a failure to itself."""

    failure = ""

    def reconnect(self) -> MQTTErrorCode:
        try:
            return super().reconnect()
        except OSError as error:
            self.failure = str(error)
            raise

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:
        while True:
            try:
                return super().loop_forever(timeout, retry_first_connection)
            except Exception as error:
                log.warning("the connection to the broker failed (%s) and is made again", error)
                time.sleep(_jitter(_DELAY))
                with contextlib.suppress(OSError):
                    self.reconnect()


class Connection:
    """A connection to a broker that restores itself, from a thread of its own.

    Its thread calls :meth:`_opened`, :meth:`_subscribed` and :meth:`_arrived`.

    Parameters
    ----------
    endpoint : Endpoint
        The broker.
    identity : Identity
        Ours. The file is read again before each connection, so that a renewed certificate is taken up.
    subscriptions : sequence of (str, SubscribeOptions)
        Topics.
    keepalive, session : int
        In seconds; a `session` outlives the connection by so long, if this process makes it again.
    will : str
        The topic of a retained value that the broker removes when the connection ends.
    client_id : str
        By default our name.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        subscriptions: Sequence[tuple[str, SubscribeOptions]],
        *,
        keepalive: int = _NODE_KEEPALIVE,
        session: int = 0,
        will: str = "",
        client_id: str = "",
    ) -> None:
        self.endpoint = endpoint
        self.identity = identity
        self.is_connected: bool = False
        self.is_replaced: bool = False
        self.problem: str = "not connected yet"
        self._subscriptions = list(subscriptions)
        self._accepted, self._accepted_at, self._delay, self._largest = False, 0.0, _DELAY / 2, 0
        self._last: paho.MQTTMessageInfo | None = None
        self._tls = identity.tls(endpoint.authority)
        client = self._client = _LastingClient(
            CallbackAPIVersion.VERSION2, client_id=client_id or identity.name, protocol=paho.MQTTv5
        )
        client.tls_set_context(self._tls)
        client.reconnect_delay_set(_jitter(_DELAY), _MAX_DELAY)  # type: ignore[arg-type]
        client.on_pre_connect = self._on_pre_connect
        client.on_socket_open = _on_socket_open
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        if will:
            client.will_set(will, b"", qos=1, retain=True)
        lasting = _property(PacketTypes.CONNECT, "SessionExpiryInterval", session)
        start: Any = paho.MQTT_CLEAN_START_FIRST_ONLY if session else True
        client.connect_async(endpoint.host, endpoint.port, keepalive, clean_start=start, properties=lasting)
        client.loop_start()

    def close(self) -> None:
        """Disconnect; the broker publishes the last will."""
        if not self.is_replaced:
            self._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message"))
        self._client.loop_stop()
        self.is_connected = False

    def _opened(self, is_new: bool) -> None:
        """Act on a connection, before subscribing; `is_new` if the broker knows nothing of an earlier one."""

    def _subscribed(self) -> None:
        """Act on the broker's consent: everything that is published from now on arrives."""

    def _arrived(self, message: paho.MQTTMessage) -> None:
        """Take a message."""

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False, expiry: int = 0) -> None:
        if 0 < self._largest < len(payload) + len(topic) + 64:
            log.warning("%s: a message of %d bytes is too large for the broker", topic, len(payload))
            return
        expires = _property(PacketTypes.PUBLISH, "MessageExpiryInterval", expiry) if expiry else None
        self._last = self._client.publish(topic, payload, qos=1, retain=retain, properties=expires)

    def _on_pre_connect(self, *_: Any) -> None:
        try:
            self._tls.load_cert_chain(self.identity.path)
        except OSError as error:
            log.warning("cannot read %s: %s", self.identity.path, error)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._say(f"{self.endpoint} refuses {self.identity.name}: {reason}")
            return
        self._accepted, self._accepted_at = True, time.monotonic()
        self.is_replaced, self.problem = False, ""
        self._largest = getattr(properties, "MaximumPacketSize", 0)
        self._opened(not flags.session_present)
        if self._subscriptions:
            self._client.subscribe(self._subscriptions)

    def _on_connect_fail(self, *_: Any) -> None:
        is_foreign = "CERTIFICATE_VERIFY_FAILED" in self._client.failure and self.endpoint.authority is None
        hint = "; if its certificate is of another authority, name that with --ca" if is_foreign else ""
        self._say(f"cannot connect to {self.endpoint}: {self._client.failure}{hint}")

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        self.is_connected = not any(reason.is_failure for reason in reasons)
        if self.is_connected:
            self._subscribed()
        else:
            self._say(f"{self.endpoint} does not let {self.identity.name} read its topics: {reasons[0]}")

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        self.is_connected = False
        name = self.identity.name
        if not self._accepted:  # refused within TLS: the delay keeps doubling
            self._say(f"{self.endpoint} does not let {name} in: is its certificate revoked or out of date?")
            return
        self._accepted = False
        lasted = time.monotonic() - self._accepted_at
        self._delay = _DELAY if lasted > _STABLE else min(2.0 * self._delay, _MAX_DELAY)
        self.is_replaced |= flags.is_disconnect_packet_from_server and reason.value == _TAKEN_OVER
        if self.is_replaced or reason.is_failure:
            twice = f"; does another process use the certificate of {name}?"
            is_short = self.is_replaced or self._delay > 4.0 * _DELAY
            self._say(f"lost the connection to {self.endpoint} ({reason}){twice if is_short else ''}")
        self._client.reconnect_delay_set(_jitter(self._delay), _MAX_DELAY)  # type: ignore[arg-type]

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            self._arrived(message)
        except Exception:  # or the same message would end every connection
            log.exception("a message could not be taken")

    def _on_publish(self, _client: Any, _data: Any, _mid: int, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._say(f"{self.endpoint} does not take a message of {self.identity.name}: {reason}")

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            log.warning("%s", problem)


class MqttHub(Connection):
    """The server's end; see :class:`psofed.federation.transport.hub.Hub`.

    Parameters
    ----------
    endpoint, identity
        The broker and the server's certificate.
    names : callable
        Returns the nodes that may take part.

    Attributes
    ----------
    dropped : Counter
        Messages that were not handed out, by (name, reason).
    """

    def __init__(self, endpoint: Endpoint, identity: Identity, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self.dropped: Counter[tuple[str, str]] = Counter()
        self._changed = threading.Condition()
        self._present: dict[str, NodePresence] = {}
        self._pending: dict[str, list[bytes]] = {}
        self._revoked: frozenset[str] = frozenset()
        self._excess: Counter[str] = Counter()
        self._floods: dict[str, float] = {}
        self._second = self._seen = -math.inf
        self._retained: dict[str, bytes] = {}
        self._process = uuid.uuid4().hex.encode()
        never = SubscribeOptions.RETAIN_DO_NOT_SEND
        live = SubscribeOptions(qos=1, retainAsPublished=True, retainHandling=never)
        retained, server = SubscribeOptions(qos=1), endpoint.topic("server")
        nodes = [(endpoint.node_topic("+", box), how) for box, how in (("out", live), ("presence", retained))]
        lasting: dict[str, Any] = {"keepalive": _SERVER_KEEPALIVE, "session": _SESSION}
        super().__init__(endpoint, identity, [*nodes, (server, retained)], will=server, **lasting)

    def present(self) -> dict[str, NodePresence]:
        """Return the nodes that are online, not revoked and not flooding."""
        known = self._names()
        with self._changed:
            refused = self._revoked | self.flooding()
            return {name: p for name, p in self._present.items() if name in known and name not in refused}

    def send(self, node: str, frame: bytes) -> None:
        """Send a signed instruction."""
        topic = self.endpoint.node_topic(node, "in")
        with self._changed:
            self._excess[node] -= 1
        self._publish(topic, _seal(self.identity, topic, frame), expiry=_EXPIRY)

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        """Return the replies; a PsofedError if another server has taken over."""
        self._show()
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self.is_replaced, max(0.0, seconds))
            pending, self._pending = self._pending, {}
        if self.is_replaced:
            raise PsofedError(f"another server has connected to {self.endpoint}; this one ends")
        return [(node, frame) for node, frames in pending.items() for frame in frames]

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        """Replace the retained run description, which is signed, or the model."""
        if run is not None:
            topic = self.endpoint.topic(RUN)
            self._retain(topic, run and _seal(self.identity, topic, run, self.identity.certificate))
        if model is not None:
            self._retain(self.endpoint.topic("model"), model)

    def revoke(self, names: Collection[str]) -> None:
        """Drop all that these names have sent and will send, and remove their presence."""
        with self._changed:
            new, self._revoked = set(names) - self._revoked, frozenset(names)
            for name in new:
                self._pending.pop(name, None)
        for name in new & self._present.keys():
            self._publish(self.endpoint.node_topic(name, "presence"), b"", retain=True)

    def flooding(self) -> frozenset[str]:
        """Return the nodes that have sent 1,000 messages within a second beyond what they were asked, for ten minutes.

        The broker keeps everything for the server, so it is to refuse them (:meth:`Mosquitto.deny`).
        """
        now = time.monotonic()
        with self._changed:
            self._floods = {name: end for name, end in self._floods.items() if end > now}
            return frozenset(self._floods)

    def close(self) -> None:
        """Wait a little for what is being sent, and disconnect."""
        if self.is_connected and not self.is_replaced and self._last is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # the connection is lost
                self._last.wait_for_publish(5.0)
        super().close()

    def _retain(self, topic: str, payload: bytes) -> None:
        self._retained[topic] = payload
        self._publish(topic, payload, retain=True)

    def _show(self) -> None:
        """Say that there is a server, three times as often as that is forgotten, but first learn of any other."""
        now = time.monotonic()
        if self.is_connected and now - self._accepted_at > 1.0 and now - self._seen > _SERVER_SEEN / 3:
            self._seen = now
            self._publish(self.endpoint.topic("server"), self._process, retain=True, expiry=_SERVER_SEEN)

    def _opened(self, is_new: bool) -> None:
        if is_new:
            with self._changed:
                self._present.clear()
            for topic, payload in list(self._retained.items()):
                self._publish(topic, payload, retain=True)
        self._seen = -math.inf

    def _on_disconnect(self, *arguments: Any) -> None:
        super()._on_disconnect(*arguments)
        if self.is_replaced:
            self._give_way()

    def _give_way(self) -> None:
        """End for good, without a last will, which would remove the other server's presence."""
        self.is_replaced = True
        self._client.disconnect()
        with self._changed:
            self._changed.notify_all()

    def _arrived(self, message: paho.MQTTMessage) -> None:
        *_, name, box = message.topic.split("/")
        payload = bytes(message.payload)
        if box == "server":
            if payload not in (b"", self._process):
                self._give_way()
            return
        with self._changed:
            reason = self._objection(name, box, payload, message.retain)
            if reason:
                self.dropped[name, reason] += 1
                if self.dropped[name, reason] == 1:
                    log.warning("dropped a message of %s: %s", name, reason)
            elif box == "out":
                self._pending.setdefault(name, []).append(payload)
                self._changed.notify_all()
            if box == "presence":
                self._present.pop(name, None)
                if payload and not reason:
                    self._present[name] = NodePresence(payload[:32].decode(), payload[32:])

    def _objection(self, name: str, box: str, payload: bytes, is_retained: bool) -> str:
        """Return why a message is dropped, or nothing. The presence of unknown names is kept: they may become known."""
        if box == "presence" and not payload:
            return ""
        if name in self._revoked:
            return "its certificate is revoked"
        if (now := time.monotonic()) - self._second > 1.0:
            self._second = now
            self._excess.clear()
        self._excess[name] += 1
        if self._excess[name] > _FLOOD or name in self._floods:
            self._floods.setdefault(name, now + _FLOOD_SECONDS)
            return "it sends too many messages"
        if box == "presence":
            is_bad = len(payload) > 32 + MAX_DESCRIPTION or not _CONNECTION.match(payload)
            return "its presence is not what nodes announce" if is_bad else ""
        if name not in self._names():
            return "no certificate of it is known here"
        if is_retained:
            return "replies are not retained"
        if len(payload) > MAX_FRAME:
            return f"its frame is larger than {MAX_FRAME:,} bytes"
        frames = self._pending.get(name, ())
        if len(frames) >= _PENDING or sum(map(len, frames)) > 2 * MAX_FRAME:
            return "it sends faster than it is asked"
        return ""


class MqttLink(Connection):
    """A node's end; see :class:`psofed.federation.transport.hub.Link`."""

    def __init__(self, endpoint: Endpoint, identity: Identity) -> None:
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._announced: bytes | None = None
        self._connection = b""
        self._certificate = b""  # the server's, from the run description
        self._run = endpoint.topic(RUN)
        inbox, self._out, self._presence = (
            endpoint.node_topic(identity.name, box) for box in ("in", "out", "presence")
        )
        subscriptions = [(topic, SubscribeOptions(qos=1)) for topic in (self._run, inbox)]
        super().__init__(endpoint, identity, subscriptions, will=self._presence)

    def announce(self, body: bytes) -> None:
        """Be present."""
        self._announced = body
        if self.is_connected:
            self._publish(self._presence, self._connection + body, retain=True)

    def receive(self, seconds: float) -> Arrival | None:
        """Return what arrives next."""
        try:
            return self._arrivals.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def send(self, frame: bytes) -> None:
        """Send a reply."""
        self._publish(self._out, frame, expiry=_EXPIRY)

    def _subscribed(self) -> None:
        # Only now, behind what Paho repeats of an earlier connection: the newest presence must be the last.
        log.info("connected to %s", self.endpoint)
        self._connection = uuid.uuid4().hex.encode()
        if self._announced is not None:
            self.announce(self._announced)

    def _arrived(self, message: paho.MQTTMessage) -> None:
        is_run = message.topic == self._run
        if not message.payload or (message.retain and not is_run):
            return
        body = self._unseal(message.topic, bytes(message.payload), is_run)
        if body is None:
            self._say("a message is not signed by the server, and is not obeyed")
        else:
            self._arrivals.put(Arrival(RUN if is_run else INSTRUCTION, body))

    def _unseal(self, topic: str, payload: bytes, is_run: bool) -> bytes | None:
        """Return what the server has signed; only a run description brings a certificate."""
        if len(payload) < _SEAL.size:
            return None
        certificate_size, signature_size = _SEAL.unpack_from(payload)
        start = _SEAL.size + certificate_size
        certificate = payload[_SEAL.size : start] if is_run else self._certificate
        signature, body = payload[start : start + signature_size], payload[start + signature_size :]
        if not self.identity.is_from_server(_signed(topic, body), signature, certificate):
            return None
        self._certificate = certificate
        return body


def _seal(identity: Identity, topic: str, body: bytes, certificate: bytes = b"") -> bytes:
    """Return `body` behind a signature of topic and body, so that it can neither be changed nor sent elsewhere."""
    signature = identity.sign(_signed(topic, body))
    return _SEAL.pack(len(certificate), len(signature)) + certificate + signature + body


def _signed(topic: str, body: bytes) -> bytes:
    return topic.encode() + b"\0" + body


def _on_socket_open(_client: paho.Client, _data: Any, opened: Any) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _property(packet: int, name: str, value: int) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    setattr(properties, name, value)
    return properties


def _jitter(seconds: float) -> float:
    return random.uniform(0.5, 1.5) * seconds
