"""The server process: a broker, the hub on it, and the runs that operators ask for, one after the other."""

import datetime
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import only_one, write_json
from psofed.common.logs import OncePerChange
from psofed.common.scheduler import scheduler
from psofed.federation.deploy.audit import add_record
from psofed.federation.deploy.home import (
    FAILED,
    FINISHED,
    ROLLED_BACK,
    RUNNING,
    STOPPED,
    Home,
    RunRequest,
)
from psofed.federation.deploy.notify import notify
from psofed.federation.deploy.operate import acknowledge_stop
from psofed.federation.deploy.options import DEFAULT_PORT, ServerOptions
from psofed.federation.deploy.runs import FederationRun, RunStatus
from psofed.federation.protocol.announcements import Announcement
from psofed.federation.transport.broker import Mosquitto, probe
from psofed.federation.transport.certificates import SERVER, Certificates, Identity
from psofed.federation.transport.mqtt import Endpoint, MqttHub

_log = logging.getLogger("psofed.federation")

_TEND_EVERY = 0.2  # seconds
_LOOK_EVERY = 1.0  # seconds between two looks at certificates and presence
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class FederationServer:
    """Carries out what operators ask for.

    Parameters
    ----------
    home : Home
        Its files.
    hub : MqttHub
        Where the nodes are.
    certificates : Certificates
        Who may take part.
    broker : Mosquitto or None
        The broker, if it is a child of this process.
    """

    def __init__(
        self, home: Home, hub: MqttHub, certificates: Certificates, broker: Mosquitto | None = None
    ) -> None:
        self.home: Home = home
        self.hub: MqttHub = hub
        self.certificates: Certificates = certificates
        self.broker: Mosquitto | None = broker
        self._is_news = OncePerChange()
        self._tended = self._looked = -1e9
        self._denied: frozenset[str] = frozenset()
        self._log_state: tuple[int, int] | None = None
        self._dropped: set[tuple[str, str]] = set()
        self._bodies: dict[str, tuple[bytes, str]] = {}
        self._asked: RunRequest | None = None

    def work(self) -> None:
        """Obey requests until interrupted."""
        status = self._status()
        ended = (FINISHED, FAILED, STOPPED, ROLLED_BACK)
        done = status.values.get("run", "") if status.values.get("state") in ended else ""
        while True:
            self._tend(status)
            request = self._asked
            if request is None or request.number == done:
                self.hub.receive(_TEND_EVERY)  # replies to nothing
                continue
            done = request.number
            if request.wanted == RUNNING:
                run = FederationRun(
                    self.home,
                    request,
                    lambda status, number=done: self._attend(status, number),  # type: ignore[misc]
                    self.certificates.clients_allowed,
                )
                run.carry_out(self.hub)
                status = run.status
            else:
                status.set()
                self._guarded("stop", lambda request=request: acknowledge_stop(self.home, request))  # type: ignore[misc]
                status = self._status()

    def _status(self) -> RunStatus:
        values: dict[str, Any] = {"round": 0, "rounds": 0}
        self._guarded("status", lambda: values.update(self.home.read_status()))
        return RunStatus(self.home, values)

    def _attend(self, status: RunStatus, number: str) -> bool:
        """Return whether the operator wants something else than the current run."""
        self._tend(status)
        return self._asked is not None and self._asked.number != number

    def _tend(self, status: RunStatus) -> None:
        now = scheduler().monotonic()
        if now - self._tended < _TEND_EVERY:
            return
        self._tended = now
        self._guarded("request", self._read_request)
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            if self.broker is not None:
                self.broker.attend()
            self._guarded("certificates", self._look_at_certificates)
            self._audit_refusals()
            status.values |= {"nodes": self._nodes(), "certificates": self._warnings()}
            self.home.beat()
            notify("WATCHDOG=1")
        status.write()

    def _read_request(self) -> None:
        self._asked = self.home.read_request()

    def _look_at_certificates(self) -> None:
        """Take up revoked, renewed and new certificates, and shut out nodes that flood."""
        denied = self.certificates.revoked() | self.hub.flooding()
        found = self.certificates.log.stat()
        state = (found.st_mtime_ns, found.st_size)
        if denied == self._denied and state == self._log_state:
            return
        for name in sorted(self.hub.flooding() - self._denied):
            add_record(self.home.audit, "flooding", node=name)
        self.hub.revoke(self.certificates.revoked())
        if self.broker is not None:
            if denied == self._denied:
                self.broker.reload()  # a renewed certificate
            self.broker.deny(denied)
        self._denied, self._log_state = denied, state

    def _audit_refusals(self) -> None:
        for name, reason in self.hub.dropped.keys() - self._dropped:
            add_record(self.home.audit, "refused", node=name, reason=reason)
            self._dropped.add((name, reason))

    def _nodes(self) -> list[dict[str, Any]]:
        present = self.hub.present()
        nodes = []
        for name, record in sorted(self.certificates.records().items()):
            if name not in self.certificates.names() | self.certificates.revoked():
                continue
            online = "online" if name in present else "offline"
            nodes.append(
                {
                    "name": name,
                    "status": "revoked" if record.revoked else online,
                    "expires": record.until.date().isoformat(),
                    "expiry": record.until.timestamp(),
                    "clients_allowed": record.clients,
                    "problem": self._problem_of(name, present[name].body) if name in present else "",
                }
            )
        return nodes

    def _problem_of(self, name: str, body: bytes) -> str:
        if self._bodies.get(name, (b"", ""))[0] != body:
            try:
                self._bodies[name] = body, Announcement.from_bytes(body).problem
            except ValueError as error:
                self._bodies[name] = body, f"announces itself wrongly: {error}"
        return self._bodies[name][1]

    def _warnings(self) -> list[str]:
        warnings = self.certificates.warnings(datetime.datetime.now(datetime.UTC))
        for warning in warnings:
            if self._is_news(warning, warning):
                _log.warning("%s", warning)
        return warnings

    def _guarded(self, subject: str, action: Callable[[], None]) -> None:
        """Act; whatever the disk or a damaged file refuses is said once, and tried again."""
        try:
            action()
            self._is_news(subject, "")
        except (PsofedError, OSError) as error:
            if self._is_news(subject, str(error)):
                _log.warning("%s", error)


@contextmanager
def serve(home: Home, options: ServerOptions) -> Iterator[FederationServer]:
    """Start the broker, refuse one that does not keep nodes apart, and connect; all ends with the block."""
    home.check_version()
    certificates = Certificates(home.credentials)
    certificates.check_server()
    refusal = (
        f"a server of {home.folder} is running already, with {home.read_server().get('broker', 'its broker')}"
    )
    with only_one(home.server_lock, refusal), ExitStack() as stack:
        broker = None
        if options.broker:
            endpoint = Endpoint.parse(options.broker, options.authority)
        else:
            broker = _start_mosquitto(home, certificates, options, stack)
            endpoint = broker.endpoint
        probe(endpoint, certificates, options.federation)
        identity = Identity(certificates.bundle(SERVER))
        hub = MqttHub(endpoint, identity, options.federation, certificates.names)
        stack.callback(hub.close)
        about = {"broker": str(endpoint), "federation": options.federation, "port": endpoint.port}
        write_json(home.server_info, about)
        yield FederationServer(home, hub, certificates, broker)


def _start_mosquitto(
    home: Home, certificates: Certificates, options: ServerOptions, stack: ExitStack
) -> Mosquitto:
    port = options.port
    if port is None:
        port = int(home.read_server().get("port", DEFAULT_PORT))
    broker = Mosquitto(home.logs, certificates, options.federation, port or free_port(), options.host)
    handler = _RefusalAudit(home)
    _log.addHandler(handler)
    stack.callback(_log.removeHandler, handler)
    broker.start()
    stack.callback(broker.stop)
    if options.host not in _LOOPBACK:
        _log.warning(
            "%s can be reached from other machines; only certificates of %s get in. Let only the nodes' machines "
            "reach the port.",
            broker.endpoint,
            certificates.authority,
        )
    return broker


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class _RefusalAudit(logging.Handler):
    """Adds an audit line for each certificate that mosquitto says it refuses."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self.home = home

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the log."""
        text = record.getMessage()
        if text.startswith("mosquitto:") and "certificate" in text:
            add_record(self.home.audit, "refused", reason=text.removeprefix("mosquitto:").strip())
