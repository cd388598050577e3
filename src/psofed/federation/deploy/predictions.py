"""A node's model as a small HTTP service on this machine: named columns in, predictions out, as JSON.

It reads the state that the node has saved last, as ``psofed federation predict --model FOLDER`` does, so it predicts
with the client's own newest model and scaling and cannot disturb the node's work.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.federation.client.state import NodeMemory
from psofed.federation.deploy.export import ExportedModel, model_of, predict_inputs, read_memory
from psofed.federation.deploy.local_http import LocalHandler, serve_locally
from psofed.federation.protocol.column_names import listed
from psofed.federation.protocol.wire import clean_text

PATH = "/predict"
MAX_BYTES, MAX_ROWS = 1 << 20, 10_000


@contextmanager
def serve_predictions(folder: Path, port: int) -> Iterator[int]:
    """Serve the models of the node that works in `folder` while the block is open, on loopback; port 0 picks one."""
    with serve_locally(partial(_Handler, folder), "127.0.0.1", port, "--predict-port") as taken:
        yield taken


class _Handler(LocalHandler):
    def __init__(self, folder: Path, *connection: Any) -> None:
        self.folder = folder
        super().__init__(*connection)

    def get(self) -> str:
        """Tell what the model expects."""
        return _text(describe_service(self.folder, self._query().get("client", [""])[-1]))

    def post(self) -> str:
        """Predict."""
        self._query()
        return _text(predict_request(self.folder, self._body()))

    def _query(self) -> dict[str, list[str]]:
        address = urlsplit(self.path)
        if address.path != PATH:
            raise PsofedError(f"{address.path}: there is only {PATH}")
        return parse_qs(address.query)

    def _body(self) -> Any:
        length, kind = self.headers.get("Content-Length", ""), self.headers.get_content_type()
        if kind != "application/json":
            raise PsofedError(f"Content-Type: must be application/json; got {kind}")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_BYTES:
            raise PsofedError(f"Content-Length: must be a number of at most {MAX_BYTES:,} bytes")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise PsofedError("the body is not JSON") from None


def _text(answer: dict[str, Any]) -> str:
    return json.dumps(answer, allow_nan=False) + "\n"


def describe_service(folder: Path, client: str = "") -> dict[str, Any]:
    """Return what the model of a client expects; of a gateway without a `client`, the names of its clients."""
    memory = read_memory(folder)
    if not client and client not in memory.clients:
        return {"clients": sorted(memory.clients)}
    model = _model(memory, client)
    named = None if model.columns is None else model.columns.to_mapping()
    about = {"round": model.round_number, "inputs": model.weights().size, "columns": named}
    return {**about, "scaled": model.scaling is not None}


def predict_request(folder: Path, body: Any) -> dict[str, Any]:
    """Return the predictions for a request ``{"rows": [{"wind": 8, …}, …], "client": "north"}``."""
    if not isinstance(body, dict) or not isinstance(rows := body.get("rows"), list):
        raise PsofedError('the body must be {"rows": [...]}, for a gateway with a "client"')
    if len(rows) > MAX_ROWS:
        raise PsofedError(f"rows: at most {MAX_ROWS:,}; got {len(rows):,}")
    model = _model(read_memory(folder), body.get("client", ""))
    inputs = np.array([_inputs(row, k, model) for k, row in enumerate(rows)]).reshape(
        len(rows), model.weights().size
    )
    return {"round": model.round_number, "predictions": list(predict_inputs(model, inputs, "rows"))}


def _model(memory: NodeMemory, client: Any) -> ExportedModel:
    if not isinstance(client, str) or client not in memory.clients:
        names = [name for name in sorted(memory.clients) if name]
        raise PsofedError(
            f"client: must be one of {listed(names)}"
            if names
            else "client: this node is not a gateway; omit it"
        )
    return model_of(memory, client, client or "this node")


def _inputs(row: Any, k: int, model: ExportedModel) -> FloatArray:
    """Return a row as the model takes it: by name, in its order; NaN where a value is null."""
    if model.columns is None:
        if not isinstance(row, list) or len(row) != model.weights().size:
            raise PsofedError(f"row {k}: must be a list of {model.weights().size} numbers")
        return np.array([_number(value, k) for value in row])
    if not isinstance(row, dict):
        raise PsofedError(f"row {k}: must be an object with the columns {listed(model.columns.features)}")
    if missing := [name for name in model.columns.features if name not in row]:
        raise PsofedError(f"row {k}: lacks {listed(missing)}")
    return np.array([_number(row[name], k) for name in model.columns.features])


def _number(value: Any, k: int) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise PsofedError(f"row {k}: {clean_text(value)[:40]!r} is not a number, nor null for a missing one")
    return float(value)
