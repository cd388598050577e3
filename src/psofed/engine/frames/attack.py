"""Frame of attacks on uploads: one call of the body for each attacked entry."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cpython.unsafe import numbers
from numba.extending import overload
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import (
    attacks_now,
    byzantine_of,
    common_normal,
    first_word,
    group_of,
    own_normal,
)
from psofed.engine.bodies import Body, Frame, Hook, MakeFrame, Unpack, make_function, make_hook
from psofed.engine.compiling import compiled, jitable
from psofed.engine.hooks import ATTACK, CORRUPT, REMEMBER, AttackState, Uploads, take_corrupt
from psofed.parts.base import Attack
from psofed.parts.contexts import (
    Conspiracy,
    Moment,
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
        return make_hook(attack, "craft", ATTACK, _make_crafting_frame)
    return make_hook(attack, "corrupt", ATTACK, _FRAMES[attack.knows])


def remember_hook(attack: Attack) -> Hook:
    """Return the hook of an attack that remembers its clients' models."""
    return make_hook(attack, "remember", REMEMBER, _make_remembering_frame)


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
def _upload(
    value: float, entry: int, client: int, n: int, normal: float, common: float, server: float, accomplices: FloatArray,
    accomplice_clients: IntArray, honest: FloatArray, group: IntArray, byzantine: IntArray,
) -> Upload:  # fmt: skip
    return Upload(value, entry, client, n, normal, common, group, byzantine)


@jitable
def _and_server(
    value: float, entry: int, client: int, n: int, normal: float, common: float, server: float, accomplices: FloatArray,
    accomplice_clients: IntArray, honest: FloatArray, group: IntArray, byzantine: IntArray,
) -> UploadAndServer:  # fmt: skip
    return UploadAndServer(value, entry, client, n, normal, common, server, group, byzantine)


@jitable
def _and_accomplices(
    value: float, entry: int, client: int, n: int, normal: float, common: float, server: float, accomplices: FloatArray,
    accomplice_clients: IntArray, honest: FloatArray, group: IntArray, byzantine: IntArray,
) -> UploadAndAccomplices:  # fmt: skip
    return UploadAndAccomplices(
        value, entry, client, n, normal, common, server, accomplices, accomplice_clients, group, byzantine
    )


@jitable
def _and_everyone(
    value: float, entry: int, client: int, n: int, normal: float, common: float, server: float, accomplices: FloatArray,
    accomplice_clients: IntArray, honest: FloatArray, group: IntArray, byzantine: IntArray,
) -> UploadAndEveryone:  # fmt: skip
    return UploadAndEveryone(
        value,
        entry,
        client,
        n,
        normal,
        common,
        server,
        accomplices,
        honest,
        accomplice_clients,
        group,
        byzantine,
    )


def _make_frame_alone(unpack: Unpack, body: Body, context: Body) -> Frame:
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
                        upload = context(
                            target[i] - sent[p, m, lane], i, client, n,
                            own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                            target[i] - server[i, lane], _NOTHING, _NOBODY, _NOTHING, group_of(attackers, lane),
                            byzantine_of(attackers, lane),
                        )  # fmt: skip
                        if has_memory:
                            lie = body(self, upload, attackers.client_memory[lane, client])
                        else:
                            lie = body(self, upload)
                        sent[p, m, lane] = target[i] - lie

    return frame


def _make_frame_together(unpack: Unpack, body: Body, context: Body) -> Frame:
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
            count = 0
            for p in range(participants):
                word = first_word(n, num_clients, clients[p, lane], dimension)
                there = sent[p, 0, lane] == sent[p, 0, lane]  # NaN: the client is not available
                attacking[p] = there and (
                    attackers.is_byzantine[clients[p, lane], lane]
                    and attacks_now(key, gamma, word, attackers.probability)
                )
                count += attacking[p]
            if count == 0:
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
                    upload = context(
                        clean[p, m], i, clients[p, lane], n,
                        own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                        target[i] - server[i, lane], accomplices[:num_accomplices],
                        accomplice_clients[:num_accomplices], honest[:num_honest], group_of(attackers, lane),
                        byzantine_of(attackers, lane),
                    )  # fmt: skip
                    if has_memory:
                        lie = body(self, upload, attackers.client_memory[lane, clients[p, lane]])
                    else:
                        lie = body(self, upload)
                    sent[p, m, lane] = target[i] - lie
            for p in range(participants):
                for m in range(shared):
                    place[p, entries[p, m, lane]] = -1

    return frame


def _make_crafting_frame(unpack: Unpack, body: Body) -> Frame:
    """Return the frame of attackers who see all uploads as vectors: lane by lane, with clients in order."""

    def frame(
        token: int, n: int, attackers: AttackState, target: FloatArray, server: FloatArray, uploads: Uploads
    ) -> None:
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        attacking = np.empty(participants, np.bool_)
        column, row_of = np.empty(participants, np.int64), np.full(dimension, -1)
        for lane in range(lanes):
            key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
            count = present = 0
            for p in range(participants):
                word = first_word(n, num_clients, clients[p, lane], dimension)
                there = sent[p, 0, lane] == sent[p, 0, lane]  # NaN: the client is not available
                attacking[p] = there and (
                    attackers.is_byzantine[clients[p, lane], lane]
                    and attacks_now(key, gamma, word, attackers.probability)
                )
                count += attacking[p]
                present += there
                column[p] = clients[p, lane] if there else num_clients  # those that are absent come last
            if count == 0 and attackers.memory.shape[1] == 0:
                continue
            for p in range(participants):
                for m in range(shared):
                    if column[p] < num_clients:
                        row_of[entries[p, m, lane]] = 0
            met = 0
            for i in range(dimension):
                if row_of[i] == 0:
                    row_of[i] = met
                    met += 1
            entry_of, own, common = np.empty(met, np.int64), np.empty(met), np.empty(met)
            for i in range(dimension):
                if row_of[i] >= 0:
                    entry_of[row_of[i]] = i
                    own[row_of[i]] = target[i] - server[i, lane]
                    common[row_of[i]] = common_normal(key, gamma, n, dimension, i)
            honest, honest_shared = (
                np.zeros((present - count, met)),
                np.zeros((present - count, met), np.bool_),
            )
            those, those_shared = np.zeros((count, met)), np.zeros((count, met), np.bool_)
            honest_clients, accomplice_clients = (
                np.empty(present - count, np.int64),
                np.empty(count, np.int64),
            )
            h = a = 0
            order = np.argsort(column)[:present]
            for p in order:
                for m in range(shared):
                    i = entries[p, m, lane]
                    if attacking[p]:
                        those[a, row_of[i]] = server[i, lane] - sent[p, m, lane]
                        those_shared[a, row_of[i]] = True
                    else:
                        honest[h, row_of[i]] = server[i, lane] - sent[p, m, lane]
                        honest_shared[h, row_of[i]] = True
                if attacking[p]:
                    accomplice_clients[a] = column[p]
                    a += 1
                else:
                    honest_clients[h] = column[p]
                    h += 1
            out = those.copy()
            body(
                self,
                Conspiracy(
                    honest, honest_shared, honest_clients, those, those_shared, own, entry_of, common, num_clients,
                    dimension, n, attackers.memory[lane],
                    np.empty(participants * participants + 2 * participants + 2 * met), accomplice_clients,
                    group_of(attackers, lane), byzantine_of(attackers, lane), attackers.client_memory[lane],
                ),
                out,
            )  # fmt: skip
            a = 0
            for p in order:
                if attacking[p]:
                    for m in range(shared):
                        i = entries[p, m, lane]
                        sent[p, m, lane] = server[i, lane] - out[a, row_of[i]]
                    a += 1
            for row in range(met):
                row_of[entry_of[row]] = -1

    return frame


def _make_remembering_frame(unpack: Unpack, body: Body) -> Frame:
    """Return the frame of what attackers remember after the local step; of all clients where the set is redrawn."""

    def frame(token: int, n: int, attackers: AttackState, target: FloatArray, clients: FloatArray) -> None:
        self = unpack(attackers.options)
        num_clients, dimension, lanes = clients.shape
        model = np.empty(dimension)
        for k in range(num_clients):
            for lane in range(lanes):
                if attackers.is_redrawn or attackers.is_byzantine[k, lane]:
                    for i in range(dimension):
                        model[i] = target[i] - clients[k, i, lane]
                    body(self, Moment(model, k, n), attackers.client_memory[lane, k])

    return frame


def _make_frame_given(unpack: Unpack, body: Body, context: Body) -> Frame:
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
                    upload = context(
                        uploads[p, i], i, clients[p], n, normals[p, i], common[i], server[i],
                        accomplices[:num_accomplices], accomplice_clients[:num_accomplices], honest[:num_honest], group,
                        group,
                    )  # fmt: skip
                    received[p, i] = body(self, upload)

    return frame


@compiled
def _call(
    address: int, options: FloatArray, n: int, clients: NDArray[Any], attacking: NDArray[Any], group: NDArray[Any],
    server: FloatArray, uploads: FloatArray, normals: FloatArray, common: FloatArray, received: FloatArray,
) -> None:  # fmt: skip
    take_corrupt(address)(
        0, options, n, clients, attacking, group, server, uploads, normals, common, received
    )


def _given_upload(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_given(unpack, body, _upload)


def _given_server(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_given(unpack, body, _and_server)


def _given_accomplices(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_given(unpack, body, _and_accomplices)


def _given_everyone(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_given(unpack, body, _and_everyone)


_GIVEN_FRAMES: dict[str, MakeFrame] = {
    "upload": _given_upload,
    "server": _given_server,
    "accomplices": _given_accomplices,
    "everyone": _given_everyone,
}


def _frame_upload(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_alone(unpack, body, _upload)


def _frame_server(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_alone(unpack, body, _and_server)


def _frame_accomplices(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_together(unpack, body, _and_accomplices)


def _frame_everyone(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_together(unpack, body, _and_everyone)


_FRAMES: dict[str, MakeFrame] = {
    "upload": _frame_upload,
    "server": _frame_server,
    "accomplices": _frame_accomplices,
    "everyone": _frame_everyone,
}
