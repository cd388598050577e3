"""Randomness: one seed, an independent stream for every trial and every source.

A stream is counter-based: its word number c is ``mix(key + c·gamma)``, SplitMix64 with a key and an odd
separate increment. Any word can be computed without those before it, so each draw is *addressed* by
what it is for (iteration, client, entry) and not by when it is drawn. Hence the attack never changes the
data, two stepsizes see the same data, and the bits do not depend on threads, chunks or workers.

References
----------
Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# What randomness is for. The order is part of the contract: it decides the bits of every seed.
SOURCES = (
    "data", "participation", "uplink", "masks", "attack", "test", "algorithm", "root", "drift", "pre_aggregation",
    "availability", "channel_up", "channel_down", "delay",
)  # fmt: skip

WordArray = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class Stream(NamedTuple):
    """One source of randomness for several trials, as kernels take it.

    Attributes
    ----------
    key, gamma : array (trials,) of uint64
        Word c of trial l is ``mix(key[l] + c·gamma[l])``.
    """

    key: WordArray
    gamma: WordArray

    def words(self, first: int, count: int) -> WordArray:
        """Return words `first` … `first + count − 1` of every trial, shape (count, trials).

        Examples
        --------
        >>> stream = make_stream(seed=1, source="masks", trials=range(2))
        >>> bool((stream.words(3, 5)[0] == stream.words(0, 5)[3]).all())
        True
        """
        counter = np.arange(first, first + count, dtype=np.uint64)[:, None]
        return mix(self.key + counter * self.gamma)


def make_stream(seed: int, source: str, trials: Any, index: int = 0) -> Stream:
    """Return the stream of one `source` for the given `trials` (an iterable of trial numbers).

    Sources of which there may be several, such as groups of attackers, are told apart by `index`.
    """
    code = SOURCES.index(source)
    spawn_key = (code, index) if index else (code,)
    key_root, gamma_root = np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(2, np.uint64)
    step = (np.asarray(trials, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return Stream(mix(step + key_root), _odd_gamma(mix(mix(step + gamma_root))))


def mix(word: WordArray) -> WordArray:
    """Return SplitMix64's finaliser of each word (Stafford's variant 13)."""
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


def _odd_gamma(word: WordArray) -> WordArray:
    # An increment with too few bit changes makes a weak Weyl sequence; SplittableRandom's remedy.
    gamma = word | np.uint64(1)
    changes = np.bitwise_count(gamma ^ (gamma >> np.uint64(1)))
    return np.where(changes < 24, gamma ^ np.uint64(0xAAAAAAAAAAAAAAAA), gamma)
