"""Tables with named columns: the same rows, the same scaling and the same complaints as everywhere."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import psofed
from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.common.files import read_json
from psofed.data.standardise import Standardiser
from psofed.federation.client.columns import TableSource
from psofed.federation.client.online import ALL_AT_ONCE, read_stream
from psofed.federation.client.sources import Position
from psofed.federation.client.state import memory_of
from psofed.federation.deploy.app import ReadyMadeApp, client_app, run_server
from psofed.federation.deploy.export import ExportedModel, load_model, predict_rows, save_model
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.superlink import Home
from psofed.federation.protocol.archive import read_archive
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.testing import InProcessGrid
from psofed.fleet.measured import best_weights

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
    return TableSource(path, 2, client=station, **{**options, **changes})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_clients_samples_are_those_that_read_data_gives(tmp_path, kind):
    path = write_table(tmp_path / "all.csv")
    data = psofed.read_data(path, "station", "output", ["pressure", "wind"])
    if kind == "parquet":
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv(path), tmp_path / "all.parquet")
        path = tmp_path / "all.parquet"
    for k, station in enumerate(STATIONS):
        source, position, rows = source_for(path, station), Position(), []
        while True:  # in pieces, as a stream would be read
            piece = source.read(position, limit=37)
            if not len(piece):
                break
            rows += zip(piece.inputs, piece.targets, strict=True)
            position = piece.end_after(position)
        scaling = Standardiser(2)
        samples = [pair for x, y in rows if (pair := scaling.take(x, y)) is not None]
        np.testing.assert_allclose([x for x, _ in samples], data.inputs[k], atol=1e-7)
        np.testing.assert_allclose([y for _, y in samples], data.targets[k], atol=1e-7)


def test_a_row_counts_once_its_line_is_complete_and_bad_rows_are_skipped_with_the_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\nabc,3\n4,\n5")
    source = TableSource(path, 1, "y")
    first = source.read(Position(), 100)
    assert first.inputs.tolist() == [[1.0]]
    assert first.end.skipped == 2
    assert first.problem == "no value of y"
    with path.open("a") as file:
        file.write(",6\n7;8\n")
    second = source.read(first.end, 100)
    assert second.inputs.tolist() == [[5.0]]
    assert second.problem == "1 fields where the header has 2"
    assert source.read(second.end, 100).end_after(second.end) == second.end


def test_a_quoted_field_may_have_several_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('note,x,y\n"all ""well"",\nso far",1,2\n5" pipe,3,4\n"never closed,5,6\n')
    source = TableSource(path, 1, "y")
    first = source.read(Position(), 100)
    assert first.inputs.tolist() == [[1.0], [3.0]]
    with path.open("a") as file:  # whether it is closed later cannot be known for ever
        file.writelines(f"fine,{n},{n}\n" for n in range(60))
    second = source.read(first.end, 100)
    assert second.inputs[:, 0].tolist() == list(range(60))
    assert second.end.skipped == 1


def test_a_file_that_was_replaced_by_a_longer_one_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n10,2\n")
    source = TableSource(path, 1, "y")
    end = source.read(Position(), 100).end
    path.write_text("x,y\n101325.5,3\n101326.5,4\n")
    assert source.read(end, 100).inputs.tolist() == [[101325.5], [101326.5]]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_table_that_is_not_utf_8_is_refused(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("größe,y\n1,2\n".encode(encoding))
    with pytest.raises(PsofedError, match=r"a\.csv: the first line is not UTF-8"):
        TableSource(path, 0, "y").columns()


def test_a_table_without_a_column_of_numbers_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("note,y\nfine,2\nwell,3\n")
    with pytest.raises(PsofedError, match="no column of numbers besides y; there are note, y"):
        TableSource(path, 0, "y").columns()


def test_rows_that_are_skipped_are_told_also_when_others_are_learned(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,z,y\n" + "".join(f"{n % 7},{n % 5},{n % 3 if n % 4 else 'oops'}\n" for n in range(80)))
    _, result = federation(tmp_path, {5: {"data": str(path), "target-column": "y"}}, rounds=1)
    assert result["examples"] == 40
    expected = "20 of 80 rows were skipped (the last: column y: 'oops' is not a number)"
    assert result["nodes"]["5"]["remark"] == f"{expected}; {ALL_AT_ONCE}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_column": "height"}, "no column height; there are time, station"),
        ({"features": ("pressure", "output")}, "cannot be a feature, it is the target"),
        ({"features": ("wind",)}, r"1 features \(wind\) where the run's dimension is 2.*dimension=1"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path, changes, message):
    path = write_table(tmp_path / "all.csv", rows=2)
    with pytest.raises(PsofedError, match=message):
        source_for(path, "north", **changes).read(Position(), 5)


def federation(tmp_path, node_config, rounds=30, settings=None, **changes):
    count = len(node_config)
    scenario = Scenario(
        num_clients=count, dimension=2, num_participants=count, stepsize=0.05, iterations=rounds
    ).replace(**changes)
    settings = RunSettings(scenario=scenario, samples_per_round=0, **(settings or {}))
    settings = RunSettings.from_config(settings.to_config())  # as Flower carries it
    grid = InProcessGrid(dict.fromkeys(node_config, client_app), node_config=node_config)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    run_server(grid, settings, Home(tmp_path / "home"))
    return grid, read_json(tmp_path / "home" / "result.json")


def test_a_federation_learns_from_raw_units_and_keeps_the_scaling(tmp_path):
    path = write_table(tmp_path / "all.csv", rows=300)
    common = {"data": str(path), "target-column": "output", "features": "pressure, wind"}
    nodes = {
        7 + k: {**common, "client-column": "station", "client": station} for k, station in enumerate(STATIONS)
    }
    grid, result = federation(tmp_path, nodes)
    assert result["bad_replies"] == {}
    assert result["examples"] == 3 * 280  # 20 rows of each only feed the means
    data = psofed.read_data(path, "station", "output", ["pressure", "wind"])
    np.testing.assert_allclose(result["model"], best_weights(data), atol=0.12)
    scaling = read_stream(memory_of(grid.contexts[7]).of("").records).scaling
    assert scaling.rows == 300
    assert scaling.means[0] == pytest.approx(101325, abs=100)
    assert result["history"][0]["remarks"]["7"] == ALL_AT_ONCE, "said in the first round"
    assert result["nodes"]["7"]["remark"] == "no new sample, 300 were read so far"
    json.dumps(result)


@pytest.mark.parametrize(
    ("text", "node_config", "remark"),
    [
        (
            "time,x,y\nnoon,a,b\nnoon,1,2\n",
            {"target-column": "y", "features": "time,x"},
            "no sample read; 2 of 2 rows were skipped",
        ),
        ("x,z,y\n1,b,2\n", {"target-column": "y", "features": "x,z"}, "column z: 'b' is not a number"),
        ("x,z,y\n", {"target-column": "y"}, "no sample read"),
        ("x,z,y\n1,2,3\n2,2,3\n", {"target-column": "y"}, "only feed the running means"),
        (
            "x,z,y\n" + "".join(f"{i},{-i},7\n" for i in range(30)),
            {"target-column": "y"},
            "the target was 7 in all of 30 rows: nothing to learn",
        ),
    ],
)
def test_a_client_without_samples_says_so_at_the_server(tmp_path, text, node_config, remark):
    path = tmp_path / "a.csv"
    path.write_text(text)
    _, result = federation(tmp_path, {5: {"data": str(path), **node_config}}, rounds=2)
    assert result["examples"] == 0
    assert remark in result["nodes"]["5"]["remark"]
    assert remark in result["history"][0]["remarks"]["5"]


def test_a_clients_error_is_told_with_its_reason(tmp_path):
    path = write_table(tmp_path / "all.csv", rows=2)
    nodes = {5: {"data": str(path), "target-column": "height"}}
    with pytest.raises(PsofedError, match=r"no node could name its columns .5: error: .*no column height"):
        federation(tmp_path, nodes, rounds=1)
    _, result = federation(tmp_path, {**nodes, 6: {"data": str(path), "target-column": "output"}}, rounds=1)
    assert result["bad_replies"] == {"5": {"error": 1}}
    assert (
        "this node predicts height; the run's columns are pressure, wind → output"
        in (result["nodes"]["5"]["error"])
    )


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


@pytest.mark.parametrize("named", [{}, {"features": ["wind", "pressure"], "target_column": "output"}])
def test_nodes_find_their_columns_by_name(tmp_path, named):
    """Three nodes with their columns in three orders learn the very model of three nodes with one order."""
    path = write_table(tmp_path / "all.csv", rows=60)
    models = []
    for orders in ((ORDERS[0],) * 3, ORDERS):
        nodes = {}
        for k, station in enumerate(STATIONS):
            table = shuffled(path, tmp_path / f"{station}.csv", orders[k])
            rows = {"client-column": "station", "client": station}
            nodes[7 + k] = {"data": str(table), "target-column": "output", **rows}
        grid, result = federation(tmp_path, nodes, rounds=3, settings=named)
        assert result["bad_replies"] == {}
        models.append(result["model"])
        order = named.get("features", ["pressure", "wind"])
        assert result["columns"] == {"features": order, "target": "output"}
        assert read_json(tmp_path / "home" / "status.json")["columns"] == result["columns"]
        assert memory_of(grid.contexts[8]).of("").state.layout.columns.features == tuple(order)
    assert models[0] == models[1]
    with pytest.raises(
        PsofedError, match=r"belongs to a run with the columns .*a resumed run must keep its columns"
    ):
        federation(
            tmp_path,
            nodes,
            settings={"features": ["wind", "gusts"], "target_column": "output", "resume": True},
        )


@pytest.mark.parametrize(
    ("columns", "node_config", "reason"),
    [
        ({"wind": "gusts"}, {}, "odd.csv lacks wind; it has pressure, gusts, output, the run's columns are"),
        ({"output": "power"}, {}, "odd.csv lacks output"),
        ({}, {"features": "pressure"}, "lacks wind; the run's columns are pressure, wind → output"),
        (
            {},
            {"features": "pressure,wind,note"},
            "has note, unknown to the run; its columns are pressure, wind",
        ),
        (
            {},
            {"target-column": "wind"},
            "this node predicts wind; the run's columns are pressure, wind → output",
        ),
        ("no header", {}, "it has x1, x2, y (numbered, because it has no header line)"),
    ],
)
def test_a_node_without_the_runs_columns_is_refused_by_name_before_it_sends_anything(
    tmp_path, columns, node_config, reason
):
    path = write_table(tmp_path / "all.csv", rows=40)
    renamed = {} if columns == "no header" else columns
    odd = shuffled(path, tmp_path / "odd.csv", ["pressure", "wind", "output"], renamed)
    if columns == "no header":
        odd.write_text("".join(f"{n},{-n},{n % 3}\n" for n in range(40)))
    good = {"data": str(path), "target-column": "output"}
    nodes = {5: good, 6: good, 7: {"data": str(odd), **node_config}}
    grid, result = federation(tmp_path, nodes, rounds=3)
    assert set(result["bad_replies"]) == {"7"}
    assert reason in result["nodes"]["7"]["error"]
    assert result["nodes"]["5"]["rounds"] == 3
    assert not grid.contexts[7].state


def test_named_and_unnamed_columns_do_not_mix(tmp_path):
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(f"{n % 7},{n % 5},{n % 3}\n" for n in range(80)))
    named = write_table(tmp_path / "all.csv", rows=40)
    nodes = {
        5: {"data": str(bare)},
        6: {"data": str(bare)},
        7: {"data": str(named), "target-column": "output"},
    }
    _, result = federation(tmp_path, nodes, rounds=2)
    assert result["columns"] is None
    assert set(result["bad_replies"]) == {"7"}
    assert "columns have names (pressure, wind → output), the run's do not" in result["nodes"]["7"]["error"]


def test_a_long_lived_node_learns_from_each_row_as_it_arrives(tmp_path):
    path = tmp_path / "a.csv"
    lines = write_table(tmp_path / "all.csv", rows=100).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:121]))
    nodes = {5: {"data": str(path), "target-column": "output", "features": "pressure,wind"}}
    grid, first = federation(tmp_path, nodes, rounds=1)
    app, context = ReadyMadeApp(), grid.contexts[5]
    assert app.learn_arrived(context) == 0
    with path.open("a") as file:
        file.write("".join(lines[121:]))
    assert app.learn_arrived(context) == 180
    assert app.learn_arrived(context) == 0
    stream = read_stream(memory_of(context).of("").records)
    assert stream.examples == 180  # to be told to the server in the next round
    assert first["examples"] == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--features", "a"], "--features describes a table: add --data"),
        (["--data", "absent.csv", "--target-column", "y"], "--data absent.csv: no such file"),
        (["--data", "FILE", "--features", "gusts"], "no column gusts"),
        (["--data", "FILE", "--target-column", "output", "--client", "north"], "add --client-column"),
        (["--data", "FILE", "--target-column", "height"], "no column height"),
    ],
)
def test_mistakes_about_data_show_before_anything_starts(tmp_path, options, message):
    path = write_table(tmp_path / "all.csv", rows=2)
    arguments = [str(path) if option == "FILE" else option for option in options]
    from psofed.cli import app

    done = CliRunner().invoke(app, ["federation", "client", "--home", str(tmp_path / "n"), *arguments])
    assert isinstance(done.exception, PsofedError)
    assert message in str(done.exception)


def test_a_prediction_is_made_for_every_row_or_none(tmp_path):
    path, model = tmp_path / "new.csv", ExportedModel({"w": np.array([1.0, 2.0])}, 1, "s", None)
    path.write_text("a,b\n1,2\n3,4")  # nobody will write on: the last row counts
    assert list(predict_rows(model, path)) == [5.0, 11.0]
    path.write_text("a,b\n1,2\n1,x\n3,4\n")
    with pytest.raises(PsofedError, match=r"1 rows cannot be read .*column b: 'x' is not a number"):
        list(predict_rows(model, path, ("a", "b")))
    path.write_text("a,b\n1,\n")
    with pytest.raises(PsofedError, match="values are missing"):
        list(predict_rows(model, path))


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_the_model_is_exported_and_predicts_in_the_targets_own_unit(tmp_path, suffix):
    path = write_table(tmp_path / "all.csv", rows=400)
    folder = tmp_path / "pump-1"
    nodes = {
        5: {
            "data": str(path),
            "target-column": "output",
            "features": "pressure,wind",
            "psofed-state": str(folder / "state"),
        }
    }
    federation(tmp_path, nodes, rounds=2, num_shared=2)
    from psofed.cli import app

    new = tmp_path / "new.csv"
    new.write_text("wind,pressure\n8,101325\n10,101325\n8,101825\n")
    out = str(tmp_path / f"model{suffix}")
    done = CliRunner().invoke(
        app,
        ["federation", "export", "--home", str(tmp_path / "home"), "--out", out, "--scaling", str(folder)],
    )
    assert done.exit_code == 0, done.output
    assert "2 parameters in 1 array, after round 2, with a scaling" in done.output
    answers = {}
    takes = json.loads(Path(out).read_text()) if suffix == ".json" else read_archive(Path(out), "model", 1)[0]
    assert takes["columns"] == {"features": ["pressure", "wind"], "target": "output"}
    assert len(takes["scaling"]["means"]) == 2
    for model in (out, str(folder)):  # the server's model, and the client's own; columns are found by name
        order = [] if model == out else ["--features", "wind,pressure"]
        options = ["--model", model, "--data", str(new), *order, "--json"]
        done = CliRunner().invoke(app, ["federation", "predict", *options])
        assert done.exit_code == 0, done.output
        answers[model] = json.loads("{" + done.output.split("{", 1)[1])["predictions"]
        # 0.02 (pressure − 101325) + 4 wind, as the data were made
        np.testing.assert_allclose(answers[model], [32.0, 40.0, 42.0], atol=1.5)
    for table, features, message in (
        ("wind,height\n8,3\n", (), "no column pressure"),
        ("wind,pressure\n8,101325\n", ("wind", "gusts"), "--features lacks pressure"),
    ):
        new.write_text(table)
        with pytest.raises(PsofedError, match=message):
            list(predict_rows(load_model(Path(out)), new, features))


@pytest.mark.parametrize("scaled", [False, True])
def test_an_onnx_file_predicts_what_psofed_predicts(tmp_path, scaled):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    scaling = Standardiser(3, warmup=2, clip=1.5) if scaled else None
    if scaling is not None:
        for x in rng.normal(size=(20, 3)) * [1.0, 9.0, 0.0]:  # the third never varies
            scaling.take(np.where(rng.random(3) < 0.2, np.nan, x), float(rng.normal(5.0)))
    names = ColumnNames(("wind", "pressure", "height"), "output", units=("m/s", "Pa", "m", "kW"))
    model = ExportedModel({"w": np.array([1.0, -2.0, 0.5])}, 7, "session", scaling, names)
    save_model(model, tmp_path / "model.onnx")
    rows = rng.normal(size=(50, 3)) * [1.0, 9.0, 0.0]
    if scaled:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    lines = [",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in rows]
    (tmp_path / "rows.csv").write_text("wind,pressure,height\n" + "\n".join(lines) + "\n")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (predicted,) = session.run(None, {"features": rows})
    np.testing.assert_allclose(predicted, list(predict_rows(model, tmp_path / "rows.csv")), rtol=1e-12)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["columns"]) == names.to_mapping()
    with pytest.raises(PsofedError, match=r"export a \.json or \.npz"):
        load_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": 9}', b"PK\x03\x04"])
@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_what_is_not_a_model_is_a_clear_error(tmp_path, content, suffix):
    path = tmp_path / f"m{suffix}"
    path.write_bytes(content)
    with pytest.raises(PsofedError, match=rf"m\{suffix}"):
        load_model(path)
    with pytest.raises(PsofedError, match=r"no such file|cannot read"):
        load_model(tmp_path / f"absent{suffix}")


@pytest.mark.parametrize("name", ["s.toml", "s.npz"])
def test_a_scenario_is_not_taken_for_a_model(tmp_path, name):
    (tmp_path / name).write_text("dimension = 3\n")
    expected = "give a .json or .npz file written by" if name == "s.toml" else "not an .npz archive"
    with pytest.raises(PsofedError, match=expected) as refused:
        load_model(tmp_path / name)
    assert "pickle" not in str(refused.value)
