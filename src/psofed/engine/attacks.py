"""Frames of attacks: on uploads entry by entry or as vectors, on samples, and on what attackers remember."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import common_normal, find_attackers, first_word
from psofed.engine.dense import entry_at, gather, release
from psofed.engine.hooks import NO_HOOK, Body, Frame, Hook, MakeFrame, make_function, make_hook
from psofed.engine.normals import normal_at, uniform_at
from psofed.engine.signatures import ATTACK, POISON, REMEMBER, AttackState, Uploads, Work
from psofed.parts.base import Attack
from psofed.parts.contexts import KNOWLEDGE, Conspiracy, Moment, Sample, Upload
from psofed.parts.part import takes_memory
from psofed.parts.plain import corrupt_uploads

_NOTHING, _NOBODY = np.zeros(0), np.zeros(0, np.int64)


def hooks_of(attack: Attack) -> tuple[Hook, Hook]:
    """Return the hook of an attack, and of what it remembers of its clients' models."""
    remember = (
        make_hook(attack, "remember", REMEMBER, _make_remembering) if attack.remembers_models() else NO_HOOK
    )
    if attack.poisons_samples():
        return make_hook(attack, "poison", POISON, _make_poisoning), remember
    if attack.crafts_vectors():
        return make_hook(attack, "craft", ATTACK, _make_crafting), remember
    return make_hook(attack, "corrupt", ATTACK, _FRAMES[attack.knows]), remember


def corrupt_compiled(
    attack: Attack,
    uploads: FloatArray,
    attacking: NDArray[np.bool_],
    *,
    server: FloatArray,
    clients: NDArray[Any],
    iteration: int,
    normals: FloatArray,
    common_normals: FloatArray,
    group: NDArray[Any] | None = None,
    **known: Any,
) -> FloatArray:
    """Return the uploads as the server receives them, as :func:`psofed.parts.plain.corrupt_uploads`, for large models.

    Examples
    --------
    >>> from psofed.parts.attacks import ConstantBias
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, False])
    >>> nothing = np.zeros((2, 2))
    >>> corrupt_compiled(ConstantBias(num_byzantine=1, bias=2.0), uploads, attacking, server=nothing[0],
    ...                  clients=np.arange(2), iteration=0, normals=nothing, common_normals=nothing[0])
    array([[ 3., nan],
           [ 2.,  3.]])
    """
    if attack.crafts_vectors():  # such an attack works on whole vectors already
        return corrupt_uploads(
            attack, uploads, attacking, server=server, clients=clients, iteration=iteration, normals=normals,
            common_normals=common_normals, group=group, **known,
        )  # fmt: skip
    received = uploads.copy()
    arrays = [np.ascontiguousarray(array, np.float64) for array in (server, uploads, normals, common_normals)]
    numbers = np.asarray(clients, np.int64)
    group = numbers[attacking] if group is None else np.asarray(group, np.int64)
    corrupt = make_function(attack, "corrupt", _GIVEN_FRAMES[attack.knows])
    corrupt(iteration, numbers, np.ascontiguousarray(attacking), group, *arrays, received)
    return received


@register_jitable
def _group_of(attackers: AttackState, row: int) -> IntArray:
    """Return the Byzantine clients of a group in a trial."""
    return attackers.members[row, : attackers.sizes[row]]


@register_jitable
def _byzantine_of(attackers: AttackState, row: int) -> IntArray:
    """Return the Byzantine clients of all groups in a trial; a set that is redrawn is the only one."""
    return attackers.members[row, : attackers.sizes[row]] if attackers.is_redrawn else attackers.everyone[:]


def _make_alone(unpack: Body, body: Body, level: int) -> Frame:
    """Return the frame of attackers who see only their own upload."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, group: int, attackers: AttackState, target: FloatArray, server: FloatArray,
        uploads: Uploads,
    ) -> None:  # fmt: skip
        self = unpack(options)
        clients, entries, sent, rows = uploads.clients, uploads.entries, uploads.sent, uploads.rows
        is_byzantine, stream, one_mask = attackers.is_byzantine, attackers.stream, entries.shape[1] == 1
        trials, _, shared = sent.shape
        num_clients, dimension = is_byzantine.shape[1], target.size
        for trial in range(trials):
            row = group * trials + trial
            for p in range(rows[trial]):
                client: Any = np.int64(clients[trial, p])
                # NaN: the client is not available.
                if not is_byzantine[row, client] or sent[trial, p, 0] != sent[trial, p, 0]:
                    continue
                word = first_word(n, num_clients, client, dimension)
                if uniform_at(stream, row, word) >= attackers.probability[group]:
                    continue
                for m in range(shared):
                    i: Any = np.int64(entries[trial, 0 if one_mask else p, m])
                    known = Upload(
                        target[i] - sent[trial, p, m], i, client, n, normal_at(stream, row, word + 1, i),
                        common_normal(stream, row, n, dimension, i),
                        target[i] - server[trial, i] if level > 0 else math.nan, _NOTHING, _NOTHING, _NOBODY,
                        _group_of(attackers, row), _byzantine_of(attackers, row),
                    )  # fmt: skip
                    if has_memory:
                        memory = attackers.client_memory[row, client, : attackers.memory_sizes[group, 1]]
                        sent[trial, p, m] = target[i] - body(self, known, memory)
                    else:
                        sent[trial, p, m] = target[i] - body(self, known)

    return frame


def _make_together(unpack: Body, body: Body, level: int) -> Frame:
    """Return the frame of attackers who see what others upload, with clients in order."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, group: int, attackers: AttackState, target: FloatArray, server: FloatArray,
        uploads: Uploads,
    ) -> None:  # fmt: skip
        self = unpack(options)
        clients, sent, stream = uploads.clients, uploads.sent, attackers.stream
        (trials, most, shared), dimension = sent.shape, target.size
        work, order = _make_work(most, shared, dimension), np.empty(most, np.int64)
        numbers, numbered = np.empty((2, most)), np.empty(most, np.int64)
        for trial in range(trials):
            row = group * trials + trial
            present, attacking = _line_up(n, attackers, group, dimension, uploads, trial, order)
            if attacking == 0:
                continue
            values, is_shared, entries = gather(uploads, trial, order, present, target, work)
            for q in range(present - attacking, present):
                p = order[q]
                client: Any = np.int64(clients[trial, p])
                word = first_word(n, attackers.is_byzantine.shape[1], client, dimension)
                for m in range(shared):
                    i: Any = np.int64(entry_at(uploads, trial, p, m))
                    place, honest, accomplices = work.row_of[i], 0, 0
                    if place < 0:  # too large to be sent
                        continue
                    for other in range(present):
                        if is_shared[other, place] and other < present - attacking:
                            numbers[0, honest] = values[other, place]
                            honest += 1
                        elif is_shared[other, place]:
                            numbers[1, accomplices] = values[other, place]
                            numbered[accomplices] = clients[trial, order[other]]
                            accomplices += 1
                    known = Upload(
                        values[q, place], i, client, n, normal_at(stream, row, word + 1, i),
                        common_normal(stream, row, n, dimension, i), target[i] - server[trial, i],
                        numbers[1, :accomplices], numbers[0, : honest if level > 2 else 0], numbered[:accomplices],
                        _group_of(attackers, row), _byzantine_of(attackers, row),
                    )  # fmt: skip
                    if has_memory:
                        memory = attackers.client_memory[row, client, : attackers.memory_sizes[group, 1]]
                        sent[trial, p, m] = target[i] - body(self, known, memory)
                    else:
                        sent[trial, p, m] = target[i] - body(self, known)
            release(entries, work)

    return frame


def _make_crafting(unpack: Body, body: Body) -> Frame:
    """Return the frame of attackers who see all uploads as vectors, with clients in order."""

    def frame(
        options: FloatArray, n: int, group: int, attackers: AttackState, target: FloatArray, server: FloatArray,
        uploads: Uploads,
    ) -> None:  # fmt: skip
        self = unpack(options)
        sent, num_clients, dimension = uploads.sent, attackers.is_byzantine.shape[1], target.size
        trials, most, shared = sent.shape
        group_size, client_size = attackers.memory_sizes[group, 0], attackers.memory_sizes[group, 1]
        work, order = _make_work(most, shared, dimension), np.empty(most, np.int64)
        who = np.empty(most, np.int64)
        for trial in range(trials):
            row = group * trials + trial
            present, attacking = _line_up(n, attackers, group, dimension, uploads, trial, order)
            if attacking == 0 and group_size == 0:
                continue
            changes, is_shared, entries = gather(uploads, trial, order, present, server[trial], work)
            own, common = np.empty(entries.size), np.empty(entries.size)
            for place in range(entries.size):
                i: Any = entries[place]
                own[place] = target[i] - server[trial, i]
                common[place] = common_normal(attackers.stream, row, n, dimension, i)
            for q in range(present):
                who[q] = uploads.clients[trial, order[q]]
            others = present - attacking
            out = changes[others:].copy()
            body(
                self,
                Conspiracy(
                    changes[:others], is_shared[:others], who[:others], changes[others:], is_shared[others:], own,
                    entries, common, num_clients, dimension, n, attackers.memory[row, :group_size],
                    np.empty(present * (present + 2) + 2 * entries.size), who[others:present],
                    _group_of(attackers, row), _byzantine_of(attackers, row),
                    attackers.client_memory[row, :, :client_size],
                ),
                out,
            )  # fmt: skip
            for q in range(others, present):
                for m in range(shared):
                    i = entry_at(uploads, trial, order[q], m)
                    place = work.row_of[i]
                    if place >= 0:
                        sent[trial, order[q], m] = server[trial, i] - out[q - others, place]
            release(entries, work)

    return frame


@register_jitable
def _make_work(participants: int, shared: int, dimension: int) -> Work:
    """Return scratch for :func:`psofed.engine.dense.gather`."""
    most = min(dimension, participants * shared)
    return Work(
        np.empty(participants * most), np.empty(participants * most, np.bool_), np.full(dimension, -1),
        np.empty(most, np.int64), np.empty(0, np.int64),
    )  # fmt: skip


@register_jitable
def _line_up(
    n: int, attackers: AttackState, group: int, dimension: int, uploads: Uploads, trial: int, order: IntArray
) -> tuple[int, int]:
    """Order those present by client, first who does not attack, then who does; return how many they are."""
    participants, num_clients = uploads.rows[trial], attackers.is_byzantine.shape[1]
    rank, attacking = np.empty(participants, np.int64), np.empty(order.size, np.bool_)
    count = find_attackers(n, attackers, group, dimension, uploads, trial, attacking)
    present = 0
    for p in range(participants):
        if uploads.sent[trial, p, 0] == uploads.sent[trial, p, 0]:  # else absent: last
            rank[p] = uploads.clients[trial, p] + (num_clients if attacking[p] else 0)
            present += 1
        else:
            rank[p] = 2 * num_clients
    ordered = np.argsort(rank)
    for q in range(present):
        order[q] = ordered[q]
    return present, count


def _make_poisoning(unpack: Body, body: Body) -> Frame:
    """Return the frame of attacks on data: one call for each sample that is poisoned."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, k: int, group: int, attackers: AttackState, target: FloatArray, s: int,
        inputs: FloatArray, residual: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        dimension, stream = inputs.shape[1], attackers.stream
        trials = attackers.is_byzantine.shape[0] // attackers.probability.size
        word = first_word(n, attackers.is_byzantine.shape[1], k, dimension)
        for trial in range(trials):
            row = group * trials + trial
            if not attackers.is_byzantine[row, k]:
                continue
            if uniform_at(stream, row, word) >= attackers.probability[group]:
                continue
            clean, normals = np.empty(dimension), np.empty(dimension)
            label = residual[s, trial]
            for i in range(dimension):
                clean[i] = inputs[s, i, trial]
                normals[i] = normal_at(stream, row, word + 1, i)
                label += target[i] * clean[i]
            sample = Sample(
                clean, label, normals, k, n, _group_of(attackers, row), _byzantine_of(attackers, row)
            )
            if has_memory:
                memory = attackers.client_memory[row, k, : attackers.memory_sizes[group, 1]]
                poisoned, wrong = body(self, sample, memory)
            else:
                poisoned, wrong = body(self, sample)
            for i in range(dimension):
                inputs[s, i, trial] = poisoned[i]
                wrong -= target[i] * poisoned[i]
            residual[s, trial] = wrong

    return frame


def _make_remembering(unpack: Body, body: Body) -> Frame:
    """Return the frame of what attackers remember after the local step; of all clients where the set is redrawn."""

    def frame(
        options: FloatArray, n: int, group: int, attackers: AttackState, target: FloatArray, shift: int, mask: int,
        models: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        trials = attackers.is_byzantine.shape[0] // attackers.probability.size
        num_clients, dimension = attackers.is_byzantine.shape[1], target.size
        model, size = np.empty(dimension), attackers.memory_sizes[group, 1]
        for k in range(num_clients):
            for trial in range(trials):
                row = group * trials + trial
                if attackers.is_redrawn or attackers.is_byzantine[row, k]:
                    for i in range(dimension):
                        model[i] = target[i] - models[k >> shift, i, trial + (k & mask)]
                    body(self, Moment(model, k, n), attackers.client_memory[row, k, :size])

    return frame


def _make_given(unpack: Body, body: Body, level: int) -> Frame:
    """Return the frame of attackers whose uploads (as models, clients in order) and random numbers are given."""

    def frame(
        options: FloatArray, n: int, clients: NDArray[Any], attacking: NDArray[Any], group: NDArray[Any],
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
                    known = Upload(
                        uploads[p, i], i, clients[p], n, normals[p, i], common[i], server[i] if level > 0 else math.nan,
                        accomplices[: num_accomplices if level > 1 else 0], honest[: num_honest if level > 2 else 0],
                        accomplice_clients[: num_accomplices if level > 1 else 0], group, group,
                    )  # fmt: skip
                    received[p, i] = body(self, known)

    return frame


def _knowing(make_frame: Callable[..., Frame], knows: str) -> MakeFrame:
    """Return a maker of frames whose attackers see only part of what the frame knows."""
    level = KNOWLEDGE.index(knows)

    def make(unpack: Body, body: Body) -> Frame:
        return make_frame(unpack, body, level)

    return make


_FRAMES: dict[str, MakeFrame] = {
    knows: _knowing(_make_alone if knows in ("upload", "server") else _make_together, knows)
    for knows in KNOWLEDGE
}
_GIVEN_FRAMES: dict[str, MakeFrame] = {knows: _knowing(_make_given, knows) for knows in KNOWLEDGE}
