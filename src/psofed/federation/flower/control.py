"""The Control API of a SuperLink on this machine: keys, nodes and runs."""

import hashlib
import warnings
from pathlib import Path
from typing import Any, Self

import httpx

from psofed.common.errors import PsofedError
from psofed.federation.flower.http import open_client
from psofed.federation.flower.keys import number_of_key
from psofed.federation.flower.link import SECRET_HEADER


class _Secret:
    """Shows the secret with every request."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Add the header."""
        context.request.headers[SECRET_HEADER] = self._secret
        return call_next(context)


class Control:
    """The server's own view of a SuperLink on this machine: registers keys, lists nodes, submits runs.

    `secret` is what the SuperLink was started with; see :mod:`psofed.federation.flower.link`.
    """

    def __init__(self, port: int, authority: Path, secret: str = "") -> None:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor

        interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), _Secret(secret)]
        self._client = open_client(ControlHttpClient, f"127.0.0.1:{port}", authority, interceptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def register(self, public_key: bytes, name: str) -> None:
        """Register a key; one that is registered already stays as it is."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        try:
            self._call("RegisterNode", RegisterNodeRequest(public_key=public_key, name=name))
        except PsofedError as error:
            if "already" not in str(error):
                raise

    def unregister(self, node_id: int) -> None:
        """Revoke a node's access."""
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
            # Deprecated calls inside Flower are not ours to fix.
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
        """Return Flower's word for the state of a run, as ``finished:failed``; empty if the run is unknown."""
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
