"""Models of client folders."""

import numpy as np
import pytest

from psofed.common.errors import PsofedError
from psofed.data.standardise import Standardiser
from psofed.federation.client.online import STREAM, ClientStream
from psofed.federation.client.state import ClientState, NodeMemory
from psofed.federation.deploy.export import load_model, predict_rows, save_model
from psofed.federation.protocol.layout import ColumnNames, ModelLayout

pytestmark = pytest.mark.federation

COLUMNS = ColumnNames(("wind", "pressure"), "output")


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
