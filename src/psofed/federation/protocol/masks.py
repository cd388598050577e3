"""Which entries are exchanged: masks derived from (run seed, round, node) alike on both sides of the wire.

No index list is ever sent. The derivation is part of the wire format: it has a version, its words come
from Philox4x64-10, whose raw stream NumPy guarantees, and ``docs/wire.md`` gives test vectors. A
change to any bit of it needs a new version number.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number
from psofed.federation.protocol.bounds import MAX_SEED
from psofed.parts.base import Pattern

DERIVATION = 1
"""Version of the derivation below."""

PATTERNS = ("random", "round-robin")

MASK, OFFSET, PARTICIPANTS, ATTACK, MIXING = 1, 2, 3, 4, 5
"""Purpose of a stream of words; the third word of Philox's counter."""

_BLOCK = 1 << 20  # entries whose words are held at once, so that memory follows M and not D

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DerivedMasks:
    """Masks derived from (seed, round, node), on both sides.

    Parameters
    ----------
    seed : int
        Seed of the run, from 0 to 2⁶³ − 1.
    dimension, num_shared : int
        D and M.
    pattern : str
        ``"random"``: M of D entries, uniformly. ``"round-robin"``: a window of M entries that moves on by
        M each round, from a random offset.
    coordinated : bool
        One mask for all nodes, or one for each.

    Examples
    --------
    >>> DerivedMasks(seed=1, dimension=10, num_shared=3).indices(1, node=7)
    array([2, 3, 7])
    >>> DerivedMasks(seed=1, dimension=5, num_shared=2, pattern="round-robin").indices(2, node=7)
    array([0, 1])
    """

    seed: int
    dimension: int
    num_shared: int
    pattern: str = "random"
    coordinated: bool = True

    def __post_init__(self) -> None:
        check_integer("seed", self.seed, 0, MAX_SEED)
        check_integer("dimension", self.dimension, 1)
        check_integer("num_shared", self.num_shared, 1, self.dimension, "dimension")
        check_choice("pattern", self.pattern, PATTERNS)
        check_boolean("coordinated", self.coordinated)

    def indices(self, round_number: int, node: int) -> Indices:
        """Return the sorted positions of the entries `node` exchanges in `round_number`, shape (M,)."""
        owner = 0 if self.coordinated else node
        if self.num_shared == self.dimension:
            return _all_of(self.dimension)
        derive = _derive_few if self.num_shared <= _FEW else _derive_many
        return derive(self.pattern, self.seed, round_number, owner, self.dimension, self.num_shared)


@lru_cache(maxsize=64)
def derived_masks(seed: int, dimension: int, num_shared: int, pattern: str, coordinated: bool) -> DerivedMasks:
    """Return the same masks for the same arguments, which are then checked once."""
    sizes = {"dimension": dimension, "num_shared": num_shared}
    return DerivedMasks(seed=seed, pattern=pattern, coordinated=coordinated, **sizes)


@dataclass(frozen=True)
class Sharing:
    """Shared entries of a model whose size is not known yet.

    Parameters
    ----------
    num_shared : int or float
        M: a count, or a fraction of the model as a float in (0, 1].
    pattern : str, or psofed.patterns.Random() or RoundRobin()
        ``"random"`` or ``"round-robin"``: both sides derive the same masks, so there are no others.
    coordinated : bool
        One mask for all clients, or one for each.
    include, exclude : sequence of str
        Patterns (``fnmatch``) of the names of arrays to share; by default all floating ones. What is not shared
        stays with each client.
    seed : int
        Seed of the masks; the strategy sets its own.

    Examples
    --------
    >>> Sharing(0.3, seed=1).derived(10).indices(1, node=7)
    array([2, 3, 7])
    >>> [Sharing(shared).derived(1_000_000).num_shared for shared in (3, 0.01, 1.0)]
    [3, 10000, 1000000]
    """

    num_shared: int | float
    pattern: str | Pattern = "random"
    coordinated: bool = True
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.num_shared, float):
            check_number("num_shared", self.num_shared, 0, 1, open_low=True)
        else:
            check_integer("num_shared", self.num_shared, 1)
        if isinstance(self.pattern, Pattern):
            object.__setattr__(self, "pattern", self.pattern.kind)
        check_choice("pattern", self.pattern, PATTERNS)
        check_boolean("coordinated", self.coordinated)
        check_integer("seed", self.seed, 0, MAX_SEED)
        for name in ("include", "exclude"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(pattern, str) for pattern in given):
                raise InvalidValueError(name, given, "a sequence of patterns, as ('encoder.*',)")
            object.__setattr__(self, name, tuple(given))

    def derived(self, dimension: int) -> DerivedMasks:
        """Return what both sides derive for a model of `dimension` entries."""
        num_shared = self.num_shared
        if isinstance(num_shared, float):
            num_shared = max(1, round(num_shared * dimension))
        check_integer("num_shared", num_shared, 1, dimension, "the model's size")
        return derived_masks(self.seed, dimension, num_shared, str(self.pattern), self.coordinated)


def derive_words(
    seed: int, node: int, round_number: int, purpose: int, count: int, start: int = 0
) -> NDArray[np.uint64]:
    """Return `count` 64-bit words of the stream of (seed, node, round, purpose), from word `start` on.

    The key of Philox4x64-10 is (seed, node), its counter (block, round, purpose, version); a block is four
    words, the first is block 1, and `start` must be a multiple of four.
    """
    philox, state = _STREAM.philox, _STREAM.state
    key, counter = state["state"]["key"], state["state"]["counter"]
    key[0], key[1] = seed, node
    counter[0], counter[1], counter[2], counter[3] = start // 4, round_number, purpose, DERIVATION
    philox.state = state
    return np.asarray(philox.random_raw(count), dtype=np.uint64)


class _Stream(threading.local):
    """A thread's generator, set to one stream after the other: making a new one takes ten times as long."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(0)
        self.state: Any = self.philox.state  # with an empty buffer


_STREAM = _Stream()


def _derive_random(seed: int, round_number: int, node: int, dimension: int, num_shared: int) -> Indices:
    # The M entries with the smallest words are a uniform subset. Only words below a cut that holds at
    # least M of them, but for one case in 10⁹, are kept; in that one case all are looked at again.
    share = num_shared / dimension
    cut = share + 6.0 * np.sqrt(share * (1.0 - share) / dimension)
    for fraction in (cut, 1.0):
        positions, words = _words_below(seed, round_number, node, dimension, fraction)
        if positions.size >= num_shared:
            break
    last = np.partition(words, num_shared - 1)[num_shared - 1]
    chosen = positions[words <= last]  # ascending
    if chosen.size > num_shared:  # of equal words the first counts
        chosen = np.sort(positions[np.lexsort((positions, words))[:num_shared]])
    return _frozen(chosen)


def _words_below(
    seed: int, round_number: int, node: int, dimension: int, fraction: float
) -> tuple[Indices, NDArray[np.uint64]]:
    limit = np.uint64(min(2**64 - 1, int(fraction * 2.0**64)))
    positions, kept = [], []
    for start in range(0, dimension, _BLOCK):
        words = derive_words(seed, node, round_number, MASK, min(_BLOCK, dimension - start), start)
        below = np.flatnonzero(words <= limit)
        positions.append(below.astype(np.int64) + start)
        kept.append(words[below])
    return np.concatenate(positions), np.concatenate(kept)


def _derive_round_robin(seed: int, round_number: int, node: int, dimension: int, num_shared: int) -> Indices:
    offset = int(derive_words(seed, node, 0, OFFSET, 1)[0]) % dimension
    first = (offset + (round_number - 1) * num_shared) % dimension
    return _frozen(np.sort((first + np.arange(num_shared, dtype=np.int64)) % dimension))


def _derive(pattern: str, *arguments: int) -> Indices:
    return (_derive_random if pattern == "random" else _derive_round_robin)(*arguments)


# A mask is needed again in the next round, when the entries that were uploaded are sent back: small ones are kept for
# all clients of a fleet (10 MB at most), large ones for one after the other.
_FEW = 256
_derive_few = lru_cache(maxsize=4096)(_derive)
_derive_many = lru_cache(maxsize=8)(_derive)


@lru_cache(maxsize=2)
def _all_of(dimension: int) -> Indices:
    return _frozen(np.arange(dimension, dtype=np.int64))


def _frozen(indices: Indices) -> Indices:
    indices.setflags(write=False)
    return indices
