"""Byzantine clients, the times of their attacks, and the addresses of the attack's random numbers.

Whether client k attacks in iteration n, τ_{k,n}, and its normals are addressed by iteration, client and entry and are
the same for all kinds of attack. So whether and how one client attacks does not depend on who else does, and two kinds
of attack are compared on the same occasions.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import jitable, kernel_part, returns_slice
from psofed.engine.hooks import AttackState, Uploads
from psofed.engine.normals import mix_word, normal_pair, unit_uniform
from psofed.engine.participation import draw_participants
from psofed.engine.streams import Stream
from psofed.parts.base import Attack

# Words from here on are for what is common to all clients, and for redrawing the Byzantine set.
_COMMON = np.uint64(1 << 62)
_REDRAWN = np.uint64(1 << 63)

_FIXED = np.zeros((0, 0, 0), np.int32)


def make_attackers(
    attack: Attack | None,
    is_byzantine: NDArray[np.bool_],
    stream: Stream,
    options: FloatArray,
    dimension: int = 0,
    everyone: NDArray[np.bool_] | None = None,
) -> AttackState:
    """Return the attack state of several trials.

    `is_byzantine` (K,) is the Byzantine set where it is fixed, and `everyone` (K,) that of all groups, by default the
    same.
    """
    clients, lanes = len(is_byzantine), stream.key.size
    size = 0 if attack is None else attack.group_memory_size(clients, dimension)
    own_size = 0 if attack is None else attack.memory_size(dimension)
    members = np.flatnonzero(is_byzantine)
    return AttackState(
        stream=stream,
        probability=0.0 if attack is None else attack.probability,
        is_redrawn=_is_redrawn(attack),
        is_byzantine=np.repeat(is_byzantine[:, None], lanes, axis=1),
        options=options,
        memory=np.zeros((lanes, size)),
        members=np.tile(np.concatenate([members, np.flatnonzero(~is_byzantine)]), (lanes, 1)),
        sizes=np.full(lanes, members.size),
        everyone=members if everyone is None else np.flatnonzero(everyone),
        client_memory=np.zeros((lanes, clients, own_size)),
    )


def draw_byzantine(attack: Attack | None, stream: Stream, first: int, count: int, clients: int) -> IndexArray:
    """Draw the Byzantine sets of `count` iterations from number `first` on, shape (T, |S_B|, lanes).

    Empty where the set is fixed.
    """
    if attack is None or not _is_redrawn(attack) or not attack.num_byzantine:
        return _FIXED
    out = np.empty((count, attack.num_byzantine, stream.key.size), np.int32)
    draw_participants(stream.key + _REDRAWN * stream.gamma, stream.gamma, first, clients, out)
    return out


def redrawn_clients(attacks: Iterable[Attack]) -> int:
    """Return how many clients :func:`draw_byzantine` draws for one iteration of a trial."""
    return sum(attack.num_byzantine for attack in attacks if _is_redrawn(attack))


def _is_redrawn(attack: Attack | None) -> bool:
    return attack is not None and attack.byzantine_set == "redrawn"


@returns_slice
def group_of(attackers: AttackState, lane: int) -> IntArray:
    """Return the Byzantine clients of the group in a trial."""
    members: IntArray = attackers.members[lane][: attackers.sizes[lane]]
    return members


@returns_slice
def byzantine_of(attackers: AttackState, lane: int) -> IntArray:
    """Return the Byzantine clients of all groups in a trial; a set that is redrawn is the only one."""
    fixed: IntArray = attackers.everyone[: attackers.everyone.size]
    redrawn: IntArray = attackers.members[lane][: attackers.sizes[lane]]
    return redrawn if attackers.is_redrawn else fixed


@kernel_part(inline=True)
def first_word(n: int, clients: int, client: int, dimension: int) -> int:
    """Return the address of a client's words in iteration n: one for τ, then one for every two entries' normals."""
    return (n * clients + client) * (1 + (dimension + 1) // 2)


@kernel_part(inline=True)
def attacks_now(key: np.uint64, gamma: np.uint64, word: int, probability: float) -> bool:
    """Return τ_{k,n}, whether the Byzantine client whose words begin at `word` attacks."""
    return unit_uniform(mix_word(key + np.uint64(word) * gamma)) < probability


@kernel_part(inline=True)
def own_normal(key: np.uint64, gamma: np.uint64, word: int, entry: int) -> np.float64:
    """Return the standard normal of one client, iteration and entry."""
    x, y = normal_pair(mix_word(key + np.uint64(word + 1 + entry // 2) * gamma))
    return np.float64(y) if entry % 2 else np.float64(x)


@kernel_part(inline=True)
def common_normal(key: np.uint64, gamma: np.uint64, n: int, dimension: int, entry: int) -> np.float64:
    """Return the standard normal of one iteration and entry, the same for all clients."""
    word = np.uint64(n * ((dimension + 1) // 2) + entry // 2) + _COMMON
    x, y = normal_pair(mix_word(key + word * gamma))
    return np.float64(y) if entry % 2 else np.float64(x)


@jitable
def find_attackers(
    n: int, attackers: AttackState, dimension: int, uploads: Uploads, lane: int, attacking: BoolArray
) -> int:
    """Write who of the participants attacks in a lane, and return how many do; absent clients do not."""
    key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
    count = 0
    for p in range(uploads.sent.shape[0]):
        client = uploads.clients[p, lane]
        word = first_word(n, attackers.is_byzantine.shape[0], client, dimension)
        there = uploads.sent[p, 0, lane] == uploads.sent[p, 0, lane]  # NaN: the client is not available
        attacking[p] = there and (
            attackers.is_byzantine[client, lane] and attacks_now(key, gamma, word, attackers.probability)
        )
        count += attacking[p]
    return count


@kernel_part
def set_byzantine(clients: IndexArray, attackers: AttackState) -> None:
    """Make ``clients`` (|S_B|, lanes) the Byzantine set."""
    is_byzantine = attackers.is_byzantine
    num_clients, lanes = is_byzantine.shape
    for k in range(num_clients):
        for lane in range(lanes):
            is_byzantine[k, lane] = False
    for j in range(clients.shape[0]):
        for lane in range(lanes):
            is_byzantine[clients[j, lane], lane] = True
    for lane in range(lanes):
        size = 0
        for k in range(num_clients):
            if is_byzantine[k, lane]:
                attackers.members[lane, size] = k
                size += 1
        attackers.sizes[lane] = size
