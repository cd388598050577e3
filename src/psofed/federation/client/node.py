"""A node without a transport: takes note of the run, answers instructions, and learns from what arrives meanwhile."""

import threading
from collections.abc import Callable
from pathlib import Path

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange, log
from psofed.common.scheduler import scheduler
from psofed.federation.client.gateway import Gateway, reason_of
from psofed.federation.client.state import MemoryStore
from psofed.federation.protocol import messages
from psofed.federation.protocol.bounds import MAX_ENTRIES
from psofed.federation.protocol.messages import Announcement, NodeReply, RunDescription
from psofed.federation.protocol.names import clean_text
from psofed.federation.transport.hub import INSTRUCTION, RUN, Link

Prepare = Callable[[RunDescription], Gateway]
"""Given a run, returns how the node answers; a PsofedError says why it cannot."""

_TRY_AGAIN_EVERY = 5.0  # seconds, after a problem such as a missing file


class Node:
    """A node of a federation.

    Parameters
    ----------
    name : str
        The name in its certificate.
    prepare : Prepare
        What to do in a run.
    folder : path, optional
        Where its memory is kept as well, so that it survives a restart.
    max_entries : int
        Entries of a model, shared or not, that this node takes from a server.

    Attributes
    ----------
    store : MemoryStore
        What its clients keep.
    run : RunDescription or None
        The current run.
    """

    def __init__(self, name: str, prepare: Prepare, folder: Path | None = None, max_entries: int = MAX_ENTRIES) -> None:
        self.name = name
        self.store: MemoryStore = MemoryStore(folder)
        self.run: RunDescription | None = None
        self._prepare = prepare
        self._max_entries = max_entries
        self._gateway: Gateway | None = None
        self._problem = ""
        self._tried = 0.0
        self._is_news = OncePerChange()

    def begin(self, run: bytes) -> None:
        """Take note of a run description; one that cannot be read or carried out is a problem that is announced."""
        try:
            described = RunDescription.from_bytes(run) if run else None
        except ValueError as error:
            self._warn("run", f"the server's run cannot be read: {clean_text(error)}")
            return
        if described != self.run:
            self.run, self._gateway = described, None
            self._try()

    def announcement(self) -> bytes:
        """Return what the node says of itself."""
        names, problem = None, self._problem
        if self._gateway is not None:
            try:
                names = self._gateway.names()
            except Exception as error:
                problem = reason_of(error)
        session = "" if self.run is None else self.run.session
        return Announcement(session, names, problem).to_bytes()

    def answer(self, frame: bytes) -> bytes | None:
        """Return the reply to an instruction; None if it is nonsense, or meant for another node or another run."""
        try:
            instruction = messages.decode_instruction(frame, self._max_entries)
        except ValueError as error:
            self._warn("instruction", f"ignored an instruction: {clean_text(error)}")
            return None
        session = None if self.run is None else self.run.session
        if instruction.node != self.name or instruction.session != session:
            self._warn("instruction", "ignored an instruction for another node or of another run")
            return None
        try:
            if self._gateway is None:
                raise PsofedError(self._problem or "this node is not ready")
            reply = self._gateway.answer(instruction, self.store)
        except Exception as error:
            # Whatever the training raises is this node's own affair: it is said here and told to the server.
            reason = reason_of(error)
            self._warn("answer", f"round {instruction.round_number} failed: {reason}")
            reply = NodeReply.failure(instruction, reason)
        else:
            self._warn("answer", "")
            for part in reply.replies:
                who = f"{part.client}: " if part.client else ""
                self._warn(f"remark {part.client}", clean_text(part.remark), who)
        return messages.encode_reply(reply)

    def tend(self) -> None:
        """Learn from what has arrived, and try again what could not be prepared; called every now and then."""
        if self.run is not None and self._gateway is None:
            if scheduler().monotonic() - self._tried >= _TRY_AGAIN_EVERY:
                self._try()
            return
        if self._gateway is None or self._gateway.arrived is None or self.run is None:
            return
        if self.store.held is None or self.store.held.session != self.run.session:
            return
        try:
            self._gateway.arrived(self.store)
            self._warn("arrived", "")
        except Exception as error:
            self._warn("arrived", f"cannot learn from what arrives: {reason_of(error)}")

    def _try(self) -> None:
        self._tried = scheduler().monotonic()
        self._problem = ""
        if self.run is None:
            return
        try:
            self._gateway = self._prepare(self.run)
        except Exception as error:  # nothing that a server describes ends a node
            self._problem = reason_of(error)
        self._warn("problem", self._problem, "cannot take part in the run: ")

    def _warn(self, subject: str, text: str, beginning: str = "") -> None:
        """Log a problem, once until it changes; an empty one is over."""
        if self._is_news(subject, text) and text:
            log.warning("%s%s", beginning, text)


TEND_EVERY = 0.2  # seconds


def serve(node: Node, link: Link, ended: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
    """Work until `ended` is set, and `beat` as a sign of life; nothing that a server sends ends a node."""
    announced, tended = b"", -TEND_EVERY
    try:
        while not ended.is_set():
            arrival = link.receive(TEND_EVERY)
            if arrival is not None and arrival.kind == RUN:
                node.begin(arrival.body)
                tended = -TEND_EVERY  # announce it at once
            elif arrival is not None and arrival.kind == INSTRUCTION:
                reply = node.answer(arrival.body)
                if reply is not None:
                    link.send(reply)
            now = scheduler().monotonic()
            if now - tended >= TEND_EVERY:
                tended = now
                beat()
                node.tend()
                body = node.announcement()
                if body != announced:
                    announced = body
                    link.announce(body)
    finally:
        link.close()
