"""All of Flower's internals that psofed uses, in one place.

What Flower documents (``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp``) is imported where it is needed. What it
does not document is imported here and nowhere else: its HTTP clients of the Fleet API (which nodes speak) and of the
Control API (which submits runs and registers keys), its objects, and its serialisation. These may change with any
minor version, so they are tested against :data:`TESTED_MINORS`; on other versions ``psofed federation client``
falls back to Flower's own SuperNode.
"""

import hashlib
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import httpx
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from psofed.common.errors import PsofedError

TESTED_MINORS = ("1.40", "1.41", "1.42")
"""Flower's minor versions that the long-lived node was tested with."""

KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER = "flwr-public-key", "flwr-signature", "flwr-timestamp"
"""Headers by which a node proves in each request who it is: its public key, and a signed time."""

HEARTBEAT = 10.0
"""Seconds between promised heartbeats, the shortest Flower allows; twice that without one means offline."""

_REASON = "psofed-reason"
_APP_RAISED = 2  # Flower's code for an exception in a ClientApp


class UnknownKeyError(PsofedError):
    """The server does not know this node's key."""


class WrongAuthorityError(PsofedError):
    """The server's certificate was not signed by the authority that the node trusts."""


class StillOnlineError(PsofedError):
    """The server takes this node for online already."""


class UnreachableError(PsofedError):
    """The server does not answer, or not as it should; it may do so later."""


class ForgottenError(PsofedError):
    """The server no longer knows this connection: it was restarted, or the node was away for too long."""


class NotRunningError(PsofedError):
    """The run that a message belongs to has ended."""


def untested_version() -> str | None:
    """Return the installed Flower's version if the long-lived node was not tested with it, else None."""
    installed = version("flwr")
    return None if ".".join(installed.split(".")[:2]) in TESTED_MINORS else installed


def number_of_key(public_key: bytes) -> int:
    """Return the 64-bit number of a node, by which its masks and its participation are drawn.

    The first eight bytes of BLAKE2b over the public key as Flower sends it (PEM, SubjectPublicKeyInfo): it belongs
    to the key, so no restart and no new registration changes any draw.
    """
    return int.from_bytes(hashlib.blake2b(public_key, digest_size=8).digest(), "big")


def identify(run: int, node: int) -> None:
    """Say whose messages this process makes, as Flower's own runtime does before it calls an app."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, 1


def records_to_bytes(records: RecordDict) -> bytes:
    """Serialise records with Flower's protobuf."""
    from flwr.common.serde import recorddict_to_proto

    data: bytes = recorddict_to_proto(records).SerializeToString(deterministic=True)
    return data


def records_from_bytes(data: bytes) -> RecordDict:
    """Read what :func:`records_to_bytes` wrote; ValueError if it did not write that."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Proto
    from google.protobuf.message import DecodeError

    try:
        proto = Proto()
        proto.ParseFromString(data)
        records: RecordDict = recorddict_from_proto(proto)
    except (DecodeError, TypeError, KeyError) as error:
        raise ValueError(f"not records: {error}") from None
    return records


@dataclass(frozen=True)
class Question:
    """A message for this node, as announced: its content is still with the server."""

    message: Message
    tree: Any


class Fleet:
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
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        try:
            private = load_ssh_private_key(key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise PsofedError(f"{key} is not a node's private key: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise PsofedError(f"{key} is not a key made by psofed federation certs")
        public = private.public_key()
        self.server = server
        self.public_key: bytes = public_key_to_bytes(public)
        self.node_id = 0
        interceptors = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
        ]
        self._client = _open(FleetHttpClient, server, authority, interceptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    @property
    def number(self) -> int:
        """See :func:`number_of_key`."""
        return number_of_key(self.public_key)

    def activate(self) -> int:
        """Say that this node is there, and return Flower's id of it."""
        from flwr.proto.fleet_pb2 import ActivateNodeRequest

        request = ActivateNodeRequest(public_key=self.public_key, heartbeat_interval=HEARTBEAT)
        try:
            self.node_id = int(self._call("ActivateNode", request).node_id)
        except httpx.HTTPStatusError as error:
            raise StillOnlineError(
                f"{self.server} takes this node for online, or does not know its key"
            ) from error
        return self.node_id

    def deactivate(self, node_id: int = 0) -> bool:
        """Say that this node (or the one it was before) leaves; False if the server did not agree."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        try:
            self._call("DeactivateNode", DeactivateNodeRequest(node_id=node_id or self.node_id))
        except (PsofedError, httpx.HTTPError):
            return False
        return True

    def heartbeat(self) -> None:
        """Say that this node is still there."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self._node(), heartbeat_interval=HEARTBEAT)
        if not self._call("SendNodeHeartbeat", request).success:
            raise ForgottenError("the server does not know this node any more")

    def ask(self) -> Question | None:
        """Ask for a message; the server may take its time to say that there is none."""
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest

        answer = self._call("PullMessages", PullMessagesRequest(node=self._node()))
        if not answer.messages_list:
            return None
        return Question(message_from_proto(answer.messages_list[0]), answer.message_object_trees[0])

    def fetch(self, question: Question) -> Message:
        """Return the whole message, and tell the server that it has arrived."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        run, identity = question.message.metadata.run_id, question.message.metadata.message_id
        contents = {
            tree.object_id: self._pull(run, tree.object_id) for tree in iterate_object_tree(question.tree)
        }
        self._call(
            "ConfirmMessageReceived",
            ConfirmMessageReceivedRequest(node=self._node(), run_id=run, message_object_id=identity),
        )
        message = inflate_object_from_contents(identity, contents)
        if not isinstance(message, Message):
            raise PsofedError(f"the server sent a {type(message).__name__} for a message")
        message.metadata.__dict__["_message_id"] = identity
        return message

    def send(self, reply: Message, seconds: float) -> None:
        """Send a reply; `seconds` is how long it took to make."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

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

    def _pull(self, run: int, identity: str, patience: float = 30.0) -> bytes:
        from flwr.proto.message_pb2 import PullObjectRequest

        deadline, pause = time.monotonic() + patience, 0.02
        while True:
            request = PullObjectRequest(node=self._node(), run_id=run, object_id=identity)
            answer = self._call("PullObject", request)
            if not answer.object_found or time.monotonic() > deadline:
                raise NotRunningError("a message's content is not there any more")
            if answer.object_available:
                return bytes(answer.object_content)
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _call(self, method: str, request: Any) -> Any:
        """Call Flower's client and turn its errors into ours; what is left is an httpx.HTTPStatusError."""
        try:
            return getattr(self._client, method)(request)
        except httpx.HTTPStatusError as error:
            reason = error.response.headers.get(_REASON, "")
            if reason == "unknown-key":
                raise UnknownKeyError(f"{self.server} does not know this node's key") from None
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
        except httpx.TransportError as error:
            text = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in text:
                raise WrongAuthorityError(
                    f"{self.server} has a certificate of another authority: {text}"
                ) from None
            raise UnreachableError(
                f"{self.server} cannot be reached: {text or type(error).__name__}"
            ) from None


class Control:
    """The server's own view of a SuperLink on this machine: registers keys, lists nodes, submits runs."""

    def __init__(self, port: int, authority: Path) -> None:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

        interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
        self._client = _open(ControlHttpClient, f"127.0.0.1:{port}", authority, interceptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def register(self, public_key: bytes, name: str) -> None:
        """Let the holder of a key in; a key that is known already is left as it is."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        try:
            self._call("RegisterNode", RegisterNodeRequest(public_key=public_key, name=name))
        except PsofedError as error:
            if "already" not in str(error):
                raise

    def unregister(self, node_id: int) -> None:
        """Let a node in no more."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._call("UnregisterNode", UnregisterNodeRequest(node_id=node_id))

    def nodes(self) -> list[dict[str, Any]]:
        """Return the registered nodes: id, name, number, status, and when they were last seen (Unix time)."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return [
            {
                "id": node.node_id,
                "name": node.name,
                "number": number_of_key(node.public_key),
                "status": node.status,
                "last_seen": node.online_until - 2 * node.heartbeat_interval if node.online_until else None,
            }
            for node in self._call("ListNodes", ListNodesRequest()).nodes_info
            if node.status != "unregistered"
        ]

    def start_run(self, app: Path) -> int:
        """Submit the app in folder `app` and return Flower's id of the run."""
        with warnings.catch_warnings():
            # What Flower uses in an old way is not ours to mend.
            warnings.simplefilter("ignore", DeprecationWarning)
            from flwr.cli.build import build_fab_from_disk
            from flwr.common.serde import fab_to_proto
            from flwr.proto.control_pb2 import StartRunRequest
            from flwr.supercore.fab import Fab

            content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        answer = self._call("StartRun", StartRunRequest(fab=fab_to_proto(fab)))
        if not answer.HasField("run_id"):
            raise PsofedError("Flower did not start the run")
        return int(answer.run_id)

    def stop_run(self, run_id: int) -> None:
        """End a run."""
        from flwr.proto.control_pb2 import StopRunRequest

        self._call("StopRun", StopRunRequest(run_id=run_id))

    def run_status(self, run_id: int) -> str:
        """Return Flower's word for the state of a run, as ``finished:failed``; empty if there is none."""
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self._call("ListRuns", ListRunsRequest(run_id=run_id)).run_dict
        if run_id not in found:
            return ""
        status = found[run_id].status
        return ":".join(part for part in (status.status, status.sub_status) if part)

    def _call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self._client, method)(request)
        except httpx.HTTPStatusError as error:
            raise PsofedError(
                f"Flower refused {method}: {error.response.text[:300] or error.response.status_code}"
            ) from None
        except httpx.TransportError as error:
            raise PsofedError(f"the SuperLink on this machine does not answer: {error}") from None


def _open(client: Any, server: str, authority: Path, interceptors: list[Any]) -> Any:
    import ssl

    try:
        return client.from_server_address(server, False, authority.read_bytes(), interceptors=interceptors)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise PsofedError(f"{authority} is not an authority's certificate: {error}") from None


def error_reply(reason: str, question: Message) -> Message:
    """Return the reply that tells the server that this node's app has failed."""
    return Message(Error(code=_APP_RAISED, reason=reason), reply_to=question)


def public_key_of(path: Path) -> bytes:
    """Return the public key in a ``.pub`` file as Flower sends it."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PsofedError(f"{path} is not a node's public key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PsofedError(f"{path} is not a key made by psofed federation certs")
    data: bytes = public_key_to_bytes(key)
    return data


def is_signed(public_key: bytes, timestamp: str, signature: bytes, now: float) -> bool:
    """Whether `signature` is the key's over `timestamp`, and that time is now within Flower's tolerance."""
    import datetime

    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    try:
        age = now - datetime.datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return False
    if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        return False
    return bool(verify_signature(bytes_to_public_key(public_key), timestamp.encode(), signature))
