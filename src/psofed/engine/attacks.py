"""Attacks: who is Byzantine and attacks when, on uploads entry by entry or as vectors, on samples, and with a memory.

Whether client k attacks in iteration n, τ_{k,n}, and its normals are addressed by iteration, client and entry and are
the same for all kinds of attack. So whether and how one client attacks does not depend on who else does, and two kinds
of attack are compared on the same occasions.
"""

import copy
import math
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Method, options_of, padded
from psofed.engine.lanes import WIDTH
from psofed.engine.normals import Index, normal_at, uniform_at
from psofed.engine.state import SEES_OTHERS, Setup, column, copy_array, entry_at, gather, release
from psofed.engine.streams import WordArray
from psofed.engine.tables import TableData, call
from psofed.engine.vocabulary import sort
from psofed.parts.base import Attack
from psofed.parts.contexts import KNOWLEDGE, Conspiracy, Moment, Sample, Upload
from psofed.parts.plain import check_memory

# Words from here on are for what is common to all clients.
_COMMON = np.uint64(1 << 62)

_NOTHING, _NOBODY = np.zeros(0), np.zeros(0, np.int64)


@kernel_part
def set_byzantine(sets: IndexArray, t: int, attack: "AttackSide") -> None:
    """Make ``sets[t]`` (L, |S_B|) the Byzantine sets."""
    is_byzantine, members, sizes = attack.is_byzantine, attack.members, attack.sizes
    for trial in range(sets.shape[1]):
        for j in range(sizes[trial]):
            is_byzantine[trial, members[trial, j]] = False
            attack.honest[column(attack.layout, members[trial, j], trial)] = 1
        sizes[trial] = sets.shape[2]
        for j in range(sets.shape[2]):
            members[trial, j] = sets[t, trial, j]
            is_byzantine[trial, members[trial, j]] = True
            attack.honest[column(attack.layout, members[trial, j], trial)] = 0
        sort(_group_of(attack, trial))


@kernel_part
def first_word(n: int, clients: int, client: Index, dimension: int) -> int:
    """Return the address of a client's words in iteration n: one for τ, then one for every two entries' normals."""
    word: int = (n * clients + client) * (1 + (dimension + 1) // 2)
    return word


@kernel_part
def common_normal(stream: WordArray, row: int, n: int, dimension: int, entry: Index) -> float:
    """Return the standard normal of one iteration and entry, the same for all clients."""
    normal: float = normal_at(stream, row, np.uint64(n * ((dimension + 1) // 2)) + _COMMON, entry)
    return normal


@register_jitable
def attacks_now(attack: "AttackSide", group: int, row: int, n: int, client: int, dimension: int) -> bool:
    """Tell whether a client is Byzantine and attacks in iteration n: τ_{k,n}."""
    if not attack.is_byzantine[row, client]:
        return False
    word = first_word(n, attack.is_byzantine.shape[1], client, dimension)
    attacks: bool = uniform_at(attack.stream, row, word) < attack.probability[group]
    return attacks


@register_jitable
def _group_of(attack: "AttackSide", row: int) -> IntArray:
    """Return the Byzantine clients of a group in a trial."""
    return attack.members[row, : attack.sizes[row]]


@register_jitable
def _byzantine_of(attack: "AttackSide", row: int) -> IntArray:
    """Return the Byzantine clients of all groups in a trial; a set that is redrawn is the only one."""
    return attack.members[row, : attack.sizes[row]] if attack.is_redrawn else attack.everyone[:]


@register_jitable
def _memory_of(attack: "AttackSide", g: int, row: int, client: int) -> FloatArray:
    """Return the memory of a client in a trial, which is empty for most attacks."""
    place = min(client, attack.client_memory.shape[1] - 1)
    return attack.client_memory[row, place, : attack.memory_sizes[g, 1]]


class AttackSide(TableData):
    """G groups of Byzantine clients, what they remember, see and change; row r = g · L + l is of group g.

    Attributes
    ----------
    stream : array (2, G · L)
        Randomness of each group.
    probability : array (G,)
        p_a.
    is_redrawn : bool
        Whether the set, then of one group only, is redrawn in each iteration.
    is_byzantine : bool array (G · L, K)
        The sets.
    honest : uint8 array (V, 16)
        1 for each column that is in none of them, 0 for others and for columns that are no client.
    num_honest : int
        Honest clients in a trial.
    members, sizes : int arrays (G · L, K) and (G · L,)
        Numbers of the Byzantine clients of a group, ascending, and how many there are.
    everyone : int array (any,)
        Numbers of the Byzantine clients of all groups, where the sets are fixed.
    memory : array (G · L, any)
        Memory of a whole group across iterations.
    client_memory : array (G · L, K or 1, any)
        Memory of each client.
    memory_sizes : int array (G, 2)
        How much of both memories each group has.
    on_uploads, on_samples, remember : int arrays (G,)
        Addresses of each group's methods; 0 where it has none.
    poisons : bool
        Whether any group attacks samples.
    levels : int array (G,)
        What each group knows, as a place in KNOWLEDGE.
    options : array (G, any)
        Their options.
    uploads, seen : Uploads
        What is sent, and what was before any group has changed it: for several groups a copy.
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
    """

    def __init__(self, setup: Setup, sample: FloatArray, residual: FloatArray) -> None:
        state, attacks, clients = setup.state, setup.scenario.attacks, setup.scenario.num_clients
        trials, memory_sizes = len(setup.trials), np.zeros((len(attacks), 2), np.int64)
        for g, attack in enumerate(attacks):
            memory_sizes[g] = _memory_sizes(attack, setup)
        most_group, most_client = memory_sizes.max(axis=0, initial=0)
        masks = [np.tile(setup.fleet.byzantine_mask(attack), (trials, 1)) for attack in attacks]
        streams = [np.array(setup.stream("attack", g)) for g in range(len(attacks))]
        self.stream = np.concatenate([np.zeros((2, 0), np.uint64), *streams], axis=1)
        self.probability = np.array([attack.probability for attack in attacks], np.float64)
        self.is_redrawn = any(attack.byzantine_set == "redrawn" for attack in attacks)
        self.is_byzantine: BoolArray = np.concatenate([np.zeros((0, clients), np.bool_), *masks])
        honest: BoolArray = np.asarray(~self.is_byzantine.reshape(len(attacks), trials, clients).any(axis=0))
        self.honest: NDArray[np.uint8] = np.zeros((setup.layout.vectors, WIDTH), np.uint8)
        if setup.layout.mask:
            self.honest.ravel()[:clients] = honest[0]
        else:
            self.honest[:, :trials] = honest.T
        self.num_honest = int(honest[0].sum())
        # Stable: Byzantine clients first, ascending.
        self.members = np.argsort(~self.is_byzantine, axis=1, kind="stable")
        self.sizes = self.is_byzantine.sum(axis=1)
        self.everyone = np.flatnonzero(self.is_byzantine.any(axis=0))
        self.memory = np.zeros((len(attacks) * trials, most_group))
        self.client_memory = np.zeros((len(attacks) * trials, clients if most_client else 1, most_client))
        self.memory_sizes = memory_sizes
        self.on_uploads, self.on_samples, self.remember = np.zeros((3, len(attacks)), np.int64)
        self.levels = np.array([KNOWLEDGE.index(attack.knows) for attack in attacks], np.int64)
        self.poisons = any(attack.defines("poison") for attack in attacks)
        self.options = padded([options_of(attack) for attack in attacks])
        self.work = setup.work
        self.uploads = self.seen = setup.uploads
        if len(attacks) > 1:
            self.seen = copy.copy(setup.uploads)
            self.seen.sent = setup.uploads.sent.copy()
        self.server, self.base, self.target = state.known, state.base, state.target
        self.sample, self.residual, self.models, self.layout = sample, residual, state.models, setup.layout
        for g, attack in enumerate(attacks):
            if attack.defines("remember"):
                self.remember[g] = setup.hooks.add(attack, "remember", _remember, self)
            if attack.defines("poison"):
                self.on_samples[g] = setup.hooks.add(attack, "poison", _poison, self)
            elif attack.defines("craft"):
                self.on_uploads[g] = setup.hooks.add(attack, "craft", _craft, self)
            else:
                frame = _corrupt_together if attack.knows in SEES_OTHERS else _corrupt_alone
                self.on_uploads[g] = setup.hooks.add(attack, "corrupt", frame, self)


def _memory_sizes(attack: Attack, setup: Setup) -> tuple[int, int]:
    """Return how much an attack remembers, of a group and of each client, unless it is too much."""
    scenario = setup.scenario
    entries = scenario.dimension if attack.defines("poison") else setup.entries
    check_memory(attack, scenario.num_clients, entries)
    if attack.defines("remember") and setup.exchange is not None:  # clients hold no models
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" remembers the models of its clients, which hold none with '
            f'algorithm = "{scenario.algorithm.kind}"; use algorithm = "pso-fed"'
        )
    return attack.group_memory_size(scenario.num_clients, entries), attack.memory_size(entries)


@kernel_part
def remember_models(n: int, attack: AttackSide) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    for g in range(attack.remember.size):
        if attack.remember[g] != 0:
            call(attack.remember[g], n, 0, g, attack)


@kernel_part
def corrupt(n: int, attack: AttackSide) -> None:
    """Let attackers change uploads in place; each of several groups sees those that nobody has changed yet."""
    addresses = attack.on_uploads
    if addresses.size > 1:
        copy_array(attack.uploads.sent, attack.seen.sent)
    for g in range(addresses.size):
        if addresses[g] != 0:
            call(addresses[g], n, 0, g, attack)


def _corrupt_alone(method: Method, n: int, k: int, g: int, attack: AttackSide) -> None:
    """Frame of attackers who see only their own upload."""
    base, server = attack.base, attack.server
    clients, entries, sent = attack.uploads.clients, attack.uploads.entries, attack.uploads.sent
    is_byzantine, stream, knows_server = attack.is_byzantine, attack.stream, attack.levels[g] > 0
    (trials, _, shared), dimension, one_mask = sent.shape, base.size, entries.shape[1] == 1
    for trial in range(trials):
        row = g * trials + trial
        for p in range(attack.uploads.rows[trial]):
            client: Any = np.int64(clients[trial, p])
            # NaN: the client is not available.
            if not is_byzantine[row, client] or sent[trial, p, 0] != sent[trial, p, 0]:
                continue
            if not attacks_now(attack, g, row, n, client, dimension):
                continue
            word = first_word(n, is_byzantine.shape[1], client, dimension)
            memory = _memory_of(attack, g, row, client)
            for m in range(shared):
                i: Any = np.int64(entries[trial, 0 if one_mask else p, m])
                known = Upload(
                    base[i] - sent[trial, p, m], i, client, n, normal_at(stream, row, word + 1, i),
                    common_normal(stream, row, n, dimension, i),
                    base[i] - server[trial, i] if knows_server else math.nan, _NOTHING, _NOTHING, _NOBODY,
                    _group_of(attack, row), _byzantine_of(attack, row),
                )  # fmt: skip
                sent[trial, p, m] = base[i] - method(attack.options[g], memory, known)


def _corrupt_together(method: Method, n: int, k: int, g: int, attack: AttackSide) -> None:
    """Frame of attackers who see what others upload, with clients in order."""
    uploads, base, server, work = attack.seen, attack.base, attack.server, attack.work
    clients, sent, stream, sees_all = uploads.clients, attack.uploads.sent, attack.stream, attack.levels[g] > 2
    (trials, most, shared), dimension = sent.shape, base.size
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
            word = first_word(n, attack.is_byzantine.shape[1], client, dimension)
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
                    numbers[1, :accomplices], numbers[0, : honest if sees_all else 0], numbered[:accomplices],
                    _group_of(attack, row), _byzantine_of(attack, row),
                )  # fmt: skip
                value = method(attack.options[g], _memory_of(attack, g, row, client), known)
                sent[trial, p, m] = base[i] - value
        release(entries, work)


def _craft(method: Method, n: int, k: int, g: int, attack: AttackSide) -> None:
    """Frame of attackers who see all uploads as vectors, with clients in order."""
    uploads, work, server, base = attack.seen, attack.work, attack.server, attack.base
    sent, dimension = attack.uploads.sent, base.size
    trials, most, shared = sent.shape
    group_size, client_size = attack.memory_sizes[g, 0], attack.memory_sizes[g, 1]
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
            common[place] = common_normal(attack.stream, row, n, dimension, i)
        for q in range(present):
            who[q] = uploads.clients[trial, order[q]]
        others = present - attacking
        out = changes[others:].copy()
        conspiracy = Conspiracy(
            changes[:others], is_shared[:others], who[:others], changes[others:], is_shared[others:], own, entries,
            common, attack.is_byzantine.shape[1], dimension, n, attack.memory[row, :group_size],
            np.empty(present * (present + 2) + 2 * entries.size), who[others:present], _group_of(attack, row),
            _byzantine_of(attack, row), attack.client_memory[row, :, :client_size],
        )  # fmt: skip
        method(attack.options[g], None, conspiracy, out)
        for q in range(others, present):
            for m in range(shared):
                i = entry_at(uploads, trial, order[q], m)
                place = work.row_of[i]
                if place >= 0:
                    sent[trial, order[q], m] = server[trial, i] - out[q - others, place]
        release(entries, work)


@register_jitable
def _line_up(n: int, g: int, trial: int, attack: AttackSide, order: IntArray) -> tuple[int, int]:
    """Order those present by client, first who does not attack, then who does; return how many they are."""
    uploads = attack.seen
    participants, num_clients = uploads.rows[trial], attack.is_byzantine.shape[1]
    row, rank, present, attacking = g * uploads.sent.shape[0] + trial, np.empty(participants, np.int64), 0, 0
    for p in range(participants):
        rank[p] = 2 * num_clients  # absent: last
        if uploads.sent[trial, p, 0] == uploads.sent[trial, p, 0]:
            client: Any = np.int64(uploads.clients[trial, p])
            attacks = attacks_now(attack, g, row, n, client, attack.base.size)
            rank[p] = client + (num_clients if attacks else 0)
            present += 1
            attacking += int(attacks)
    ordered = np.argsort(rank)
    for q in range(present):
        order[q] = ordered[q]
    return present, attacking


def _poison(method: Method, n: int, k: int, g: int, attack: AttackSide) -> None:
    """Frame of attacks on data, which changes row s of the samples if it is poisoned; k is the client."""
    target, sample, residual = attack.target, attack.sample, attack.residual
    dimension, num_clients = target.size, attack.is_byzantine.shape[1]
    trials, s = attack.is_byzantine.shape[0] // attack.probability.size, k if sample.shape[0] > 1 else 0
    word = first_word(n, num_clients, k, dimension)
    for trial in range(trials):
        row = g * trials + trial
        if not attacks_now(attack, g, row, n, k, dimension):
            continue
        clean, normals = np.empty(dimension), np.empty(dimension)
        label = residual[s, trial]
        for i in range(dimension):
            clean[i] = sample[s, i, trial]
            normals[i] = normal_at(attack.stream, row, word + 1, i)
            label += target[i] * clean[i]
        known = Sample(clean, label, normals, k, n, _group_of(attack, row), _byzantine_of(attack, row))
        poisoned, wrong = method(attack.options[g], _memory_of(attack, g, row, k), known)
        for i in range(dimension):
            sample[s, i, trial] = poisoned[i]
            wrong -= target[i] * poisoned[i]
        residual[s, trial] = wrong


def _remember(method: Method, n: int, k: int, g: int, attack: AttackSide) -> None:
    """Frame of what attackers remember after the local step; of all clients where the set is redrawn."""
    target, models = attack.target, attack.models
    is_byzantine, model = attack.is_byzantine, np.empty(target.size)
    trials = is_byzantine.shape[0] // attack.probability.size
    for client in range(is_byzantine.shape[1]):
        for trial in range(trials):
            row = g * trials + trial
            if attack.is_redrawn or is_byzantine[row, client]:
                v, lane = column(attack.layout, client, trial)
                for i in range(target.size):
                    model[i] = target[i] - models[v, i, lane]
                method(attack.options[g], _memory_of(attack, g, row, client), Moment(model, client, n))
