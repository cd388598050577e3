"""The broker: mosquitto as a child process, and a test of any broker before it is trusted.

What mosquitto 2.0 reads again when it gets SIGHUP: the access list, which counts at once also for open connections; the
list of revoked certificates and the broker's own certificate, which count for new connections. So an open connection of
a revoked certificate stays, mute and deaf, until the node or the broker ends.

``max_queued_messages`` is larger than any fleet: a small number loses replies and presences, and 0, which should mean
no limit, lets mosquitto before 2.0.22 end the connection of whoever sends something that is refused.

Nothing is stored: after a restart nodes and server publish again what is retained, and the server asks again.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.subscribeoptions import SubscribeOptions

from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.common.logs import log
from psofed.federation.transport.certificates import BROKER, PROBE, SERVER, Certificates, Identity
from psofed.federation.transport.hub import MAX_FRAME
from psofed.federation.transport.mqtt import OVERHEAD, PORT, Connection, Endpoint

_START_SECONDS = 10.0
_PROBE_SECONDS = 10.0
_STRANGER = "psofed-probe-stranger"  # a node that the probe is not
ALL_ADDRESSES = ("", "0.0.0.0", "::")  # which can be listened at, and not connected to

_ADVICE = (
    "install mosquitto 2 or later (Debian, Ubuntu: apt install mosquitto; macOS: brew install mosquitto), "
    "or name a broker with --broker mqtts://HOST:PORT"
)

_CONFIG = """\
# Written by psofed whenever the server starts; changes are lost.
log_dest stderr
log_type error
log_type warning
log_timestamp false
listener {port}{address}
cafile {authority}
certfile {certificate}
keyfile {certificate}
crlfile {revocations}
require_certificate true
use_identity_as_username true
use_username_as_clientid true
acl_file {access}
max_packet_size {limit}
max_queued_messages 1000000
max_keepalive 600
set_tcp_nodelay true
connection_messages false
{user}"""

_ACCESS = """\
user {server}
topic readwrite psofed/{federation}/#

pattern read psofed/{federation}/run
pattern read psofed/{federation}/model
pattern read psofed/{federation}/server
pattern read psofed/{federation}/nodes/%u/in
pattern write psofed/{federation}/nodes/%u/out
pattern write psofed/{federation}/nodes/%u/presence
"""

_GUARD = """\
import os, resource, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the server has ended")
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
except (OSError, ValueError):
    pass
os.execv(sys.argv[2], sys.argv[2:])
"""


def bound_command(*words: str) -> list[str]:
    """Return a command that Linux kills with this process, and that may have many connections."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *words]


def end_process(child: "subprocess.Popen[bytes]") -> None:
    """End a child, the hard way after ten seconds."""
    child.terminate()
    try:
        child.wait(10.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def find_mosquitto() -> str:
    """Return the path of mosquitto 2 or later, or raise a PsofedError that says how to get one."""
    folders = (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
    path = shutil.which("mosquitto", path=os.pathsep.join(folders))
    if path is None:
        raise PsofedError(f"there is no MQTT broker: {_ADVICE}")
    try:
        shown = subprocess.run([path, "-h"], capture_output=True, timeout=10.0, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        shown = b""
    version = re.search(rb"mosquitto version (\d+)[.\d]*", shown)
    if version is None or int(version[1]) < 2:
        text = version[0].decode() if version else "no mosquitto that can be run"
        raise PsofedError(f"{path} is {text}: {_ADVICE}")
    return path


@dataclass(eq=False)
class Mosquitto:
    """Mosquitto as a child of this process, which ends with it.

    Parameters
    ----------
    folder : Path
        Where its configuration and access list are written.
    certificates : Certificates
        The federation's.
    port : int
        Where it listens.
    address : str
        The only address at which it listens; by default all.
    on_line : callable, optional
        Called with each line that is logged of what it says.
    federation : str
        Its name, a level of all topics.
    """

    folder: Path
    certificates: Certificates
    port: int = PORT
    address: str = ""
    on_line: Callable[[str], object] = lambda _: None
    federation: str = Endpoint.federation

    def __post_init__(self) -> None:
        host = "127.0.0.1" if self.address in ALL_ADDRESSES else self.address
        self.endpoint: Endpoint = Endpoint(host, self.port, federation=self.federation)
        self._config, self._access = self.folder / "mosquitto.conf", self.folder / "mosquitto.acl"
        self._path = ""
        self._denied: frozenset[str] = frozenset()
        self._child: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._lines: deque[str] = deque(maxlen=20)

    @property
    def pid(self) -> int:
        """The process id; 0 if it does not run."""
        return self._child.pid if self._child is not None and self._child.poll() is None else 0

    def start(self) -> None:
        """Write the files and start it; a PsofedError if there is no mosquitto or it does not listen soon.

        To be called by the main thread: Linux ends the child with the thread that started it.
        """
        self._path = self._path or find_mosquitto()
        self.certificates.check_server()
        self._denied |= self.certificates.revoked()
        self.reload()
        write_atomically(self._config, self._configuration().encode())
        if self._is_listening():
            raise PsofedError(f"Port {self.endpoint.port} is already in use; choose another with --port")
        self._launch()
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_listening():
            if not self.pid or time.monotonic() > deadline:
                self.stop()
                self._reader.join(1.0)  # its last words
                raise PsofedError(f"mosquitto does not start: {'; '.join(self._lines) or 'it says nothing'}")
            time.sleep(0.02)

    def attend(self) -> bool:
        """Start it again if it has died, at most once a second; whether it runs."""
        if not self.pid and self._child is not None and time.monotonic() - self._started > 1.0:
            log.warning("mosquitto has died (%s) and is started again", "; ".join(list(self._lines)[-1:]))
            self._launch()
        return bool(self.pid)

    def deny(self, names: Collection[str]) -> None:
        """Let nobody of `names` send or receive anything from now on, let all others, and read certificates again.

        Call it with all names that are to be denied: revoked ones, and those that the hub calls flooding.
        """
        self._denied = frozenset(names)
        self.reload()

    def reload(self) -> None:
        """Let it read its access list, certificate and list of revoked certificates again."""
        write_atomically(self._access, access_list(self.federation, self._denied).encode())
        if self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def stop(self) -> None:
        """End it."""
        child, self._child = self._child, None
        if child is not None:
            end_process(child)

    def _launch(self) -> None:
        self._started = time.monotonic()
        self._child = subprocess.Popen(
            bound_command(self._path, "-c", str(self._config)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o077,
        )
        self._reader = threading.Thread(target=self._follow, args=(self._child,), daemon=True)
        self._reader.start()

    def _follow(self, child: "subprocess.Popen[bytes]") -> None:
        """Log what it says, a line a second at most: refused certificates come as often as their owners like."""
        assert child.stderr is not None
        logged = 0.0
        with child.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").strip()[:300]
                if "ACL pattern" in text:
                    continue  # that all may read some topics is meant
                self._lines.append(text)
                if time.monotonic() - logged > 1.0:
                    logged = time.monotonic()
                    log.warning("mosquitto: %s", text)
                    self.on_line(text)

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_INET6 if ":" in self.endpoint.host else socket.AF_INET) as caller:
            caller.settimeout(1.0)
            return caller.connect_ex((self.endpoint.host, self.endpoint.port)) == 0

    def _configuration(self) -> str:
        return _CONFIG.format(
            port=self.endpoint.port,
            address=f" {self.address}" if self.address else "",
            authority=self.certificates.authority.absolute(),
            certificate=self.certificates.bundle(BROKER).absolute(),
            revocations=self.certificates.revocations.absolute(),
            access=self._access.absolute(),
            limit=MAX_FRAME + OVERHEAD,
            user="user root\n" if os.geteuid() == 0 else "",
        )


def access_list(federation: str, denied: Collection[str] = ()) -> str:
    """Return mosquitto's access list: a node may use its own topics only, and who is `denied` none."""
    denials = "".join(f"\nuser {name}\ntopic deny #\n" for name in sorted(set(denied) - {SERVER}))
    return _ACCESS.format(server=SERVER, federation=federation) + denials


def probe(endpoint: Endpoint, certificates: Certificates) -> None:
    """Raise a PsofedError unless the broker keeps nodes apart and there is no other server.

    With the certificate of nobody, the probe reads and writes the topics of others, and tries to end the server's
    connection by using its client id. None of that may succeed, while its own topics must work.
    """
    server_topic = endpoint.topic("server")
    for_all = [endpoint.topic("run"), endpoint.topic("model"), server_topic]
    own_in, own_out = endpoint.node_topic(PROBE, "in"), endpoint.node_topic(PROBE, "out")
    of_others = [endpoint.node_topic(_STRANGER, box) for box in ("in", "out", "presence")]
    everything = [endpoint.topic("#"), "#", endpoint.node_topic("+", "in"), *of_others]
    insecure = f"{endpoint} is not safe to use: "
    nobody = Identity(certificates.bundle(PROBE))

    def check_readable(topic: str) -> None:
        if topic.startswith(endpoint.topic("")) and topic not in (*for_all, own_in):
            raise PsofedError(f"{insecure}a node may read {topic}; its access list must forbid that")

    with closing(Tester(endpoint, nobody, [server_topic, own_in, *everything])) as stranger:
        _require(stranger)
        time.sleep(1.0)  # for what is retained
        for topic, payload in stranger.take():
            if topic == server_topic and payload:
                raise PsofedError(f"another server of the federation {endpoint.federation} is connected to {endpoint}")
            check_readable(topic)
        with closing(Tester(endpoint, Identity(certificates.bundle(SERVER)), everything[:1])) as server:
            _require(server)
            mark = f"probe {time.time_ns()}".encode()
            for topic in (*of_others, own_in):
                server.publish(topic, mark)
            if not _wait(lambda: stranger.has(own_in, mark)):
                raise PsofedError(f"{endpoint} does not deliver what the server sends to {own_in}")
            for topic, _ in stranger.take():
                check_readable(topic)
            forged = mark + b" forged"
            for topic in (*of_others, own_in, *for_all, own_out):
                stranger.publish(topic, forged)
            if not _wait(lambda: server.has(own_out, forged)):
                raise PsofedError(f"{endpoint} does not deliver what a node sends to {own_out}")
            for topic, payload in server.take():
                if payload == forged and topic != own_out:
                    raise PsofedError(f"{insecure}a node may write {topic}; its access list must forbid that")
            with closing(Tester(endpoint, nobody, client_id=SERVER)) as thief:
                _wait(lambda: thief.connections > 0 or thief.problem != "not connected yet")
                server.publish(own_out, mark)
                if not _wait(lambda: server.has(own_out, mark)) or server.connections > 1:
                    raise PsofedError(
                        f"{insecure}a node can end another's connection by using its client id; make the certificate's "
                        "name the client id (mosquitto: use_username_as_clientid true)"
                    )


class Tester(Connection):
    """A connection that remembers what arrives from `topics`."""

    def __init__(self, endpoint: Endpoint, identity: Identity, topics: Sequence[str] = (), client_id: str = "") -> None:
        self.connections: int = 0
        self._messages: list[tuple[str, bytes]] = []
        subscriptions = [(topic, SubscribeOptions(qos=1)) for topic in topics]
        super().__init__(endpoint, identity, subscriptions, keepalive=20, client_id=client_id)

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message."""
        self._publish(topic, payload)

    def has(self, topic: str, payload: bytes) -> bool:
        """Whether this has arrived."""
        return (topic, payload) in self._messages

    def take(self) -> list[tuple[str, bytes]]:
        """Return what has arrived, and forget it."""
        taken, self._messages = self._messages, []
        return taken

    def _opened(self, is_new: bool) -> None:
        self.connections += 1

    def _say(self, problem: str) -> None:
        self.problem = problem  # which is no news: it tries what ought to be refused

    def _arrived(self, message: paho.MQTTMessage) -> None:
        self._messages.append((message.topic, bytes(message.payload)))


def _require(tester: Tester) -> None:
    if not _wait(lambda: tester.is_connected):
        raise PsofedError(f"cannot use {tester.endpoint} as {tester.identity.name}: {tester.problem}")


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PROBE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
