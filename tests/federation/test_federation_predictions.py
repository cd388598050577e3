"""A node's model as a local HTTP service: what `predict` says, and one line for whatever is wrong."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from psofed.common.errors import PsofedError
from psofed.data.standardise import Standardiser
from psofed.federation.client.online import STREAM, ClientStream
from psofed.federation.client.state import ClientMemory, ClientState, NodeMemory
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.export import load_model, predict_rows
from psofed.federation.deploy.predictions import MAX_BYTES, MAX_ROWS, serve_predictions
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.models import arrays_of

pytestmark = pytest.mark.federation

COLUMNS = ColumnNames(("wind", "pressure"), "output", units=("m/s", "Pa", "kW"))
JSON = {"Content-Type": "application/json"}
ROWS = [{"wind": 8, "pressure": 101325.0}, {"pressure": 101825, "wind": None, "height": 3}]


def save_node(folder, clients=("",), columns=COLUMNS, scaled=True):
    """Write the state of a node whose clients have learned, as the node itself does."""
    rng, layout = np.random.default_rng(0), ModelLayout.of(arrays_of([np.zeros(2)]))
    layout = ModelLayout(layout.names, layout.shapes, layout.dtypes, columns=columns)
    memories = {}
    for k, name in enumerate(clients):
        scaling = Standardiser(2, warmup=2) if scaled else None
        if scaling is not None:
            for x in rng.normal(size=(30, 2)) * [2.0, 300.0] + [8.0, 101325.0]:
                scaling.take(x, float(rng.normal(30.0, 5.0)))
        state = ClientState(0, 4 + k, layout, np.array([0.5, k + 1.0]), arrays_of([]), 1, {})
        memories[name] = ClientMemory(state, {STREAM: ClientStream(scaling=scaling)})
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "7-s.npz").write_bytes(NodeMemory("s", 7, memories).to_bytes())
    return folder


def ask(port, method="GET", path="/predict", body=None, headers=JSON):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def predicted(folder, tmp_path):
    """Return what the command predicts for the same rows."""
    (tmp_path / "rows.csv").write_text("pressure,wind\n101325,8\n101825,\n")
    return list(predict_rows(load_model(folder), tmp_path / "rows.csv"))


def test_a_node_predicts_in_the_targets_own_unit_as_the_command_does(tmp_path):
    folder = save_node(tmp_path / "node")
    with serve_predictions(folder, 0) as port:
        expects = {"round": 4, "inputs": 2, "columns": COLUMNS.to_mapping(), "scaled": True}
        assert ask(port) == (200, expects)
        expected = {"round": 4, "predictions": predicted(folder, tmp_path)}
        assert ask(port, "POST", body={"rows": ROWS}) == (200, expected)
        assert ask(port, "POST", body={"rows": []}) == (200, {"round": 4, "predictions": []})


def test_a_gateways_client_is_named_in_the_request(tmp_path):
    folder = save_node(tmp_path / "node", clients=("north", "south"))
    with serve_predictions(folder, 0) as port:
        assert ask(port) == (200, {"clients": ["north", "south"]})
        assert ask(port, path="/predict?client=south")[1]["round"] == 5
        for client in ("north", "south"):
            found = ask(port, "POST", body={"rows": ROWS, "client": client})[1]["predictions"]
            assert found == predicted(folder / client, tmp_path)
        for client in ("east", "../node/north", "", 7):
            refused = ask(port, "POST", body={"rows": ROWS, "client": client})
            assert refused == (400, {"error": "client: must be one of north, south"})


def test_a_model_without_names_or_scaling_takes_lists_of_numbers(tmp_path):
    with serve_predictions(save_node(tmp_path / "node", columns=None, scaled=False), 0) as port:
        assert ask(port)[1] == {"round": 4, "inputs": 2, "columns": None, "scaled": False}
        assert ask(port, "POST", body={"rows": [[2, 3]]})[1]["predictions"] == [4.0]
        for rows, problem in (
            ([[2]], "row 0: must be a list of 2 numbers"),
            ([{"a": 1}], "row 0: must be a list of 2 numbers"),
            ([[1, None]], "rows: values are missing, which needs a model with a scaling"),
        ):
            assert ask(port, "POST", body={"rows": rows}) == (400, {"error": problem})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{", "the body is not JSON"),
        ("[" * 100_000, "the body is not JSON"),
        (b"\xff\xfe\x00", "the body is not JSON"),
        ([], 'the body must be {"rows": [...]}'),
        ({"rows": 3}, 'the body must be {"rows": [...]}'),
        ({"rows": [[1, 2]]}, "row 0: must be an object with the columns wind, pressure"),
        ({"rows": [ROWS[0], {"wind": 1}]}, "row 1: lacks pressure"),
        ({"rows": [{"wind": "8", "pressure": 1}]}, "row 0: '8' is not a number, nor null"),
        ({"rows": [{"wind": True, "pressure": 1}]}, "row 0: 'True' is not a number, nor null"),
        ('{"rows": [{"wind": NaN, "pressure": 1}]}', "row 0: 'nan' is not a number, nor null"),
        ('{"rows": [{"wind": 1e999, "pressure": 1}]}', "row 0: 'inf' is not a number, nor null"),
        ({"rows": [{}] * (MAX_ROWS + 1)}, "rows: at most 10,000; got 10,001"),
        ({"rows": ROWS, "client": "north"}, "client: this node is not a gateway; omit it"),
    ],
)
def test_bad_input_is_one_line_and_the_service_continues(tmp_path, body, problem):
    with serve_predictions(save_node(tmp_path / "node"), 0) as port:
        status, answer = ask(port, "POST", body=body)
        assert status == 400
        assert answer["error"].startswith(problem)
        assert ask(port)[0] == 200


def test_other_requests_are_refused(tmp_path):
    with serve_predictions(save_node(tmp_path / "node"), 0) as port:
        for arguments, problem in (
            (("GET", "/model"), "/model: there is only /predict"),
            (("GET", "/predict", None, {"Host": "evil.example"}), "Host: must be 127.0.0.1 or localhost"),
            (("POST", "/predict", "{}", {"Content-Type": "text/plain"}), "Content-Type: must be"),
            (("POST", "/predict", "{}", {**JSON, "Content-Length": str(MAX_BYTES + 1)}), "Content-Length:"),
            (("POST", "/predict", "{}", {**JSON, "Content-Length": "-5"}), "Content-Length:"),
        ):
            status, answer = ask(port, *arguments)
            assert status == 400
            assert answer["error"].startswith(problem)
        with socket.create_connection(("127.0.0.1", port)) as gone:  # breaks off in the middle
            gone.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert ask(port)[0] == 200


def test_connections_that_say_nothing_or_little_hold_nobody_up(tmp_path):
    """Each gets a thread, and the longest open ones are closed."""
    with serve_predictions(save_node(tmp_path / "node"), 0) as port, contextlib.ExitStack() as stack:
        before = threading.active_count()
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: ")
        assert ask(port)[0] == 200
        assert slow[0].recv(1) == b""
        assert threading.active_count() < before + 60


def test_a_node_without_a_model_says_so_and_a_taken_port_is_an_error(tmp_path):
    with serve_predictions(tmp_path, 0) as port:
        assert ask(port) == (400, {"error": f"{tmp_path} holds no client state"[:200]})
        with pytest.raises(PsofedError, match="--predict-port"), serve_predictions(tmp_path, port):
            pass


def test_a_node_process_answers_while_it_waits_for_its_server(tmp_path):
    folder = save_node(tmp_path / "node")
    made = make_credentials(tmp_path / "credentials", [], ["node-0"])
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        server = f"127.0.0.1:{nobody.getsockname()[1]}"
    psofed = [sys.executable, "-c", "from psofed.cli import main; main()", "federation", "client"]
    command = [*psofed, "--server", server, "--home", str(folder)]
    command += ["--key", str(made.node_key("node-0")), "--ca", str(made.authority), "--predict-port", "0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in node.stdout:
            if found := re.search(r"Predictions at http://127\.0\.0\.1:(\d+)/predict", line):
                break
        expected = {"round": 4, "predictions": predicted(folder, tmp_path)}
        assert ask(int(found[1]), "POST", body={"rows": ROWS}) == (200, expected)
    finally:
        node.terminate()
        node.communicate(timeout=60)
