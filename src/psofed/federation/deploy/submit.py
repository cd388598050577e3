"""Submitting the ready-made app to a running SuperLink, and following it."""

import time
from collections.abc import Callable
from typing import Any

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.federation.deploy.superlink import Home, open_control, to_toml_value
from psofed.federation.files import read_json, write_json
from psofed.federation.settings import RunSettings

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

from psofed.federation.app import client_app, server_app

__all__ = ["client_app", "server_app"]
'''


def write_app(home: Home, settings: RunSettings) -> None:
    """Write the Flower app that carries `settings` to server and nodes; the code itself is psofed's own."""
    package = home.app / "psofed_run"
    package.mkdir(parents=True, exist_ok=True)
    config = "\n".join(f"{name} = {to_toml_value(value)}" for name, value in settings.to_config().items())
    (home.app / "pyproject.toml").write_text(_PYPROJECT.format(version=__version__, config=config))
    (package / "__init__.py").write_text("")
    (package / "apps.py").write_text(_MODULE)


def submit(home: Home, settings: RunSettings) -> int:
    """Submit a run and return Flower's id of it."""
    write_app(home, settings)
    write_json(home.settings, settings.to_config())
    done = read_json(home.status)["round"] if settings.resume and home.status.exists() else 0
    write_json(home.status, {"round": done, "rounds": settings.scenario.iterations, "state": "submitted"})
    with open_control(home) as control:
        return control.start_run(home.app.resolve())


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
        status = read_json(home.status)
        if status["round"] != seen:
            seen, moved = status["round"], time.monotonic()
            if on_progress is not None:
                on_progress(status)
        if status["state"] == "finished":
            return dict(read_json(home.result))
        if status["state"] == "failed":
            raise PsofedError(f"the run has failed: {status['reason']}; `psofed federation resume` goes on")
        if check is not None:
            check()
        if time.monotonic() - asked > _ASK_FLOWER_EVERY:
            # For a ServerApp that could not even say that it failed.
            asked = time.monotonic()
            reason = failure_of(home, run)
            if reason is not None and read_json(home.status)["state"] != "finished":
                raise PsofedError(
                    f"the run has failed ({reason}); see {home.logs}; `psofed federation resume` goes on"
                )
        if time.monotonic() - moved > timeout:
            raise PsofedError(f"no progress for {timeout:g} s; see {home.logs}")
        time.sleep(0.1)


def failure_of(home: Home, run: int) -> str | None:
    """Return why Flower's run has ended before its time, or None if it has not."""
    with open_control(home) as control:
        status = control.run_status(run)
    return status if status.startswith("finished") else None
