"""A scenario with own data gives the data's numbers wherever it goes, or is refused by name.

The target is unrelated to the inputs, so that no model helps: errors are near 1, which the drawn fleet of the same
size never comes near.
"""

import copy
import inspect
import json
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import psofed
from psofed import Data, InvalidValueError, NotCoveredError, PsofedError, Scenario
from psofed.attacks import SignFlip
from psofed.common.equality import same_values
from psofed.data.own_data import DataSource
from psofed.federation.protocol.run_settings import RunSettings
from psofed.scenario.changes import with_values
from psofed.studies.advice import ways
from psofed.studies.advice.ways import tuned_federation
from psofed.studies.sweeps.cell import Cell

pytestmark = [pytest.mark.data, pytest.mark.scenario, pytest.mark.takes(12)]

CLIENTS, COLUMNS, ROWS = 3, 2, 60
NAMED = 'client_column = "station"\ntarget_column = "y"'
TABLE_FOLLOWS = {"num_clients": CLIENTS, "dimension": COLUMNS, "iterations": ROWS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hold ``readings.csv`` and ``plan.toml``, which names it."""
    place = tmp_path_factory.mktemp("own data")
    rng = np.random.default_rng(3)
    values = rng.standard_normal((CLIENTS * (ROWS + 20), 3))
    lines = [f"s{n % CLIENTS},{a:.4f},{b:.4f},{y:.4f}" for n, (a, b, y) in enumerate(values)]
    (place / "readings.csv").write_text("station,a,b,y\n" + "\n".join(lines), encoding="utf-8")
    (place / "plan.toml").write_text(
        'stepsize = 0.02\nnum_participants = 2\n[data]\nfile = "readings.csv"\nclient_column = "station"\n'
        'target_column = "y"\n[attack]\nclients = ["s1"]\nvariance = 0.02\n',
        encoding="utf-8",
    )
    return place


@pytest.fixture(scope="module")
def scenario(folder) -> Scenario:
    return psofed.read_scenario(folder / "plan.toml")


@pytest.fixture
def other_data(scenario) -> Scenario:
    rows = scenario.own_data
    changed = psofed.data.own_data.replace(rows, targets=tuple(2.0 * y for y in rows.targets))
    return scenario.replace(data=Data(rows=changed))


# What each public function makes of a scenario: numbers that say whose clients they are about.
USES: dict[str, Any] = {
    "simulate": lambda s: psofed.simulate(s, trials=2).network_mse.mean,
    "predict": lambda s: psofed.predict(s).network_mse,
    "compare": lambda s: [(m.simulated, m.predicted) for m in psofed.compare(s, trials=2).metrics[:1]],
    "tune": lambda s: psofed.tune(s, shared=[1]).recommended.network_mse,
    "sweep": lambda s: psofed.sweep(s, {"num_shared": [1]}, trials=2).cells[0].estimate("network_mse").mean,
    "draw_fleet": lambda s: psofed.draw_fleet(s).noise_variance,
    "advise": lambda s: psofed.advise(s, byzantine=0, trials=1).federation.error,
}
# Those whose answer is not an error: it must differ from the drawn fleet's.
OTHER_USES: dict[str, Any] = {"optimal_stepsize": psofed.optimal_stepsize}
TAKE_NO_SCENARIO = {"difference", "from_arrays", "load_plugin", "load_result", "option", "read_data", "read_scenario"}


def test_no_public_function_is_forgotten() -> None:
    functions = {name for name in psofed.__all__ if inspect.isfunction(getattr(psofed, name))}
    assert functions == set(USES) | set(OTHER_USES) | TAKE_NO_SCENARIO


@pytest.mark.parametrize("name", [*USES, *OTHER_USES])
def test_every_function_takes_the_scenarios_file(name, scenario, folder) -> None:
    if name == "advise":  # a path is a table there
        return
    use = (USES | OTHER_USES)[name]
    np.testing.assert_equal(str(use(folder / "plan.toml")), str(use(scenario)))


def test_a_table_beside_the_scenario_is_refused_with_the_way_in(scenario) -> None:
    rows = scenario.own_data
    for call in (
        lambda: psofed.simulate(scenario, data=rows),
        lambda: psofed.predict(scenario, data=rows),
        lambda: psofed.compare(scenario, data=rows),
        lambda: psofed.sweep(scenario, {"num_shared": [1]}, data=rows),
        lambda: psofed.tune(scenario, measured=rows),
        lambda: psofed.simulate(rows),
        lambda: psofed.fit_scenario,
    ):
        with pytest.raises((PsofedError, AttributeError), match=r"psofed\.Scenario\.from_data"):
            call()


def drawn(scenario: Scenario) -> Scenario:
    """Return the same scenario with drawn streams."""
    return scenario.replace(attack=scenario.attack.replace(clients=(1,)), data=Data())


@pytest.mark.parametrize("name", USES)
def test_errors_are_the_datas(scenario, name: str) -> None:
    assert np.all(np.array(USES[name](scenario)) > 0.7)
    if name != "advise":  # which takes no drawn streams
        assert np.all(np.array(USES[name](drawn(scenario))) < 0.5)


@pytest.mark.parametrize("name", OTHER_USES)
def test_other_answers_are_the_datas(scenario, name: str) -> None:
    assert OTHER_USES[name](scenario) != OTHER_USES[name](drawn(scenario))


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("simulate", "--trials", 2), ("network_mse", "mean")),
        (("predict",), ("network_mse",)),
        (("compare", "--trials", 2), ("metrics", "network_mse", "predicted")),
        (("tune",), ("recommendation", "network_mse")),
        (("advise", "--byzantine", 0, "--trials", 1), ("federation", "error")),
    ],
)
def test_commands_take_the_file(folder, arguments: tuple, where: tuple[str, ...], psofed_command) -> None:
    command, *options = arguments
    done = psofed_command(command, folder / "plan.toml", *options, "--json")
    assert done.returncode in (0, 1), done.stderr
    assert f"reading {folder / 'readings.csv'}" in done.stderr
    value = json.loads(done.stdout)
    for key in where:
        value = value[key]
    assert value > 0.7


def test_a_sweep_is_kept_by_the_files_content(folder, tmp_path, psofed_command) -> None:
    grid = f'base = "{folder / "plan.toml"}"\ntrials = 2\n[grid]\nnum_shared = [1, 2]\n'
    (tmp_path / "grid.toml").write_text(grid, encoding="utf-8")
    done = psofed_command("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    loaded = psofed.load_result(tmp_path / "out")
    assert loaded.cells[0].estimate("network_mse").mean > 0.7
    assert loaded.grid.base == psofed.read_scenario(folder / "plan.toml")
    with pytest.raises(PsofedError, match=r"readings\.csv.* not loaded"):
        psofed.simulate(loaded.grid.base)


def test_the_key_of_a_cell_covers_the_rows_and_not_the_place(scenario, other_data, folder, tmp_path) -> None:
    for name in ("plan.toml", "readings.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    moved = psofed.read_scenario(tmp_path / "plan.toml")
    assert Cell(moved, 2).key == Cell(scenario, 2).key != Cell(other_data, 2).key


def test_equal_rows_are_equal_scenarios(scenario, other_data) -> None:
    twin = Scenario.from_mapping(scenario.to_mapping())
    for same in (
        twin,
        pickle.loads(pickle.dumps(scenario)),
        copy.deepcopy(scenario),
        Scenario.from_toml(scenario.to_toml()),
    ):
        assert same == scenario
        assert hash(same) == hash(scenario)
    assert other_data != scenario
    assert isinstance(twin.data.rows, DataSource)
    assert with_values(scenario, {"stepsize": 0.5}).own_data is scenario.own_data
    longer = with_values(scenario, {"data.epochs": 2})
    assert (longer.iterations, longer.own_data.epochs) == (2 * ROWS, 2)
    assert "3 clients of readings.csv" in repr(scenario)


def test_data_in_memory_have_no_toml(scenario) -> None:
    rng = np.random.default_rng(0)
    made = Scenario.from_data(
        psofed.from_arrays(rng.standard_normal((90, 2)), rng.standard_normal(90), ["a", "b", "c"] * 30, warmup=5)
    )
    with pytest.raises(PsofedError, match="in memory, and TOML can only name a file"):
        made.to_toml()
    with pytest.raises(PsofedError, match="Pass them again"):
        with_values(made, {"data.epochs": 2})
    assert Scenario.from_mapping(json.loads(json.dumps(made.to_mapping()))) == made


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (f'file = "none.csv"\n{NAMED}', "no such file"),
        ('file = "readings.csv"\ntarget_column = "y"', "data.client_column is required"),
        ('client_column = "station"', "data.file is required"),
        (f'file = "readings.csv"\n{NAMED}\nfeatures = "a"', "data.features must"),
        (f'file = "readings.csv"\n{NAMED}\nnoise_variance = 0.1', "data.noise_variance must be left out"),
        (f'file = "readings.csv"\n{NAMED}\ncolour = 1', "Unknown field `data.colour`"),
        ("file = 3", "data.file must be the path"),
    ],
)
def test_mistakes_in_the_data_table_are_named(folder, tmp_path, table: str, message: str, psofed_command) -> None:
    text = table.replace("readings.csv", str(folder / "readings.csv"))
    (tmp_path / "s.toml").write_text(f"num_shared = 1\n[data]\n{text}\n", encoding="utf-8")
    done = psofed_command("predict", tmp_path / "s.toml")
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")


def test_what_contradicts_the_rows_is_refused_by_name(scenario) -> None:
    for fields, message in (
        ({"attack": SignFlip(clients=["s9"])}, "attack.clients must be one of s0, s1, s2"),
        ({"data": Data()}, "data must be given once"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            Scenario.from_data(scenario.own_data, **fields)
    with pytest.raises(NotCoveredError, match='metric = "test"'):
        psofed.tune(scenario, metric="test")


def test_a_federation_leaves_the_rows_to_its_nodes(scenario) -> None:
    plain = scenario.replace(attack=None)
    assert RunSettings(scenario=plain).scenario.data == Data()
    with pytest.raises(NotCoveredError, match="from a table"):
        RunSettings(scenario=plain, synthetic=True)


def test_a_plan_runs_as_it_was_simulated(folder, scenario) -> None:
    """One row a round, the columns of the table, and further rounds for the rows that only feed the means."""
    columns = {"data.features": ["a", "b"]}  # as a written plan has them
    unopened = psofed.read_scenario(folder / "plan.toml", changes=TABLE_FOLLOWS | columns, open_data=False)
    for plan in (scenario, unopened):
        run = RunSettings.planned(plan.replace(attack=None), {}, fixed_length=False)
        assert (run.samples_per_round, run.min_nodes, run.scenario.iterations) == (1, 2, ROWS + 20)
        assert (run.features, run.target_column) == (("a", "b"), "y")
    assert RunSettings.planned(scenario.replace(attack=None), {"samples_per_round": 0}).samples_per_round == 0
    for name, value in (("warmup", 30), ("epochs", 2)):
        with pytest.raises(NotCoveredError, match=f"data.{name} = {value}"):
            RunSettings(scenario=with_values(scenario, {f"data.{name}": value, "attack": "none"}))


def test_advice_is_kept_as_a_plan(folder, scenario) -> None:
    advice = psofed.advise(scenario.replace(attack=None), byzantine=0, trials=1)
    advice.save(folder / "advised.toml")
    text = (folder / "advised.toml").read_text(encoding="utf-8")
    assert text.startswith(f"# {advice.answer[:40]}")
    assert 'file = "readings.csv"' in text
    kept = psofed.read_scenario(folder / "advised.toml")
    assert kept == advice.scenario.replace(stepsize=float(f"{advice.scenario.stepsize:.4g}"))


@pytest.mark.parametrize("kind", ["one law", "other laws", "law that changes"])
def test_a_comparison_says_what_the_theory_leaves_out(kind: str) -> None:
    """Rows drawn at random meet its assumptions, also where clients have their own laws; the rows' order may not."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 8, 2))
    weights = np.full((200, 8, 2), 0.7)
    if kind == "other laws":
        weights[:, 5:] *= -1
    elif kind == "law that changes":
        weights[170:] *= -1
    y = (x * weights).sum(axis=2) + rng.standard_normal((200, 8))
    data = psofed.from_arrays(x.reshape(-1, 2), y.reshape(-1), np.tile(np.arange(8), 200))
    found = psofed.compare(Scenario.from_data(data, stepsize=0.1, num_participants=8), trials=64)
    assert found.agrees, found.verdict
    assert any(row.is_clear for row in found.orders) == (kind == "law that changes")
    words = {
        "one law": "agree on both metrics for rows drawn at random from your table. In the table's own order, diff",
        "other laws": "agree on both metrics for rows drawn at random from your table",
        "law that changes": "rows depend on each other or change in time",
    }
    assert words[kind] in found.verdict
    assert set(found.to_json()["orders"]) == {"network_mse", "server_msd"}
    assert len(found.plot().axes) == 1


def test_the_explorer_opens_at_what_advice_finds_best_for_all_clients(scenario) -> None:
    plain = scenario.replace(attack=None, stepsize=0.9)
    found = psofed.advise(plain, byzantine=0)
    best = tuned_federation(plain)
    rows = [m for m in found.methods if m.name == "everybody" and m.num_shared == best.num_shared]
    assert best.stepsize == pytest.approx(rows[0].stepsize, rel=1e-3)
    assert tuned_federation(plain.replace(num_shared=2), keep_shared=True).num_shared == 2


def test_large_tables_are_tuned_on_a_budget(scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = ways.run_federation
    monkeypatch.setattr(ways, "run_federation", lambda *given: seen.append(given[2]) or original(*given))
    plain = scenario.replace(attack=None)
    assert tuned_federation(plain).stepsize < scenario.stepsize
    assert set(seen) == {16}
    monkeypatch.setattr(ways, "_MOST_UPDATES", 1)
    seen.clear()
    assert tuned_federation(plain).stepsize < scenario.stepsize
    assert set(seen) == {1}


def test_rows_travel_to_processes_once(scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are small, and give the same bits in threads and in processes."""
    sizes = []
    original = ProcessPoolExecutor.submit

    def submit(self: Any, function: Any, *arguments: Any) -> Any:
        sizes.append(len(pickle.dumps(arguments)))
        return original(self, function, *arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    grid = {"stepsize": [0.01, 0.02]}
    here = psofed.sweep(scenario, grid, trials=2)
    with ProcessPoolExecutor(1) as processes, ThreadPoolExecutor(1) as threads:
        there = psofed.sweep(scenario, grid, trials=2, executor=processes)
        near = psofed.sweep(scenario, grid, trials=2, executor=threads)
        whole = psofed.simulate(scenario, trials=2, executor=processes)
    rows = sum(array.nbytes for array in (*scenario.own_data.inputs, *scenario.own_data.targets))
    assert max(sizes) < rows, "the rows themselves would be longer"
    assert all(
        same_values(a, b) and same_values(a, c) for a, b, c in zip(here.cells, there.cells, near.cells, strict=True)
    )
    assert whole.network_mse == psofed.simulate(scenario, trials=2).network_mse


def test_a_stream_in_the_file_is_refused_beside_a_table(folder, tmp_path, psofed_command) -> None:
    stream = '[data]\nnoise_variance = 0.1\nstream = {kind = "delay-line", pole = 0.5}\n'
    (tmp_path / "s.toml").write_text(stream, encoding="utf-8")
    columns = ("--client-column", "station", "--target-column", "y")
    done = psofed_command("simulate", tmp_path / "s.toml", "--data", folder / "readings.csv", *columns)
    assert done.returncode == 2
    assert "data.stream must be left out where clients learn from a table" in done.stderr.replace("\n", " ")
