"""Processes that are started, watched and stopped again, with all their descendants.

Flower's processes start others, some of them in sessions of their own. Each process started here therefore
carries a mark in its environment, which its descendants inherit and by which they are found. And each is told
by the kernel when its parent dies, so that not even kill -9 of a command leaves its processes behind.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from psofed.common.errors import PsofedError

_MARK_PREFIX = "PSOFED_PROCESS_"
_GUARD = Path(__file__).with_name("guard.py")

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What keeps Flower from looking up hosts and from installing things."""

_POLL = 0.05


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment for Flower's processes: offline, a home of its own, our Python first in PATH."""
    environment = {**os.environ, **OFFLINE, "FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    environment.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return environment


class Process:
    """One process in a group of its own, its output in a log file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.mark = f"{_MARK_PREFIX}{secrets.token_hex(8)}"
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with log.open("ab") as output:
            log.chmod(0o600)
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command],
                env={**environment, self.mark: "1"},
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

    def kill(self) -> None:
        """Kill the process and all its descendants at once (SIGKILL)."""
        _signal_all([self], signal.SIGKILL)
        self.process.wait(timeout=10)

    def memory(self) -> int:
        """Return the bytes of memory that the process and its descendants hold alone or share (Linux's PSS)."""
        total = 0
        for pid in _marked([self]):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
        return total

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start a process; its output goes to ``name.log``."""
        process = Process(name, command, environment, self.logs / f"{name}.log")
        self.processes.append(process)
        return process

    def check(self) -> None:
        """Raise an error with the end of the log if a process has ended by itself."""
        for process in self.processes:
            if not process.is_running:
                raise PsofedError(
                    f"{process.name} ended with code {process.process.returncode}; "
                    f"the end of {process.log}:\n{process.tail()}"
                )

    def stop(self) -> None:
        """Ask all processes to end, then make them."""
        processes, self.processes = self.processes, []
        if not processes:
            return
        # A second Ctrl-C must not leave half of them running.
        previous = _ignore_interrupts()
        try:
            # One signal to each, and to its descendants only if it leaves some: a SuperNode that gets a second
            # one before it has said goodbye is taken for online for another minute.
            for process in reversed(processes):
                if process.is_running:
                    process.process.terminate()
            _wait(lambda: not any(process.is_running for process in processes), self.patience)
            _signal_all(processes, signal.SIGTERM)
            _wait(lambda: not _marked(processes), self.patience / 2)
            _signal_all(processes, signal.SIGKILL)
            for process in processes:
                process.process.wait(timeout=10)
        finally:
            _restore_interrupts(previous)


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


def _signal_all(processes: Iterable[Process], number: signal.Signals) -> None:
    group = list(processes)
    if sys.platform != "linux":  # no marks are found there, so the groups must do
        for process in group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
    for pid in _marked(group):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _marked(processes: Iterable[Process]) -> list[int]:
    """Return the processes that descend from `processes`, found by their mark (on Linux; elsewhere none)."""
    marks = {f"{process.mark}=1".encode() for process in processes}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marks & set((entry / "environ").read_bytes().split(b"\0")) and not _is_zombie(entry):
                found.append(int(entry.name))
    return found


def _is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _ignore_interrupts() -> object:
    try:
        return signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, which alone gets signals
        return None


def _restore_interrupts(previous: object) -> None:
    if previous is not None:
        signal.signal(signal.SIGINT, previous)  # type: ignore[arg-type]
