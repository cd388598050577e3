"""The files of a federation's server, and the request by which operators steer it.

``request.json`` says what the operator wants: a run with its settings, and whether it should be running. ``run``,
``resume`` and ``stop`` write it, the server obeys it. So it does not matter whether the server was running at that
moment, and a server that was killed continues as it was told last.
"""

import contextlib
import datetime
import json
import math
import os
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import is_locked, only_one, read_json, reason_of, write_json
from psofed.common.logs import log
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.names import clean_text

if TYPE_CHECKING:
    from psofed.federation.protocol.run_settings import RunSettings


RUNNING, STOPPED = "running", "stopped"
FINISHED, FAILED, WAITING = "finished", "failed", "submitted"
INTERRUPTED = "interrupted"  # the server has ended; it continues when it is started again
ENDED = (FINISHED, FAILED, STOPPED)

_BEAT_EVERY, _SILENCE = 5.0, 30.0  # seconds between two signs of life, and without one
_LARGEST = 64 << 20  # bytes, after which a file of records becomes ….1 and begins again
_OLD_FILES = ("flower", "app", "traffic.bin", "credentials/superlink.pem")


@dataclass(frozen=True)
class RunRequest:
    """Wish of the operator.

    Attributes
    ----------
    number : str
        Differs for each request.
    wanted : str
        :data:`RUNNING` or :data:`STOPPED`.
    settings : mapping
        As of :class:`psofed.federation.protocol.run_settings.RunSettings`.
    replaces : str or None
        Session of an earlier run that this run replaces. As long as the checkpoint is of that session, no round of
        this run has been completed.
    """

    number: str
    wanted: str
    settings: Mapping[str, Any]
    replaces: str | None = None

    def run_settings(self) -> "RunSettings":
        """Return the settings as a value."""
        from psofed.federation.protocol.run_settings import RunSettings

        return RunSettings.from_mapping(self.settings)


class Home:
    """The files of one federation on the server's machine, all within `folder`, or of one node.

    A folder of psofed 0.2 is refused with a PsofedError.

    Attributes
    ----------
    credentials : path
        Folder with certificates and keys.
    logs : path
        Folder with the broker's files and log.
    server_info, server_lock : path
        Where the running server's broker is, and the lock that the server holds.
    request, status : path
        See :class:`RunRequest`, and what the server says of itself.
    checkpoint, result : path
        Of the latest run.
    audit, runs : path
        Refused and revoked certificates and strikes; all runs. One JSON object per line.
    alive : path
        Sign of life of the server or node that works here.
    """

    def __init__(self, folder: Path) -> None:
        if any(disk().exists(folder / name) for name in _OLD_FILES):
            problem = f"{folder} was made by psofed 0.2, whose federations this version cannot continue"
            maker = "`psofed federation certs --home NEW --node NAME`"
            raise PsofedError(f"{problem}; make new certificates in another folder: {maker}")
        self.folder = folder
        self.credentials: Path = folder / "credentials"
        self.logs: Path = folder / "logs"
        self.server_info: Path = folder / "server.json"
        self.server_lock: Path = folder / "server.lock"
        self.request: Path = folder / "request.json"
        self.status: Path = folder / "status.json"
        self.checkpoint: Path = folder / "checkpoint.npz"
        self.result: Path = folder / "result.json"
        self.audit: Path = folder / "audit.jsonl"
        self.runs: Path = folder / "runs.jsonl"
        self.alive: Path = folder / "alive"
        self._beaten = -math.inf

    def command(self, words: str) -> str:
        """Return a command about this federation, to be pasted.

        Examples
        --------
        >>> Home(Path("fed")).command("resume")
        '`psofed federation resume --home fed`'
        """
        return f"`psofed federation {words} --home {shlex.quote(str(self.folder))}`"

    @property
    def is_served(self) -> bool:
        """Whether a server is running."""
        return is_locked(self.server_lock)

    def read_status(self) -> dict[str, Any]:
        """Return what the server has said last of the run; empty if there was none."""
        return _read_table(self.status)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status."""
        write_json(self.status, status)

    def read_server(self) -> dict[str, Any]:
        """Return where the server that was started last has its broker; empty if there was none."""
        return _read_table(self.server_info)

    def read_request(self) -> RunRequest | None:
        """Return what the operator wants; None if no run was ever asked for."""
        table = _read_table(self.request)
        try:
            return RunRequest(**table) if table else None
        except TypeError:
            raise PsofedError(f"{self.request} is damaged; move it away") from None

    def state_of(self, request: RunRequest | None) -> str:
        """Return how the latest run is doing; empty if there was none."""
        if request is None:
            return ""
        status = self.read_status()
        word = str(status.get("state", WAITING)) if status.get("run") == request.number else WAITING
        if request.wanted == STOPPED:
            return word if word == FINISHED else STOPPED
        return INTERRUPTED if word == RUNNING and not self.is_served else word

    @contextlib.contextmanager
    def changing(self) -> Iterator[RunRequest | None]:
        """Let no other command change the request meanwhile."""
        with only_one(self.folder / "request.lock", f"another command is changing {self.request}"):
            yield self.read_request()

    def ask(self, request: RunRequest) -> RunRequest:
        """Write a request under a new number, and return it."""
        request = replace(request, number=scheduler().new_id())
        write_json(self.request, asdict(request))
        return request

    def has_begun(self, request: RunRequest) -> bool:
        """Whether the checkpoint is of the requested run, rather than of an earlier one that it is to replace."""
        from psofed.federation.server.checkpoint import CheckpointStore  # which a node, with its own home, lacks

        session = CheckpointStore(self.checkpoint).session()
        return disk().exists(self.checkpoint) and (session is None or session != request.replaces)

    def beat(self) -> None:
        """Give a sign of life every few seconds, also to systemd; it need not survive anything, so it is not synced."""
        if (now := scheduler().monotonic()) - self._beaten < _BEAT_EVERY:
            return
        self._beaten = now
        notify("WATCHDOG=1")
        with contextlib.suppress(OSError):  # a full disk: the process works all the same
            self.alive.write_text(str(now))

    def is_healthy(self) -> bool:
        """Whether the server or node of this folder works: it holds its lock and gave a sign of life lately."""
        if not (is_locked(self.server_lock) or is_locked(self.folder / "lock")):
            return False
        try:
            beaten = float(disk().read(self.alive))
        except (OSError, ValueError):
            return False
        return 0 <= scheduler().monotonic() - beaten < _SILENCE  # the same clock for all processes since the boot


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1`` to systemd (sd_notify); does nothing if it has not started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sender.send("\n".join(lines).encode())


def _read_table(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is no file."""
    table = read_json(path) if disk().exists(path) else {}
    if not isinstance(table, dict):
        raise PsofedError(f"{path} is damaged: it holds no JSON object; move it away")
    return table


# --- records, one JSON object per line: the audit, and all runs ----------------------------------------------------


def add_record(path: Path, event: str, **values: Any) -> None:
    """Add a line; a disk that is full is said in the log, and nothing else stops."""
    plain = {key: clean_text(value) if isinstance(value, str) else value for key, value in values.items()}
    now = datetime.datetime.fromtimestamp(scheduler().time(), datetime.UTC).isoformat(timespec="seconds")
    line = json.dumps({"time": now, "event": event, **plain}) + "\n"
    try:
        if disk().exists(path) and path.stat().st_size > _LARGEST:
            disk().rename(path, path.with_name(f"{path.name}.1"))
        disk().append(path, line.encode())
    except OSError as error:
        log.warning("%s: cannot be written (%s): %s", path, reason_of(error), line.strip())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; one that was cut short is left out."""
    records = []
    for line in disk().read(path).splitlines() if disk().exists(path) else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def describe_record(record: Mapping[str, Any]) -> str:
    """Return a record as a line for a person.

    Examples
    --------
    >>> describe_record({"time": "2026-01-01T00:00:00+00:00", "event": "strike", "client": "north", "round": 3})
    '2026-01-01T00:00:00+00:00  strike  client north, round 3'
    """
    values = [f"{key} {value}" for key, value in record.items() if key not in ("time", "event") and value != ""]
    return f"{record.get('time', '?')}  {record.get('event', '?')}  {', '.join(values)}"
