"""Deliberate breaks: each opens a hole again that was closed, and the simulation must find it.

A break replaces a few functions by what they were, or by what a careless change might make of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flwr.app import Message
from flwr.common.serde import message_from_proto
from plans import AT_FORGERS, HOSTILE, PAST_THE_DOOR
from simulated_link import Link

from psofed.common import files
from psofed.common.disk import disk
from psofed.federation.client import gateway as client
from psofed.federation.deploy.node import LongLivedNode
from psofed.federation.flower import BadTreeError, IncompleteReplyError, ReplyBounds, fleet, replies
from psofed.federation.flower.clock import SteadyClock
from psofed.federation.flower.fleet import FleetConnection
from psofed.federation.flower.gate import Gate
from psofed.federation.flower.inline import is_inline
from psofed.federation.flower.signing import TimeSigner
from psofed.federation.server import checkpoint, clients, exchange, step
from psofed.federation.server.checkpoint import CheckpointStore, ServerState

Change = tuple[Any, str, Any]


def _open_door() -> list[Change]:
    return [(Gate, "why_refused", lambda *ignored: None)]


def _any_number_of_names() -> list[Change]:
    return [(clients, "NAMES_PER_CLIENT", 1_000_000)]


def _take_everything() -> list[Change]:
    """Take whatever is pulled for the reply of the node that was asked, as Flower's Grid gives it."""

    def pull_replies(grid: Any, asked: Mapping[str, int]) -> dict[str, Any]:
        pulled = {key: _pull_as_flower_does(grid, key) for key in asked}
        return {key: found[-1] for key, found in pulled.items() if found}

    return [(exchange, "pull_replies", pull_replies)]


def _filter_late() -> list[Change]:
    """Let Flower fetch and build everything, and only then look for the reply."""

    def pull_replies(grid: Any, asked: Mapping[str, int]) -> dict[str, Any]:
        return {
            key: message
            for key in asked
            for message in _pull_as_flower_does(grid, key)
            if isinstance(message, Exception) or message.metadata.reply_to_message_id == key
        }

    return [(exchange, "pull_replies", pull_replies)]


def _pull_as_flower_does(grid: Any, message_id: str) -> list[Message | Exception]:
    """Pull everything; if any message cannot be built, return the error alone."""
    if not hasattr(grid, "_runtime_client"):  # the calm run, in which nothing foreign is there to be pulled
        return list(grid.pull_messages([message_id]))
    pulled: list[Message | Exception] = []
    for proto, _ in replies._pull_all(grid._runtime_client, [message_id])[0]:
        bounds = replies.ReplyBounds(objects=10**6, bytes=10**9, seconds=180.0)
        try:
            if is_inline(proto):
                pulled.append(message_from_proto(proto))
            else:
                pulled.append(replies._collect(grid._runtime_client, proto.metadata, bounds))
        except (BadTreeError, IncompleteReplyError) as error:
            return [error]
    return pulled


def _trust_any_instruction() -> list[Change]:
    return [(FleetConnection, "_check_origin", lambda self, message: None)]


def _die_of_a_bad_tree() -> list[Change]:
    def answer(self: LongLivedNode, question: Any) -> None:
        run_id = question.message.metadata.run_id
        if self._context is None or self._context.run_id != run_id:
            self._context = self._fleet.run_context(run_id, self.settings)
        try:
            message = self._fleet.fetch(question)
        except fleet.NotRunningError:
            return
        except fleet.BadMessageError as error:
            raise fleet.UnknownKeyError(str(error)) from None  # one of the few that end a node
        try:
            fleet_identify(run_id, self._fleet.node_id)
            reply = self._work(message, self._context, question.whole)
            self._fleet.send(reply, 0.1, question.whole and reply.has_content())
        except Exception as error:
            self.say(f"a reply was lost: {error}")

    return [(LongLivedNode, "_answer", answer)]


def fleet_identify(run_id: int, node_id: int) -> None:
    """Set the sender of this process's messages."""
    from psofed.federation.flower import identify

    identify(run_id, node_id)


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

    return [
        ("psofed.federation.server.history", "write_atomically", write_atomically),
        ("psofed.federation.client.state", "write_atomically", write_atomically),
        ("psofed.federation.protocol.archive", "write_atomically", write_atomically),
    ]


def _offer_every_round() -> list[Change]:
    return [(CheckpointStore, "rounds", CheckpointStore._numbered)]


def _history_last() -> list[Change]:
    def save(self: CheckpointStore, state: ServerState) -> None:
        numbered = self._file(state.round_number)
        checkpoint.write_archive(numbered, *checkpoint._to_archive(state))
        checkpoint.replace_by_link(numbered, self.path)
        self.history.save(state)
        self._tidy(state)

    return [(CheckpointStore, "save", save)]


def _join_by_arrival() -> list[Change]:
    return [(step, "sorted", lambda values, **options: list(values))]


def _learn_twice() -> list[Change]:
    """Let a client forget that it has answered a round."""

    def recall(*arguments: Any) -> Any:
        from dataclasses import replace

        memory = _recall(*arguments)
        clients = {
            name: kept
            if kept.state is None
            else replace(kept, state=kept.state._replace(round_number=kept.state.round_number - 1))
            for name, kept in memory.clients.items()
        }
        return replace(memory, clients=clients)

    return [(client, "recall", recall)]


def _keep_instructions() -> list[Change]:
    def push(self: Any, grid: Any, messages: Any, numbers: Any, timeout: float) -> dict[str, int]:
        return _push(self, grid, messages, numbers, 12 * 3600.0)

    return [(exchange.MessageExchange, "_push", push)]


def _wait_for_everything() -> list[Change]:
    """Ask for the rest of a reply for three minutes, as Flower does, and wait for it however long that takes."""

    def bounds(objects: int, bytes: int, seconds: float) -> ReplyBounds:
        return ReplyBounds(objects, bytes, 180.0)

    return [
        (exchange._Pull, "wait", lambda self, seconds: self._task.wait(1e9)),
        (exchange, "ReplyBounds", bounds),
    ]


def _keep_sessions() -> list[Change]:
    return [("simulated_link", "settle", lambda *ignored: None)]


def _ignore_revocation() -> list[Change]:
    def revoke(self: Link, name: str) -> None:
        pass

    return [(Link, "revoke", revoke)]


def _signatures_for_ever() -> list[Change]:
    return [(Link, "is_new", lambda self, signature: True)]


def _jumping_clock() -> list[Change]:
    """Let the SuperLink keep heartbeats by the machine's clock, as Flower does."""
    return [(SteadyClock, "seconds", lambda self: self._wall())]


def _own_clock_only() -> list[Change]:
    return [(TimeSigner, "follow", lambda self, server_time: False)]


_recall, _push = client.recall, exchange.MessageExchange._push


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
    "take-everything": Break(
        "the server takes every message it pulls for the reply it waits for",
        _take_everything,
        PAST_THE_DOOR[:3],
    ),
    "filter-late": Break(
        "the server fetches foreign messages before it filters them", _filter_late, PAST_THE_DOOR[:3]
    ),
    "trust-any-instruction": Break(
        "a node obeys instructions that are not meant for it", _trust_any_instruction, ("misdelivery",)
    ),
    "die-of-a-bad-tree": Break(
        "an object tree without its children ends a node", _die_of_a_bad_tree, PAST_THE_DOOR[3:]
    ),
    "open-door": Break("the front door passes on every call of a known key", _open_door, HOSTILE),
    "jumping-clock": Break(
        "the SuperLink keeps heartbeats by the machine's clock", _jumping_clock, ("server clock",)
    ),
    "own-clock-only": Break(
        "a node signs its own time only", _own_clock_only, ("server clock", "node clock")
    ),
    "signatures-for-ever": Break(
        "a request that arrives twice is served twice", _signatures_for_ever, ("requests doubled",)
    ),
    "ignore-revocation": Break("a revoked key still opens the door", _ignore_revocation, ("revoke",)),
    "rollback-removes-first": Break(
        "rollback unlinks and truncates before it writes", _rollback_removes_first, ("rollback",)
    ),
    "offer-every-round": Break(
        "rollback offers rounds that were never completed", _offer_every_round, ("rollback",)
    ),
    "link-without-sync": Break("the newest checkpoint's folder is not synced", _link_without_sync, _POWER),
    "write-without-sync": Break(
        "files are renamed before their content is synced", _write_without_sync, _POWER
    ),
    "history-last": Break("the history is written after the checkpoint", _history_last),
    "join-by-arrival": Break("uploads are joined in the order of arrival", _join_by_arrival),
    "learn-twice": Break("a client that is asked again learns again", _learn_twice),
    "keep-instructions": Break("instructions live for twelve hours", _keep_instructions),
    "keep-sessions": Break(
        "the SuperLink keeps its sessions with messages that carry their content", _keep_sessions
    ),
    "any-number-of-names": Break(
        "a gateway may use any number of names", _any_number_of_names, tuple(AT_FORGERS)
    ),
    "wait-for-everything": Break(
        "a reply that is under way is waited for beyond the deadline", _wait_for_everything
    ),
}
"""The breaks by name."""


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break the code within the block."""
    with ExitStack() as stack:
        for target, attribute, value in BREAKS[name].changes():
            if isinstance(target, str):
                import importlib

                target = importlib.import_module(target)
            stack.enter_context(patch.object(target, attribute, value, create=attribute == "sorted"))
        yield
