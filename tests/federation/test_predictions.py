"""Models of client folders, and a node's model as a local HTTP service."""

import http.client
import json
import socket

import numpy as np
import pytest

from psofed.common.errors import PsofedError
from psofed.data.standardise import Standardiser
from psofed.federation.client.online import STREAM, ClientStream
from psofed.federation.client.state import ClientState, NodeMemory
from psofed.federation.deploy.export import load_model, predict_rows, save_model
from psofed.federation.deploy.predictions import MAX_BYTES, MAX_ROWS, serve_predictions
from psofed.federation.protocol.layout import ColumnNames, ModelLayout

pytestmark = pytest.mark.federation

COLUMNS = ColumnNames(("wind", "pressure"), "output")
JSON = {"Content-Type": "application/json"}
ROWS = [{"wind": 8, "pressure": 101325.0}, {"pressure": 101825, "wind": None, "height": 3}]


def save_node(folder, clients=("",), columns=COLUMNS, scaled=True):
    """Write the state of a node whose clients have learned, as the node itself does."""
    rng, layout = np.random.default_rng(0), ModelLayout.of({"0": np.zeros(2)})
    layout = ModelLayout(layout.names, layout.shapes, layout.dtypes, columns=columns)
    memories = {}
    for k, name in enumerate(clients):
        scaling = Standardiser(2, warmup=2) if scaled else None
        if scaling is not None:
            for x in rng.normal(size=(30, 2)) * [2.0, 300.0] + [8.0, 101325.0]:
                scaling.take(x, float(rng.normal(30.0, 5.0)))
        records = {STREAM: ClientStream(scaling=scaling)}
        memories[name] = ClientState(0, 4 + k, layout, np.array([0.5, k + 1.0]), {}, 1, {}, records)
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "7-s.npz").write_bytes(NodeMemory("s", "pump", memories).to_bytes())
    return folder


def ask(port, body, path="/predict", headers=JSON, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def predicted(path, tmp_path, rows="pressure,wind\n101325,8\n101825,\n"):
    """Return what the command predicts."""
    (tmp_path / "rows.csv").write_text(rows)
    return list(predict_rows(load_model(path), tmp_path / "rows.csv"))


def test_a_nodes_folder_predicts_in_the_targets_own_unit_as_its_exported_model_does(tmp_path):
    folder = save_node(tmp_path / "node")
    save_model(load_model(folder), tmp_path / "model.json")
    (known, missing) = predicted(folder, tmp_path)
    assert 15.0 < known < 45.0
    assert missing != known
    assert predicted(tmp_path / "model.json", tmp_path) == [known, missing]


def test_a_gateways_clients_are_named_as_folders(tmp_path):
    folder = save_node(tmp_path / "node", clients=("north", "south"))
    north, south = (predicted(folder / client, tmp_path) for client in ("north", "south"))
    assert north != south
    with pytest.raises(PsofedError, match="is the folder of a gateway; name one of its clients"):
        load_model(folder)
    with pytest.raises(PsofedError, match="holds no state of a client east"):
        load_model(folder / "east")
    (tmp_path / "new" / "state").mkdir(parents=True)
    with pytest.raises(PsofedError, match="new holds no client state"):
        load_model(tmp_path / "new")


def test_a_model_without_names_or_scaling_takes_columns_in_order(tmp_path):
    folder = save_node(tmp_path / "node", columns=None, scaled=False)
    assert predicted(folder, tmp_path, "a,b\n2,3\n") == [4.0]
    for rows, problem in (
        ("a\n2\n", r"1 features \(a\) for a model of 2; choose with --features"),
        ("a,b\n1,\n", "values are missing, which needs a model with a scaling"),
    ):
        with pytest.raises(PsofedError, match=problem):
            predicted(folder, tmp_path, rows)


def test_a_node_predicts_in_the_targets_own_unit_as_the_command_does(tmp_path):
    folder = save_node(tmp_path / "node")
    with serve_predictions(folder, 0) as port:
        expected = {"round": 4, "predictions": predicted(folder, tmp_path)}
        assert ask(port, {"rows": ROWS}) == (200, expected)
        assert ask(port, {"rows": []}) == (200, {"round": 4, "predictions": []})


def test_a_gateways_client_is_named_in_the_request(tmp_path):
    folder = save_node(tmp_path / "node", clients=("north", "south"))
    with serve_predictions(folder, 0) as port:
        for client in ("north", "south"):
            answer = ask(port, {"rows": ROWS, "client": client})[1]["predictions"]
            assert answer == predicted(folder / client, tmp_path)
        for client in ("east", "../node/north", "", 7):
            refused = ask(port, {"rows": ROWS, "client": client})
            assert refused == (400, {"error": '"client" must be one of north, south'})


def test_a_model_without_names_or_scaling_takes_lists_of_numbers(tmp_path):
    with serve_predictions(save_node(tmp_path / "node", columns=None, scaled=False), 0) as port:
        assert ask(port, {"rows": [[2, 3]]})[1]["predictions"] == [4.0]
        for rows, problem in (
            ([[2]], "row 0: must have the columns 0, 1"),
            ([[1, None]], "rows: values are missing, which needs a model with a scaling"),
        ):
            assert ask(port, {"rows": rows}) == (400, {"error": problem})


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[" * 100_000,
        b"\xff\xfe\x00",
        [],
        {"rows": 3},
        {"rows": [[1, 2]]},
        {"rows": [ROWS[0], {"wind": 1}]},
        {"rows": [{"wind": "8", "pressure": 1}]},
        {"rows": [{"wind": True, "pressure": 1}]},
        '{"rows": [{"wind": NaN, "pressure": 1}]}',
        '{"rows": [{"wind": 1e999, "pressure": 1}]}',
        {"rows": [{}] * (MAX_ROWS + 1)},
        {"rows": ROWS, "client": "north"},
    ],
)
def test_bad_input_is_one_line_and_the_service_continues(tmp_path, body):
    with serve_predictions(save_node(tmp_path / "node"), 0) as port:
        status, answer = ask(port, body)
        assert status == 400
        assert "\n" not in answer["error"]
        assert ask(port, {"rows": ROWS})[0] == 200


def test_other_requests_are_refused(tmp_path):
    with serve_predictions(save_node(tmp_path / "node"), 0) as port:
        for path, headers, problem in (
            ("/model", JSON, "there is only"),
            ("/predict", {**JSON, "Host": "evil.example"}, "there is only"),
            ("/predict", {"Content-Type": "text/plain"}, "Content-Type: must be"),
            ("/predict", {**JSON, "Content-Length": str(MAX_BYTES + 1)}, "Content-Length:"),
            ("/predict", {**JSON, "Content-Length": "-5"}, "Content-Length:"),
        ):
            status, answer = ask(port, "{}", path, headers)
            assert status == 400
            assert answer["error"].startswith(problem)
        with socket.create_connection(("127.0.0.1", port)) as gone:  # breaks off in the middle
            gone.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert ask(port, {"rows": ROWS})[0] == 200


def test_a_node_without_a_model_says_so_and_a_taken_port_is_an_error(tmp_path):
    with serve_predictions(tmp_path, 0) as port:
        assert ask(port, {"rows": []}) == (400, {"error": f"{tmp_path} holds no client state"})
        with pytest.raises(PsofedError, match="--predict-port"), serve_predictions(tmp_path, port):
            pass
