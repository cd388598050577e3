"""Byzantine clients, the times of their attacks, and the addresses of the attack's random numbers.

Whether client k attacks in iteration n, τ_{k,n}, and its normals are addressed by iteration, client and entry and are
the same for all kinds of attack. So whether and how one client attacks does not depend on who else does, and two kinds
of attack are compared on the same occasions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.normals import Index, normal_pair, uniform_at, word_at
from psofed.engine.participants import draw_participants
from psofed.engine.streams import Stream, WordArray
from psofed.parts.base import Attack
from psofed.parts.plain import check_memory

if TYPE_CHECKING:
    from psofed.engine.state import Setup
    from psofed.scenario import Scenario

# Words from here on are for what is common to all clients, and for redrawing the Byzantine set.
_COMMON = np.uint64(1 << 62)
_REDRAWN = np.uint64(1 << 63)


class Attackers(NamedTuple):
    """Byzantine clients of G groups, and the randomness and memory of their attacks; row r = g · L + l is of group g.

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
    members, sizes : int arrays (G · L, K) and (G · L,)
        Numbers of the Byzantine clients of a group, ascending, and how many there are.
    everyone : int array (any,)
        Numbers of the Byzantine clients of all groups, where the sets are fixed.
    memory : array (G · L, any)
        Memory of a whole group across iterations.
    client_memory : array (G · L, K, any)
        Memory of each client.
    memory_sizes : int array (G, 2)
        How much of both memories each group has.
    """

    stream: WordArray
    probability: FloatArray
    is_redrawn: bool
    is_byzantine: BoolArray
    members: IntArray
    sizes: IntArray
    everyone: IntArray
    memory: FloatArray
    client_memory: FloatArray
    memory_sizes: IntArray


def make_scenario_attackers(setup: "Setup") -> Attackers:
    """Return the attackers of a block of trials, unless they remember too much."""
    scenario = setup.scenario
    dimensions = [entries_of(attack, scenario) for attack in scenario.attacks]
    for attack, dimension in zip(scenario.attacks, dimensions, strict=True):
        check_memory(attack, scenario.num_clients, dimension)
        if attack.remembers_models() and not scenario.algorithm.holds_models:
            raise NotCoveredError(
                f'attack.kind = "{attack.kind}" remembers the models of its clients, which hold none with '
                f'algorithm = "{scenario.algorithm.kind}"; use algorithm = "pso-fed"'
            )
    masks = [setup.fleet.byzantine_mask(attack) for attack in scenario.attacks]
    streams = [setup.stream("attack", g) for g in range(len(masks))]
    return make_attackers(scenario.attacks, masks, streams, dimensions, scenario.num_clients)


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
) -> Attackers:
    """Return groups whose fixed Byzantine sets are `masks` (K,)."""
    groups = len(attacks)
    trials = streams[0].key.size if groups else 0
    sizes = np.array(
        [
            (a.group_memory_size(clients, size), a.memory_size(size))
            for a, size in zip(attacks, dimensions, strict=True)
        ],
        np.int64,
    ).reshape(groups, 2)
    is_byzantine = np.repeat(np.array(masks, np.bool_).reshape(groups, clients), trials, axis=0)
    most_group, most_client = sizes.max(axis=0, initial=0)
    return Attackers(
        stream=np.concatenate([np.zeros((2, 0), np.uint64), *map(np.array, streams)], axis=1),
        probability=np.array([attack.probability for attack in attacks], np.float64),
        is_redrawn=any(attack.byzantine_set == "redrawn" for attack in attacks),
        is_byzantine=is_byzantine,
        # Stable: Byzantine clients first, ascending.
        members=np.argsort(~is_byzantine, axis=1, kind="stable"),
        sizes=is_byzantine.sum(axis=1),
        everyone=np.flatnonzero(is_byzantine.any(axis=0)),
        memory=np.zeros((groups * trials, most_group)),
        client_memory=np.zeros((groups * trials, clients if most_client else 0, most_client)),
        memory_sizes=sizes,
    )


def draw_byzantine(attack: Attack, stream: Stream, first: Index, count: int, clients: int) -> IndexArray:
    """Draw the Byzantine sets of `count` iterations from number `first` on, shape (T, L, |S_B|)."""
    stream = Stream(stream.key + _REDRAWN * stream.gamma, stream.gamma)
    return draw_participants(stream, first, count, clients, attack.num_byzantine)


@kernel_part
def set_byzantine(sets: IndexArray, t: int, attackers: Attackers) -> None:
    """Make ``sets[t]`` (L, |S_B|) the Byzantine sets."""
    is_byzantine, members, sizes = attackers.is_byzantine, attackers.members, attackers.sizes
    for trial in range(sets.shape[1]):
        for j in range(sizes[trial]):
            is_byzantine[trial, members[trial, j]] = False
        for j in range(sets.shape[2]):
            is_byzantine[trial, sets[t, trial, j]] = True
        size = 0
        for k in range(is_byzantine.shape[1]):
            if is_byzantine[trial, k]:
                members[trial, size] = k
                size += 1
        sizes[trial] = size


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


@register_jitable
def attacks_now(attackers: Attackers, group: int, row: int, n: int, client: int, dimension: int) -> bool:
    """Tell whether a client is Byzantine and attacks in iteration n: τ_{k,n}."""
    if not attackers.is_byzantine[row, client]:
        return False
    word = first_word(n, attackers.is_byzantine.shape[1], client, dimension)
    attacks: bool = uniform_at(attackers.stream, row, word) < attackers.probability[group]
    return attacks


@register_jitable
def group_of(attackers: Attackers, row: int) -> IntArray:
    """Return the Byzantine clients of a group in a trial."""
    return attackers.members[row, : attackers.sizes[row]]


@register_jitable
def byzantine_of(attackers: Attackers, row: int) -> IntArray:
    """Return the Byzantine clients of all groups in a trial; a set that is redrawn is the only one."""
    return attackers.members[row, : attackers.sizes[row]] if attackers.is_redrawn else attackers.everyone[:]
