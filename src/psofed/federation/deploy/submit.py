"""Submitting the ready-made app to a running SuperLink, and following it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.common.files import is_locked, read_json, write_atomically, write_json
from psofed.common.toml import toml_value
from psofed.federation.deploy.processes import wait_until
from psofed.federation.deploy.report import build_result, save_result
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.status import server_address
from psofed.federation.deploy.superlink import Home, open_control
from psofed.federation.deploy.traffic import SocketTraffic, read_traffic
from psofed.federation.server.checkpoint import CheckpointStore, ServerState

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "psofed-run"
version = "1.0.0"
description = "Online regression with PSO-Fed (psofed {version})"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "psofed"

[tool.flwr.app.components]
serverapp = "psofed_run.apps:server_app"
clientapp = "psofed_run.apps:client_app"

[tool.flwr.app.config]
{config}
"""

_ASK_FLOWER_EVERY = 15.0

_MODULE = '''\
"""The app is part of psofed, which every machine has installed."""

from psofed.federation.deploy.app import client_app, server_app

__all__ = ["client_app", "server_app"]
'''


def write_app(home: Home, config: Mapping[str, Any]) -> None:
    """Write the Flower app that carries a run's `config` to server and nodes; the code itself is psofed's own."""
    lines = "\n".join(f"{name} = {toml_value(value)}" for name, value in config.items())
    project = _PYPROJECT.format(version=__version__, config=lines)
    files = {"pyproject.toml": project, "psofed_run/__init__.py": "", "psofed_run/apps.py": _MODULE}
    for name, text in files.items():
        write_atomically(home.app / name, text.encode())


def check_free(home: Home, *, force: bool = False) -> None:
    """Raise a PsofedError if a run is in progress, or if a new run would replace the files of an earlier one."""
    if is_locked(home.run_lock):
        raise PsofedError(f"a run is already in progress in {home.folder}; {home.command('status')} shows it")
    left = [path for path in (home.result, home.checkpoint) if path.exists()]
    if left and not force:
        raise PsofedError(
            f"{left[0]} belongs to an earlier run: continue it with {home.command('resume')}, "
            "or replace it with --force"
        )


def has_completed_round(home: Home) -> bool:
    """Whether the checkpoint in `home` is of the latest run, rather than of an earlier one that it is to replace."""
    replaced = home.read_status().get("replaces")
    return home.checkpoint.exists() and (
        replaced is None or replaced != CheckpointStore(home.checkpoint).session()
    )


def submit(home: Home, settings: RunSettings, *, force: bool = False) -> int:
    """Submit a run and return Flower's id of it; only with `force` may it replace an earlier run's files."""
    check_free(home, force=force or settings.resume)
    config = settings.to_config()
    write_app(home, config)
    write_json(home.settings, config)
    done = home.read_status().get("round", 0) if settings.resume else 0
    with open_control(home) as control:
        run = control.start_run(home.app.resolve())
    status = {"round": done, "rounds": settings.num_rounds, "state": "submitted", "run": str(run)}
    if not settings.resume:
        home.result.unlink(missing_ok=True)
        if home.checkpoint.exists():  # stays until the new run has completed a round
            status["replaces"] = CheckpointStore(home.checkpoint).session()
    home.write_status(status)
    return run


def stop(home: Home) -> int:
    """Stop the current run, and return the last round it completed."""
    status = home.read_status()
    if status.get("state") not in ("submitted", "running", "interrupted"):
        raise PsofedError(f"no run is in progress in {home.folder}")
    home.stop_mark.touch()
    try:
        with open_control(home) as control:
            control.stop_run(int(status["run"]))
        # Flower only marks the run as ended: its process notices when it next speaks with the SuperLink.
        wait_until(lambda: not is_locked(home.run_lock), 60.0, "ending the run")
        status = home.read_status()
        if not status["rounds"] and "began" in status and has_completed_round(home):
            # A run without an end has its result when it is stopped.
            write_result(home, RunSettings.from_config(read_json(home.settings)), status["began"])
        home.write_status(status, state="stopped")
    finally:
        home.stop_mark.unlink(missing_ok=True)
    return int(status["round"])


def write_result(home: Home, settings: RunSettings, began: Mapping[str, Any]) -> ServerState:
    """Write the result of a run up to its checkpoint, and return the state that is in there.

    `began` has the time when the run began, and the front door's counts of that moment.
    """
    store = CheckpointStore(home.checkpoint)
    state, after = store.load(), read_traffic(home.traffic)
    before = began["traffic"] and SocketTraffic(**began["traffic"])
    counted = after.since(before) if before and after else None
    window = (float(began["time"]), time.time())
    save_result(build_result(state, store.history.entries(state), settings, counted, window), home.result)
    return state


def follow(
    home: Home,
    run: int,
    timeout: float,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    check: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Wait until a run has finished and return its result; a PsofedError says why it has not.

    Parameters
    ----------
    timeout : float
        Seconds without any progress after which to give up.
    on_progress : callable, optional
        Called with the status after each round.
    check : callable, optional
        Called again and again; may raise.
    """
    seen, moved, asked = -1, time.monotonic(), time.monotonic()
    while True:
        stopping = home.stop_mark.exists()
        status = home.read_status()
        if status["round"] != seen:
            seen, moved = status["round"], time.monotonic()
            if on_progress is not None:
                on_progress(status)
        with_result = status["state"] == "stopped" and not status["rounds"] and home.result.exists()
        if (with_result and not stopping) or status["state"] == "finished":
            return dict(read_json(home.result))
        if status["state"] == "stopped" and not stopping:
            raise PsofedError(
                f"the run was stopped after round {seen}; {home.command('resume')} continues it"
            )
        if status["state"] == "failed":
            raise PsofedError(
                f"the run has failed: {status['reason']}; {home.command('resume')} continues it"
            )
        if check is not None:
            check()
        if server_address(home) is None:
            raise PsofedError(
                f"the server has ended, after round {seen}: start it again with {home.command('server')}, "
                f"then continue with {home.command('resume')}"
            )
        if not stopping and time.monotonic() - asked > _ASK_FLOWER_EVERY:
            # For a ServerApp that could not even say that it failed.
            asked = time.monotonic()
            reason = failure_of(home, int(status["run"] or run))
            status = home.read_status()  # it may have changed meanwhile
            if home.stop_mark.exists() or status["state"] in ("interrupted", "stopped"):
                continue  # it is being stopped, or the server submits it again
            if reason is not None and "stopped" in reason:
                # Flower knows it before our status says so.
                raise PsofedError(
                    f"the run was stopped after round {status['round']}; {home.command('resume')} continues it"
                )
            if reason is not None and status["state"] != "finished":
                raise PsofedError(
                    f"the run has failed ({reason}); see {home.logs}; {home.command('resume')} continues it"
                )
        if time.monotonic() - moved > timeout:
            raise PsofedError(f"no progress for {timeout:g} s; see {home.logs}")
        time.sleep(0.2)


def failure_of(home: Home, run: int) -> str | None:
    """Return why Flower's run has ended before its time; None if it has not, or if the SuperLink is too busy to say."""
    try:
        with open_control(home) as control:
            status = control.run_status(run)
    except PsofedError:
        return None
    return status if status.startswith("finished") else None
