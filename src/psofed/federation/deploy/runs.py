"""One run of the ready-made nodes over any hub: rounds, status, audit, history of runs and result."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import write_json
from psofed.common.logs import OncePerChange
from psofed.common.scheduler import scheduler
from psofed.federation.deploy.audit import add_record
from psofed.federation.deploy.home import FAILED, FINISHED, RUNNING, STOPPED, Home, RunRequest
from psofed.federation.deploy.result import build_result, latest_errors, standing
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.checks import KINDS
from psofed.federation.server.ready_made import ready_made_server, run_ready_made
from psofed.federation.transport.hub import Hub

_log = logging.getLogger("psofed.federation")

_ACCIDENTS = ("no-reply", "error")
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
            _log.warning("%s", error)

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
            _log.warning("%s", problem)


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
    clients_allowed: Callable[[str], int] | None = None
    on_round: Callable[[dict[str, Any]], object] = lambda _: None
    _errors: dict[str, float] = field(default_factory=dict)
    _sampled: dict[str, float] = field(default_factory=dict)

    @property
    def home(self) -> Home:
        """Its files."""
        return self.status.home

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
            _log.exception("the run has failed")
            word, reason = FAILED, f"{type(error).__name__}: {error}"
        about = {"round": self.status.values["round"], "session": self.status.values.get("session", "")}
        seconds = round(scheduler().monotonic() - began, 1)
        add_record(self.home.runs, word, run=self.request.number, **about, seconds=seconds, reason=reason)
        self.status.set(state=word, reason=reason)
        _log.info("the run is %s after round %d%s", word, about["round"], f": {reason}" if reason else "")
        return word

    def _rounds(self, hub: Hub, settings: RunSettings) -> str:
        store, awaited = CheckpointStore(self.home.checkpoint, replaces=True), settings.min_nodes
        if continues := self.home.has_begun(self.request):
            saved = store.load()
            self.status.values |= standing(saved, settings)
            awaited = max(1, awaited - self._revoked(saved))
        server = ready_made_server(
            settings.replace(resume=continues, min_nodes=awaited),
            checkpoint=store,
            clients_allowed=self.clients_allowed,
            on_round=lambda state: self._note(state, settings),
            attend=self.attend,
        )
        state = run_ready_made(server, hub, settings)
        if state.round_number and (not server.was_stopped or not settings.num_rounds):
            # A run without an end has its result when it is stopped.
            write_result(self.home, settings, self.status.values["began"])
        return STOPPED if server.was_stopped else FINISHED

    def _revoked(self, state: ServerState) -> int:
        """Return how many clients of an interrupted run have lost their node's certificate: they are not awaited."""
        if self.clients_allowed is None:
            return 0
        owners = state.clients.get("owners", {})
        return sum(not self.clients_allowed(owners.get(name, name)) for name in state.seen)

    def _note(self, state: ServerState, settings: RunSettings) -> None:
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
