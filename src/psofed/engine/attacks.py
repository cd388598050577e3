"""Attacks: on uploads entry by entry or as vectors, on samples, and what attackers remember of models."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import (
    Attackers,
    attacks_now,
    byzantine_of,
    common_normal,
    first_word,
    group_of,
    make_scenario_attackers,
)
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, Hooks, MakeFrame, options_of, padded
from psofed.engine.normals import normal_at
from psofed.engine.state import SEES_OTHERS, Layout
from psofed.engine.tables import Stage, call, fields
from psofed.engine.uploads import Uploads, Work, copy, entry_at, gather, release
from psofed.parts.base import Attack
from psofed.parts.contexts import KNOWLEDGE, Conspiracy, Moment, Sample, Upload
from psofed.parts.part import takes_memory

if TYPE_CHECKING:
    from psofed.engine.state import Setup

_NOTHING, _NOBODY = np.zeros(0), np.zeros(0, np.int64)


class AttackSide(NamedTuple):
    """The groups of attackers, and what they see and change.

    Attributes
    ----------
    on_uploads, on_samples, remember : int arrays (G,)
        Addresses of each group's methods; 0 where it has none.
    options : array (G, any)
        Their options.
    attackers : Attackers
        Who is Byzantine, and what they remember.
    uploads : Uploads
        What is sent.
    server, base : arrays (L, any), (any,)
        The server's errors, and what uploads and they are counted from.
    target : array (D,)
        w.
    sample, residual : arrays (S, D, 16), (S, 16)
        Samples, to be changed into those that Byzantine clients learn from.
    models, layout : array (V, D, 16), Layout
        The clients' errors.
    work : Work
        Scratch.
    clean, changed : arrays (L, P, M)
        Scratch for several groups: uploads before all attacks, and after those of some groups.
    """

    on_uploads: IntArray
    on_samples: IntArray
    remember: IntArray
    options: FloatArray
    attackers: Attackers
    uploads: Uploads
    server: FloatArray
    base: FloatArray
    target: FloatArray
    sample: FloatArray
    residual: FloatArray
    models: FloatArray
    layout: Layout
    work: Work
    clean: FloatArray
    changed: FloatArray


def make_attack_side(setup: "Setup", sample: FloatArray, residual: FloatArray) -> AttackSide:
    """Return all groups of attackers of a block of trials."""
    state, attacks = setup.state, setup.scenario.attacks
    several = setup.uploads.sent.shape if len(attacks) > 1 else (0, 0, 0)
    on_uploads, on_samples, remember = np.zeros((3, len(attacks)), np.int64)
    side = AttackSide(
        on_uploads, on_samples, remember, padded([options_of(attack) for attack in attacks]),
        make_scenario_attackers(setup), setup.uploads, state.known, state.base, state.target, sample, residual,
        state.models, setup.layout, setup.work, np.empty(several), np.empty(several),
    )  # fmt: skip
    add_hooks(side, attacks, setup.hooks)
    return side


def add_hooks(side: AttackSide, attacks: Sequence[Attack], hooks: Hooks) -> None:
    """Write the addresses of the attacks' methods into the side that they take."""
    for g, attack in enumerate(attacks):
        if attack.remembers_models():
            side.remember[g] = hooks.add(attack, "remember", _make_remembering, side)
        if attack.poisons_samples():
            side.on_samples[g] = hooks.add(attack, "poison", _make_poisoning, side)
        elif attack.crafts_vectors():
            side.on_uploads[g] = hooks.add(attack, "craft", _make_crafting, side)
        else:
            side.on_uploads[g] = hooks.add(attack, "corrupt", _FRAMES[attack.knows], side)


@kernel_part
def remember_models(n: int, attack: AttackSide) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    for g in range(attack.remember.size):
        if attack.remember[g] != 0:
            call(attack.remember[g], n, 0, g, attack)


@kernel_part
def corrupt(n: int, attack: AttackSide) -> None:
    """Let attackers change uploads in place; each of several groups sees those that nobody has changed yet."""
    addresses, clean, changed = attack.on_uploads, attack.clean, attack.changed
    clients, _, sent, rows, _ = fields(attack.uploads)
    trials, is_byzantine = sent.shape[0], attack.attackers.is_byzantine
    several = addresses.size > 1
    if several:
        copy(sent, clean)
        copy(sent, changed)
    for g in range(addresses.size):
        if addresses[g] == 0:
            continue
        call(addresses[g], n, 0, g, attack)
        if several:
            for trial in range(trials):
                for p in range(rows[trial]):
                    if is_byzantine[g * trials + trial, clients[trial, p]]:
                        copy(sent[trial, p], changed[trial, p])
            copy(clean, sent)
    if several:
        copy(changed, sent)


def _make_alone(unpack: Body, body: Body, level: int) -> Stage:
    """Return the frame of attackers who see only their own upload."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, attack: AttackSide) -> None:
        self, attackers = unpack(attack.options[g]), attack.attackers
        base, server, stream = attack.base, attack.server, attackers.stream
        clients, entries, sent, rows, _ = fields(attack.uploads)
        is_byzantine, client_memory = attackers.is_byzantine, attackers.client_memory
        one_mask = entries.shape[1] == 1
        (trials, _, shared), dimension, memory_size = sent.shape, base.size, attackers.memory_sizes[g, 1]
        for trial in range(trials):
            row = g * trials + trial
            for p in range(rows[trial]):
                client: Any = np.int64(clients[trial, p])
                # NaN: the client is not available.
                if not is_byzantine[row, client] or sent[trial, p, 0] != sent[trial, p, 0]:
                    continue
                if not attacks_now(attackers, g, row, n, client, dimension):
                    continue
                word = first_word(n, is_byzantine.shape[1], client, dimension)
                for m in range(shared):
                    i: Any = np.int64(entries[trial, 0 if one_mask else p, m])
                    known = Upload(
                        base[i] - sent[trial, p, m], i, client, n, normal_at(stream, row, word + 1, i),
                        common_normal(stream, row, n, dimension, i),
                        base[i] - server[trial, i] if level > 0 else math.nan, _NOTHING, _NOTHING, _NOBODY,
                        group_of(attackers, row), byzantine_of(attackers, row),
                    )  # fmt: skip
                    if has_memory:
                        value = body(self, known, client_memory[row, client, :memory_size])
                    else:
                        value = body(self, known)
                    sent[trial, p, m] = base[i] - value

    return frame


def _make_together(unpack: Body, body: Body, level: int) -> Stage:
    """Return the frame of attackers who see what others upload, with clients in order."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, attack: AttackSide) -> None:
        self, attackers, uploads = unpack(attack.options[g]), attack.attackers, attack.uploads
        base, server, stream, work = attack.base, attack.server, attackers.stream, attack.work
        clients, sent, client_memory = uploads.clients, uploads.sent, attackers.client_memory
        (trials, most, shared), dimension, memory_size = sent.shape, base.size, attackers.memory_sizes[g, 1]
        order, numbers, numbered = np.empty(most, np.int64), np.empty((2, most)), np.empty(most, np.int64)
        for trial in range(trials):
            row = g * trials + trial
            present, attacking = _line_up(n, g, trial, attack, order)
            if attacking == 0:
                continue
            values, is_shared, entries = gather(uploads, trial, order, present, base, work)
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
                        common_normal(stream, row, n, dimension, i), base[i] - server[trial, i],
                        numbers[1, :accomplices], numbers[0, : honest if level > 2 else 0], numbered[:accomplices],
                        group_of(attackers, row), byzantine_of(attackers, row),
                    )  # fmt: skip
                    if has_memory:
                        value = body(self, known, client_memory[row, client, :memory_size])
                    else:
                        value = body(self, known)
                    sent[trial, p, m] = base[i] - value
            release(entries, work)

    return frame


def _make_crafting(unpack: Body, body: Body) -> Stage:
    """Return the frame of attackers who see all uploads as vectors, with clients in order."""

    def frame(n: int, k: int, g: int, attack: AttackSide) -> None:
        self, attackers = unpack(attack.options[g]), attack.attackers
        uploads, work = attack.uploads, attack.work
        sent, server, base, dimension = uploads.sent, attack.server, attack.base, attack.base.size
        trials, most, shared = sent.shape
        group_size, client_size = attackers.memory_sizes[g, 0], attackers.memory_sizes[g, 1]
        order, who = np.empty(most, np.int64), np.empty(most, np.int64)
        for trial in range(trials):
            row = g * trials + trial
            present, attacking = _line_up(n, g, trial, attack, order)
            if attacking == 0 and group_size == 0:
                continue
            changes, is_shared, entries = gather(uploads, trial, order, present, server[trial], work)
            own, common = np.empty(entries.size), np.empty(entries.size)
            for place in range(entries.size):
                i: Any = entries[place]
                own[place] = base[i] - server[trial, i]
                common[place] = common_normal(attackers.stream, row, n, dimension, i)
            for q in range(present):
                who[q] = uploads.clients[trial, order[q]]
            others = present - attacking
            out = changes[others:].copy()
            body(
                self,
                Conspiracy(
                    changes[:others], is_shared[:others], who[:others], changes[others:], is_shared[others:], own,
                    entries, common, attackers.is_byzantine.shape[1], dimension, n, attackers.memory[row, :group_size],
                    np.empty(present * (present + 2) + 2 * entries.size), who[others:present],
                    group_of(attackers, row), byzantine_of(attackers, row),
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
def _line_up(n: int, g: int, trial: int, attack: AttackSide, order: IntArray) -> tuple[int, int]:
    """Order those present by client, first who does not attack, then who does; return how many they are."""
    uploads, attackers = attack.uploads, attack.attackers
    participants, num_clients = uploads.rows[trial], attackers.is_byzantine.shape[1]
    row, rank, present, attacking = g * uploads.sent.shape[0] + trial, np.empty(participants, np.int64), 0, 0
    for p in range(participants):
        rank[p] = 2 * num_clients  # absent: last
        if uploads.sent[trial, p, 0] == uploads.sent[trial, p, 0]:
            client: Any = np.int64(uploads.clients[trial, p])
            attacks = attacks_now(attackers, g, row, n, client, attack.base.size)
            rank[p] = client + (num_clients if attacks else 0)
            present += 1
            attacking += int(attacks)
    ordered = np.argsort(rank)
    for q in range(present):
        order[q] = ordered[q]
    return present, attacking


def _make_poisoning(unpack: Body, body: Body) -> Stage:
    """Return the frame of attacks on data, which changes row s of the samples if it is poisoned; k is the client."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, attack: AttackSide) -> None:
        self, attackers, target = unpack(attack.options[g]), attack.attackers, attack.target
        sample, residual = attack.sample, attack.residual
        dimension, stream, client_memory = target.size, attackers.stream, attackers.client_memory
        trials = attackers.is_byzantine.shape[0] // attackers.probability.size
        num_clients = attackers.is_byzantine.shape[1]
        word, memory_size = first_word(n, num_clients, k, dimension), attackers.memory_sizes[g, 1]
        s = k if sample.shape[0] > 1 else 0
        for trial in range(trials):
            row = g * trials + trial
            if not attacks_now(attackers, g, row, n, k, dimension):
                continue
            clean, normals = np.empty(dimension), np.empty(dimension)
            label = residual[s, trial]
            for i in range(dimension):
                clean[i] = sample[s, i, trial]
                normals[i] = normal_at(stream, row, word + 1, i)
                label += target[i] * clean[i]
            known = Sample(clean, label, normals, k, n, group_of(attackers, row), byzantine_of(attackers, row))
            if has_memory:
                poisoned, wrong = body(self, known, client_memory[row, k, :memory_size])
            else:
                poisoned, wrong = body(self, known)
            for i in range(dimension):
                sample[s, i, trial] = poisoned[i]
                wrong -= target[i] * poisoned[i]
            residual[s, trial] = wrong

    return frame


def _make_remembering(unpack: Body, body: Body) -> Stage:
    """Return the frame of what attackers remember after the local step; of all clients where the set is redrawn."""

    def frame(n: int, k: int, g: int, attack: AttackSide) -> None:
        self, attackers, target = unpack(attack.options[g]), attack.attackers, attack.target
        models, shift, mask = attack.models, attack.layout.shift, attack.layout.mask
        num_clients, is_byzantine = attackers.is_byzantine.shape[1], attackers.is_byzantine
        trials = is_byzantine.shape[0] // attackers.probability.size
        model, memory_size = np.empty(target.size), attackers.memory_sizes[g, 1]
        for client in range(num_clients):
            for trial in range(trials):
                row = g * trials + trial
                if attackers.is_redrawn or is_byzantine[row, client]:
                    for i in range(target.size):
                        model[i] = target[i] - models[client >> shift, i, trial + (client & mask)]
                    body(self, Moment(model, client, n), attackers.client_memory[row, client, :memory_size])

    return frame


def _knowing(make_frame: Callable[..., Stage], knows: str) -> MakeFrame:
    """Return a maker of frames whose attackers see only part of what the frame knows."""
    level = KNOWLEDGE.index(knows)

    def make(unpack: Body, body: Body) -> Stage:
        return make_frame(unpack, body, level)

    return make


_FRAMES: dict[str, MakeFrame] = {
    knows: _knowing(_make_together if knows in SEES_OTHERS else _make_alone, knows) for knows in KNOWLEDGE
}
