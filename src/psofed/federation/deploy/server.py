"""The server process: a broker, the hub on it, and the runs that operators ask for, one after the other."""

import datetime
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import only_one, write_json
from psofed.common.logs import OncePerChange, log
from psofed.common.scheduler import scheduler
from psofed.federation.deploy.home import ENDED, RUNNING, Home, RunRequest, add_record, notify
from psofed.federation.deploy.options import DEFAULT_PORT, ServerOptions
from psofed.federation.deploy.runs import FederationRun, RunStatus, acknowledge_stop
from psofed.federation.deploy.status import serve_metrics
from psofed.federation.transport.broker import ALL_ADDRESSES, Mosquitto, probe
from psofed.federation.transport.certificates import BROKER, SERVER, Certificates, Identity
from psofed.federation.transport.mqtt import Endpoint, MqttHub
from psofed.render.numbers import counted

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

    def __init__(self, home: Home, hub: MqttHub, certificates: Certificates, broker: Mosquitto | None = None) -> None:
        self.home: Home = home
        self.hub: MqttHub = hub
        self.certificates: Certificates = certificates
        self.broker: Mosquitto | None = broker
        self.status: RunStatus = RunStatus(home)
        self._is_news = OncePerChange()
        self._tended = self._looked = -1e9
        self._admission: tuple[frozenset[str], object] = frozenset(), None
        self._audited: set[tuple[str, str]] = set()
        self._request: RunRequest | None = None

    def work(self) -> None:
        """Obey requests until interrupted."""
        values = self.status.values
        done = values.get("run", "") if values.get("state") in ENDED else ""
        while True:
            self._tend()
            request = self._request
            if request is None or request.number == done:
                self.hub.receive(_TEND_EVERY)  # replies to nothing
                continue
            done = request.number
            if request.wanted == RUNNING:
                attend = partial(self._is_superseded, done)
                FederationRun(self.status, request, attend, self.certificates.clients_allowed).carry_out(self.hub)
            else:
                with self._guarded("stop"):
                    acknowledge_stop(self.status, request)

    def _is_superseded(self, number: str) -> bool:
        """Return whether the operator wants something else than the current run."""
        self._tend()
        return self._request is not None and self._request.number != number

    def _tend(self) -> None:
        now = scheduler().monotonic()
        if now - self._tended < _TEND_EVERY:
            return
        self._tended = now
        with self._guarded("request"):
            self._request = self.home.read_request()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            if self.broker is not None:
                self.broker.attend()
            with self._guarded("certificates"):
                self._look_at_certificates()
            for name, reason in self.hub.dropped.keys() - self._audited:
                self._audited.add((name, reason))
                add_record(self.home.audit, "refused", node=name, reason=reason)
            self.status.values |= {"nodes": self._nodes(), "certificates": self._warnings()}
            self.home.beat()
        self.status.write()

    def _look_at_certificates(self) -> None:
        """Take up revoked, renewed and new certificates, and shut out nodes that flood."""
        revoked, flooding = self.certificates.revoked(), self.hub.flooding()
        admission = revoked | flooding, self.certificates.records()
        if admission != self._admission:
            for name in sorted(flooding - self._admission[0]):
                add_record(self.home.audit, "flooding", node=name)
            self.hub.revoke(revoked)
            if self.broker is not None:
                self.broker.deny(revoked | flooding)
            self._admission = admission

    def _nodes(self) -> list[dict[str, Any]]:
        present, revoked, values = self.hub.present(), self.certificates.revoked(), self.status.values
        # A name that a gateway's client has as well was seen there.
        elsewhere = {client for clients in values.get("gateways", {}).values() for client in clients}
        return [
            {
                "name": name,
                "status": "revoked" if name in revoked else "online" if name in present else "offline",
                "expires": record.until.date().isoformat(),
                "expiry": record.until.timestamp(),
                "clients_allowed": record.clients,
                "last_round": 0 if name in elsewhere else values.get("seen", {}).get(name, 0),
                "problem": present[name].announcement.problem if name in present else "",
            }
            for name, record in sorted(self.certificates.records().items())
            if name in self.certificates.names() | revoked
        ]

    def _warnings(self) -> list[str]:
        warnings = self.certificates.warnings(datetime.datetime.now(datetime.UTC))
        for warning in warnings:
            if self._is_news(warning, warning):
                log.warning("%s", warning)
        return warnings

    @contextmanager
    def _guarded(self, subject: str) -> Iterator[None]:
        """Let a block act; whatever the disk or a damaged file refuses is said once, and tried again."""
        try:
            yield
            self._is_news(subject, "")
        except (PsofedError, OSError) as error:
            if self._is_news(subject, str(error)):
                log.warning("%s", error)


def run_server(home: Home, options: ServerOptions) -> None:
    """Work until interrupted."""
    with ExitStack() as stack:
        server = stack.enter_context(serve(home, options))
        if options.metrics_port is not None:
            port = stack.enter_context(serve_metrics(home, options.metrics_port, options.metrics_host))
            log.info("metrics for Prometheus at http://%s:%d/metrics", options.metrics_host, port)
        nodes = counted(len(server.certificates.names()), "node")
        log.info("serving %s for %s; Ctrl-C stops", server.hub.endpoint, nodes)
        notify("READY=1")
        stack.callback(notify, "STOPPING=1")
        server.work()


@contextmanager
def serve(home: Home, options: ServerOptions) -> Iterator[FederationServer]:
    """Start the broker, refuse one that does not keep nodes apart, and connect; all ends with the block."""
    certificates, before = Certificates(home.credentials), home.read_server()
    certificates.check_server()
    refusal = f"a server of {home.folder} is running already, with {before.get('broker', 'its broker')}"
    with only_one(home.server_lock, refusal), ExitStack() as stack:
        broker = None
        if options.broker:
            endpoint = Endpoint.parse(options.broker, options.authority, options.federation)
        else:
            if options.host not in (*ALL_ADDRESSES, *certificates.records()[BROKER].hosts):  # which none could verify
                maker = home.command(f"certs --host {shlex.quote(options.host)}")
                problem = "the broker's certificate does not name it; add it with"
                raise PsofedError(f"--host {options.host}: {problem} {maker}")
            port = int(before.get("port", DEFAULT_PORT)) if options.port is None else options.port
            broker = Mosquitto(
                home.logs, certificates, port or free_port(), options.host,
                on_line=partial(_audit_refusal, home), federation=options.federation,
            )  # fmt: skip
            broker.start()
            stack.callback(broker.stop)
            endpoint = broker.endpoint
            if options.host not in _LOOPBACK:
                log.warning(
                    "Port %d can be reached from other machines; only certificates of %s get in. Let only the "
                    "nodes' machines reach it.", endpoint.port, certificates.authority,
                )  # fmt: skip
        probe(endpoint, certificates)
        hub = MqttHub(endpoint, Identity(certificates.bundle(SERVER)), certificates.names)
        stack.callback(hub.close)
        about = {"broker": str(endpoint), "federation": endpoint.federation, "port": endpoint.port}
        write_json(home.server_info, about)
        yield FederationServer(home, hub, certificates, broker)


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _audit_refusal(home: Home, line: str) -> None:
    """Add an audit line if mosquitto says that it refuses a certificate; an alert is a client's own refusal."""
    if "certificate" in line and "alert" not in line:
        add_record(home.audit, "refused", reason=line)
