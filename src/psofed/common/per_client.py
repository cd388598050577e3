"""Values that may differ between clients: one number, one per client, or a range from which each is drawn."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.options import Check
from psofed.common.validation import check_number, describe_range

if TYPE_CHECKING:
    from psofed.common.types import FloatArray


@dataclass(frozen=True)
class Uniform:
    """A value drawn per client from the uniform distribution on [low, high].

    Examples
    --------
    >>> Uniform(0.2, 1.2)
    Uniform(low=0.2, high=1.2)
    """

    low: float
    high: float


# Uniform first: a body cannot read such a field as if it were one number (see psofed.common.options.value_type).
PerClient = Uniform | tuple[float, ...] | float


def per_client(low: float, high: float, *, open_low: bool = False) -> Check:
    """Return a check that accepts one number, a number per client or a range, all between `low` and `high`.

    Examples
    --------
    >>> per_client(0.0, 1.0)("availability.probability", {"uniform": [0.2, 0.8]})
    Uniform(low=0.2, high=0.8)
    >>> per_client(0.0, 1.0)("availability.probability", 1.2)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: availability.probability must be between 0 and 1; got 1.2.
    """
    check_one = partial(check_number, low=low, high=high, open_low=open_low)

    def check(name: str, value: Any) -> PerClient:
        if isinstance(value, Mapping) and set(value) == {"uniform"}:
            ends = value["uniform"]
            if isinstance(ends, list | tuple) and len(ends) == 2:
                value = Uniform(*ends)
        if isinstance(value, Uniform):
            least, most = (check_one(f"{name}.uniform", end) for end in (value.low, value.high))
            if most < least:
                raise InvalidValueError(f"{name}.uniform", [least, most], "[low, high] with low at most high")
            return Uniform(least, most)
        if isinstance(value, str | bytes | Mapping):
            limits = describe_range(low, high, open_low, False)
            allowed = f"a number {limits}, a list of num_clients such numbers, or {{uniform = [low, high]}}"
            raise InvalidValueError(name, value, allowed)
        if isinstance(value, Iterable):
            return tuple(check_one(f"{name}[{k}]", entry) for k, entry in enumerate(value))
        return check_one(name, value)

    return check


def check_count(name: str, value: PerClient, num_clients: int) -> None:
    """Refuse a list whose length is not the number of clients."""
    if isinstance(value, tuple) and len(value) != num_clients:
        allowed = f"one number, or {num_clients} numbers (num_clients), not {len(value)}"
        raise InvalidValueError(name, list(value), allowed)


def plain_per_client(value: PerClient) -> Any:
    """Return the value as TOML and JSON hold it."""
    if isinstance(value, Uniform):
        return {"uniform": [value.low, value.high]}
    return list(value) if isinstance(value, tuple) else value


def draw_per_client(value: PerClient, num_clients: int, seed: Any) -> "FloatArray":
    """Return each client's value, shape (K,); a range is drawn from with NumPy's generator of `seed`."""
    import numpy as np

    if isinstance(value, Uniform):
        return np.random.default_rng(seed).uniform(value.low, value.high, num_clients)
    return np.broadcast_to(np.asarray(value, dtype=np.float64), num_clients).copy()
