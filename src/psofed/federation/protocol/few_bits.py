"""Uploads of few bits per value: levels packed into bytes, and the dither that both sides derive."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.federation.protocol.masks import DITHER, derive_words


def pack_levels(levels: NDArray[np.uint64], bits: int) -> NDArray[np.uint8]:
    """Return levels below 2^bits as bytes, without gaps.

    Examples
    --------
    >>> pack_levels(np.array([1, 2, 3], np.uint64), 4).tolist()
    [33, 3]
    """
    shifts = np.arange(bits, dtype=np.uint64)
    flags = ((levels[:, None] >> shifts) & np.uint64(1)).astype(np.uint8)
    return np.packbits(flags.reshape(-1), bitorder="little")


def unpack_levels(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint64]:
    """Return the `count` levels that :func:`pack_levels` packed.

    Examples
    --------
    >>> unpack_levels(np.array([33, 3], np.uint8), 4, 3).tolist()
    [1, 2, 3]
    """
    flags = np.unpackbits(data, count=count * bits, bitorder="little").reshape(count, bits).astype(np.uint64)
    return np.asarray((flags << np.arange(bits, dtype=np.uint64)).sum(axis=1, dtype=np.uint64))


def packed_size(bits: int, count: int) -> int:
    """Return how many bytes `count` packed levels take."""
    return -(-bits * count // 8)


def step_of(bits: int, reach: float) -> float:
    """Return Δ, the distance between levels."""
    return 2.0 * reach / 2.0**bits


def draw_dither(session: str, node: int, round_number: int, count: int) -> FloatArray:
    """Return numbers in [0, 1) that server and client derive alike."""
    seed = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")
    words = derive_words(seed, node, round_number, DITHER, count)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)
