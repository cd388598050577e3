"""Flower's SuperLink behind a credential, on a clock that does not jump, with short cuts for the calls of every round.

Flower asks no credential for its Control API, which submits runs and registers keys. It listens on loopback, but every
user of the machine can connect there. Here every request must carry a secret that only the server's own user can read.
Only the Runtime API is left to Flower's own checks: its callers, SuperExec and the ServerApp, prove themselves by the
same secret (``--superexec-auth-secret-file``) and by a token for each task.
"""

import hmac
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from psofed.federation.flower.clock import keep_time_steady
from psofed.federation.flower.lean import LeanLink
from psofed.federation.flower.versions import untested_version

SECRET_HEADER = "x-psofed-secret"
SECRET_VARIABLE = "PSOFED_SUPERLINK_SECRET"
_RUNTIME = "/v1/runtime/"

_Call = Callable[[], Awaitable[Any]]
_Send = Callable[[dict[str, Any]], Awaitable[None]]


class SecretGate:
    """An ASGI application that passes on requests with the secret, and answers 401 to others.

    Parameters
    ----------
    app : ASGI application
        What it stands in front of.
    secret : str
        The value that the header :data:`SECRET_HEADER` must have.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], secret: str) -> None:
        self._app = app
        self._secret = secret.encode()

    async def __call__(self, scope: dict[str, Any], receive: _Call, send: _Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] == "lifespan" or self._may_pass(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            body = b"this SuperLink answers its own server's processes only"
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:  # a WebSocket, which no part of Flower uses
            await send({"type": "websocket.close", "code": 1008})

    def _may_pass(self, scope: dict[str, Any]) -> bool:
        # The path is compared as the router reads it: decoded, and no segment of it is resolved.
        if scope["type"] == "http" and scope["path"].startswith(_RUNTIME):
            return True
        shown = [value for name, value in scope["headers"] if name == SECRET_HEADER.encode()]
        return len(shown) == 1 and hmac.compare_digest(shown[0], self._secret)


def main() -> None:
    """Run ``flower-superlink`` with the arguments of this process, its application behind a :class:`SecretGate`."""
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    keep_time_steady()
    secret = Path(os.environ[SECRET_VARIABLE]).read_text()
    run = uvicorn.run

    def run_behind_gate(app: Any, **options: Any) -> None:
        served = app if untested_version() else LeanLink(app)
        run(SecretGate(served, secret), **{**options, "access_log": False})

    uvicorn.run = run_behind_gate
    flower_superlink()
