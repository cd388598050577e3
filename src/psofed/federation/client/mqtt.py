"""Samples from an MQTT broker: each message becomes rows of a CSV file, which the client then reads as any other table.

``mqtt://broker.example:1883/plant/{client}/readings`` names broker and topic (``mqtts`` for TLS). A payload is a JSON
object, an array of these, or CSV with a header line; its fields have the names of the columns. Messages are confirmed
once they are in the file (QoS 1, a session that the broker keeps), so a node or a broker that was away loses nothing
that the broker has kept. Samples that arrive twice are dropped if they have a time.
"""

import contextlib
import csv
import datetime
import json
import math
import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import OncePerChange
from psofed.federation.protocol.names import MAX_CLIENTS, is_client_name

CLIENT_COLUMN = "client"
_CLIENT = "{client}"
_MAX_NAME = 64
_MAX_PAYLOAD = 1 << 20
_REMEMBERED = 100  # latest times of each client's samples
_FILE_BYTES = 256_000_000
_TAIL_BYTES = 1_000_000  # of the file, read after a restart


def read_payload(payload: bytes, columns: Sequence[str], time_column: str = "") -> list[list[str]]:
    """Return the samples in a payload as rows of text, the time first if there is one.

    What is a number, and what is missing, is decided where the table is read.

    Examples
    --------
    >>> read_payload(b'{"output": 2.5, "wind": 3, "comment": "calm"}', ["wind", "output"])
    [['3', '2.5']]
    >>> read_payload(b'[{"wind": 3, "output": 2.5}, {"wind": 4, "output": null}]', ["wind", "output"])
    [['3', '2.5'], ['4', '']]
    """
    if len(payload) > _MAX_PAYLOAD:
        raise PsofedError(f"a payload of {len(payload):,} bytes, where {_MAX_PAYLOAD:,} are allowed")
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise PsofedError("a payload that is not UTF-8 text") from None
    if text.startswith(("{", "[")):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PsofedError(f"a payload that is not JSON: {error}") from None
        samples = document if isinstance(document, list) else [document]
    else:
        samples = list(csv.DictReader(text.splitlines()))
    if not samples or not all(isinstance(sample, dict) for sample in samples):
        raise PsofedError("a payload without named fields; it must be a JSON object, or CSV with a header line")
    wanted = [*([time_column] if time_column else []), *columns]
    for sample in samples:
        if lacking := [name for name in wanted if name not in sample]:
            raise PsofedError(f"a payload without the field {', '.join(lacking)}")
    rows = [["" if sample[name] is None else str(sample[name]).strip() for name in wanted] for sample in samples]
    for row in rows:
        if bad := [value for value in row if not value.isprintable()]:  # a line break would begin another row
            raise PsofedError(f"{bad[0][:40]!r} is not one printable line")
        if time_column:
            _seconds_of(row[0])
    return rows


def _seconds_of(text: str) -> float:
    """Return a time as a number."""
    seconds = math.nan
    for read in (float, lambda text: datetime.datetime.fromisoformat(text).timestamp()):
        with contextlib.suppress(ValueError, OverflowError):
            seconds = read(text)
            break
    if not math.isfinite(seconds):
        raise PsofedError(f"{text[:40]!r} is not a time: a number or ISO 8601")
    return seconds


@dataclass(frozen=True)
class MqttTopic:
    """Where samples are published.

    Examples
    --------
    >>> place = MqttTopic.parse("mqtt://broker.example/plant/{client}/readings")
    >>> place.port, place.filter, place.client_of("plant/north/readings")
    (1883, 'plant/+/readings', 'north')
    >>> place.of_client("north").filter
    'plant/north/readings'
    """

    host: str
    port: int
    tls: bool
    topic: str

    @classmethod
    def parse(cls, url: str) -> "MqttTopic":
        """Read an address; an InvalidValueError says what is wrong with it."""
        parts = urlsplit(url)
        topic = url.partition("://")[2].partition("/")[2]
        levels = topic.split("/")
        try:
            port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        except ValueError:
            port = 0
        if not (parts.hostname and port and topic) or parts.username or parts.password:
            raise InvalidValueError(
                "data",
                parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
                "mqtt://HOST:PORT/TOPIC, with PSOFED_MQTT_USER and PSOFED_MQTT_PASSWORD in the environment if needed",
            )
        if any(set(level) & set("+#{}") and level != _CLIENT for level in levels) or levels.count(_CLIENT) > 1:
            raise InvalidValueError("data", url, f"a topic without wildcards; at most one level may be {_CLIENT}")
        return cls(parts.hostname, port, parts.scheme == "mqtts", topic)

    @property
    def has_clients(self) -> bool:
        """Whether the topic names the client."""
        return _CLIENT in self.topic.split("/")

    @property
    def filter(self) -> str:
        """The topic filter to subscribe to."""
        return self.topic.replace(_CLIENT, "+")

    def of_client(self, client: str) -> "MqttTopic":
        """Return the topic of one client."""
        return MqttTopic(self.host, self.port, self.tls, self.topic.replace(_CLIENT, client))

    def client_of(self, topic: str) -> str:
        """Return whose sample was published under `topic`; empty if the topic names no client."""
        pattern = re.escape(self.topic).replace(re.escape(_CLIENT), "([^/]*)")
        match = re.fullmatch(pattern, topic)
        return match[1] if match and match.groups() else ""


class MqttFeed:
    """Writes what a broker publishes to a table.

    Parameters
    ----------
    place : MqttTopic
        Broker and topic.
    path : path
        The CSV file. At 256 MB it becomes ``….csv.1`` and begins again.
    columns : sequence of str
        The fields of a payload that are kept: features and target.
    time_column : str
        Field with the time of a sample, a number or ISO 8601; empty if it has none.
    say : callable
        Told, once per change, what a person should know.
    """

    def __init__(
        self, place: MqttTopic, path: Path, columns: Sequence[str], time_column: str, say: Callable[[str], None]
    ) -> None:
        self.place = place
        self.path = path
        self.columns: tuple[str, ...] = tuple(columns)
        self.time_column = time_column
        self.say = say
        self.counts: Counter[str] = Counter()
        optional = [CLIENT_COLUMN if place.has_clients else "", time_column]
        self.header: list[str] = [*filter(None, optional), *self.columns]
        if len(set(self.header)) < len(self.header):
            raise PsofedError(f"the columns {', '.join(self.header)} of {path} must differ from each other")
        self._times: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._is_news = OncePerChange()
        self._client: Any = None
        self._prepare()

    # --- the broker -----------------------------------------------------------------------------------

    def start(self, identity: str) -> None:
        """Subscribe, and connect again whenever the broker is lost; `identity` names the session to the broker."""
        client = Client(CallbackAPIVersion.VERSION2, client_id=identity, clean_session=False, manual_ack=True)
        if user := os.environ.get("PSOFED_MQTT_USER"):
            client.username_pw_set(user, os.environ.get("PSOFED_MQTT_PASSWORD"))
        if self.place.tls:
            client.tls_set()  # the system's authorities, or SSL_CERT_FILE
        client.reconnect_delay_set(1, 30)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_connect_fail = lambda *_: self._tell(f"{self._broker} cannot be reached; trying again")
        client.on_message = self._arrived
        client.connect_async(self.place.host, self.place.port, keepalive=30)
        client.loop_start()
        self._client = client

    def stop(self) -> None:
        """Disconnect; the broker keeps what is published meanwhile."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()

    @property
    def _broker(self) -> str:
        return f"the broker {self.place.host}:{self.place.port}"

    def _tell(self, text: str) -> None:
        if self._is_news("broker", text):
            self.say(text)

    def _connected(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._tell(f"{self._broker} refuses this node: {reason}; trying again")
            return
        client.subscribe(self.place.filter, qos=1)

    def _subscribed(self, client: Any, _: Any, message_id: int, reasons: Any, properties: Any) -> None:
        if refused := [reason for reason in reasons if reason.is_failure]:
            self._tell(f"{self._broker} refuses the topic {self.place.filter}: {refused[0]}")
        else:
            self._tell(f"receiving {self.place.filter} from {self._broker}")

    def _disconnected(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._tell(f"{self._broker} is away; trying again")

    def _arrived(self, client: Any, _: Any, message: Any) -> None:
        try:
            self.take(message.topic, message.payload, retained=message.retain)
        except OSError as error:
            if self._is_news("file", str(error)):
                self.say(f"{self.path}: cannot be written ({error.strerror}); the broker keeps what comes meanwhile")
            return  # not confirmed: it is sent again when this node connects again
        except Exception as error:  # a bad message must not stop the others
            self._count(
                "bad", f"{message.topic[:100]}: {error if isinstance(error, PsofedError) else repr(error)[:200]}"
            )
        client.ack(message.mid, message.qos)

    # --- one message ----------------------------------------------------------------------------------

    def take(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Write the samples of a message to the file; a PsofedError says why it holds none.

        Parameters
        ----------
        retained : bool
            Whether it was published before this node subscribed. Without a time it may have arrived already, and is
            dropped.
        """
        client = self.place.client_of(topic)
        # A name that is read back as another one would give its samples to that client.
        is_own = is_client_name(client) and not client.startswith("'")
        if self.place.has_clients and (not is_own or len(client) > _MAX_NAME):
            raise PsofedError(
                f"a client's name has 1 to {_MAX_NAME} printable characters, with no space around them and no "
                f"apostrophe first; got {client[:80]!r}"
            )
        rows = read_payload(payload, self.columns, self.time_column)
        if client not in self._times and len(self._times) >= MAX_CLIENTS:
            raise PsofedError(f"more than {MAX_CLIENTS:,} clients")
        times = self._times[client]
        if self.time_column:
            rows = [row for row in rows if self._is_new(client, row[0], times)]
        elif retained:
            self._count("duplicate", client or self.place.topic)
            return
        text = csv_text([client, *row] if self.place.has_clients else row for row in rows)
        try:
            self._append(text.encode())
        except OSError:
            self._remember()  # it comes again, and is no duplicate then
            raise
        self.counts["rows"] += len(rows)
        self._is_news("file", "")

    def _is_new(self, client: str, time: str, times: deque[float]) -> bool:
        """Remember the time of a sample; one that is there already, or older than all that are, does not count."""
        seconds = _seconds_of(time)
        is_late = len(times) == times.maxlen and seconds < min(times)
        if is_late or seconds in times:
            self._count("late" if is_late else "duplicate", f"{client or self.place.topic}, {time}")
            return False
        times.append(seconds)
        return True

    def _count(self, kind: str, text: str) -> None:
        """Count a message or sample that is dropped, and say so after 1, 2, 4, 8, … of a kind."""
        self.counts[kind] += 1
        number = self.counts[kind]
        if number & (number - 1) == 0:
            self.say(f"dropped {number} {kind} MQTT sample{'s' if number > 1 else ''}; the last: {text}")

    # --- the file -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin the file, or remember the times of the samples that it ends with."""
        first = ",".join(self.header) + "\n"
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                found = file.readline().decode("utf-8", "replace")
                if found != first:
                    raise PsofedError(
                        f"{self.path} has the columns {found.strip()}, not {first.strip()}; move it away or choose "
                        "another --home"
                    )
            if not self._remember().endswith("\n"):
                self._append(b"\n")  # a row that was cut short is skipped, and counted
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._append(first.encode())

    def _remember(self) -> str:
        """Remember the times of the samples that the file ends with, and return its end."""
        self._times.clear()
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
            tail = file.read().decode("utf-8", "replace")
        if self.time_column:
            place = self.header.index(self.time_column)
            for row in csv.reader(tail.splitlines()):
                with contextlib.suppress(PsofedError):  # the header
                    if len(row) == len(self.header):
                        seconds, client = _seconds_of(row[place]), row[0] if self.place.has_clients else ""
                        self._times[client].append(seconds)
        return tail

    def _append(self, data: bytes) -> None:
        if self.path.exists() and self.path.stat().st_size > _FILE_BYTES:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            data = (",".join(self.header) + "\n").encode() + data
        with self.path.open("ab") as file:
            file.write(data)
