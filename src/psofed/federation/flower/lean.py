"""The SuperLink's hot calls without Flower's stack of middleware, and the end of what they would leave behind.

Nine layers of middleware take most of the SuperLink's time. :class:`LeanLink` stands before Flower's application and
answers the calls of every round itself: the same checks of who calls, the same handlers, the same errors. Everything
else goes to Flower's application. It needs a SuperLink that keeps its state in memory, since handlers run within the
event loop.

:func:`settle` then deletes what Flower would keep until the run ends: the push session of a message that carries its
content (:mod:`psofed.federation.flower.inline`), and its entry in the object store once it has been handed out.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from psofed.federation.flower.inline import is_inline

_FLEET = ("pull-messages", "push-messages", "pull-object", "push-object", "confirm-message-received")
_FLEET_WITH_STORE = ("pull-messages", "confirm-message-received")
_RUNTIME = ("get-nodes", *_FLEET)
_ACQUIRE = "/v1/runtime/acquire-task"

_Handler = Callable[[Any, Any], Any]


def settle(state: Any, request: Any, answer: Any) -> None:
    """Delete what the SuperLink need not keep after it has answered `request` with `answer`."""
    if hasattr(answer, "objects_to_push"):  # of either kind of PushMessages
        if all(map(is_inline, request.messages_list)):
            del answer.objects_to_push[:]
        if not answer.objects_to_push:  # else the session ends with the last object
            state._cleanup_push_session(answer.session_id, cleanup_messages=False)
    elif hasattr(answer, "message_object_trees"):  # of either kind of PullMessages
        for message in filter(is_inline, answer.messages_list):
            state.object_store.delete(message.metadata.message_id)


@dataclass(frozen=True)
class _Route:
    """A call: what its body is, who may make it, and what answers it."""

    request: Any
    answer: _Handler  # given the HTTP request and the call's protobuf request


class LeanLink:
    """An ASGI application that answers the hot calls, and passes all others on to Flower's.

    Parameters
    ----------
    app : FastAPI
        Flower's application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._routes = _routes(app) if _is_plain(app) else {}

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Serve one connection, as ASGI defines it."""
        route = self._route(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        from flwr.supercore.error import http_error_translator
        from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
        from starlette.requests import Request
        from starlette.responses import Response

        async def answer(request: Any) -> Response:
            call = _read(route.request, await request.body())
            request.state.protobuf_request = call
            return Response(route.answer(request, call).SerializeToString(), media_type=PROTOBUF_MEDIA_TYPE)

        scope["app"] = self._app
        response = await http_error_translator(Request(scope, receive), answer)
        await response(scope, receive, send)

    def _route(self, scope: dict[str, Any]) -> _Route | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

        kinds = [value for name, value in scope["headers"] if name == b"content-type"]
        return self._routes.get(scope["path"]) if kinds == [PROTOBUF_MEDIA_TYPE.encode()] else None


def _is_plain(app: Any) -> bool:
    """Whether all features of the skipped middleware are switched off."""
    from flwr.superlink import extensions

    return (
        app.state.fleet_event_log_plugin is None
        and os.getenv("FLWR_TRACING_ENABLED") != "1"
        and not extensions.get_middleware()
    )


def _read(kind: Any, body: bytes) -> Any:
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise FlowerError(
            ApiErrorCode.INVALID_PROTOBUF_PAYLOAD, f"Invalid protobuf payload: {error!r}"
        ) from None


def _routes(app: Any) -> dict[str, _Route]:
    from flwr.supercore.constant import TASK_TOKEN_HEADER
    from flwr.supercore.dependencies.superexec import authenticate_superexec_request
    from flwr.supercore.dependencies.task import authenticate_task
    from flwr.supercore.dependencies.version import VersionDependency
    from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
    from flwr.superlink.routers.fleet.node_auth import authenticate_node
    from flwr.superlink.servicer.fleet import fleet_handlers

    state = app.state.linkstate_factory.state()
    runtime_handlers = app.state.runtime_handlers
    check_version = VersionDependency(component_name="SuperLink", connection_name="Runtime API")

    def fleet(call: str) -> _Handler:
        handler = getattr(fleet_handlers, call.replace("-", "_"))
        store = (state.object_store,) if call in _FLEET_WITH_STORE else ()

        def answer(request: Any, call: Any) -> Any:
            authenticate_node(request)
            return _settled(state, call, handler(call, state, *store))

        return answer

    def runtime(call: str) -> _Handler:
        handler = getattr(runtime_handlers, call.replace("-", "_"))

        def answer(request: Any, call: Any) -> Any:
            check_version(request)
            task = authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)
            return _settled(state, call, handler(call, state, task))

        return answer

    def acquire(request: Any, call: Any) -> Any:
        check_version(request)
        authenticate_superexec_request(request, state, "/flwr.proto.Runtime/AcquireTask")
        return runtime_handlers.acquire_task(call, state)

    answers = {f"/v1/fleet/{call}": fleet(call) for call in _FLEET}
    answers |= {f"/v1/runtime/{call}": runtime(call) for call in _RUNTIME}
    answers[_ACQUIRE] = acquire
    return {path: _Route(PROTOBUF_REQUEST_TYPES["POST", path], answer) for path, answer in answers.items()}


def _settled(state: Any, request: Any, answer: Any) -> Any:
    settle(state, request, answer)
    return answer
