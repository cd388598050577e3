"""Flower's SuperLink behind a credential, on a clock that does not jump, with short cuts for the calls of every round.

Flower asks no credential for its Control API, which submits runs and registers keys. It listens on loopback, but every
user of the machine can connect there. Here every request must carry a secret that only the server's own user can read.
Only the Runtime API is left to Flower's own checks: its callers, SuperExec and the ServerApp, prove themselves by the
same secret (``--superexec-auth-secret-file``) and by a token for each task. Flower reads a body before it looks at the
token, so a long one is let through only with a token that Flower knows.
"""

import hmac
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from psofed.federation.flower.clock import keep_time_steady
from psofed.federation.flower.lean import LeanLink
from psofed.federation.flower.versions import untested_version

SECRET_HEADER = "x-psofed-secret"
SECRET_VARIABLE = "PSOFED_SUPERLINK_SECRET"
TOKEN_HEADER = "flwr-task-token"
_RUNTIME = "/v1/runtime/"
_SHORT = re.compile(rb"[0-9]{1,4}")  # length of a body that anybody may send, more than SuperExec's have

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
    knows_token : callable
        Whether a token is a task's.
    """

    def __init__(
        self, app: Callable[..., Awaitable[None]], secret: str, knows_token: Callable[[str], bool]
    ) -> None:
        self._app = app
        self._secret = secret.encode()
        self._knows_token = knows_token

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
        shown = _values(scope, SECRET_HEADER)
        if len(shown) == 1 and hmac.compare_digest(shown[0], self._secret):
            return True
        # The path is compared as the router reads it: decoded, and no segment of it is resolved.
        if scope["type"] != "http" or not scope["path"].startswith(_RUNTIME):
            return False
        lengths, tokens = _values(scope, "content-length"), _values(scope, TOKEN_HEADER)
        is_short = len(lengths) == 1 and _SHORT.fullmatch(lengths[0]) is not None
        if is_short and not _values(scope, "transfer-encoding"):
            return True
        return len(tokens) == 1 and self._knows_token(tokens[0].decode("latin-1"))


def _values(scope: dict[str, Any], header: str) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header.encode()]


def main() -> None:
    """Run ``flower-superlink`` with the arguments of this process, its application behind a :class:`SecretGate`."""
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    keep_time_steady()
    secret = Path(os.environ[SECRET_VARIABLE]).read_text()
    run = uvicorn.run

    def run_behind_gate(app: Any, **options: Any) -> None:
        served = app if untested_version() else LeanLink(app)

        def knows_token(token: str) -> bool:
            return app.state.linkstate_factory.state().get_task_by_token(token) is not None

        run(SecretGate(served, secret, knows_token), **{**options, "access_log": False})

    uvicorn.run = run_behind_gate
    flower_superlink()
