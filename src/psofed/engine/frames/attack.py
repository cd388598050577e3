"""Frame of attacks on uploads: one call of the body for each attacked entry."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cpython.unsafe import numbers
from numba.extending import overload
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.attackers import (
    attacks_now,
    byzantine_of,
    common_normal,
    find_attackers,
    first_word,
    group_of,
    own_normal,
)
from psofed.engine.bodies import Body, Frame, Hook, MakeFrame, Unpack, make_function, make_hook
from psofed.engine.compiling import compiled, jitable
from psofed.engine.frames.crafting import make_crafting_frame
from psofed.engine.hooks import ATTACK, CORRUPT, AttackState, Uploads, take_corrupt
from psofed.parts.base import Attack
from psofed.parts.contexts import (
    Upload,
    UploadAndAccomplices,
    UploadAndEveryone,
    UploadAndServer,
)
from psofed.parts.part import takes_memory

_trailing_zeros: Body = numbers.trailing_zeros

_NOTHING, _NOBODY = np.zeros(0), np.zeros(0, np.int64)
_NONE, _ONE = np.uint64(0), np.uint64(1)


def attack_hook(attack: Attack) -> Hook:
    """Return the hook of an attack on uploads."""
    if attack.crafts_vectors():
        return make_hook(attack, "craft", ATTACK, make_crafting_frame)
    return make_hook(attack, "corrupt", ATTACK, _FRAMES[attack.knows])


def corrupt_function(attack: Attack) -> Callable[..., None]:
    """Return an attack on one server's uploads as a function of arrays, to be called from Python."""
    return make_function(attack, "corrupt", CORRUPT, _GIVEN_FRAMES[attack.knows], _call)


def lowest_bit(bits: np.uint64) -> int:
    """Return the number of the lowest bit that is set."""
    return (int(bits) & -int(bits)).bit_length() - 1


@overload(lowest_bit, jit_options={"forceinline": True})
def _lowest_bit(bits: Any) -> Body:
    # Numba wants both signatures to be the same, annotations included.
    def body(bits: Any) -> np.int64:
        return np.int64(_trailing_zeros(bits))

    return body


@jitable
def _see_upload(known: UploadAndEveryone) -> Upload:
    return Upload(
        known.value, known.entry, known.client, known.iteration, known.normal, known.common_normal,
        known.group, known.byzantine,
    )  # fmt: skip


@jitable
def _see_server(known: UploadAndEveryone) -> UploadAndServer:
    return UploadAndServer(
        known.value, known.entry, known.client, known.iteration, known.normal, known.common_normal,
        known.server, known.group, known.byzantine,
    )  # fmt: skip


@jitable
def _see_accomplices(known: UploadAndEveryone) -> UploadAndAccomplices:
    return UploadAndAccomplices(
        known.value, known.entry, known.client, known.iteration, known.normal, known.common_normal,
        known.server, known.accomplices, known.accomplice_clients, known.group, known.byzantine,
    )  # fmt: skip


@jitable
def _see_everyone(known: UploadAndEveryone) -> UploadAndEveryone:
    return known


def _make_frame_alone(unpack: Unpack, body: Body, see: Body) -> Frame:
    """Return the frame of attackers who see only their own upload."""
    has_memory = takes_memory(body)

    def frame(
        token: int, n: int, attackers: AttackState, target: FloatArray, server: FloatArray, uploads: Uploads
    ) -> None:
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        for p in range(participants):
            for first in range(0, lanes, 64):
                # Who attacks cannot be foreseen: bits of it are gathered without branching.
                byzantine = attacking = _NONE
                for lane in range(first, min(first + 64, lanes)):
                    # NaN: the client is not available.
                    there = sent[p, 0, lane] == sent[p, 0, lane]
                    bit = np.uint64(attackers.is_byzantine[clients[p, lane], lane] & there)
                    byzantine |= bit << np.uint64(lane - first)
                while byzantine != _NONE:
                    place = lowest_bit(byzantine)
                    byzantine &= byzantine - _ONE
                    lane = first + place
                    key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
                    word = first_word(n, num_clients, clients[p, lane], dimension)
                    bit = np.uint64(attacks_now(key, gamma, word, attackers.probability))
                    attacking |= bit << np.uint64(place)
                while attacking != _NONE:
                    lane = first + lowest_bit(attacking)
                    attacking &= attacking - _ONE
                    client = clients[p, lane]
                    key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
                    word = first_word(n, num_clients, client, dimension)
                    for m in range(shared):
                        i = entries[p, m, lane]
                        known = UploadAndEveryone(
                            target[i] - sent[p, m, lane], i, client, n,
                            own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                            target[i] - server[i, lane], _NOTHING, _NOTHING, _NOBODY, group_of(attackers, lane),
                            byzantine_of(attackers, lane),
                        )  # fmt: skip
                        if has_memory:
                            lie = body(self, see(known), attackers.client_memory[lane, client])
                        else:
                            lie = body(self, see(known))
                        sent[p, m, lane] = target[i] - lie

    return frame


def _make_frame_together(unpack: Unpack, body: Body, see: Body) -> Frame:
    """Return the frame of attackers who see what others upload: lane by lane, with clients in order."""
    has_memory = takes_memory(body)

    def frame(
        token: int, n: int, attackers: AttackState, target: FloatArray, server: FloatArray, uploads: Uploads
    ) -> None:
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        attacking = np.empty(participants, np.bool_)
        column = np.empty(participants, np.int64)
        place = np.full((participants, dimension), -1)
        clean = np.empty((participants, shared))
        accomplices, honest = np.empty(participants), np.empty(participants)
        accomplice_clients = np.empty(participants, np.int64)
        for lane in range(lanes):
            key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
            if find_attackers(n, attackers, dimension, uploads, lane, attacking) == 0:
                continue
            for p in range(participants):
                column[p] = clients[p, lane]
                if sent[p, 0, lane] != sent[p, 0, lane]:
                    continue
                for m in range(shared):
                    clean[p, m] = target[entries[p, m, lane]] - sent[p, m, lane]
                    place[p, entries[p, m, lane]] = m
            order = np.argsort(column)
            for p in range(participants):
                if not attacking[p]:
                    continue
                word = first_word(n, num_clients, clients[p, lane], dimension)
                for m in range(shared):
                    i = entries[p, m, lane]
                    num_accomplices = num_honest = 0
                    for other in order:
                        if place[other, i] < 0:
                            continue
                        if attacking[other]:
                            accomplices[num_accomplices] = clean[other, place[other, i]]
                            accomplice_clients[num_accomplices] = clients[other, lane]
                            num_accomplices += 1
                        else:
                            honest[num_honest] = clean[other, place[other, i]]
                            num_honest += 1
                    known = UploadAndEveryone(
                        clean[p, m], i, clients[p, lane], n,
                        own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                        target[i] - server[i, lane], accomplices[:num_accomplices], honest[:num_honest],
                        accomplice_clients[:num_accomplices], group_of(attackers, lane),
                        byzantine_of(attackers, lane),
                    )  # fmt: skip
                    if has_memory:
                        lie = body(self, see(known), attackers.client_memory[lane, clients[p, lane]])
                    else:
                        lie = body(self, see(known))
                    sent[p, m, lane] = target[i] - lie
            for p in range(participants):
                for m in range(shared):
                    place[p, entries[p, m, lane]] = -1

    return frame


def _make_frame_given(unpack: Unpack, body: Body, see: Body) -> Frame:
    """Return the frame of attackers whose uploads (as models, clients in order) and random numbers are given."""

    def frame(
        token: int, options: FloatArray, n: int, clients: NDArray[Any], attacking: NDArray[Any], group: NDArray[Any],
        server: FloatArray, uploads: FloatArray, normals: FloatArray, common: FloatArray, received: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        participants, dimension = uploads.shape
        accomplices, honest = np.empty(participants), np.empty(participants)
        accomplice_clients = np.empty(participants, np.int64)
        for i in range(dimension):
            num_accomplices = num_honest = 0
            for p in range(participants):
                if not np.isnan(uploads[p, i]):
                    if attacking[p]:
                        accomplices[num_accomplices] = uploads[p, i]
                        accomplice_clients[num_accomplices] = clients[p]
                        num_accomplices += 1
                    else:
                        honest[num_honest] = uploads[p, i]
                        num_honest += 1
            for p in range(participants):
                if attacking[p] and not np.isnan(uploads[p, i]):
                    known = UploadAndEveryone(
                        uploads[p, i], i, clients[p], n, normals[p, i], common[i], server[i],
                        accomplices[:num_accomplices], honest[:num_honest], accomplice_clients[:num_accomplices], group,
                        group,
                    )  # fmt: skip
                    received[p, i] = body(self, see(known))

    return frame


@compiled
def _call(address: int, *arguments: Any) -> None:
    take_corrupt(address)(0, *arguments)


def _knowing(make_frame: MakeFrame, see: Body) -> MakeFrame:
    """Return a maker of frames whose attackers see only part of what the frame knows."""

    def make(unpack: Unpack, body: Body) -> Frame:
        return make_frame(unpack, body, see)

    return make


_VIEWS: dict[str, Body] = {
    "upload": _see_upload,
    "server": _see_server,
    "accomplices": _see_accomplices,
    "everyone": _see_everyone,
}
_FRAMES: dict[str, MakeFrame] = {
    knows: _knowing(_make_frame_alone if knows in ("upload", "server") else _make_frame_together, see)
    for knows, see in _VIEWS.items()
}
_GIVEN_FRAMES: dict[str, MakeFrame] = {
    knows: _knowing(_make_frame_given, see) for knows, see in _VIEWS.items()
}
