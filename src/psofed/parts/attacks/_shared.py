"""What attacks share: who is Byzantine, who attacks when, the addresses of their draws, and clean uploads' moments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word, normal_pair, split_word, unit_uniform
from psofed.engine.streams import WordArray
from psofed.scenario import Attack, Scenario

# Where in an attack's options its own numbers begin; before them stand p_a and |S_B| if redrawn, else −1.
OWN = 2

# Words from here on are for what is common to all clients, and for redrawing the Byzantine set.
_COMMON = np.uint64(1 << 62)
_REDRAWN = np.uint64(1 << 63)


def pack_options(attack: Attack, *own: float) -> FloatArray:
    """Return the numbers an attack's hook is called with: p_a, |S_B| if redrawn else −1, and its own."""
    redrawn = attack.num_byzantine if attack.byzantine_set == "redrawn" else -1
    return np.array([attack.probability, redrawn, *own], dtype=np.float64)


@compiled(inline=True)
def first_word(n, clients, client, dimension):
    """Return the address of a client's words in iteration n: one for τ, then one for every two entries' normals."""
    return (n * clients + client) * (1 + (dimension + 1) // 2)


@compiled(inline=True)
def attacks_now(key, gamma, word, probability):
    """Return τ_{k,n}, whether the Byzantine client whose words begin at `word` attacks."""
    return unit_uniform(mix_word(key + np.uint64(word) * gamma)) < probability


@compiled(inline=True)
def own_normal(key, gamma, word, entry):
    """Return the standard normal of one client, iteration and entry."""
    high, low = split_word(mix_word(key + np.uint64(word + 1 + entry // 2) * gamma))
    x, y = normal_pair(high, low)
    return np.float64(y) if entry % 2 else np.float64(x)


@compiled(inline=True)
def common_normal(key, gamma, n, dimension, entry):
    """Return the standard normal of one iteration and entry, the same for all clients."""
    word = np.uint64(n * ((dimension + 1) // 2) + entry // 2) + _COMMON
    high, low = split_word(mix_word(key + word * gamma))
    x, y = normal_pair(high, low)
    return np.float64(y) if entry % 2 else np.float64(x)


@compiled
def redraw_byzantine(n, key, gamma, options, is_byzantine):
    """Fill ``is_byzantine`` (K, lanes) with the set of iteration n, if the set is redrawn."""
    count = np.int64(options[1])
    if count < 0:
        return
    num_clients, lanes = is_byzantine.shape
    is_byzantine[:] = False
    clients = np.arange(num_clients)
    swapped = np.empty(count, np.int64)
    for lane in range(lanes):
        # A partial Fisher–Yates shuffle whose swaps are undone, so that each set depends on its own words alone.
        for j in range(count):
            word = mix_word(key[lane] + (np.uint64(n * count + j) + _REDRAWN) * gamma[lane])
            other = j + bounded(word, num_clients - j)
            swapped[j] = other
            clients[j], clients[other] = clients[other], clients[j]
            is_byzantine[clients[j], lane] = True
        for j in range(count - 1, -1, -1):
            clients[j], clients[swapped[j]] = clients[swapped[j]], clients[j]


@compiled
def draw_attacking(n, key, gamma, uploaders, is_byzantine, options, dimension):
    """Return which uploads (P, lanes) are attacked in iteration n: β_k τ_{k,n}."""
    redraw_byzantine(n, key, gamma, options, is_byzantine)
    participants, lanes = uploaders.shape
    attacking = np.empty((participants, lanes), np.bool_)
    for p in range(participants):
        for lane in range(lanes):
            client = uploaders[p, lane]
            word = first_word(n, is_byzantine.shape[0], client, dimension)
            attacking[p, lane] = is_byzantine[client, lane] and attacks_now(
                key[lane], gamma[lane], word, options[0]
            )
    return attacking


@compiled
def clean_moments(entries, sent, attacking, dimension):
    """Return count, mean and deviation (each (D, lanes)) of the clean uploads of every entry.

    The deviation is that of a sample, with count − 1 below; 0 where fewer than two clients share the entry.
    """
    participants, shared, lanes = sent.shape
    count, mean = np.zeros((dimension, lanes)), np.zeros((dimension, lanes))
    deviation = np.zeros((dimension, lanes))
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if not attacking[p, lane]:
                    i = entries[p, m, lane]
                    count[i, lane] += 1.0
                    mean[i, lane] += sent[p, m, lane]
    mean /= np.maximum(count, 1.0)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if not attacking[p, lane]:
                    i = entries[p, m, lane]
                    deviation[i, lane] += (sent[p, m, lane] - mean[i, lane]) ** 2
    return count, mean, np.sqrt(deviation / np.maximum(count - 1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Shocks:
    """All randomness of one trial's attack, whatever its kind, over N iterations.

    Attributes
    ----------
    attacking : bool array (N, K)
        β_{k,n} τ_{k,n}: whether client k is Byzantine and attacks.
    own : array (N, K, D)
        Each client's standard normals.
    common : array (N, D)
        Standard normals common to all clients.
    """

    attacking: NDArray[np.bool_]
    own: FloatArray
    common: FloatArray


def draw_shocks(key: WordArray, gamma: WordArray, scenario: Scenario) -> Shocks:
    """Draw one trial's attack at once, as the hooks draw it on the way.

    Parameters
    ----------
    key, gamma : array (1,)
        The trial's attack stream.
    """
    count, clients, dimension = scenario.iterations, scenario.num_clients, scenario.dimension
    attacking = np.zeros((count, clients), np.bool_)
    own, common = np.zeros((count, clients, dimension)), np.zeros((count, dimension))
    if scenario.attack is not None:
        byzantine = np.arange(clients)[:, None] < scenario.attack.num_byzantine
        _fill_shocks(key, gamma, pack_options(scenario.attack), byzantine, attacking, own, common)
    return Shocks(attacking, own, common)


def count_byzantine(attack: Attack, num_clients: int) -> tuple[FloatArray, float]:
    """Return the probability of each client to be Byzantine, and a factor for pairs.

    Two different clients k, l are both Byzantine with probability factor · β_k β_l, where β are the first (and
    for a fixed set β is 0 or 1, and the factor 1).
    """
    if attack.byzantine_set == "fixed":
        return (np.arange(num_clients) < attack.num_byzantine).astype(np.float64), 1.0
    chance = attack.num_byzantine / num_clients
    pair = chance * (attack.num_byzantine - 1) / max(num_clients - 1, 1)
    return np.full(num_clients, chance), pair / chance**2 if chance else 1.0


@compiled
def _fill_shocks(key, gamma, options, is_byzantine, attacking, own, common):
    iterations, clients, dimension = own.shape
    everyone = np.arange(clients).astype(np.int32).reshape(clients, 1)
    for n in range(iterations):
        attacking[n] = draw_attacking(n, key, gamma, everyone, is_byzantine, options, dimension)[:, 0]
        for i in range(dimension):
            common[n, i] = common_normal(key[0], gamma[0], n, dimension, i)
            for k in range(clients):
                own[n, k, i] = own_normal(key[0], gamma[0], first_word(n, clients, k, dimension), i)
