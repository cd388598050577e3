"""Byzantine clients, the times of their attacks, and the addresses of the attack's random numbers.

Whether client k attacks in iteration n, τ_{k,n}, and its normals are addressed by iteration, client and entry and are
the same for all kinds of attack. So whether and how one client attacks does not depend on who else does, and two kinds
of attack are compared on the same occasions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.normals import Index, normal_pair, uniform_at, word_at
from psofed.engine.participants import draw_participants
from psofed.engine.signatures import AttackState, Uploads
from psofed.engine.streams import Stream, WordArray, make_stream
from psofed.parts.base import Attack
from psofed.parts.plain import check_memory

if TYPE_CHECKING:
    from psofed.engine.hooks import Hook
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# What a group changes.
ON_UPLOADS, ON_SAMPLES = 0, 1

# Words from here on are for what is common to all clients, and for redrawing the Byzantine set.
_COMMON = np.uint64(1 << 62)
_REDRAWN = np.uint64(1 << 63)


class AttackSide(NamedTuple):
    """The groups of attackers in the form that kernels take.

    Attributes
    ----------
    kinds, addresses, remember : int arrays (G,)
        What each group changes, and its hooks; `remember` is 0 where attackers remember no models.
    options : array (G, any)
        Their options.
    sets : int array (T, L, |S_B|)
        The Byzantine set of each iteration, where it is redrawn; else empty.
    clean, changed : array (L, P, M)
        Scratch for several groups: uploads before all attacks, and after those of some groups.
    """

    kinds: IntArray
    addresses: IntArray
    remember: IntArray
    options: FloatArray
    sets: IndexArray
    clean: FloatArray
    changed: FloatArray


def make_attack_side(
    scenario: "Scenario", fleet: "Fleet", seed: int, trials: range, uploads: tuple[int, int]
) -> "tuple[AttackSide, AttackState, tuple[Hook, ...]]":
    """Return all groups of attackers, who attacks when, and the hooks; `uploads` are P and M."""
    from psofed.engine.attacks import hooks_of

    dimensions = [entries_of(attack, scenario) for attack in scenario.attacks]
    for attack, dimension in zip(scenario.attacks, dimensions, strict=True):
        check_memory(attack, scenario.num_clients, dimension)
        if attack.remembers_models() and not scenario.algorithm.holds_models:
            raise NotCoveredError(
                f'attack.kind = "{attack.kind}" remembers the models of its clients, which hold none with '
                f'algorithm = "{scenario.algorithm.kind}"; use algorithm = "pso-fed"'
            )
    hooks = [hooks_of(attack) for attack in scenario.attacks]
    masks = [fleet.byzantine_mask(attack) for attack in scenario.attacks]
    streams = [make_stream(seed, "attack", trials, g) for g in range(len(masks))]
    size = (len(trials), *uploads) if len(masks) > 1 else (0, 0, 0)
    side = AttackSide(
        kinds=np.array(
            [ON_SAMPLES if a.poisons_samples() else ON_UPLOADS for a in scenario.attacks], np.int64
        ),
        addresses=np.array([hook.address for hook, _ in hooks], np.int64),
        remember=np.array([remember.address for _, remember in hooks], np.int64),
        options=_padded([hook.options for hook, _ in hooks]),
        sets=np.zeros((0, 0, 0), np.int32),
        clean=np.empty(size),
        changed=np.empty(size),
    )
    attackers = make_attackers(scenario.attacks, masks, streams, dimensions, scenario.num_clients)
    return side, attackers, tuple(hook for pair in hooks for hook in pair)


def entries_of(attack: Attack, scenario: "Scenario") -> int:
    """Return how many entries what an attack changes has."""
    if attack.poisons_samples() or scenario.algorithm.holds_models:
        return scenario.dimension
    return scenario.algorithm.exchange(scenario).numbers


def make_attackers(
    attacks: Sequence[Attack],
    masks: Sequence[NDArray[np.bool_]],
    streams: Sequence[Stream],
    dimensions: Sequence[int],
    clients: int,
) -> AttackState:
    """Return the state of groups whose fixed Byzantine sets are `masks` (K,)."""
    groups = len(attacks)
    trials = streams[0].key.size if groups else 0
    sizes = np.array(
        [
            (a.group_memory_size(clients, size), a.memory_size(size))
            for a, size in zip(attacks, dimensions, strict=True)
        ],
        np.int64,
    ).reshape(groups, 2)
    members = np.zeros((groups * trials, clients), np.int64)
    counts = np.repeat([int(mask.sum()) for mask in masks], trials).astype(np.int64)
    for g, mask in enumerate(masks):
        members[g * trials : (g + 1) * trials, : mask.sum()] = np.flatnonzero(mask)
    most_group, most_client = sizes.max(axis=0, initial=0)
    everyone = np.any(masks, axis=0) if groups else np.zeros(0, np.bool_)
    return AttackState(
        stream=np.concatenate(
            [np.zeros((2, 0), np.uint64), *(np.array(stream) for stream in streams)], axis=1
        ),
        probability=np.array([attack.probability for attack in attacks], np.float64),
        is_redrawn=any(attack.byzantine_set == "redrawn" for attack in attacks),
        is_byzantine=np.repeat(np.array(masks, np.bool_).reshape(groups, clients), trials, axis=0),
        members=members,
        sizes=counts,
        everyone=np.flatnonzero(everyone),
        memory=np.zeros((groups * trials, most_group)),
        client_memory=np.zeros((groups * trials, clients if most_client else 0, most_client)),
        memory_sizes=sizes,
    )


def draw_byzantine(attack: Attack, stream: Stream, first: Index, count: int, clients: int) -> IndexArray:
    """Draw the Byzantine sets of `count` iterations from number `first` on, shape (T, L, |S_B|)."""
    out = np.empty((count, stream.key.size, attack.num_byzantine), np.int32)
    key = stream.key + _REDRAWN * stream.gamma
    draw_participants(np.array([key, stream.gamma]), first, clients, out)
    return out


@kernel_part
def set_byzantine(sets: IndexArray, t: int, attackers: AttackState) -> None:
    """Make ``sets[t]`` (L, |S_B|) the Byzantine sets."""
    is_byzantine, members = attackers.is_byzantine, attackers.members
    for trial in range(sets.shape[1]):
        for j in range(attackers.sizes[trial]):
            is_byzantine[trial, members[trial, j]] = False
        for j in range(sets.shape[2]):
            is_byzantine[trial, sets[t, trial, j]] = True
        size = 0
        for k in range(is_byzantine.shape[1]):
            if is_byzantine[trial, k]:
                members[trial, size] = k
                size += 1
        attackers.sizes[trial] = size


@kernel_part
def first_word(n: int, clients: int, client: Index, dimension: int) -> int:
    """Return the address of a client's words in iteration n: one for τ, then one for every two entries' normals."""
    word: int = (n * clients + client) * (1 + (dimension + 1) // 2)
    return word


@kernel_part
def common_normal(stream: WordArray, row: int, n: int, dimension: int, entry: Index) -> float:
    """Return the standard normal of one iteration and entry, the same for all clients."""
    word = np.uint64(n * ((dimension + 1) // 2) + entry // 2) + _COMMON
    x, y = normal_pair(word_at(stream, row, word))
    return np.float64(y) if entry % 2 else np.float64(x)


@kernel_part
def find_attackers(
    n: int, attackers: AttackState, group: int, dimension: int, uploads: Uploads, trial: int, out: BoolArray
) -> int:
    """Write who of the participants attacks in a trial, and return how many do; absent clients (NaN) do not."""
    row, count = group * uploads.sent.shape[0] + trial, 0
    for p in range(uploads.rows[trial]):
        client, value = np.int64(uploads.clients[trial, p]), uploads.sent[trial, p, 0]
        out[p] = False
        if attackers.is_byzantine[row, client] and value == value:
            word = first_word(n, attackers.is_byzantine.shape[1], client, dimension)
            out[p] = uniform_at(attackers.stream, row, word) < attackers.probability[group]
            count += out[p]
    return count


def _padded(rows: list[FloatArray]) -> FloatArray:
    out = np.zeros((len(rows), max((row.size for row in rows), default=0)))
    for row, values in zip(out, rows, strict=True):
        row[: values.size] = values
    return out
