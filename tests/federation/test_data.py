"""Tables with named columns: the same rows, the same scaling and the same complaints as everywhere."""

import json

import numpy as np
import pytest
from nodes import fast_time
from stations import federate

import psofed
from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.data.standardise import Standardiser
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.online import ALL_AT_ONCE, read_stream
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.client.sources import Position, TableSource
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.ready_made import run_ready_made
from psofed.federation.transport.in_process import InProcessHub
from psofed.models import Rff

pytestmark = pytest.mark.federation

STATIONS = ("north", "south", "west")


def write_table(path, rows=200, seed=0):
    """Three stations in one file: a time stamp, a text column, raw units, gaps."""
    rng = np.random.default_rng(seed)
    lines = ["time,station,note,pressure,wind,output"]
    for n in range(rows):
        for station in STATIONS:
            pressure, wind = 101325 + 300 * rng.standard_normal(), 8 + 2 * rng.standard_normal()
            output = 0.02 * (pressure - 101325) + 4 * wind + rng.standard_normal()
            wind = "" if rng.random() < 0.05 else f"{wind:.4f}"
            lines.append(f"2024-01-01T{n:05d},{station},all well,{pressure:.2f},{wind},{output:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def source_for(path, station, **changes):
    options = {"target_column": "output", "features": ("pressure", "wind"), "client_column": "station"}
    return TableSource(path, client=station, **{**options, **changes})


def test_a_clients_samples_are_those_that_read_data_gives(tmp_path):
    path = write_table(tmp_path / "all.csv")
    data = psofed.read_data(path, "station", "output", ["pressure", "wind"])
    for k, station in enumerate(STATIONS):
        source, position, rows = source_for(path, station), Position(), []
        while True:  # in pieces, as a stream would be read
            piece = source.read(position, limit=37)
            if not len(piece):
                break
            rows += zip(piece.inputs, piece.targets, strict=True)
            position = piece.end
        scaling = Standardiser(2)
        samples = [pair for x, y in rows if (pair := scaling.take(x, y)) is not None]
        np.testing.assert_allclose([x for x, _ in samples], data.inputs[k], atol=1e-7)
        np.testing.assert_allclose([y for _, y in samples], data.targets[k], atol=1e-7)


def test_a_row_counts_once_its_line_is_complete_and_bad_rows_are_skipped_with_the_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\nabc,3\n4,\n5")
    source = TableSource(path, ("x",), "y")
    first = source.read(Position(), 100)
    assert first.inputs.tolist() == [[1.0]]
    assert first.end.skipped == 2
    assert first.problem == "no value of y"
    with path.open("a") as file:
        file.write(",6\n7;8\n")
    second = source.read(first.end, 100)
    assert second.inputs.tolist() == [[5.0]]
    assert second.problem == "1 fields where the header has 2"
    assert source.read(second.end, 100).end == second.end


def test_a_row_is_one_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('note,x,y\n5" pipe,1,2\n"never closed\n",3,4\n"fine, ""too""",5,6\n')
    samples = TableSource(path, ("x",), "y").read(Position(), 100)
    assert samples.inputs.tolist() == [[1.0], [5.0]]
    assert samples.end.skipped == 2


def test_a_file_that_was_replaced_by_a_longer_one_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n10,2\n")
    source = TableSource(path, ("x",), "y")
    end = source.read(Position(), 100).end
    path.write_text("x,y\n101325.5,3\n101326.5,4\n")
    assert source.read(end, 100).inputs.tolist() == [[101325.5], [101326.5]]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_table_that_is_not_utf_8_is_refused(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("größe,y\n1,2\n".encode(encoding))
    with pytest.raises(PsofedError, match=r"a\.csv: the first line is not UTF-8"):
        TableSource(path).open()


def test_rows_that_are_skipped_are_told_also_when_others_are_learned(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,z,y\n" + "".join(f"{n % 7},{n % 5},{n % 3 if n % 4 else 'oops'}\n" for n in range(80)))
    named = {"features": ("x", "z"), "target_column": "y"}
    _, server = federation({"5": NodeOptions(data=str(path))}, 1, named)
    assert examples_of(server) == 40
    expected = "20 of 80 rows were skipped (the last: column y: 'oops' is not a number)"
    assert server.state.history[0]["remarks"] == {"5": f"{expected}; {ALL_AT_ONCE}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_column": "height"}, "all.csv lacks height; it has time, station"),
        ({"features": ("pressure", "station")}, "column station is --client-column, and one of the run's"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path, changes, message):
    path = write_table(tmp_path / "all.csv", rows=2)
    with pytest.raises(PsofedError, match=message):
        source_for(path, "north", **changes).read(Position(), 5)


FEATURES = {"features": ("pressure", "wind"), "target_column": "output"}


def federation(nodes, rounds=30, settings=None):
    """Run ready-made nodes, given their options by name; by default the run names the table's columns."""
    count = len(nodes)
    scenario = Scenario(
        num_clients=max(2, count), dimension=2, num_participants=count, stepsize=0.05, iterations=rounds
    )
    given = FEATURES if settings is None else settings
    made = RunSettings.from_mapping(json.loads(json.dumps(RunSettings(scenario=scenario, **given).to_mapping())))
    return federate(made, nodes)


def examples_of(server):
    return sum(entry["examples"] for entry in server.state.history)


def test_a_federation_learns_from_raw_units_and_keeps_the_scaling(tmp_path):
    path = write_table(tmp_path / "all.csv", rows=300)
    nodes = {station: NodeOptions(data=str(path), client_column="station", client=station) for station in STATIONS}
    hub, server = federation(nodes)
    assert not server.strikes.counts
    assert examples_of(server) == 3 * 280  # 20 rows of each only feed the means
    data = psofed.read_data(path, "station", "output", ["pressure", "wind"])
    np.testing.assert_allclose(server.state.model, psofed.draw_fleet(psofed.Scenario.from_data(data)).target, atol=0.12)
    scaling = read_stream(hub.nodes["north"].store.held.clients[""].records).scaling
    assert scaling.rows == 300
    assert scaling.means[0] == pytest.approx(101325, abs=100)
    history = server.state.history
    assert history[0]["remarks"]["north"] == ALL_AT_ONCE, "said in the first round"
    assert history[-1]["remarks"]["north"] == "no new sample, 300 were read so far"


def test_nodes_learn_on_random_features_of_their_inputs(tmp_path):
    """Against the recursion written out, on the standardised rows of one station."""
    path = write_table(tmp_path / "all.csv", rows=80)
    scenario = Scenario(
        num_clients=2, dimension=12, num_participants=1, num_shared=12, stepsize=0.1, iterations=80,
        model=Rff(bandwidth=2.0, seed=3), aggregation="mean",
    )  # fmt: skip
    settings = RunSettings(scenario=scenario, samples_per_round=1, **FEATURES)
    assert settings.input_dimension == 2
    node = NodeOptions(data=str(path), client_column="station", client="north")
    _, server = federate(settings, {"north": node})
    data = psofed.read_data(path, "station", "output", ["pressure", "wind"])
    features, weights = scenario.model.make_features(2, 12), np.zeros(12)
    for x, y in zip(data.inputs[0], data.targets[0], strict=True):
        z = features(x)
        weights += 0.1 * (y - weights @ z) * z
    np.testing.assert_allclose(server.state.model, weights, atol=1e-6)
    with pytest.raises(PsofedError, match="name the inputs with --features"):
        RunSettings(scenario=scenario)


@pytest.mark.parametrize(
    ("text", "columns", "remark"),
    [
        ("time,x,y\nnoon,a,b\nnoon,1,2\n", ("time", "x"), "no sample read; 2 of 2 rows were skipped"),
        ("x,z,y\n1,b,2\n", ("x", "z"), "column z: 'b' is not a number"),
        ("x,z,y\n", ("x", "z"), "no sample read"),
        ("x,z,y\n1,2,3\n2,2,3\n", ("x", "z"), "only feed the running means"),
        (
            "x,z,y\n" + "".join(f"{i},{-i},7\n" for i in range(30)),
            ("x", "z"),
            "the target was 7 in all of 30 rows: nothing to learn",
        ),
    ],
)
def test_a_client_without_samples_says_so_at_the_server(tmp_path, text, columns, remark):
    path = tmp_path / "a.csv"
    path.write_text(text)
    _, server = federation({"5": NodeOptions(data=str(path))}, 2, {"features": columns, "target_column": "y"})
    assert examples_of(server) == 0
    assert remark in server.state.history[0]["remarks"]["5"]


def shuffled(path, out, order, rename=None):
    """Write the columns of a table in another order."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    at = [rows[0].index(name) for name in order]
    lines = [[row[i] for i in at] for row in rows]
    lines[0] = [(rename or {}).get(name, name) for name in lines[0]]
    out.write_text("".join(",".join(line) + "\n" for line in lines))
    return out


ORDERS = (
    ["station", "pressure", "wind", "output"],
    ["output", "wind", "station", "pressure"],
    ["wind", "pressure", "output", "station"],
)


def test_nodes_find_their_columns_by_name(tmp_path):
    """Three nodes with their columns in three orders learn the very model of three nodes with one order."""
    path = write_table(tmp_path / "all.csv", rows=60)
    models = []
    for orders in ((ORDERS[0],) * 3, ORDERS):
        nodes = {}
        for k, station in enumerate(STATIONS):
            table = shuffled(path, tmp_path / f"{station}.csv", orders[k])
            nodes[station] = NodeOptions(data=str(table), client_column="station", client=station)
        hub, server = federation(nodes, 3, {"features": ["wind", "pressure"], "target_column": "output"})
        assert not server.strikes.counts
        models.append(server.state.model.tolist())
        assert hub.nodes["south"].store.held.clients[""].layout.columns.features == ("wind", "pressure")
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"wind": "gusts"}, {}, "odd.csv lacks wind; it has pressure, gusts, output"),
        ({"output": "power"}, {}, "odd.csv lacks output"),
        ({}, {"features": ["pressure"]}, "lacks wind; the run's columns are pressure, wind → output"),
        ({}, {"features": ["pressure", "wind", "note"]}, "has note, unknown to the run; its columns are pressure"),
        ({}, {"target_column": "wind"}, "odd.csv predicts wind; the run's columns are pressure, wind → output"),
        ("no header", {}, "is the header line with the names of the columns missing?"),
    ],
)
def test_a_node_without_the_runs_columns_is_refused_by_name_before_it_sends_anything(
    tmp_path, columns, options, reason
):
    path = write_table(tmp_path / "all.csv", rows=40)
    renamed = {} if columns == "no header" else columns
    odd = shuffled(path, tmp_path / "odd.csv", ["pressure", "wind", "output"], renamed)
    if columns == "no header":
        odd.write_text("".join(f"{n},{-n},{n % 3}\n" for n in range(40)))
    good = NodeOptions(data=str(path))
    hub, server = federation({"5": good, "6": good, "7": NodeOptions(data=str(odd), **options)}, 3)
    assert set(server.strikes.counts) == {"7"}
    assert reason in server.state.history[0]["reasons"]["7"]
    assert all("5" in entry["accepted"] for entry in server.state.history)
    assert hub.nodes["7"].store.held is None


def test_a_table_takes_no_part_in_a_run_whose_columns_have_no_names(tmp_path):
    named = write_table(tmp_path / "all.csv", rows=40)
    _, server = federation({"7": NodeOptions(data=str(named))}, 2, {})
    assert set(server.strikes.counts) == {"7"}
    assert "all.csv have names, the run's do not; name them with" in server.state.history[0]["reasons"]["7"]


def test_a_long_lived_node_learns_from_each_row_as_it_arrives(tmp_path):
    path = tmp_path / "a.csv"
    lines = write_table(tmp_path / "all.csv", rows=100).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:121]))
    hub, server = federation({"5": NodeOptions(data=str(path))}, 1)
    node = hub.nodes["5"]
    held = node.store.held
    node.tend()
    assert node.store.held is held
    with path.open("a") as file:
        file.write("".join(lines[121:]))
    node.tend()
    stream = read_stream(node.store.held.clients[""].records)
    assert stream.examples == 180  # to be told to the server in the next round
    assert examples_of(server) == 100


def test_a_value_that_no_sum_of_squares_can_hold_is_skipped_with_the_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n1e155,3\n4,5\n")
    samples = TableSource(path, ("x",), "y").read(Position(), 100)
    assert samples.inputs.tolist() == [[1.0], [4.0]]
    assert "'1e155' in column x is not finite, or too large" in samples.problem


def test_rows_that_wait_for_their_round_are_not_called_missing(tmp_path):
    path = write_table(tmp_path / "all.csv", rows=300)
    node = ready_made_node("n", NodeOptions(data=str(path)))
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, iterations=9)
    settings = RunSettings(scenario=scenario, samples_per_round=1, **FEATURES)
    hub = InProcessHub({"n": node})
    store = CheckpointStore(tmp_path / "c.npz")
    with fast_time():
        run_ready_made(settings, hub, checkpoint=store)
        store.rollback(4)
        settings = settings.replace(rounds=5, resume=True)
        server = run_ready_made(settings, hub, checkpoint=store)
    assert server.state.history[-1]["remarks"]["n"] == "no sample is due: this client has read its 1 a round"


def test_a_second_run_begins_with_the_first_row_again(tmp_path):
    node = ready_made_node("n", NodeOptions(data=str(write_table(tmp_path / "all.csv", rows=300))))
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, iterations=30)
    settings = RunSettings(scenario=scenario, samples_per_round=1, **FEATURES)
    hub = InProcessHub({"n": node})
    models = []
    with fast_time():
        for _ in range(2):
            server = run_ready_made(settings, hub)
            models.append(server.state.model)
    np.testing.assert_array_equal(*models)
    assert np.any(models[0])
