"""Deliberate breaks: each opens a hole, and the simulation must find it.

A break replaces a few functions by what they were, or by what a careless change might make of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from plans import AT_FORGERS
from simulated_broker import Broker, SimulatedHub
from simulated_time import World

from psofed.common import files
from psofed.common.disk import disk
from psofed.federation.client.gateway import Gateway
from psofed.federation.client.node import Node
from psofed.federation.client.state import MemoryStore
from psofed.federation.protocol import messages
from psofed.federation.protocol.frames import REPLY, FrameError, frame_sequence
from psofed.federation.protocol.messages import decode_instruction, encode_instruction
from psofed.federation.server import checkpoint, clients, exchange, loop, step
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.loop import Server
from psofed.federation.server.step import ServerStep

Change = tuple[Any, str, Any]

_exchange, _take, _train = exchange.exchange, ServerStep.take, Gateway._train
_answer, _recall, _sort = Node.answer, MemoryStore.recall, loop.sort_replies


def _sequence(frame: bytes) -> int:
    try:
        return frame_sequence(frame, REPLY)
    except FrameError:
        return -1


def _with_receive(hub: Any, receive: Callable[[float], Any]) -> Any:
    """Return a hub that receives otherwise."""

    class Changed(SimpleNamespace):
        is_connected = property(lambda self: hub.is_connected)

    return Changed(present=hub.present, send=hub.send, receive=receive)


def _answers_another() -> list[Change]:
    """Look for the question that a frame answers, whoever has sent it."""

    def by_number(hub: Any, questions: Any, *rest: Any) -> Any:
        asked = {question.sequence: question.node for question in questions}

        def receive(seconds: float) -> Any:
            return [(asked.get(_sequence(frame), sender), frame) for sender, frame in hub.receive(seconds)]

        return _exchange(_with_receive(hub, receive), questions, *rest)

    return [(exchange, "exchange", by_number)]


def _counts_twice() -> list[Change]:
    """Join every frame that answers an open question, and so a repeated one again."""
    repeated: list[str] = []

    def noting(hub: Any, questions: Any, *rest: Any) -> Any:
        names = {question.sequence: list(question.clients.values()) for question in questions}
        arrived: list[int] = []

        def receive(seconds: float) -> Any:
            frames = hub.receive(seconds)
            arrived.extend(_sequence(frame) for _, frame in frames)
            return frames

        replies = _exchange(_with_receive(hub, receive), questions, *rest)
        repeated[:] = [client.name for number, asked in names.items() if arrived.count(number) > 1 for client in asked]
        return replies

    def take(self: Any, number: int, model: Any, uploads: Any) -> Any:
        again = {f"{name} again": uploads[name] for name in repeated if name in uploads}
        return _take(self, number, model, {**uploads, **again})

    return [(exchange, "exchange", noting), (ServerStep, "take", take)]


def _obeys_old() -> list[Change]:
    def train(self: Any, instruction: Any, task: Any, state: Any) -> Any:
        if state is not None and (instruction.epoch, instruction.round_number) < (state.epoch, state.round_number):
            state = replace(state, epoch=instruction.epoch, round_number=instruction.round_number - 1)
        return _train(self, instruction, task, state)

    return [(Gateway, "_train", train)]


def _trusts_any() -> list[Change]:
    def answer(self: Node, frame: bytes) -> bytes | None:
        try:
            instruction = decode_instruction(frame)
        except ValueError:
            return _answer(self, frame)
        session = instruction.session if self.run is None else self.run.session
        return _answer(self, encode_instruction(replace(instruction, node=self.name, session=session)))

    return [(Node, "answer", answer)]


def _dies_of_nonsense() -> list[Change]:
    def decode(*arguments: Any) -> Any:
        try:
            return decode_instruction(*arguments)
        except ValueError as error:
            raise RuntimeError("nonsense") from error

    return [(messages, "decode_instruction", decode)]


def _attends_to_replies_only() -> list[Change]:
    def deaf(hub: Any, questions: Any, deadline: float, limits: Any, attend: Any) -> Any:
        return _exchange(hub, questions, deadline, limits, lambda: None)

    return [(exchange, "exchange", deaf)]


def _endless(hub: Any, questions: Any, deadline: float, *rest: Any) -> Any:
    return _exchange(hub, questions, 1e9, *rest)


def _full_disk_ends_run() -> list[Change]:
    def complete(self: Any, hub: Any) -> None:
        self.checkpoints.save(self.state)
        self.on_round(self.state)

    return [(Server, "_complete", complete)]


def _rollback_removes_first() -> list[Change]:
    def rollback(self: CheckpointStore, round_number: int) -> ServerState:
        state = self.load(round_number)
        state.epoch += 1
        state.seen = dict.fromkeys(state.seen, -1)
        for number in self._numbered():
            if number > round_number:
                disk().unlink(self._file(number))
        data = "".join(json.dumps(entry) + "\n" for entry in state.history).encode()
        for path in self.history.paths():
            disk().unlink(path)
            disk().create(path, 0o600)
            disk().append(path, data)
        self.save(state)
        return state

    return [(CheckpointStore, "rollback", rollback)]


def _link_without_sync() -> list[Change]:
    def replace_by_link(source: Path, target: Path) -> None:
        temporary = files._temporary(target)
        disk().link(source, temporary)
        disk().rename(temporary, target)

    return [(checkpoint, "replace_by_link", replace_by_link)]


def _write_without_sync() -> list[Change]:
    def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
        files._make_folders(path.parent, 0o700, [])
        temporary = files._temporary(path)
        disk().create(temporary, mode)
        disk().append(temporary, data)
        disk().rename(temporary, path)
        disk().sync_folder(path.parent)

    return [(module, "write_atomically", write_atomically) for module in [checkpoint]]


def _history_last() -> list[Change]:
    def save(self: CheckpointStore, state: ServerState) -> None:
        numbered = self._file(state.round_number)
        checkpoint.write_atomically(numbered, checkpoint.to_archive(checkpoint._document(state)))
        checkpoint.replace_by_link(numbered, self.path)
        self.history.save(state)
        self._tidy(state)

    return [(CheckpointStore, "save", save)]


def _learns_twice() -> list[Change]:
    """Let a client forget that it has answered a round."""

    def recall(*arguments: Any) -> Any:
        memory = _recall(*arguments)
        states = memory.clients.items()
        return replace(
            memory, clients={name: replace(state, round_number=state.round_number - 1) for name, state in states}
        )

    return [(MemoryStore, "recall", recall)]


def _joins_by_arrival() -> list[Change]:
    def sort_replies(questions: Any, frames: Mapping[int, bytes], *expected: Any) -> Any:
        places = {number: place for place, number in enumerate(frames)}
        return _sort(sorted(questions, key=lambda asked: places.get(asked.sequence, -1)), frames, *expected)

    return [(loop, "sort_replies", sort_replies), (step, "sorted", lambda values, **options: list(values))]


def _nothing(*ignored: Any) -> None:
    pass


@dataclass(frozen=True)
class Break:
    """A deliberate break.

    Attributes
    ----------
    sentence : str
        What is wrong then.
    changes : callable
        Returns what to replace: a module or class, a name, and what takes its place.
    shows_in : tuple of str
        Kinds of incidents without which it cannot show; plans without them need not be run.
    """

    sentence: str
    changes: Callable[[], list[Change]]
    shows_in: tuple[str, ...] = ()


_POWER = ("power loss", "power loss at file operation", "rollback")
BREAKS: Mapping[str, Break] = {
    "answers-another": Break("a node can answer another's question", _answers_another, ("answers for another",)),
    "counts-twice": Break("a reply that arrives twice counts twice", _counts_twice, ("messages doubled",)),
    "obeys-old": Break("a node obeys an old instruction", _obeys_old, ("old instruction",)),
    "trusts-any": Break("a node obeys instructions for another node or another run", _trusts_any, ("misdelivery",)),
    "access-list-off": Break(
        "the broker lets a node publish under another's name",
        lambda: [(Broker, "may_publish", lambda *ignored: True)],
        ("forged reply", "forged presence", "forged instruction", "forged run"),
    ),
    "presence-ignored": Break(
        "a node that has reconnected is not asked again", lambda: [(exchange, "_look", lambda *ignored: [])]
    ),
    "ignore-revocation": Break(
        "a revoked certificate still has access", lambda: [(SimulatedHub, "revoke", _nothing)], ("revoke",)
    ),
    "dies-of-nonsense": Break("nonsense ends a node", _dies_of_nonsense, ("nonsense",)),
    "attends-to-replies-only": Break("the server does not look up while it waits", _attends_to_replies_only),
    "full-disk-ends-run": Break("a full disk ends the run", _full_disk_ends_run, ("full disk",)),
    "jumping-clock": Break(
        "the server measures time by the machine's clock", lambda: [(World, "monotonic", World.time)], ("server clock",)
    ),
    "rollback-removes-first": Break(
        "rollback unlinks and truncates before it writes", _rollback_removes_first, ("rollback",)
    ),
    "offer-every-round": Break(
        "rollback offers rounds that were never completed",
        lambda: [(CheckpointStore, "rounds", CheckpointStore._numbered)],
        ("rollback",),
    ),
    "link-without-sync": Break("the newest checkpoint's folder is not synced", _link_without_sync, _POWER),
    "write-without-sync": Break("files are renamed before their content is synced", _write_without_sync, _POWER),
    "history-last": Break("the history is written after the checkpoint", _history_last),
    "join-by-arrival": Break("uploads are joined in the order of arrival", _joins_by_arrival),
    "learns-twice": Break("a client that is asked again learns again", _learns_twice),
    "any-number-of-names": Break(
        "a gateway may use any number of names", lambda: [(clients, "NAMES_PER_CLIENT", 1_000_000)], tuple(AT_FORGERS)
    ),
    "wait-for-everything": Break(
        "a reply is waited for beyond the deadline", lambda: [(exchange, "exchange", _endless)]
    ),
}
"""The breaks by name."""


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break the code within the block."""
    with ExitStack() as stack:
        for target, attribute, value in BREAKS[name].changes():
            stack.enter_context(patch.object(target, attribute, value, create=attribute == "sorted"))
        yield
