"""The operator's commands: start, follow, stop, continue and roll back runs, with or without a running server."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import only_one, read_json
from psofed.federation.deploy.audit import add_record
from psofed.federation.deploy.home import (
    ENDED,
    FAILED,
    FINISHED,
    INTERRUPTED,
    ROLLED_BACK,
    RUNNING,
    STOPPED,
    WAITING,
    Home,
    RunRequest,
)
from psofed.federation.deploy.runs import RunStatus, write_result
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.suspects import with_threshold

_LOOK_EVERY = 0.2  # seconds
_STOP_SECONDS = 60.0  # a round that is being written to a slow disk ends within this time


def submit(home: Home, settings: RunSettings, *, force: bool = False) -> RunRequest:
    """Ask for a new run; only with `force` may it replace an earlier run's files."""
    with home.changing() as before:
        _check_idle(home, before)
        left = [path for path in (home.result, home.checkpoint) if disk().exists(path)]
        if left and not force:
            raise PsofedError(
                f"{left[0]} belongs to an earlier run: continue it with {home.command('resume')}, "
                "or replace it with --force"
            )
        home.result.unlink(missing_ok=True)
        session = CheckpointStore(home.checkpoint).session()
        if disk().exists(home.checkpoint) and session is None:
            disk().unlink(home.checkpoint)  # damaged; --force replaces it
        scenario = settings.scenario
        if scenario.defence is not None and scenario.defence.threshold is None:
            # The threshold is found here, by simulation, so that the server need not load the engine.
            scenario = scenario.replace(defence=with_threshold(scenario.defence, scenario))
        return home.ask(RunRequest("", RUNNING, settings.replace(scenario=scenario).to_mapping(), session))


def resume(home: Home, **changes: Any) -> RunRequest:
    """Ask for the latest run to be continued, with some settings changed; a damaged checkpoint is reported here."""
    with home.changing() as before:
        if before is None:
            raise PsofedError(f"there is no run in {home.folder}; start one with {home.command('run FILE')}")
        if home.is_served:
            _check_idle(home, before)  # otherwise it continues when a server is started
        if home.has_begun(before):
            CheckpointStore(home.checkpoint).load_usable()
        changed = {name: value for name, value in changes.items() if value is not None}
        settings = before.run_settings().replace(**changed)
        return home.ask(replace(before, wanted=RUNNING, settings=settings.to_mapping()))


def _check_idle(home: Home, request: RunRequest | None) -> None:
    word = home.state_of(request)
    if word in (RUNNING, WAITING, INTERRUPTED):
        how = "in progress" if home.is_served else "waiting for its server"
        raise PsofedError(
            f"a run is {how} in {home.folder}: {home.command('status')} shows it, {home.command('stop')} ends it"
        )


def stop(home: Home) -> tuple[str, int]:
    """Stop the run, and return how it ended and its last completed round; to stop it twice does no harm."""
    with home.changing() as before:
        if before is None:
            raise PsofedError(f"there is no run in {home.folder}")
        if home.state_of(before) in ENDED:
            return home.state_of(before), int(home.read_status().get("round", 0))
        request = home.ask(replace(before, wanted=STOPPED))
    deadline = time.monotonic() + _STOP_SECONDS
    while home.read_status().get("run") != request.number:
        if time.monotonic() > deadline:
            raise PsofedError(f"the run has not stopped within {_STOP_SECONDS:g} s; see the server's log")
        if not home.is_served:
            with contextlib.suppress(PsofedError), only_one(home.server_lock, "a server has started meanwhile"):
                acknowledge_stop(RunStatus(home), request)
        time.sleep(_LOOK_EVERY)
    return STOPPED, int(home.read_status().get("round", 0))


def acknowledge_stop(status: RunStatus, request: RunRequest) -> None:
    """Let the status say that the run is stopped; a run without an end has its result then."""
    home, values = status.home, status.values
    if home.has_begun(request):
        settings, store = request.run_settings(), CheckpointStore(home.checkpoint)
        values["round"] = store.load().round_number
        if values.get("state") == RUNNING:  # its server was killed
            about = {"round": values["round"], "session": store.session() or ""}
            add_record(home.runs, STOPPED, run=values.get("run", ""), **about)
        if not settings.num_rounds:
            write_result(home, settings, values.get("began") or {"time": time.time()})
    status.set(state=STOPPED, run=request.number, reason="")


def rollback(home: Home, to_round: int) -> int:
    """Return to the checkpoint of a round, from which `resume` continues."""
    with home.changing() as before:
        _check_idle(home, before)
        state = CheckpointStore(home.checkpoint).rollback(to_round)
        if before is not None:  # the run that the checkpoint belongs to is the one to continue
            request = home.ask(replace(before, wanted=STOPPED, replaces=None))
            about = {"round": state.round_number, "state": ROLLED_BACK, "run": request.number, "last": None}
            home.write_status({**home.read_status(), **about})
    return state.round_number


def follow(
    home: Home, request: RunRequest, on_progress: Callable[[dict[str, Any]], None], say: Callable[[str], None]
) -> dict[str, Any]:
    """Wait until a run has ended and return its result; a PsofedError says why there is none.

    A server that is not running, or ends meanwhile, is waited for: whoever starts it again continues the run.
    """
    seen, told = -1, False
    while True:
        is_served, status = home.is_served, home.read_status()
        if status.get("run") == request.number and status["round"] != seen:
            seen = status["round"]
            on_progress(status)
        newest = home.read_request()
        is_current = newest is not None and newest.number == request.number
        word = status.get("state") if status.get("run") == (newest or request).number else ""
        if word == FINISHED and is_current:
            return dict(read_json(home.result))
        if word == STOPPED:
            if not status["rounds"] and disk().exists(home.result):
                return dict(read_json(home.result))
            raise PsofedError(
                f"the run was stopped after round {status['round']}; {home.command('resume')} continues it"
            )
        if word == FAILED and is_current:
            raise PsofedError(f"the run has failed: {status['reason']}; {home.command('resume')} continues it")
        if not is_current and word == RUNNING:
            raise PsofedError(f"the run was stopped and continued by another command; see {home.command('status')}")
        if not is_served and not told:
            begin = home.command("server")
            say(f"no server is running in {home.folder}; the run continues when one is started: {begin}")
        told = not is_served
        time.sleep(_LOOK_EVERY)
