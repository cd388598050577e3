"""Continuing a run whose ServerApp has died, from its last checkpoint.

Flower notices a killed ServerApp by its missing heartbeats, after a minute, and then only marks the run as failed. A
ServerApp of ours holds a lock while it works, which the kernel frees when the process dies, however it dies.
"""

import contextlib
import logging
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import is_locked, read_json
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import has_completed_round, submit
from psofed.federation.deploy.superlink import Home, open_control

_log = logging.getLogger("psofed.federation")

_LOOKS = 2  # a run that ends frees its lock before it says so
_TRIES = 3  # without a completed round in between


class RunKeeper:
    """Watches the run of a server, and submits it again when its process has died.

    A run that an earlier server has left behind is touched only with `resume`. Otherwise whoever starts the server
    again continues it with ``psofed federation resume``, and two must not do so at once.

    Parameters
    ----------
    home : Home
        The server's files.
    resume : bool
        Continue a run that has not finished when the server starts, even if it has failed: a server that is shut down
        takes the run with it.
    """

    def __init__(self, home: Home, *, resume: bool = False) -> None:
        self.home = home
        if resume:
            status = self._status()
            if status.get("state") in ("submitted", "failed") and not is_locked(home.run_lock):
                home.write_status(status, state="interrupted")
        self._missing = 0
        self._tries = 0
        self._round = -1
        self._left_behind = None if resume else self._dead_run().get("run")

    def look(self) -> None:
        """Continue the run if nobody works on it; call it every second or so."""
        status = self._dead_run()
        if not status or status["run"] == self._left_behind:
            self._missing = 0
            return
        self._missing += 1
        if self._missing < _LOOKS:
            return
        self._missing = 0
        if status["round"] != self._round:
            self._round, self._tries = status["round"], 0
        self._tries += 1
        if self._tries > _TRIES:
            reason = f"its process died {_TRIES} times after round {status['round']}"
            self.home.write_status(status, state="failed", reason=reason)
            return
        self.home.write_status(status, state="interrupted")
        _log.warning("continuing the run after round %d, since no process works on it", status["round"])
        try:
            self._continue(str(status["run"]))
        except PsofedError as error:
            _log.warning("the run could not be continued: %s", error)

    def _dead_run(self) -> dict[str, Any]:
        """Return the status of a run that was abandoned before its end; empty if there is no such run."""
        status = self._status()
        abandoned = status.get("state") in ("running", "interrupted") and not is_locked(self.home.run_lock)
        return status if abandoned else {}

    def _status(self) -> dict[str, Any]:
        """Return the status of the latest run; empty without a run, or if its file is damaged (commands say so)."""
        try:
            status = self.home.read_status()
        except PsofedError:
            status = {}
        return status if {"state", "round", "run"} <= status.keys() else {}

    def _continue(self, run: str) -> None:
        with (
            open_control(self.home) as control,
            contextlib.suppress(PsofedError),
        ):  # one that it does not know
            if run and not control.run_status(int(run)).startswith("finished"):
                control.stop_run(int(run))
        settings = RunSettings.from_config(read_json(self.home.settings))
        saved = has_completed_round(self.home)
        submit(self.home, settings.replace(resume=saved), force=True)
