"""One node as one long-lived process: asks for messages, answers them, and learns from each sample as it arrives.

It speaks Flower's Fleet API with Flower's own client (:class:`psofed.federation.flower.FleetConnection`), so to the
SuperLink it is a SuperNode like any other. But it holds the app in memory, where Flower starts a new Python for every
message. Only psofed's own app runs here, whatever the server submits: a run's code is never loaded, only its
configuration is read.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx
from flwr.app import Context, Message

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import only_one, read_json, write_json
from psofed.common.scheduler import scheduler
from psofed.federation.client.gateway import NODE_NUMBER
from psofed.federation.deploy.credentials import check_made
from psofed.federation.deploy.processes import undisturbed
from psofed.federation.flower import (
    HEARTBEAT,
    Announcement,
    BadMessageError,
    FleetConnection,
    ForgottenError,
    NotRunningError,
    StillOnlineError,
    UnknownKeyError,
    UnreachableError,
    WrongAuthorityError,
    error_reply,
    identify,
)
from psofed.federation.protocol.answers import decode_metrics
from psofed.federation.protocol.packing import is_packed, pack, unpack
from psofed.federation.protocol.wire import SETTINGS, clean_text

_LONGEST_PAUSE = 5.0
_LEARN_EVERY = 0.2
_MOST_NONSENSE = 20  # messages in a row; beyond that the server is asked once a second


class App(Protocol):
    """Program that a node runs."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        ...

    def learn_arrived(self, context: Context) -> int:
        """Learn from what has arrived since the last call, and return how many samples these were."""
        ...


class LongLivedNode:
    """A node that works until it is interrupted.

    Parameters
    ----------
    server, key, authority
        See :class:`psofed.federation.flower.FleetConnection`.
    home : path
        Folder of this node; only one process can use it at a time.
    settings : mapping
        What the app is told of this node.
    app : App
        What it runs.
    say : callable
        Told, in one line each, what a person should know.
    """

    def __init__(
        self,
        server: str,
        key: Path,
        authority: Path,
        home: Path,
        settings: Mapping[str, Any],
        app: App,
        say: Callable[[str], None],
    ) -> None:
        check_made(authority, key)
        self.home = home
        self.settings: dict[str, Any] = dict(settings)
        self.app = app
        self.say = say
        self._fleet = FleetConnection(server, key, authority)
        self.settings[NODE_NUMBER] = str(self._fleet.number)
        self._lock = scheduler().lock()
        self._context: Context | None = None
        self._said: dict[str, str] = {}
        self._forgotten = scheduler().event()
        self._ended = scheduler().event()

    def run(self) -> None:
        """Work until interrupted; raise only for what cannot heal: an unknown key or a wrong authority."""
        with (
            only_one(self.home / "lock", f"another node works in {self.home} already; choose another --home"),
            self._fleet,
        ):
            try:
                self._connect()
                scheduler().start(self._beat, "heartbeat")
                scheduler().start(self._learn_arrived, "learning")
                while True:
                    try:
                        self._serve()
                    except (UnknownKeyError, WrongAuthorityError):
                        raise
                    except Exception as error:
                        # Nothing that a server sends, or that happens on the way, ends a node.
                        self.say(f"{_reason(error)}; connecting again")
                        self._connect()
            finally:
                with undisturbed():
                    self._ended.set()
                    if self._fleet.node_id and self._fleet.deactivate():
                        with contextlib.suppress(OSError):
                            disk().unlink(self._remembered)

    # --- being there --------------------------------------------------------------------------------------

    @property
    def _remembered(self) -> Path:
        return self.home / "node.json"

    def _connect(self) -> None:
        """Activate this node, however long it takes."""
        pause, said = 0.2, ""
        before = self._fleet.node_id or self._remembered_id()
        while True:
            try:
                node_id = self._fleet.activate()
                break
            except StillOnlineError as error:
                # This folder is locked, so the process that was online with it is dead and can be deactivated.
                if before and self._fleet.deactivate(before):
                    before = 0
                    continue
                problem = f"{error}; this heals within {2 * HEARTBEAT:.0f} s of its last sign of life"
            except (UnreachableError, ForgottenError, httpx.HTTPStatusError) as error:
                problem = f"{error}; trying again"
            if problem != said:
                self.say(problem)
                said = problem
            scheduler().sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._forgotten.clear()
        try:
            write_json(self._remembered, {"node_id": node_id})
        except PsofedError as error:
            self.say(
                f"{error}; after a restart this node may have to wait until the server takes it for offline"
            )
        self.say(f"connected to {self._fleet.server}")

    def _remembered_id(self) -> int:
        with contextlib.suppress(PsofedError, ValueError, KeyError, TypeError):
            return int(read_json(self._remembered)["node_id"])
        return 0

    def _beat(self) -> None:
        while not self._ended.wait(0.4 * HEARTBEAT):
            try:
                self._fleet.heartbeat()
            except ForgottenError:
                self._forgotten.set()
            except (PsofedError, httpx.HTTPError):
                pass  # the questions will notice

    # --- working ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Ask for messages and answer them, until the connection is lost."""
        pause, nonsense = 0.05, 0
        while True:
            if self._forgotten.is_set():
                raise ForgottenError("the server no longer knows this node")
            asked = scheduler().monotonic()
            try:
                question = self._fleet.ask()
                if question is not None:
                    self._answer(question)
            except BadMessageError as error:
                # One such message costs one question: the right one may be waiting behind it.
                self.say(f"ignored: {error}")
                nonsense += 1
                scheduler().sleep(0.0 if nonsense <= _MOST_NONSENSE else 1.0)
                continue
            nonsense = 0
            if question is not None:
                pause = 0.05
            elif scheduler().monotonic() - asked < 0.5:
                # A server without our front door does not make us wait.
                scheduler().sleep(pause)
                pause = min(2 * pause, 0.5)

    def _answer(self, question: Announcement) -> None:
        run_id, started = question.message.metadata.run_id, scheduler().monotonic()
        try:
            if self._context is None or self._context.run_id != run_id:
                self._context = self._fleet.run_context(run_id, self.settings)
            message = self._fleet.fetch(question)
            identify(run_id, self._fleet.node_id)
            reply = self._work(message, self._context, question.whole)
            whole = question.whole and reply.has_content() and is_packed(reply.content)
            self._fleet.send(reply, scheduler().monotonic() - started, whole)
        except NotRunningError:
            pass  # the run has ended meanwhile
        except (UnknownKeyError, WrongAuthorityError, ForgottenError, BadMessageError):
            raise
        except Exception as error:
            self.say(f"a reply was lost: {_reason(error)}")

    def _work(self, message: Message, context: Context, whole: bool = False) -> Message:
        try:
            message.content = unpack(message.content)
            with self._lock:
                reply = self.app(message, context)
            if reply.has_content():
                self._say_remark(reply)
                reply.content = pack(reply.content, offer_inline=not whole)
            return reply
        except Exception as error:
            # Whatever the app raises is this node's own affair: it is said here and told to the server.
            reason = _reason(error)
            self.say(f"round {clean_text(message.metadata.group_id)} failed: {reason}")
            return error_reply(reason, message)

    def _say_remark(self, reply: Message) -> None:
        """Log the remarks that the reply carries, each once until it changes."""
        settings: Mapping[str, Any] = reply.content.config_records.get(SETTINGS, {})
        clients, reports = settings.get("clients", []), settings.get("metrics", [])
        for client, remark in zip(clients, settings.get("remarks", [""] * len(clients)), strict=False):
            if remark not in ("", self._said.get(client)):
                self.say(f"{client}: {clean_text(remark)}" if client else clean_text(remark))
            self._said[client] = remark
        for client, report in zip(clients, reports, strict=False):
            if "privacy-uploads" not in report:
                continue
            spent = decode_metrics(report)
            uploads = int(spent["privacy-uploads"])
            # After 1, 2, 4, 8, … uploads.
            if uploads > 0 and uploads & (uploads - 1) == 0:
                self.say(
                    f"privacy spent {f'by {client} ' if client else ''}after {uploads} upload"
                    f"{'s' if uploads > 1 else ''}: epsilon = {spent['privacy-epsilon']:.3g} "
                    f"at delta = {spent['privacy-delta']:g}"
                )

    def _learn_arrived(self) -> None:
        failed = ""
        while not self._ended.wait(_LEARN_EVERY):
            context = self._context
            if context is None:
                continue
            try:
                with self._lock:
                    self.app.learn_arrived(context)
                failed = ""
            except Exception as error:
                if str(error) != failed:
                    failed = str(error)
                    self.say(f"cannot learn from what arrives: {error}")


def _reason(error: Exception) -> str:
    """Return what went wrong in one short line."""
    known = isinstance(error, PsofedError | httpx.HTTPError)
    return clean_text(error if known else f"{type(error).__name__}: {error}")
