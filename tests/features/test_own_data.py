import builtins
import json
import math
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import InvalidValueError, PsofedError, Scenario, draw_fleet, load_result, read_data, simulate
from psofed.data.standardise import Standardiser, standardise
from psofed.data.table import read_table
from psofed.fleet.measured import measured_fleet
from psofed.simulation.baselines import NAMES, run_baselines

pytestmark = [pytest.mark.fleet, pytest.mark.simulation, pytest.mark.engine]


def write(tmp_path, text: str, name: str = "data.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def make_rows(clients=("a", "b", "c"), rows=60, seed=1) -> str:
    """Clients in turn, y = 2 x1 − x2 + noise, on scales far from 1."""
    rng = np.random.default_rng(seed)
    lines = ["station,x1,x2,y"]
    for _ in range(rows):
        for client in clients:
            u, v, e = rng.standard_normal(3)
            lines.append(f"{client},{100 + 10 * u:.6f},{v:.6f},{5 + 2 * u - v + 0.1 * e:.6f}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def data(tmp_path):
    return read_data(write(tmp_path, make_rows()), "station", "y")


def test_rows_go_to_their_clients_in_the_order_of_the_file(tmp_path) -> None:
    path = write(tmp_path, "x,who,y\n1,b,10\n2,a,20\n3,b,30\n")
    table = read_table(path, "who", "y")
    assert table.clients == ("b", "a")
    assert table.inputs[0].tolist() == [[1.0], [3.0]]
    assert table.targets[1].tolist() == [20.0]


def test_missing_values_are_kept_as_missing_and_rows_without_a_target_left_out(tmp_path) -> None:
    path = write(tmp_path, "who,x,z,y\na,1,NA,2\na,,5,3\na,7,8,\n")
    table = read_table(path, "who", "y")
    assert table.missing == {"x": 1, "z": 1}
    assert table.dropped == (1,)
    assert np.isnan(table.inputs[0]).tolist() == [[False, True], [True, False]]


def test_constant_columns_are_found_with_their_clients(tmp_path) -> None:
    path = write(tmp_path, "who,x,z,y\na,1,4,2\na,1,4,3\nb,1,4,2\nb,2,4,3\n")
    assert read_table(path, "who", "y").constant == {"x": ("a",), "z": ("a", "b")}


def slow_standardise(x, y, warmup, clip):
    """The definition, row by row, from all the rows so far."""
    inputs, targets = [], []
    for n in range(len(y)):
        past = y[:n]
        if n < warmup or np.ptp(past) == 0:
            continue
        row = []
        for j in range(x.shape[1]):
            seen = x[: n + 1, j][~np.isnan(x[: n + 1, j])]
            known = not math.isnan(x[n, j]) and seen.size and np.ptp(seen) > 0
            row.append(np.clip((x[n, j] - seen.mean()) / seen.std(), -clip, clip) if known else 0.0)
        inputs.append(row)
        targets.append((y[n] - past.mean()) / past.std())
    return np.array(inputs), np.array(targets)


def test_standardising_equals_its_definition_row_by_row() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_t(2, (80, 4)) * [1, 1e-3, 1e4, 1] + [0, 5, -1e6, 0]
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 3] = 7.0
    y = rng.standard_normal(80) + 100
    y[:15] = 3.0
    inputs, targets, clipped = standardise(x, y, 10, 3.0)
    slow_inputs, slow_targets = slow_standardise(x, y, 10, 3.0)
    assert np.allclose(inputs, slow_inputs, rtol=1e-9, atol=1e-9)
    assert np.allclose(targets, slow_targets, rtol=1e-9)
    assert clipped == np.sum(np.abs(slow_inputs) == 3.0) > 0
    assert not inputs[:, 3].any()
    assert len(targets) == 80 - 16


def test_nothing_looks_ahead() -> None:
    """Whatever comes later, the samples so far stay as they are."""
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    whole = standardise(x, y, 5, 5.0)
    other_future = standardise(np.vstack([x[:30], 1e3 * x[30:]]), np.append(y[:30], 7 + y[30:]), 5, 5.0)
    assert np.array_equal(whole[0][:25], other_future[0][:25])
    assert np.array_equal(whole[1][:25], other_future[1][:25])
    changed = y.copy()
    changed[30] = 1e6
    assert np.array_equal(whole[0], standardise(x, changed, 5, 5.0)[0])


def fitted(data, **fields):
    return Scenario.from_mapping({"data": {"rows": data}, **fields})


def literal_federation(data, scenario, draws):
    """PSO-Fed on the samples with models, not errors, exactly as the paper's equations read."""
    clients, dimension = data.num_clients, data.num_columns
    server, models = np.zeros(dimension), np.zeros((clients, dimension))
    network, test, msd = [], [], []
    best = draw_fleet(Scenario.from_data(data)).target
    for n in range(scenario.iterations):
        squares, server_squares = [], []
        start = models.copy()
        for k in range(clients):
            if draws.participants[n, k]:
                start[k] = np.where(draws.download_masks[n, k], server, models[k])
        msd.append(np.sum((server - best) ** 2))
        for k in range(clients):
            models[k] = start[k]
            if n < len(data.targets[k]) * data.epochs:
                x, y = data.inputs[k][n % len(data.targets[k])], data.targets[k][n % len(data.targets[k])]
                error = y - x @ start[k]
                squares.append(error**2)
                server_squares.append((y - x @ server) ** 2)
                models[k] = start[k] + scenario.stepsize * x * error
        total = np.zeros(dimension)
        for k in np.flatnonzero(draws.uploaders[n]):
            noise = draws.shocks.attacking[n, k] * scenario.attack.variance**0.5 * draws.shocks.normals[n, k]
            total += np.where(draws.upload_masks[n, k], models[k] + noise, server)
        server = total / draws.uploaders[n].sum()
        network.append(np.mean(squares))
        test.append(np.mean(server_squares))
    return np.array(network), np.array(msd), np.array(test)


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_engine_on_a_table_equals_the_equations_read_literally(tmp_path, epochs: int) -> None:
    from reference.draws import draw_trial

    uneven = make_rows(rows=45) + "\n".join(make_rows(("a",), rows=20, seed=2).splitlines()[1:])
    data = read_data(write(tmp_path, uneven), "station", "y", epochs=epochs)
    assert data.samples == (45, 25, 25)
    attack = {"num_byzantine": 1, "probability": 0.5, "variance": 0.1}
    scenario = fitted(data, num_participants=2, stepsize=0.1, attack=attack)
    assert scenario.iterations == 45 * epochs
    result = simulate(scenario, trials=5, seed=7, keep_trials=True)
    for trial in (0, 4):
        expected = literal_federation(data, scenario, draw_trial(scenario, 7, trial))
        for metric, values in zip(("network_mse", "server_msd", "test_mse"), expected, strict=True):
            assert np.allclose(result.trial_curves[metric][trial], values, rtol=1e-9, atol=1e-13)


def test_clients_mse_adds_up_to_the_networks(data) -> None:
    result = simulate(fitted(data, num_participants=2), trials=6)
    clients = result.details["data"]["clients"]
    assert np.isclose(np.mean([c["mse"] for c in clients]), result.network_mse.mean, rtol=1e-12)


def test_one_client_on_its_own_is_the_lms_worked_by_hand(tmp_path) -> None:
    """No sharing that matters: with one client, federation, alone and pooled are the same recursion."""
    data = read_data(write(tmp_path, make_rows(("a",))), "station", "y")
    scenario = fitted(data, num_shared=2, stepsize=0.05)
    result = simulate(scenario, trials=1, keep_trials=True)
    w, squares = np.zeros(2), []
    for x, y in zip(data.inputs[0], data.targets[0], strict=True):
        error = y - x @ w
        squares.append(error**2)
        w = w + 0.05 * x * error
    assert np.allclose(result.trial_curves["network_mse"][0], squares, rtol=1e-9)
    baselines = run_baselines(scenario, result.tail)
    for name in ("alone", "pooled"):
        assert np.allclose(baselines.curves[name], squares, rtol=1e-9)
    assert np.allclose(baselines.curves["average"], data.targets[0] ** 2, rtol=1e-9)


def test_least_squares_in_hindsight_is_numpys(data) -> None:
    inputs, targets = np.concatenate(data.inputs), np.concatenate(data.targets)
    assert np.allclose(
        draw_fleet(Scenario.from_data(data)).target, np.linalg.lstsq(inputs, targets, rcond=None)[0], rtol=1e-4
    )


def test_pooled_lms_predicts_all_clients_and_then_learns_from_them_in_turn(data) -> None:
    scenario = fitted(data, num_participants=2, stepsize=0.1)
    curve = run_baselines(scenario, 5).curves["pooled"]
    w, squares = np.zeros(2), []
    for n in range(40):
        squares.append(np.mean([(data.targets[k][n] - data.inputs[k][n] @ w) ** 2 for k in range(3)]))
        for k in range(3):
            w = w + 0.1 * data.inputs[k][n] * (data.targets[k][n] - data.inputs[k][n] @ w)
    assert np.allclose(curve, squares, rtol=1e-9)


def test_trials_without_an_attack_and_with_everybody_sharing_all_are_the_same(data) -> None:
    """Trials differ in participants, masks and attack alone; without choice in any of them they do not differ."""
    scenario = fitted(data, num_participants=3, num_shared=2)
    result = simulate(scenario, trials=4)
    assert np.ptp(result.steady_state["network_mse"]) == 0.0


def test_features_of_a_table_are_learned_as_well(tmp_path) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3000, 2))
    y = np.sin(2 * x[:, 0]) + 0.05 * rng.standard_normal(3000)
    lines = [f"{'pqrst'[n % 5]},{a:.5f},{b:.5f},{t:.5f}" for n, ((a, b), t) in enumerate(zip(x, y, strict=True))]
    data = read_data(write(tmp_path, "c,a,b,y\n" + "\n".join(lines)), "c", "y")
    rff = fitted(data, model={"kind": "rff", "features": 50, "bandwidth": 0.8}, stepsize=0.5)
    line = fitted(data, stepsize=0.05)
    errors = [simulate(s, trials=4).network_mse.mean for s in (rff, line)]
    assert errors[0] < 0.6 * errors[1]


def test_a_result_on_own_data_survives_saving(data, tmp_path) -> None:
    result = simulate(fitted(data, num_participants=2), trials=4)
    result.save(tmp_path / "r.nc")
    loaded = load_result(tmp_path / "r.nc")
    assert loaded.details == result.details
    assert np.array_equal(loaded.fleet.covariances(), result.fleet.covariances())
    assert loaded.to_json()["data"]["baselines"].keys() == set(NAMES)


def test_the_measured_fleet_has_the_measured_moments(data) -> None:
    fleet = measured_fleet(fitted(data, num_participants=2))
    x = data.inputs[1]
    assert np.allclose(fleet.covariances()[1], x.T @ x / len(x))
    own = np.linalg.lstsq(x, data.targets[1], rcond=None)[0]  # each client's target is its own fit
    assert np.allclose(fleet.target, draw_fleet(Scenario.from_data(data)).target)
    assert np.allclose(fleet.target + fleet.target_offsets[1], own)
    residual = data.targets[1] - x @ own
    assert np.isclose(fleet.noise_variance[1], np.mean(residual**2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody", "y"), "no column nobody; the columns are station, x1, x2, y"),
        (("station", "z"), "no column z"),
        (("station", "y", ["x1", "x9"]), "no column x9"),
        (("station", "y", ["x1", "x1"]), "feature x1 is named 2 times"),
        (("station", "y", ["y"]), "column y cannot be a feature because it is the target"),
        (("station", "y", ["station"]), "it is the client"),
        (("station", "station"), "cannot be both the client and the target"),
    ],
)
def test_bad_columns_are_named_with_those_there_are(tmp_path, arguments, message: str) -> None:
    with pytest.raises(PsofedError) as error:
        read_table(write(tmp_path, make_rows()), *arguments)
    assert message in str(error.value)


def test_no_file_no_text_and_no_folder_are_said(tmp_path) -> None:
    with pytest.raises(PsofedError, match="no such file"):
        read_table(tmp_path / "none.csv", "a", "b")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PsofedError, match="not UTF-8 text"):
        read_table(tmp_path / "binary.csv", "a", "b")
    with pytest.raises(PsofedError, match="cannot be read"):
        read_table(tmp_path, "a", "b")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_clients": 9}, "num_clients must be 3 (the clients in"),
        ({"dimension": 7}, "dimension must be 2 (the columns used as features)"),
        ({"iterations": 100}, "iterations must be at most 40"),
        ({"drift": {"kind": "jump", "size": 1, "at": 3}}, "drift must be left out with your own data"),
        ({"stepsize": -1}, "stepsize must be above 0"),
        ({"nonsense": 1}, "Unknown field `nonsense`"),
    ],
)
def test_a_scenario_that_contradicts_the_data_is_refused(data, mapping: dict, message: str) -> None:
    with pytest.raises(PsofedError) as error:
        fitted(data, num_participants=2, **mapping)
    assert message in str(error.value)


@pytest.mark.parametrize("options", [{"epochs": 0}, {"warmup": 1}, {"clip": 0.0}])
def test_bad_options_are_named(tmp_path, options: dict) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        read_data(write(tmp_path, make_rows()), "station", "y", **options)


def test_parquet_gives_what_csv_gives(tmp_path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    path = write(tmp_path, make_rows())
    parquet.write_table(csv.read_csv(path), tmp_path / "data.parquet")
    first, second = (read_data(tmp_path / name, "station", "y") for name in ("data.csv", "data.parquet"))
    assert first.table.clients == second.table.clients
    assert all(np.array_equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True))
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(PsofedError, match="not valid Parquet"):
        read_table(tmp_path / "bad.parquet", "a", "b")
    assert pyarrow.__version__


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch) -> None:
    real = builtins.__import__

    def refuse(name, *rest, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(PsofedError, match=r"pip install -e '\.\[parquet\]'"):
        read_table(tmp_path / "x.parquet", "a", "b")


def test_the_command_line_simulates_a_table(tmp_path, psofed_command) -> None:
    path = write(tmp_path, make_rows())
    done = psofed_command("simulate", "--data", path, "--client-column", "station", "--target-column", "y",
                          "--set", "num_participants=2", "--trials", 4)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "each client alone" in done.stdout
    assert "Trials differ in participants, masks and attack" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No scenario. Give a FILE"),
        (["--client-column", "a"], "--client-column describes a table: add --data TABLE"),
        (["--data", "DATA"], "needs --client-column. The table has the columns station, x1, x2, y"),
        (["--data", "DATA", "--client-column", "station"], "needs --target-column"),
        (["--data", "DATA", "--client-column", "b", "--target-column", "y"], "no column b; the columns are station"),
    ],
)
def test_mistakes_end_with_one_line_and_exit_code_2(tmp_path, arguments, message: str, psofed_command) -> None:
    path = write(tmp_path, make_rows())
    done = psofed_command("simulate", *(path if a == "DATA" else a for a in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_data_and_drift_are_refused_by_algorithms_that_do_not_take_them(data) -> None:
    from psofed.parts.registry import find_part, part_names

    for name in part_names("algorithm"):
        if not find_part("algorithm", name).holds_models:
            with pytest.raises(psofed.NotCoveredError, match=name):
                simulate(fitted(data, num_participants=2, algorithm=name), trials=1)


@pytest.mark.parametrize("offset", [0.0, 101325.0, -1e9])
def test_row_by_row_and_the_whole_table_give_the_same_values(offset):
    rng = np.random.default_rng(5)
    x = offset + rng.standard_normal((200, 4)) * [1.0, 0.01, 30.0, 0.0]
    x[rng.random(x.shape) < 0.1] = np.nan
    y = offset + rng.standard_normal(200)
    y[:30] = y[0]  # the target does not vary until then
    whole_inputs, whole_targets, clipped = standardise(x, y, 10, 2.0)
    scaling = Standardiser(4, warmup=10, clip=2.0)
    samples = []
    for n, (row, target) in enumerate(zip(x, y, strict=True)):
        if n == 100:
            scaling = Standardiser.from_mapping(json.loads(json.dumps(scaling.to_mapping())))
        foreseen = scaling.scale(row)
        if (sample := scaling.take(row, target)) is not None:
            samples.append(sample)
            np.testing.assert_array_equal(foreseen, sample[0])
    tolerance = 1e-9 * max(1.0, abs(offset))
    np.testing.assert_allclose([s[0] for s in samples], whole_inputs, atol=tolerance)
    np.testing.assert_allclose([s[1] for s in samples], whole_targets, atol=tolerance)
    assert clipped > 0
    assert scaling.restore(0.0) == pytest.approx(y.mean())
    assert scaling.restore(1.0) == pytest.approx(y.mean() + y.std())


@pytest.mark.parametrize("bad", [{"counts": [1.0]}, {"means": []}, {"squares": [[0.0, 0.0]]}])
def test_a_scaling_that_does_not_fit_together_is_refused(bad):
    with pytest.raises(ValueError, match="same length"):
        Standardiser.from_mapping({**Standardiser(2).to_mapping(), **bad})


def test_chunks_of_a_table_are_kept_while_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    from psofed.engine import samples

    rows = [np.arange(12.0).reshape(6, 2) + k for k in range(3)]
    table = samples.TableSamples(rows, [np.arange(6.0)] * 3, epochs=1)
    first = table.chunk(0, 4)
    assert table.chunk(0, 4) is first
    assert np.array_equal(pickle.loads(pickle.dumps(table)).chunk(0, 4).inputs, first.inputs)
    monkeypatch.setattr(samples, "_KEPT_BYTES", 6 * table.bytes_per_iteration)
    assert table.chunk(2, 4) is not table.chunk(2, 4)
    assert table.chunk(4, 2) is table.chunk(4, 2)


def test_samples_take_as_much_memory_as_they_say() -> None:
    from psofed.engine.samples import FunctionSamples, TableSamples
    from psofed.engine.streams import make_stream
    from psofed.fleet import draw_fleet

    scenario = psofed.Scenario(
        num_clients=3, dimension=2, num_participants=2, data=psofed.Data(function="sum", input_dimension=2)
    )
    drawn = FunctionSamples(scenario, draw_fleet(scenario), make_stream(1, "data", range(16)))
    table = TableSamples([np.ones((6, 2))] * 3, [np.ones(6)] * 3, epochs=1)
    for samples in (drawn, table):
        chunk = samples.chunk(0, 5)
        assert chunk.inputs.nbytes + chunk.residuals.nbytes <= 5 * samples.bytes_per_iteration


def test_where_both_diverge_the_headline_says_so_and_names_a_stepsize_that_does_not() -> None:
    """Flights have rows of ‖x‖² = 63: at the default stepsize neither the federation nor a client alone learns."""
    flights = Path(__file__).parents[2] / "examples" / "flights" / "flights.csv"
    scenario = Scenario.from_data(read_data(flights, "destination", "arrival_delay"), stepsize=0.15)
    headline = simulate(scenario, trials=2).report().headline
    assert headline.startswith("Both diverge at stepsize 0.15: the federation's MSE is ")
    assert headline.endswith("where forecasting the mean has 1.27 (lower is better); try stepsize 0.016.")
    assert "than learning alone" in simulate(scenario.replace(stepsize=0.016), trials=2).report().headline
