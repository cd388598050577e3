"""Limits of the front door, and the quota that each node has of bytes and requests.

A node's quota grows with time, enough for its questions and heartbeats. Whenever the node is asked for a reply, it gets
what the reply needs. Requests beyond the quota wait, and those that would have to wait long are refused. No clock is
read here, so the simulator uses the same code.
"""

from dataclasses import dataclass, replace

from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.flower import CHUNK_BYTES


class DoorLimits(Settings):
    """Limits of the front door."""

    guests: int = option(default=192, low=1, text="connections without a proved key, in total")
    guests_per_address: int = option(default=64, low=1, text="connections without a proved key per address")
    connections_per_node: int = option(default=8, low=1, text="connections that have proved the same key")
    head_seconds: float = option(
        default=10.0, low=0, text="time from the start of a connection to the end of its first request's head"
    )
    idle_seconds: float = option(default=60.0, low=0, text="time between two requests of one connection")
    body_seconds: float = option(
        default=20.0, low=0, text="time for a body, in addition to its length over body_rate"
    )
    body_rate: float = option(default=50_000.0, low=0, open_low=True, text="bytes per second of a slow body")
    base_body: int = option(
        default=1 << 20,
        low=1,
        text="largest body in bytes before the size of a model is known, which is then added",
    )
    polling_rate: float = option(
        default=32_000.0, low=0, text="bytes per second by which a node's quota grows"
    )
    request_rate: float = option(
        default=4.0, low=0, open_low=True, text="requests per second by which a node's quota grows"
    )
    requests_per_message: int = option(
        default=32,
        low=1,
        text="requests that a node gets for each message it is sent and each chunk of a model",
    )
    longest_wait: float = option(
        default=5.0,
        low=0,
        text="seconds that a request beyond the quota may have to wait before it is refused",
    )
    hold_seconds: float = option(default=3.0, low=0, text="seconds that a node's question waits for the bell")


class QuotaError(Exception):
    """A request beyond its node's quota."""


@dataclass(frozen=True)
class _Quota:
    """Bytes and requests that a node had left at a moment."""

    bytes: float
    requests: float
    when: float


class NodeQuotas:
    """Quotas of all nodes, by the numbers of their keys.

    Parameters
    ----------
    limits : DoorLimits
        How fast they grow.

    Examples
    --------
    >>> quotas = NodeQuotas(DoorLimits(requests_per_message=1, request_rate=4.0))
    >>> [quotas.spend(7, count=100, now=0.0) for _ in range(4)]  # the last two wait for the quota to grow
    [0.0, 0.0, 0.25, 0.5]
    """

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self._model_bytes = 0
        self._left: dict[int, _Quota] = {}

    @property
    def max_body(self) -> int:
        """Bytes of the largest body."""
        return self._limits.base_body + self._model_bytes

    def set_model_bytes(self, model_bytes: int) -> None:
        """Let the quotas be those of a model of this size."""
        self._model_bytes = model_bytes

    def refill(self, number: int, now: float) -> None:
        """Give a node what it needs to answer a message."""
        full = self._full(now)
        left = self._left.get(number, full).requests
        self._left[number] = replace(full, requests=min(full.requests, left + self._per_message()))

    def spend(self, number: int, count: int, now: float) -> float:
        """Take a request of `count` bytes from a node's quota and return how long it must wait, or raise QuotaError."""
        full, limits = self._full(now), self._limits
        left = self._left.get(number, full)
        elapsed = now - left.when
        bytes_left = min(full.bytes, left.bytes + elapsed * limits.polling_rate) - count
        requests = min(full.requests, left.requests + elapsed * limits.request_rate) - 1.0
        if bytes_left < 0 or -requests > limits.longest_wait * limits.request_rate:
            raise QuotaError("the node's quota is used up")
        self._left[number] = _Quota(bytes_left, requests, now)
        return max(0.0, -requests / limits.request_rate)

    def _full(self, now: float) -> _Quota:
        return _Quota(4.0 * self.max_body, 2.0 * self._per_message(), now)

    def _per_message(self) -> float:
        return self._limits.requests_per_message + 2.0 * (self._model_bytes // CHUNK_BYTES)
