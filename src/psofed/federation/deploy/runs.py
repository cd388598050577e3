"""Runs of the ready-made nodes: how the server carries one out over any hub, and how operators steer it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import only_one, read_json, write_json
from psofed.common.logs import OncePerChange, log
from psofed.common.scheduler import scheduler
from psofed.federation.deploy.home import ENDED, FAILED, FINISHED, RUNNING, STOPPED, Home, RunRequest, add_record
from psofed.federation.deploy.result import build_result, latest_errors, standing
from psofed.federation.protocol.names import MAX_CLIENTS
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.clients import KINDS
from psofed.federation.server.ready_made import run_ready_made
from psofed.federation.server.step import with_threshold
from psofed.federation.transport.hub import Hub

OnRound = Callable[[dict[str, Any]], object]
"""Called with the values of the status after a round."""

Say = Callable[[str], object]
"""Tells a person a line."""

_ACCIDENTS = ("no-reply", "error")
_LOOK_EVERY = 0.2  # seconds
_STOP_SECONDS = 60.0  # a round that is being written to a slow disk ends within this time
_WRITE_EVERY = 1.0  # seconds between two statuses, unless the run's state changes


class RunStatus:
    """Progress of the latest run as the server sees it, kept in a file for other processes.

    Attributes
    ----------
    home : Home
        Whose status it is; what the file says is where it begins.
    values : dict
        As ``status.json`` holds them.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.values: dict[str, Any] = {"round": 0, "rounds": 0}
        self._written, self._is_news = -1e9, OncePerChange()
        try:
            self.values |= home.read_status()
        except PsofedError as error:
            log.warning("%s", error)

    def set(self, **changes: Any) -> None:
        """Change some values, and write them now."""
        self.values |= changes
        self._written = -1e9
        self.write()

    def write(self) -> None:
        """Write the file, but not too often; a disk that is full does not stop the run."""
        now, problem = scheduler().monotonic(), ""
        if now - self._written < _WRITE_EVERY:
            return
        self._written = now
        try:
            self.home.write_status(self.values)
        except PsofedError as error:
            problem = str(error)
        if self._is_news("status", problem) and problem:
            log.warning("%s", problem)


@dataclass
class FederationRun:
    """A requested run.

    Parameters
    ----------
    status : RunStatus
        Where its progress is written; its files are in the same home.
    request : RunRequest
        What was asked for.
    attend : callable
        Called at least once a second; returns True to stop the run.
    clients_allowed : callable, optional
        How many clients a node may have, by name.
    on_round : callable, optional
        Called with the values of the status after each round.
    """

    status: RunStatus
    request: RunRequest
    attend: Callable[[], bool] = lambda: False
    clients_allowed: Callable[[str], int] = lambda _: MAX_CLIENTS
    on_round: OnRound = lambda _: None
    _errors: dict[str, float] = field(default_factory=dict)
    _sampled: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home: Home = self.status.home

    def carry_out(self, hub: Hub) -> str:
        """Run the rounds, and return how the run has ended; whatever goes wrong is a status."""
        began, has_begun = scheduler().monotonic(), self.home.has_begun(self.request)
        values = self.status.values
        if not has_begun:  # what is known of the nodes does not depend on the run
            values = {name: values[name] for name in ("nodes", "certificates") if name in values}
        first = {"round": 0, "rounds": 0, "began": {"time": scheduler().time()}}
        self.status.values = {**first, **values, "run": self.request.number}
        try:
            settings = self.request.run_settings()
            self.status.set(state=RUNNING, reason="", rounds=settings.num_rounds)
            event = "resumed" if has_begun else "started"
            add_record(self.home.runs, event, run=self.request.number, rounds=settings.num_rounds)
            word, reason = self._rounds(hub, settings), ""
        except PsofedError as error:
            if getattr(hub, "is_replaced", False):
                raise  # another server may be carrying it out
            word, reason = FAILED, str(error)
        except Exception as error:  # ours: the server stays, and the operator reads why
            log.exception("the run has failed")
            word, reason = FAILED, f"{type(error).__name__}: {error}"
        about = {"round": self.status.values["round"], "session": self.status.values.get("session", "")}
        seconds = round(scheduler().monotonic() - began, 1)
        add_record(self.home.runs, word, run=self.request.number, **about, seconds=seconds, reason=reason)
        self.status.set(state=word, reason=reason)
        log.info("the run is %s after round %d%s", word, about["round"], f": {reason}" if reason else "")
        return word

    def _rounds(self, hub: Hub, settings: RunSettings) -> str:
        store, awaited = CheckpointStore(self.home.checkpoint, replaces=True), settings.min_nodes
        if continues := self.home.has_begun(self.request):
            saved = store.load()
            self.status.values |= standing(saved, settings)
            # Clients whose node has lost its certificate meanwhile are not awaited.
            owners = saved.clients.get("owners", {})
            awaited -= sum(not self.clients_allowed(owners.get(name, name)) for name in saved.seen)
        changed, note = settings.replace(resume=continues, min_nodes=max(1, awaited)), partial(self._note, settings)
        server = run_ready_made(
            changed, hub, checkpoint=store, clients_allowed=self.clients_allowed, on_round=note, attend=self.attend
        )
        assert server.state is not None
        if server.state.round_number and (not server.was_stopped or not settings.num_rounds):
            # A run without an end has its result when it is stopped.
            write_result(self.home, settings, self.status.values["began"])
        return STOPPED if server.was_stopped else FINISHED

    def _note(self, settings: RunSettings, state: ServerState) -> None:
        entry, now = state.history[-1], scheduler().monotonic()
        about = standing(state, settings)
        self._audit(entry, self.status.values, about)
        self._errors.update(latest_errors(state))
        for name in entry["accepted"]:  # a client without a new sample counts from its first reply
            if name not in self._sampled or entry["examples_by_node"].get(name):
                self._sampled[name] = now
        self.status.values |= {
            **about,
            "rounds": settings.num_rounds,
            "round": state.round_number,
            "last": entry,
            "strikes": state.strikes,
            "seen": state.seen,
            "gateways": state.clients.get("rosters", {}),
            "refused": state.clients.get("refused", {}),
            "errors": self._errors,
            "sample_lag": {name: round(now - then, 1) for name, then in self._sampled.items()},
        }
        self.status.write()
        self.on_round(self.status.values)

    def _audit(self, entry: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
        """Add a line for each strike, ban, exclusion and readmission of a round."""
        number, path = entry["round"], self.home.audit
        for client, kind in entry["dropped"].items():
            if kind not in _ACCIDENTS:
                reason = entry["reasons"].get(client) or KINDS[kind]
                add_record(path, "strike", client=client, round=number, kind=kind, reason=reason)
        (banned, out), (now_banned, now_out) = _excluded(before), _excluded(after)
        for event, clients in (
            ("banned", now_banned - banned), ("excluded", now_out - out), ("readmitted", out - now_out)
        ):  # fmt: skip
            for client in sorted(clients):
                add_record(path, event, client=client, round=number)


def _excluded(about: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Return the clients that are banned, and those that the defence excludes."""
    return set(about.get("banned", ())), {name for name, one in about.get("suspects", {}).items() if one["out"]}


def write_result(home: Home, settings: RunSettings, began: dict[str, Any]) -> None:
    """Write the result of a run up to its checkpoint; `began` has the time when the run began."""
    store = CheckpointStore(home.checkpoint)
    state, window = store.load(), (float(began["time"]), scheduler().time())
    write_json(home.result, build_result(state, store.history.entries(state), settings, window))


# --- the operator's commands, with or without a running server -----------------------------------------------------


def submit(home: Home, settings: RunSettings, *, force: bool = False) -> RunRequest:
    """Ask for a new run; only with `force` may it replace an earlier run's files."""
    with home.changing() as before:
        _check_idle(home, before)
        left = [path for path in (home.result, home.checkpoint) if disk().exists(path)]
        if left and not force:
            fix = f"continue it with {home.command('resume')}, or replace it with --force"
            raise PsofedError(f"{left[0]} belongs to an earlier run: {fix}")
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
    if word and word not in ENDED:
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
            about = {"round": state.round_number, "state": STOPPED, "run": request.number, "last": None}
            home.write_status({**home.read_status(), **about})
    return state.round_number


def follow(home: Home, request: RunRequest, on_progress: OnRound, say: Say) -> dict[str, Any]:
    """Wait until a run has ended and return its result; a PsofedError says why it failed.

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
