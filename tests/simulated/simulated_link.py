"""The server's machine as nodes and ServerApp see it: Flower's handlers and state, behind the front door's rule.

Flower's handlers are called as plain functions. What lies between them and their callers is simulated: delays, losses,
doubled requests, and the front door, whose rule is the real one.
"""

import contextlib
import datetime
import io
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from simulated_time import BEGIN, World

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.proto.message_pb2 import ObjectTree
    from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
    from flwr.supercore.error import FlowerError
    from flwr.supercore.error.catalog import API_ERROR_MAP
    from flwr.supercore.fab import Fab
    from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
    from flwr.superlink.federation import NoOpFederationManager
    from flwr.superlink.grid.http_grid import HttpGrid
    from flwr.superlink.servicer.fleet import fleet_handlers
    from flwr.superlink.servicer.runtime import runtime_handlers

from psofed.federation.deploy.limits import DoorLimits, NodeQuotas, QuotaError
from psofed.federation.flower import WRONG_TIME, is_timely, number_of_key
from psofed.federation.flower.clock import KEEPERS, SteadyClock
from psofed.federation.flower.gate import NOTED, Gate
from psofed.federation.flower.lean import settle
from psofed.federation.flower.signing import TimeSigner
from psofed.federation.flower.trees import most_objects

SERVER = Path("/server")
_WITH_STORE = ("pull-messages", "confirm-message-received")
_HOLD_SECONDS = DoorLimits().hold_seconds
_HEAD_BYTES = 600  # of a request, with its signature
_ASTRAY = 1.0  # seconds, after which the right node gets a message that another one has not asked for
_LOST_AFTER = 10.0  # seconds, after which a client gives a request up
_LARGEST_ANSWER = 2_000  # nodes of an object tree in an answer: Flower expands repeated ids


class Violation(Exception):  # noqa: N818 - a finding
    """A promise of the federation that was broken."""


class Link:
    """SuperLink, front door and doorbell of one server machine.

    Parameters
    ----------
    world : World
        Time.
    keys : mapping of str to bytes
        Public keys of the registered nodes, by name.
    """

    def __init__(self, world: World, keys: dict[str, bytes]) -> None:
        self.world = world
        self.keys = dict(keys)
        self.counts: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        """Begin with an empty state, as a SuperLink that keeps everything in memory."""
        self.clock = SteadyClock(self.server_time, self.world.monotonic)
        self._dated_at, self._date = self.world.now, self.clock.now()
        with self.world.clock_of(SERVER):
            self.state = InMemoryLinkState(NoOpFederationManager(), InMemoryObjectStore())
            for name, key in self.keys.items():
                self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=name)
        self.up = True
        self.task: Any = None
        self.token: Any = None
        self.quotas = NodeQuotas(DoorLimits())
        self.bell = Bell(self.world, self.quotas)
        self.gate = Gate()
        self.misdelivery: tuple[bytes, bytes] | None = None
        self._astray: dict[bytes, tuple[bytes, Any]] = {}
        self._late: dict[bytes, tuple[float, Any]] = {}
        self._signatures: set[tuple[bytes, str]] = set()

    def server_time(self) -> float:
        """Return the time of day on the server's machine."""
        return BEGIN + self.world.now + self.world.offsets.get(SERVER, 0.0)

    def steady_date(self) -> datetime.datetime:
        """Return the date by which the SuperLink keeps heartbeats; Flower asks for it hundreds of times a round."""
        if self.world.now != self._dated_at:
            self._dated_at, self._date = self.world.now, self.clock.now()
        return self._date

    def revoke(self, name: str) -> None:
        """Revoke a node's access."""
        key = self.keys.pop(name)
        node = self.state.get_node_id_by_public_key(key)
        with self.world.clock_of(SERVER):
            if node is not None:
                self.state.delete_node(NOOP_FLWR_AID, node)

    def start_run(self) -> HttpGrid:
        """Begin a run, and return the Grid of its ServerApp."""
        with self.world.clock_of(SERVER):
            fab = _fab()
            self.state.store_fab(fab)
            run_id = self.state.create_run(
                "psofed/app",
                "1.0.0",
                fab.hash_str,
                {},
                NOOP_FEDERATION_ID,
                None,
                NOOP_FLWR_AID,
                TaskType.SERVER_APP,
            )
            run = self.state.get_run_info(run_ids=[run_id])[0]
            (self.task,) = self.state.get_tasks(task_ids=[run.primary_task_id])
            self.token = self.state.claim_task(self.task.task_id)
            self.state.activate_task(self.task.task_id)
        grid = HttpGrid(token="simulated")
        grid._client = RuntimeClient(self)
        grid.set_run(run)
        return grid

    def end_run(self) -> None:
        """Let the current run be over, as a supervisor does whose ServerApp has died."""
        if self.task is not None:
            with self.world.clock_of(SERVER):
                self.state.stop_run(self.task.run_id)
            self.task = None

    # --- requests -------------------------------------------------------------------------------------

    def admit(self, key: bytes, body: bytes, timestamp: str) -> float:
        """Return how long a request has to wait at the front door, or raise httpx.HTTPStatusError."""
        if key not in self.keys.values():
            raise refusal(403, "unknown-key")
        if not is_timely(timestamp, self.server_time()):
            raise refusal(403, f"{WRONG_TIME} {self.server_time():.3f}")
        if not self.is_new((key, timestamp)):
            raise refusal(403, "used-signature")
        try:
            return self.quotas.spend(number_of_key(key), _HEAD_BYTES + len(body), self.world.now)
        except QuotaError as error:
            raise refusal(429, str(error)) from None

    def is_new(self, signature: tuple[bytes, str]) -> bool:
        """Whether a key has never signed a time before, as `KeyRing` of the real front door asks."""
        new = signature not in self._signatures
        self._signatures.add(signature)
        return new

    def serve_node(
        self, key: bytes, call: str, body: bytes, *, past_the_door: bool = False, rung: bool = False
    ) -> bytes:
        """Answer a node's request, or raise httpx.HTTPStatusError."""
        self.counts[call] = self.counts.get(call, 0) + 1
        if not past_the_door:
            reason = self.gate.why_refused(call, body, key, most_objects(self.bell.size))
            if reason is not None:
                self.counts["refused at the door"] = self.counts.get("refused at the door", 0) + 1
                raise refusal(403, reason)
        name = call.replace("-", "_")
        request = _REQUESTS[call].FromString(body)
        if call == "activate-node":
            if request.public_key != key:
                raise refusal(401)
        else:
            claimed = request.node_id if call == "deactivate-node" else request.node.node_id
            if self.state.get_node_id_by_public_key(key) != claimed:
                raise refusal(401)
        store = (self.state.object_store,) if call in _WITH_STORE else ()
        answer = self._handle(getattr(fleet_handlers, name), request, self.state, *store)
        if call == "pull-messages":
            answer = self._misdeliver(key, answer)
        data: bytes = answer.SerializeToString()
        if call in NOTED and not past_the_door:
            self.gate.note(call, key, body, data, rung=rung)
        return data

    def _misdeliver(self, key: bytes, answer: Any) -> Any:
        """Hand a message that is for one node to another one first, and then to the right one."""
        if self.misdelivery is not None and self.misdelivery[0] == key and answer.messages_list:
            _, other = self.misdelivery
            self.misdelivery = None
            self._astray[other] = key, answer
            self._late[key] = self.world.now + _ASTRAY, answer
            self.bell.ring([number_of_key(other)])
            return _ANSWERS["pull-messages"]()
        if answer.messages_list:
            return answer
        if key in self._astray:
            owner, astray = self._astray.pop(key)
            self._late[owner] = self.world.now, astray
            self.bell.ring([number_of_key(owner)])
            return astray
        if key in self._late and self.world.now >= self._late[key][0]:
            return self._late.pop(key)[1]
        return answer

    def serve_app(self, method: str, request: Any) -> Any:
        """Answer a request of the ServerApp."""
        if not self.up or self.task is None:
            raise httpx.ConnectError("the SuperLink is gone")
        with self.world.clock_of(SERVER):
            if self.state.get_task_by_token(self.token) is None:
                raise refusal(401)
        return self._handle(
            getattr(runtime_handlers, call_of(method).replace("-", "_")), request, self.state, self.task
        )

    def _handle(self, handler: Callable[..., Any], request: Any, *rest: Any) -> Any:
        try:
            with self.world.clock_of(SERVER):
                answer = handler(request, *rest)
                settle(self.state, request, answer)
        except FlowerError as error:
            raise refusal(API_ERROR_MAP[error.code].http_status_code) from None
        except Exception as error:
            raise refusal(500) from error
        trees = getattr(answer, "message_object_trees", ())
        if sum(_size(tree) for tree in trees) > _LARGEST_ANSWER:
            raise Violation(
                "bounded memory: an answer of the SuperLink holds an object tree of thousands of nodes"
            )
        return answer

    # --- size -----------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Return how much the SuperLink keeps, by kind."""
        state: Any = self.state
        return {
            "instructions": len(state.message_ins_store),
            "replies": len(state.message_res_store),
            "objects": len(state.object_store.store),
            "sessions": len(state._object_push_sessions),
        }


class Bell:
    """The doorbell between exchange and front door, as `psofed.federation.protocol.bell` describes it."""

    def __init__(self, world: World, quotas: NodeQuotas) -> None:
        self.is_connected = True
        self._quotas = quotas
        self.size = 0
        self._world = world
        self._rung: set[int] = set()
        self._held: dict[int, list[Any]] = {}
        self._idle: dict[int, None] = {}
        self._news = world.event()

    def ring(self, numbers: Any) -> None:
        for number in list(numbers) if self.is_connected else ():
            self._quotas.refill(number, self._world.now)
            self._idle.pop(number, None)
            held = self._held.pop(number, [])
            for event in held:
                event.set()
            if not held:
                self._rung.add(number)

    def say_size(self, model_bytes: int) -> None:
        self.size = model_bytes
        self._quotas.set_model_bytes(model_bytes)

    def wait(self, timeout: float) -> set[int]:
        if not self._idle:
            self._news.clear()
            self._news.wait(timeout)
        heard, self._idle = set(self._idle), {}
        return heard

    def close(self) -> None:
        pass

    def hold(self, number: int) -> bool:
        """Wait until there is something for a node, or for a few seconds; called by the front door."""
        if number in self._rung:
            self._rung.discard(number)
            return True
        self._idle[number] = None
        self._news.set()
        event = self._world.event()
        self._held.setdefault(number, []).append(event)
        event.wait(_HOLD_SECONDS)
        held = self._held.get(number, [])
        if event in held:
            held.remove(event)
            return False
        return True


class FleetClient:
    """Flower's client of the Fleet API, over a simulated network.

    Parameters
    ----------
    link : Link
        The server.
    key : bytes
        The node's public key.
    weather : callable
        Called as ``weather(call)`` for each request: seconds on the way there and back, and what happens to it:
        "", "lost", "answer lost" or "doubled".
    signer : TimeSigner
        Gives the time that each request is signed with.
    past_the_door : bool
        Whether the front door has a hole through which its requests pass unread.
    """

    def __init__(
        self,
        link: Link,
        key: bytes,
        weather: Callable[[str], tuple[float, float, str]],
        signer: TimeSigner,
        past_the_door: bool = False,
    ) -> None:
        self.link = link
        self.key = key
        self.weather = weather
        self.signer = signer
        self.past_the_door = past_the_door
        self.heard: Callable[[str, Any], None] = lambda call, answer: None

    def close(self) -> None:
        pass

    def __getattr__(self, method: str) -> Callable[[Any], Any]:
        call = call_of(method)
        if call not in _REQUESTS:
            raise AttributeError(method)
        return lambda request: self.call(call, request.SerializeToString(deterministic=True))

    def call(self, call: str, body: bytes) -> Any:
        """Send a request and wait for its answer."""
        world, link = self.link.world, self.link
        timestamp = self.signer.timestamp()
        there, back, accident = self.weather(call)
        world.sleep(there)
        if accident == "lost" or not link.up:
            world.sleep(_LOST_AFTER if link.up else 0.0)
            raise httpx.ReadTimeout("no answer") if link.up else httpx.ConnectError("connection refused")
        state = link.state
        if (wait := link.admit(self.key, body, timestamp)) > 0.0:
            world.sleep(wait)
        rung = False
        if call == "pull-messages" and link.bell.is_connected and not link.gate.may_pass(self.key):
            rung = link.bell.hold(number_of_key(self.key))
        if link.state is not state or not link.up:
            raise httpx.ReadError("the connection was closed")
        data = link.serve_node(self.key, call, body, past_the_door=self.past_the_door, rung=rung)
        if accident == "doubled":
            with contextlib.suppress(httpx.HTTPStatusError):
                link.admit(self.key, body, timestamp)
                link.serve_node(self.key, call, body)
        world.sleep(back)
        if accident == "answer lost":
            world.sleep(_LOST_AFTER)
            raise httpx.ReadTimeout("no answer")
        answer = _ANSWERS[call].FromString(data)
        self.heard(call, answer)
        return answer


class RuntimeClient:
    """Flower's client of the Runtime API, on the server's machine: quick, and nothing gets lost."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._state = link.state

    def close(self) -> None:
        pass

    def __getattr__(self, method: str) -> Callable[[Any], Any]:
        def call(request: Any) -> Any:
            self._link.world.sleep(0.0005)
            if self._link.state is not self._state:
                raise httpx.ConnectError("the SuperLink is gone")
            return self._link.serve_app(method, request)

        return call


@cache
def call_of(method: str) -> str:
    """Return the name of a call in the path of its requests, as ``pull-messages``."""
    return re.sub(r"(?<!^)([A-Z])", r"-\1", method).lower()


def refusal(status: int, reason: str = "") -> httpx.HTTPStatusError:
    """Return the error of a client whose request was answered with `status`."""
    request = httpx.Request("POST", "https://server/")
    shown = "".join(character for character in reason if character.isascii() and character.isprintable())
    headers = {"psofed-reason": shown} if shown else {}
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(f"{status} {reason}", request=request, response=response)


@contextmanager
def simulated_flower(world: World, link: Link) -> Iterator[None]:
    """Let Flower take date, random numbers and threads from the simulation."""
    import importlib

    import flwr.app.message.message
    import flwr.server.superlink.linkstate.in_memory_linkstate
    import flwr.server.superlink.linkstate.utils
    import flwr.server.utils.validator
    import flwr.supercore.corestate.in_memory_corestate
    import flwr.supercore.corestate.utils
    import flwr.superlink.grid.http_grid

    dated = [
        flwr.app.message.message, flwr.server.superlink.linkstate.in_memory_linkstate,
        flwr.server.superlink.linkstate.utils, flwr.server.utils.validator,
        flwr.supercore.corestate.in_memory_corestate, flwr.supercore.corestate.utils, flwr.superlink.grid.http_grid,
    ]  # fmt: skip
    grid, core = flwr.superlink.grid.http_grid, flwr.supercore.corestate
    with ExitStack() as stack:
        for module in dated:
            stack.enter_context(patch.object(module, "now", world.date))
        for name in KEEPERS:  # of heartbeats, by a clock that does not jump
            stack.enter_context(patch.object(importlib.import_module(name), "now", link.steady_date))
        for target, name, value in (
            (core.in_memory_corestate, "uuid4", lambda: _uuid(world)),
            (core.utils, "urandom", lambda count: world.random.randbytes(count)),
            (grid, "push_objects", _push_in_turn),
            (fleet_handlers, "MessageToDict", lambda request: None),
            (fleet_handlers, "log", lambda *ignored: None),
            (runtime_handlers, "log", lambda *ignored: None),
            (flwr.server.superlink.linkstate.in_memory_linkstate, "log", lambda *ignored: None),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def _push_in_turn(
    objects: dict[str, Any], push_object_fn: Any, *, object_ids_to_push: set[str], **_: Any
) -> None:
    """Flower's `push_objects` without its threads."""
    for identity in [identity for identity in objects if identity in object_ids_to_push]:
        push_object_fn(identity, objects.pop(identity).deflate())


def _uuid(world: World) -> Any:
    import uuid

    return uuid.UUID(int=world.random.getrandbits(128))


def _size(tree: ObjectTree, most: int = _LARGEST_ANSWER) -> int:
    count, todo = 0, [tree]
    while todo and count <= most:
        count += 1
        todo.extend(todo.pop().children)
    return count


def _fab() -> Fab:
    text = """
[project]
name = "app"
version = "1.0.0"
[tool.flwr.app]
publisher = "psofed"
[tool.flwr.app.components]
serverapp = "app:server_app"
clientapp = "app:client_app"
"""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), text)
    content = buffer.getvalue()
    return Fab(sha256(content).hexdigest(), content, {})


def _protobuf() -> tuple[dict[str, Any], dict[str, Any]]:
    from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

    modules = (fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2)
    names = (
        "ActivateNode", "DeactivateNode", "SendNodeHeartbeat", "PullMessages", "PushMessages", "GetRun", "GetFab",
        "PushObject", "PullObject", "ConfirmMessageReceived",
    )  # fmt: skip

    def find(name: str) -> Any:
        return next(getattr(module, name) for module in modules if hasattr(module, name))

    calls = {call_of(name): name for name in names}
    return (
        {call: find(f"{name}Request") for call, name in calls.items()},
        {call: find(f"{name}Response") for call, name in calls.items()},
    )


_REQUESTS, _ANSWERS = _protobuf()
