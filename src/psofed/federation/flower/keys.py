"""Nodes' keys, the numbers that belong to them, and the signatures by which a node proves who it is."""

import hashlib
from pathlib import Path

from psofed.common.errors import PsofedError

KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER = "flwr-public-key", "flwr-signature", "flwr-timestamp"
"""Headers by which a node proves in each request who it is: its public key, and a signed time."""


SIGNATURE_SECONDS = 310.0
"""How long Flower accepts a signed time, from the earliest clock to the latest."""

USED_SIGNATURE = "used-signature"
"""Reason for refusing a request whose signed time was used before; it should be signed again."""


def number_of_key(public_key: bytes) -> int:
    """Return the 64-bit number of a node, by which its masks and its participation are drawn.

    The first eight bytes of BLAKE2b over the public key as Flower sends it (PEM, SubjectPublicKeyInfo): it belongs
    to the key, so no restart and no new registration changes any draw.
    """
    return int.from_bytes(hashlib.blake2b(public_key, digest_size=8).digest(), "big")


def public_key_of(path: Path) -> bytes:
    """Return the public key in a ``.pub`` file as Flower sends it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise PsofedError(f"{path} is not a node's public key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PsofedError(f"{path} is not a key made by psofed federation certs")
    data: bytes = public_key_to_bytes(key)
    return data


def is_timely(timestamp: str, now: float) -> bool:
    """Whether `timestamp` is the present time within Flower's tolerance."""
    import datetime

    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    try:
        age = now - datetime.datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return False
    return bool(-SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)


def is_signed(public_key: bytes, timestamp: str, signature: bytes) -> bool:
    """Whether `signature` is the key's over `timestamp`."""
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    return bool(verify_signature(bytes_to_public_key(public_key), timestamp.encode(), signature))
