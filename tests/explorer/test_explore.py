"""The explorer without its page: settings, addresses, steps, words and files."""

import csv
import functools
import io
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import psofed
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.numbers import to_decibels
from psofed.explore import exports
from psofed.explore.answers import ErrorLevel, PageState, Point, Simulation, Theory, note, sentence, table
from psofed.explore.drafts import (
    LIMITS,
    changed,
    from_address,
    limits_with,
    make_scenario,
    parse_value,
    to_address,
    with_dependents,
)
from psofed.explore.form import ESSENTIALS, form_groups
from psofed.explore.presets import make_presets, readme_fleet
from psofed.explore.steps import TRIALS, fleet_of, simulation_steps, theory_steps
from psofed.explore.workers import Question, Worker
from psofed.parts.registry import find_part
from psofed.scenario import Scenario

pytestmark = [pytest.mark.explore, pytest.mark.takes(12)]

FLEET = psofed.Scenario(
    num_clients=10, dimension=3, num_participants=3, stepsize=0.1, iterations=200,
    attack=psofed.attacks.Gaussian(num_byzantine=3),
)  # fmt: skip


# Addresses and drafts


@pytest.mark.parametrize("name", list(make_presets()))
def test_an_address_restores_every_preset(name: str) -> None:
    preset = make_presets()[name]
    mapping, metric = from_address(to_address(preset, "honest_mse"))
    assert mapping is not None
    assert (make_scenario(mapping, LIMITS), metric) == (preset, "honest_mse")


def test_an_address_without_settings_says_nothing() -> None:
    assert from_address("token=abc") == (None, "network_mse")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('{"num_clients": 1000000000, "dimension": 5}', "num_clients must be "),
        ('{"num_clients": 50, "dimension": 1e9}', "dimension must be "),
        ('{"num_clients": 50, "dimension": 5, "iterations": 99999999}', "iterations must be "),
        ('{"num_clients": 50, "dimension": 5, "stepsize": NaN}', "stepsize must be "),
        ('{"num_clients": 50, "dimension": 5, "data": {"file": "/etc/passwd"}}', "data.file must be "),
        ('{"num_clients": 50, "dimension": 5, "attack": {"kind": "/etc/passwd"}}', "attack.kind must be "),
        ('{"num_clients": 50, "dimension": 5, "nonsense": 1}', "Unknown field `nonsense`"),
        (
            '{"num_clients": 50, "dimension": 100, "model": {"kind": "rff", "features": 1000000000}}',
            "model.features must be between 1 and 10000 (the explorer's limit)",
        ),
        (
            '{"num_clients": 50, "dimension": 5, "data": {"test_instances": 1000000000}}',
            "data.test_instances must be between 1 and 10000 (the explorer's limit)",
        ),
        ('{"dimension": 5}', "num_clients is required"),
        ("[1]", "it holds no scenario"),
        ("1" * 30_000, "30009 characters"),
        ("[" * 15_000, "recursion"),
        ("%ff", "decode"),
    ],
)
def test_a_hostile_address_is_refused_in_words(settings: str, message: str) -> None:
    def restore() -> None:
        make_scenario(from_address(f"scenario={settings}")[0], LIMITS)

    with pytest.raises(PsofedError) as refused:
        restore()
    assert message in str(refused.value)


@pytest.mark.parametrize("query", ["metric=entropy", "scenario={}&B={}", "C={}"])
def test_an_address_with_anything_else_is_refused(query: str) -> None:
    with pytest.raises(PsofedError):
        from_address(query)


def test_the_users_own_file_may_be_larger_than_the_limits() -> None:
    large = Scenario(num_clients=3000, dimension=2)
    assert make_scenario(large.to_mapping(), limits_with(large)) == large
    with pytest.raises(InvalidValueError, match=r"between 1 and 1000 \(the explorer's limit\)"):
        make_scenario(large.to_mapping(), LIMITS)


def test_what_cannot_be_more_than_the_fleet_shrinks_with_it() -> None:
    mapping = with_dependents(changed(FLEET.to_mapping(), "num_clients", 2), "num_clients")
    scenario = make_scenario(mapping, LIMITS)
    assert (scenario.num_clients, scenario.num_participants, scenario.attack.num_byzantine) == (2, 2, 2)


def test_an_attack_and_a_drift_can_be_taken_away() -> None:
    mapping = changed(changed(FLEET.to_mapping(), "drift.kind", "random-walk"), "attack.kind", "")
    scenario = make_scenario(mapping, LIMITS)
    assert (scenario.attack, scenario.drift.kind) == (None, "random-walk")
    assert make_scenario(changed(mapping, "drift.kind", ""), LIMITS).drift is None


# The form


def test_a_plugins_attack_has_sliders_of_its_own() -> None:
    class Wobbling(psofed.Attack):
        """Adds a wave."""

        height: float = psofed.option(0.3, low=0.0, high=2.0, text="how high it is", strength=True)

        def corrupt(self, upload: Any) -> float:
            return float(upload.value + self.height)

    fields = fields_of(FLEET.replace(attack=Wobbling(num_byzantine=2)))
    field = fields["attack.height"]
    assert (field.slider.low, field.slider.high, field.value, field.hint) == (0.0, 2.0, "0.3", "how high it is")
    assert ("wobbling", "wobbling") in fields["attack.kind"].choices


def fields_of(scenario: Scenario, mapping: dict[str, Any] | None = None) -> dict[str, Any]:
    groups = form_groups(scenario, mapping or scenario.to_mapping(), LIMITS)
    return {field.name: field for fields in groups.values() for field in fields}


def test_what_was_typed_stays_in_its_field() -> None:
    mapping = changed(FLEET.to_mapping(), "stepsize", parse_value("abc"))
    assert fields_of(FLEET, mapping)["stepsize"].value == "abc"


def test_the_essentials_are_who_attacks_how_and_what_is_shared() -> None:
    def essentials(scenario: Scenario) -> list[str]:
        groups = form_groups(scenario, scenario.to_mapping(), LIMITS)
        return [field.name for field in groups[ESSENTIALS]]

    who = ["attack.num_byzantine", "attack.probability", "attack.variance"]
    shared = ["num_shared", "stepsize", "aggregation"]
    assert essentials(FLEET) == ["attack.kind", *who, *shared]
    assert essentials(FLEET.replace(attack=None)) == ["attack.kind", *shared]
    assert "attack.clients" in essentials(FLEET.replace(attack=psofed.attacks.Gaussian(clients=(1, 2))))


# Theory and simulation


@functools.cache
def final_theory(scenario: Scenario, metric: str = "network_mse") -> Theory:
    return list(theory_steps(scenario, metric))[-1]


def test_theory_comes_in_steps_and_says_what_predict_says() -> None:
    steps = list(theory_steps(FLEET))
    prediction = psofed.predict(FLEET)
    (network_mse,) = {step.present.mean("network_mse") for step in steps}
    assert network_mse == pytest.approx(prediction.network_mse, rel=1e-4)  # four digits, for screens
    assert [step.finished for step in steps] == [False] * (len(steps) - 1) + [True]
    theory = steps[-1]
    assert theory.present.mean("honest_mse") == pytest.approx(prediction.honest_mse, rel=1e-4)
    assert theory.present.worst == pytest.approx(prediction.worst_attack().worst.network_mse, rel=1e-3)
    assert theory.limit == pytest.approx(prediction.max_stepsize, rel=2e-3)
    assert theory.best.x == pytest.approx(prediction.optimal_stepsize, rel=1e-2)
    assert [point.x for point in theory.charts["num_shared"]] == [1, 2, 3]
    for point in theory.charts["num_shared"]:
        exact = psofed.predict(FLEET.replace(num_shared=int(point.x)))
        assert point.mean("network_mse") == pytest.approx(exact.network_mse, rel=1e-4)
    point = theory.charts["stepsize"][3]
    exact = psofed.predict(FLEET.replace(stepsize=point.x))
    assert point.mean("test_mse") == pytest.approx(exact.test_mse, rel=1e-4)
    exact = prediction.learning_curve()
    for point in theory.charts["iteration"]:
        assert point.mean("network_mse") == pytest.approx(exact.network_mse[int(point.x)], rel=1e-3)


def test_moving_the_stepsize_asks_for_nothing_that_is_known() -> None:
    final_theory(FLEET)
    fleet = fleet_of(FLEET)
    before = len(fleet.points)
    final_theory(FLEET.replace(stepsize=0.123))
    assert fleet_of(FLEET.replace(stepsize=0.5)) is fleet
    assert len(fleet.points) == before + 1


def test_the_best_stepsize_is_that_of_the_selected_metric() -> None:
    tuned = psofed.optimal_stepsize(FLEET, metric="honest")
    assert final_theory(FLEET, "honest_mse").best.x == pytest.approx(tuned, rel=1e-2)


def test_charts_keep_the_old_curves_until_the_new_ones_are_known() -> None:
    before = final_theory(FLEET)
    first = next(theory_steps(FLEET.replace(stepsize=0.05)))
    shown = first.over(before)
    assert (shown.present, shown.charts, shown.finished) == (first.present, before.charts, False)
    refused = Theory(refusal="not covered", finished=True)
    assert refused.over(before) == refused


def test_simulated_points_are_what_simulate_says() -> None:
    seen: list[float] = []
    simulation = list(simulation_steps(FLEET, 0.5, lambda done, total: seen.append(done / total)))[-1]
    result = psofed.simulate(FLEET, trials=TRIALS[-1])
    for metric in ("network_mse", "honest_mse"):
        assert simulation.present.levels[metric] == ErrorLevel(result[metric].mean, *result[metric].interval)
    assert simulation.present.trials == TRIALS[-1]
    assert seen == sorted(seen)
    assert seen[-1] == simulation.progress == 1.0
    assert [point.x for point in simulation.charts["num_shared"]] == [1, 2, 3]
    assert FLEET.stepsize in [point.x for point in simulation.charts["stepsize"]]
    assert simulation.charts["iteration"][-1].x <= FLEET.iterations


# Sentence and table


def state_of(scenario: Scenario, simulation: Simulation | None = None) -> PageState:
    state = PageState(scenario.to_mapping(), scenario, simulation=simulation or Simulation())
    state.theory = state.drawn = final_theory(scenario)
    return state


def test_the_readmes_fleet_compares_best_stepsize_with_best_stepsize() -> None:
    assert sentence(state_of(readme_fleet()), "network_mse") == (
        "Sharing 1 of 5 parameters with stepsize 0.077 gives −16.4 dB; "
        "sharing all gives −11.7 dB at its best stepsize, 0.195."
    )


def test_unstable_is_said_once_and_with_what_to_do() -> None:
    state = state_of(FLEET.replace(stepsize=3.0))
    best = psofed.tune(FLEET, shared=(1,)).recommended.stepsize
    assert state.name == "unstable"
    assert sentence(state, "network_mse") == (
        f"Unstable: stepsize 3 exceeds the largest stable stepsize, {state.theory.limit:.3g}. Use {best:.3g}."
    )
    assert note(state) == ""
    assert "Unstable" not in str(table(state))


def test_what_theory_does_not_cover_waits_for_simulate_and_then_has_values() -> None:
    state = state_of(FLEET.replace(aggregation="median"))
    assert (state.name, state.simulating) == ("uncovered", False)
    assert sentence(state, "network_mse").endswith("with stepsize 0.1: not simulated yet.")
    assert 'not "median"' in note(state)
    assert note(state).endswith("Press Simulate.")
    assert [row.title for row in table(state)[1]] == ["values sent per iteration"]
    state.simulating = True
    assert (state.name, note(state).endswith("Simulating, 0 % …")) == ("simulating", True)
    point = Point(0.1, {"network_mse": ErrorLevel(0.1, 0.09, 0.11)}, trials=16)
    state.simulation = Simulation(point)
    assert sentence(state, "network_mse").endswith("−10.00 ± 0.44 dB in 16 simulated trials.")
    columns, rows = table(state)
    assert columns == ("simulated",)
    assert rows[0].cells == ("−10.00 ± 0.44 dB",)


def test_the_table_has_errors_what_contributes_and_designs() -> None:
    columns, rows = table(state_of(FLEET))
    cells = {row.title: row.cells for row in rows}
    assert columns == ("theory",)
    assert cells["values sent per iteration"] == ("6",)
    level = to_decibels(psofed.predict(FLEET).network_mse)
    assert cells["network MSE"] == (f"{level:.2f} dB".replace("-", "−"),)
    assert cells["under the worst attack of the same power"][0].endswith(" dB")
    present = Point(0.1, {"network_mse": ErrorLevel(0.1), "test_mse": ErrorLevel(float("nan"))})
    _, rows = table(PageState({}, FLEET, theory=Theory(present)))
    assert "test MSE" not in {row.title for row in rows}  # of a table of one's own there is none


def test_an_unstable_chart_has_no_marker_and_a_new_setting_no_old_one() -> None:
    pytest.importorskip("bokeh", reason="the explorer's extra is not installed")
    from psofed.explore.chart import AxisChart

    chart = AxisChart("stepsize")
    chart.show(state_of(FLEET), "network_mse")
    assert len(chart._sources["present"].data["x"]) == 1
    assert chart.caption.startswith("Band: up to the worst additive attack")
    line, band = (
        {*zip(data["x"], data["y"], strict=True)} for data in (chart._sources[n].data for n in ("line", "band"))
    )
    assert len(band) > 0.8 * len(line)  # along the curve, also between the points whose worst attack is known
    assert band <= line
    moved = state_of(FLEET)
    moved.theory = Theory()  # a setting has changed, and there is no answer yet
    for state in (moved, state_of(FLEET.replace(stepsize=3.0))):
        chart.show(state, "network_mse")
        assert chart._sources["present"].data["x"] == []
        assert len(chart._sources["line"].data["x"]) > 5


def test_an_answer_to_a_page_that_was_closed_is_dropped() -> None:
    """Otherwise the thread that listens to the process ends, and the process does not."""
    pytest.importorskip("panel", reason="the explorer's extra is not installed")
    from bokeh.document import Document

    from psofed.explore.page import Session

    session = Session.__new__(Session)
    session._document = Document()
    session._document.callbacks.destroy()
    session._hear(1, Theory())


# Files


def test_the_file_of_numbers_holds_what_is_drawn() -> None:
    point = Point(3.0, {"network_mse": ErrorLevel(0.1, 0.05, 0.2)}, trials=16)
    state = state_of(FLEET, Simulation(point, {"stepsize": (point,)}))
    rows = list(csv.DictReader(io.StringIO(exports.numbers_as_csv(state))))
    assert {row["axis"] for row in rows} == {"stepsize", "num_shared", "iteration"}
    assert {row["source"] for row in rows} == {"theory", "simulation"}
    assert any(row["high"] == "0.2" for row in rows)


def test_commands_and_python_of_a_file_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenario.toml").write_text(FLEET.to_toml(), encoding="utf-8")
    exec(exports.as_python(FLEET, (), True), {})
    assert repr(psofed.predict(FLEET).network_mse) in capsys.readouterr().out
    assert exports.as_command(FLEET, ("parts.py",), False) == ("psofed simulate scenario.toml --plugin parts.py\n")


def test_only_what_the_playground_has_opens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exports.playground_fragment(readme_fleet().replace(iterations=7)).startswith("fleet=readme&m=1&b=15")
    assert exports.playground_fragment(readme_fleet().replace(aggregation="median")) == ""
    assert exports.playground_fragment(FLEET) == ""
    many = readme_fleet().replace(attack=psofed.attacks.Gaussian(num_byzantine=30), data=psofed.Data(target_spread=0.1))
    assert exports.playground_fragment(many) == ""  # more than another fleet of the playground has clients


# Processes and the command


@pytest.mark.slow
def test_worker_processes(tmp_path: Path) -> None:
    """A newer question drops the older one, and a killed process is replaced."""
    (tmp_path / "leaning_parts.py").write_text(
        "import psofed\n\n\nclass Leaning(psofed.Attack):\n    'Adds a constant.'\n\n"
        "    size: float = psofed.option(default=0.1, low=0.0, strength=True)\n\n"
        "    def corrupt(self, upload):\n        return upload.value + self.size\n",
        encoding="utf-8",
    )
    psofed.load_plugin(tmp_path / "leaning_parts.py")
    leaning = FLEET.replace(attack=find_part("attack", "leaning")(num_byzantine=2))
    slow = Question(FLEET.replace(iterations=10**7), simulated=True)
    heard: queue.Queue[tuple[int, Any]] = queue.Queue()
    worker = Worker(None, lambda number, update: heard.put((number, update)))
    try:
        worker.ask(1, slow)
        worker.ask(2, Question(leaning))
        number, update = heard.get(timeout=120)
        assert (number, update.error) == (2, "")
        assert update.present is not None or update.refusal
        worker.ask(3, slow)
        worker._process.kill()
        while (update := heard.get(timeout=120))[0] != 3 or not update[1].error:
            pass
        expected = "The computing process ended: killed by SIGKILL. Change a setting to try again."
        assert update[1] == Simulation(error=expected, finished=True)
        worker.ask(4, Question(FLEET))
        number, update = heard.get(timeout=120)
        assert number == 4
        assert update.present.mean("network_mse") == pytest.approx(psofed.predict(FLEET).network_mse, rel=1e-4)
    finally:
        worker.close()


def test_a_worker_that_was_closed_starts_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the server, its processes end before the threads that listen to them."""
    worker = Worker.__new__(Worker)
    worker._closed, calls = False, []

    class Connection:
        def poll(self, seconds: float) -> bool:
            worker.close()
            raise EOFError

    worker._connection = Connection()
    for name in ("_start", "_end"):
        monkeypatch.setattr(worker, name, lambda name=name: calls.append(name), raising=False)
    worker._listen()
    assert calls == ["_end"]


def test_without_panel_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['panel'] = None; from psofed.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "explore", "--no-browser"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("psofed: psofed explore needs Panel; install it ")
    assert done.stderr.endswith("pip install -e '.[explore]'\n")


def test_a_port_in_use_is_a_users_mistake(psofed_command) -> None:
    import socket

    pytest.importorskip("panel", reason="the explorer's extra is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = psofed_command("explore", "--no-browser", "--port", port)
    assert done.returncode == 2
    assert done.stderr == f"psofed: port {port} is already in use; choose another or omit --port\n"
