"""A node's model as a small HTTP service on this machine: named columns in, predictions out, as JSON.

It reads the state that the node has saved last, so it cannot disturb the node's work.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.federation.deploy.export import ExportedModel, client_model, predict_inputs, read_memory
from psofed.federation.protocol.layout import listed

PATH = "/predict"
MAX_BYTES, MAX_ROWS = 1 << 20, 10_000


@contextmanager
def serve_predictions(folder: Path, port: int) -> Iterator[int]:
    """Serve the models of the node that works in `folder` while the block is open, on loopback; port 0 picks one."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, folder))
    except OSError as error:
        raise PsofedError(f"--predict-port {port}: {error.strerror}; choose another") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0

    def __init__(self, folder: Path, *connection: Any) -> None:
        self.folder = folder
        super().__init__(*connection)

    def do_POST(self) -> None:
        """Predict."""
        try:
            answer, code = predict_request(self.folder, self._read()), 200
        except (PsofedError, ValueError, RecursionError, OSError) as error:
            answer, code = {"error": str(error)}, 400
        body = (json.dumps(answer) + "\n").encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read(self) -> Any:
        """Return the request's JSON. A web page that another host has sent to a browser here cannot ask."""
        length = self.headers.get("Content-Length", "")
        if self.path != PATH or self.headers.get("Host", "").partition(":")[0] not in ("127.0.0.1", "localhost"):
            raise PsofedError(f"there is only http://127.0.0.1{PATH}")
        if self.headers.get_content_type() != "application/json":
            raise PsofedError("Content-Type: must be application/json")
        if not length.isdigit() or int(length) > MAX_BYTES:
            raise PsofedError(f"Content-Length: must be a number of at most {MAX_BYTES:,} bytes")
        return json.loads(self.rfile.read(int(length)))

    def log_message(self, *_: Any) -> None:
        """Keep the log for the node."""


def predict_request(folder: Path, body: Any) -> dict[str, Any]:
    """Return the predictions for a request ``{"rows": [{"wind": 8, …}, …], "client": "north"}``."""
    if not isinstance(body, dict) or not isinstance(rows := body.get("rows"), list) or len(rows) > MAX_ROWS:
        raise PsofedError(f'the body must be {{"rows": [...]}} with at most {MAX_ROWS:,} rows')
    memory, client = read_memory(folder), body.get("client", "")
    if not isinstance(client, str) or client not in memory.clients:
        raise PsofedError(f'"client" must be one of {listed(sorted(memory.clients))}')
    model = client_model(folder, memory, client)
    inputs = np.array([_inputs(row, k, model) for k, row in enumerate(rows)]).reshape(len(rows), model.width)
    return {"round": model.round_number, "predictions": list(predict_inputs(model, inputs, "rows"))}


def _inputs(row: Any, k: int, model: ExportedModel) -> list[float]:
    """Return a row as the model takes it: by name, in its order; NaN where a value is null."""
    names = [*map(str, range(model.width))] if model.columns is None else list(model.columns.features)
    if model.columns is None and isinstance(row, list):
        row = dict(zip(names, row, strict=False))
    if not isinstance(row, dict) or not set(names) <= row.keys():
        raise PsofedError(f"row {k}: must have the columns {listed(names)}")
    for name in names:
        if row[name] is not None and not (type(row[name]) in (int, float) and abs(row[name]) < 1e300):
            raise PsofedError(f"row {k}: {name} must be a number, or null if it is unknown")
    return [float("nan") if row[name] is None else float(row[name]) for name in names]
