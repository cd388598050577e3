"""Processes that are started, watched and stopped again, with all their descendants.

Each process leads a group of its own, which its descendants belong to and by which all of them are signalled. Flower
would put its SuperExec into a group of its own, so it is started here, beside the SuperLink and not by it. And each
process is killed by the kernel (on Linux) when its parent dies: not even kill -9 of a command leaves any behind.
"""

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from psofed.common.errors import PsofedError

_log = logging.getLogger("psofed.federation")
_GUARD = Path(__file__).with_name("guard.py")

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Settings that keep Flower from looking up hosts and from installing packages."""

_POLL = 0.05
_LOG_BYTES = 10_000_000
_MOST_FILES = 1 << 16
_RESTARTS, _RESTARTS_WINDOW = 5, 60.0  # more starts of one process within this many seconds are a fault


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment for Flower's processes: offline, a separate home, our Python first in PATH."""
    environment = {**os.environ, **OFFLINE, "FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    environment.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return environment


def allow_many_files() -> None:
    """Let this process and those it starts have many files open, as far as the system allows.

    Connections are files. Of the usual 1,024 a few hundred nodes use up all, and so can another user of the machine who
    opens connections to the SuperLink's port.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit besides
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Process:
    """One process, the leader of its own group, with its output in a log file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with log.open("ab") as output:
            log.chmod(0o600)
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process itself still runs."""
        return self.process.poll() is None

    def signal(self, number: int) -> bool:
        """Signal the process and its descendants, the whole group; False if nobody is left (0 only asks that)."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """Kill the process and its descendants at once (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self.process.wait(timeout=10)

    def memory(self) -> int:
        """Return the bytes of memory that the process's group holds alone or shares (Linux's PSS)."""
        total = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) != self.pid:
                    continue
                for line in (entry / "smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
        return total

    def rotate_log(self) -> None:
        """Once the log is too long, move what it holds to ``name.log.1`` and let it begin again.

        The process appends to its log, so the log can be cut while it is open.
        """
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > _LOG_BYTES:
                older, oldest = (self.log.with_name(f"{self.log.name}.{number}") for number in (1, 2))
                if older.exists():
                    older.replace(oldest)
                shutil.copy(self.log, older)
                os.truncate(self.log, 0)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


class Supervisor:
    """Starts processes and, when left, stops every one of them whatever happened.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> with Supervisor(Path(mkdtemp())) as supervisor:
    ...     process = supervisor.start("sleeper", ["sleep", "60"], dict(os.environ))
    >>> process.is_running
    False
    """

    def __init__(self, logs: Path, patience: float = 5.0) -> None:
        self.logs = logs
        self.patience = patience
        self.processes: list[Process] = []
        self._ended: list[Process] = []  # started again; descendants of theirs may still run
        self._restarts: dict[str, tuple[Callable[[], Process], list[float]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, restart: bool = False
    ) -> Process:
        """Start a process; its output goes to ``name.log``. :meth:`check` can `restart` one that holds no state."""

        def start_it() -> Process:
            return Process(name, command, environment, self.logs / f"{name}.log")

        process = start_it()
        self.processes.append(process)
        if restart:
            self._restarts[name] = (start_it, [])
        return process

    def check(self) -> None:
        """Rotate the logs; raise an error with the end of its log if a process has ended and cannot be restarted."""
        for place, process in enumerate(self.processes):
            process.rotate_log()
            if not process.is_running and not self._restart(place):
                raise PsofedError(
                    f"{process.name} ended with code {process.process.returncode}; "
                    f"the end of {process.log}:\n{process.tail()}"
                )

    def _restart(self, place: int) -> bool:
        """Start a process again that has ended; False if it may not be, or if it ends too often."""
        process, now = self.processes[place], time.monotonic()
        if process.name not in self._restarts:
            return False
        start_it, times = self._restarts[process.name]
        times[:] = [earlier for earlier in times if now - earlier < _RESTARTS_WINDOW]
        if len(times) >= _RESTARTS:
            return False
        times.append(now)
        _log.warning("%s ended with code %s; started again", process.name, process.process.returncode)
        self._ended.append(process)
        self.processes[place] = start_it()
        return True

    def stop(self) -> None:
        """Terminate all processes, and kill those that do not end."""
        processes, self.processes = self._ended + self.processes, []
        self._ended = []
        if not processes:
            return
        with undisturbed():  # a second Ctrl-C must not leave half of them running
            # One signal to each, and to its descendants only if it leaves some: a SuperNode that gets a second
            # one before it has said goodbye is taken for online for another minute.
            for process in reversed(processes):
                if process.is_running:
                    process.process.terminate()
            _wait(lambda: not any(process.is_running for process in processes), self.patience)
            left = [process for process in processes if process.signal(signal.SIGTERM)]
            _wait(lambda: not any(process.signal(0) for process in left), self.patience / 2)
            for process in processes:
                process.kill()


def wait_until(
    condition: Callable[[], bool], timeout: float, what: str, check: Callable[[], None] | None = None
) -> None:
    """Wait until `condition` holds; `check` may raise meanwhile; after `timeout` s an error names `what`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if check is not None:
            check()
        if time.monotonic() > deadline:
            raise PsofedError(f"{what} took longer than {timeout:g} s")
        time.sleep(_POLL)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_listening(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


def _wait(condition: Callable[[], bool], timeout: float) -> None:
    with contextlib.suppress(PsofedError):
        wait_until(condition, timeout, "stopping")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM while processes are shut down."""
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # not in the main thread, which alone gets signals
            previous[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
