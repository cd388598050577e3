"""The Fleet API, which nodes speak: one node's connection to a SuperLink."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
from flwr.app import Context, Message, RecordDict

from psofed.common.errors import PsofedError
from psofed.common.scheduler import scheduler
from psofed.common.toml import parse_toml
from psofed.federation.flower.calls import NOT_ACTIVATED, SUPERLINK
from psofed.federation.flower.errors import (
    BadMessageError,
    ForgottenError,
    NotRunningError,
    StillOnlineError,
    UnknownKeyError,
    UnreachableError,
    WrongAuthorityError,
)
from psofed.federation.flower.http import bound_answers, open_client
from psofed.federation.flower.inline import is_inline, read_inline, write_inline
from psofed.federation.flower.keys import number_of_key
from psofed.federation.flower.signing import WRONG_TIME, TimeSigner
from psofed.federation.flower.trees import (
    BadTreeError,
    collect_message,
    is_object_id,
    list_objects,
    most_objects,
)

HEARTBEAT = 10.0
"""Seconds between promised heartbeats, the shortest Flower allows; twice that without one means offline."""

MAX_MESSAGE = 1 << 30
"""Bytes of the largest message that a node fetches unless told otherwise."""

_MAX_BUNDLE = 1 << 20  # bytes, packed and, of its configuration, unpacked
_FETCH_SECONDS = 120.0  # for all objects of a message
_OBJECT_SECONDS = 20.0  # for each of them: a server that died while sending does not send the rest
_REASON = "psofed-reason"


@dataclass(frozen=True)
class Announcement:
    """A message for this node, as announced: its content is still with the server, unless it is `whole`."""

    message: Message
    tree: Any
    whole: bool = False


class FleetConnection:
    """One node's connection to a SuperLink: Flower's own client, signed requests and messages.

    Parameters
    ----------
    server : str
        HOST:PORT.
    key : path
        The node's private key.
    authority : path
        The certificate that the server's certificate must be signed by.
    """

    def __init__(self, server: str, key: Path, authority: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient

        try:
            private = load_ssh_private_key(key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise PsofedError(f"{key} is not a node's private key: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise PsofedError(f"{key} is not a key made by psofed federation certs")
        self.server = server
        self.public_key: bytes = public_key_to_bytes(private.public_key())
        self.node_id: int = 0
        self._signer = TimeSigner(private, self.public_key)
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), self._signer]
        self._client = open_client(FleetHttpClient, server, authority, interceptors)
        bound_answers(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    @property
    def number(self) -> int:
        """See :func:`number_of_key`."""
        return number_of_key(self.public_key)

    def activate(self) -> int:
        """Activate this node, and return Flower's id of it."""
        from flwr.proto.fleet_pb2 import ActivateNodeRequest

        request = ActivateNodeRequest(public_key=self.public_key, heartbeat_interval=HEARTBEAT)
        try:
            self.node_id = int(self._call("ActivateNode", request).node_id)
        except httpx.HTTPStatusError as error:
            raise StillOnlineError(
                f"{self.server} considers this node online already, or does not know its key"
            ) from error
        return self.node_id

    def deactivate(self, node_id: int = 0) -> bool:
        """Deactivate this node, or an earlier id of it; False if the server refused."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        try:
            self._call("DeactivateNode", DeactivateNodeRequest(node_id=node_id or self.node_id))
        except (PsofedError, httpx.HTTPError):
            return False
        return True

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self._node(), heartbeat_interval=HEARTBEAT)
        if not self._call("SendNodeHeartbeat", request).success:
            raise ForgottenError("the server no longer knows this node")

    def ask(self) -> Announcement | None:
        """Ask for a message; the server may wait before it answers that it has no message.

        Raises
        ------
        BadMessageError
            If what the server sends is not its own message to this node.
        """
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest

        answer = self._call("PullMessages", PullMessagesRequest(node=self._node()))
        if not answer.messages_list:
            return None
        if len(answer.messages_list) != 1 or len(answer.message_object_trees) != 1:
            raise BadMessageError("the server sent several messages at once")
        (proto,), (tree,) = answer.messages_list, answer.message_object_trees
        try:
            if is_inline(proto):
                question = Announcement(read_inline(proto, tree), tree, whole=True)
            else:
                question = Announcement(message_from_proto(proto), tree)
        except BadTreeError as error:
            raise BadMessageError(f"the server sent {error}") from None
        except Exception as error:
            # Flower's readers raise whatever they stumble over.
            raise BadMessageError(f"the server sent no message ({type(error).__name__})") from None
        self._check_origin(question.message)
        return question

    def fetch(self, question: Announcement, most_bytes: int = MAX_MESSAGE) -> Message:
        """Return the whole message, and tell the server that it has arrived.

        Raises
        ------
        BadMessageError
            If it has more than `most_bytes` bytes or cannot be built, or if it is not what was announced.
        """
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        if question.whole:
            return question.message
        announced = question.message.metadata
        run, identity = announced.run_id, announced.message_id
        deadline = scheduler().monotonic() + _FETCH_SECONDS
        most = most_objects(most_bytes)
        try:
            in_tree = set(list_objects(question.tree, most))

            def pull(object_id: str) -> bytes:
                if object_id not in in_tree:
                    raise BadTreeError("objects that do not make up a message (one was not announced)")
                return self._pull(run, object_id, deadline)

            message = collect_message(identity, pull, most, most_bytes)
        except BadTreeError as error:
            raise BadMessageError(f"the server sent {error}") from None
        finally:
            self._call(
                "ConfirmMessageReceived",
                ConfirmMessageReceivedRequest(node=self._node(), run_id=run, message_object_id=identity),
            )
        self._check_origin(message)
        if message.metadata.run_id != run:
            raise BadMessageError("the server sent a message of another run than announced")
        return message

    def _check_origin(self, message: Message) -> None:
        """Refuse a message unless it is an instruction of the server to this node."""
        about = message.metadata
        if about.src_node_id != SUPERLINK or about.dst_node_id != self.node_id or about.reply_to_message_id:
            raise BadMessageError(
                f"a message from node {about.src_node_id} to node {about.dst_node_id} is no instruction of the server"
            )
        if not is_object_id(about.message_id):
            raise BadMessageError("the server sent a message without an id")

    def send(self, reply: Message, seconds: float, whole: bool = False) -> None:
        """Send a reply, `whole` or as objects; `seconds` is how long it took to make."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

        if whole:
            proto, tree = write_inline(reply)
            self._call(
                "PushMessages",
                PushMessagesRequest(
                    node=self._node(),
                    messages_list=[proto],
                    message_object_trees=[tree],
                    clientapp_runtime_list=[seconds],
                ),
            )
            return
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree, objects = get_object_tree(reply), get_all_nested_objects(reply)
            bare = remove_content_from_message(reply) if reply.has_content() else reply
            answer = self._call(
                "PushMessages",
                PushMessagesRequest(
                    node=self._node(),
                    messages_list=[message_to_proto(bare)],
                    message_object_trees=[tree],
                    clientapp_runtime_list=[seconds],
                ),
            )
            wanted = set(answer.objects_to_push)
            for identity, item in objects.items():
                if identity in wanted:
                    self._call(
                        "PushObject",
                        PushObjectRequest(
                            node=self._node(),
                            run_id=reply.metadata.run_id,
                            object_id=identity,
                            object_content=item.deflate(),
                            session_id=answer.session_id,
                        ),
                    )

    def run_context(self, run_id: int, node_config: Mapping[str, Any]) -> Context:
        """Return a fresh context for a run, with the run's configuration; nothing of its code is loaded."""
        from flwr.common.config import get_fused_config_from_fab
        from flwr.common.serde import fab_from_proto, run_from_proto
        from flwr.proto.fab_pb2 import GetFabRequest
        from flwr.proto.run_pb2 import GetRunRequest

        run = run_from_proto(self._call("GetRun", GetRunRequest(node=self._node(), run_id=run_id)).run)
        request = GetFabRequest(node=self._node(), hash_str=run.fab_hash, run_id=run_id)
        fab = fab_from_proto(self._call("GetFab", request).fab)
        _check_bundle(fab.content)
        return Context(
            run_id=run_id,
            node_id=self.node_id,
            node_config=dict(node_config),
            state=RecordDict(),
            run_config=get_fused_config_from_fab(fab.content, run),
        )

    def _node(self) -> Any:
        from flwr.proto.node_pb2 import Node

        return Node(node_id=self.node_id)

    def _pull(self, run: int, identity: str, deadline: float) -> bytes:
        from flwr.proto.message_pb2 import PullObjectRequest

        pause = 0.02
        deadline = min(deadline, scheduler().monotonic() + _OBJECT_SECONDS)
        while True:
            request = PullObjectRequest(node=self._node(), run_id=run, object_id=identity)
            answer = self._call("PullObject", request)
            if not answer.object_found:
                raise NotRunningError("a message's content is gone")
            if answer.object_available:
                return bytes(answer.object_content)
            if scheduler().monotonic() > deadline:
                raise BadMessageError("the server announced a message and did not send all of it")
            scheduler().sleep(pause)
            pause = min(2 * pause, 1.0)

    def _call(self, method: str, request: Any) -> Any:
        """Call Flower's client and turn its errors into ours; what is left is an httpx.HTTPStatusError."""
        try:
            return self._call_signed(method, request)
        except httpx.HTTPStatusError as error:
            reason = error.response.headers.get(_REASON, "")
            if reason == "unknown-key":
                raise UnknownKeyError(f"{self.server} does not know this node's key") from None
            if reason == NOT_ACTIVATED:
                raise ForgottenError(f"{self.server} does not know this connection") from None
            if reason.startswith(WRONG_TIME):
                raise UnreachableError(
                    f"{self.server} refused a request: its clock and this machine's are too far apart"
                ) from None
            if reason:
                raise UnreachableError(f"{self.server} refused a request: {reason}") from None
            status = error.response.status_code
            if status == httpx.codes.UNAUTHORIZED:
                raise ForgottenError(f"{self.server} does not know this connection") from None
            if status == httpx.codes.FORBIDDEN:
                raise NotRunningError("the run has ended") from None
            if status in (502, 503, 504):
                raise UnreachableError(f"{self.server} answers {status}") from None
            raise
        except ValueError as error:  # what is no protobuf message of the expected kind
            raise UnreachableError(f"{self.server} gave an unreadable answer: {error}") from None
        except httpx.TransportError as error:
            text = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in text:
                raise WrongAuthorityError(
                    f"the certificate of {self.server} was not issued by --ca: {text}"
                ) from None
            raise UnreachableError(
                f"{self.server} cannot be reached: {text or type(error).__name__}"
            ) from None

    def _call_signed(self, method: str, request: Any) -> Any:
        """Call Flower's client; once more, with the server's time, if the server does not accept this machine's."""
        try:
            return getattr(self._client, method)(request)
        except httpx.HTTPStatusError as error:
            reason, _, server_time = error.response.headers.get(_REASON, "").partition(" ")
            if (
                reason != WRONG_TIME
                or not _is_time(server_time)
                or not self._signer.follow(float(server_time))
            ):
                raise
            return getattr(self._client, method)(request)


def _is_time(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _check_bundle(content: bytes) -> None:
    """Refuse an app bundle whose configuration would unpack to more than any run's; nothing else of it is unpacked."""
    if len(content) > _MAX_BUNDLE:
        raise BadMessageError(f"the server sent an app of {len(content):,} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            size = bundle.getinfo("pyproject.toml").file_size
            if size > _MAX_BUNDLE:
                raise BadMessageError(f"the server sent an app whose configuration has {size:,} bytes")
            text = bundle.read("pyproject.toml").decode()
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, NotImplementedError) as error:
        raise BadMessageError(f"the server sent no app ({type(error).__name__})") from None
    try:
        parse_toml(text)  # Flower parses it with no bound on depth or time
    except PsofedError as error:
        raise BadMessageError(f"the server sent an app whose configuration is {error}") from None
