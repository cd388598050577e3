"""The signed time by which a node proves in each request who it is.

A server accepts a signed time only if it is close to its own: from 305 seconds in the past to 5 seconds in the future.
So a server's clock that is set back by a minute would lock all nodes out. The front door therefore names its own time
when it refuses one, and the node signs that time from then on, if it is at most a quarter of an hour from its own.
"""

import datetime
import threading
from base64 import b64encode
from typing import Any

from psofed.common.scheduler import scheduler
from psofed.federation.flower.keys import KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER

WRONG_TIME = "wrong-time"
"""Reason for refusing a request whose signed time is not the present; the server's own time follows it."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FURTHEST = 900.0  # seconds; what a node has signed for one server, another that knows its key could be shown


class TimeSigner:
    """Adds a node's key and a signed time to every request; no two of its requests carry the same time.

    Parameters
    ----------
    private_key : EllipticCurvePrivateKey
        The node's key.
    public_key : bytes
        Its public part, as Flower sends it.

    Examples
    --------
    >>> signer = TimeSigner(None, b"")
    >>> signer.follow(scheduler().time() - 60.0), signer.follow(scheduler().time() + 3600.0)
    (True, False)
    """

    def __init__(self, private_key: Any, public_key: bytes) -> None:
        self._private_key = private_key
        self._public_key = public_key
        self._offset = 0.0
        self._last = 0  # in microseconds, the shortest time that the format distinguishes
        self._lock = threading.Lock()

    def follow(self, server_time: float) -> bool:
        """Follow the server's clock; False if it is too far from this machine's."""
        offset = server_time - scheduler().time()
        if not abs(offset) <= _FURTHEST:
            return False
        with self._lock:
            self._offset, self._last = offset, 0
        return True

    def timestamp(self) -> str:
        """Return the time to sign."""
        with self._lock:
            self._last = max(int(1e6 * (scheduler().time() + self._offset)), self._last + 1)
            return (_EPOCH + datetime.timedelta(microseconds=self._last)).isoformat()

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Sign a request, as Flower's HTTP client asks its interceptors to."""
        from flwr.supercore.interceptors.http.utils import add_headers
        from flwr.supercore.primitives.asymmetric import sign_message

        timestamp = self.timestamp()
        values = {
            KEY_HEADER: self._public_key,
            SIGNATURE_HEADER: sign_message(self._private_key, timestamp.encode()),
        }
        signed = {name: b64encode(value).decode() for name, value in values.items()}
        add_headers(context.request, {**signed, TIMESTAMP_HEADER: timestamp})
        return call_next(context)
