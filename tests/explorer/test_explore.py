"""The explorer without its page: settings, links, fields, words, steps and files."""

import csv
import io
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import psofed
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.explore.exports import Origin, as_command, as_python, numbers_as_csv, numbers_as_json
from psofed.explore.fields import field_for_error, form_groups
from psofed.explore.presets import make_presets, readme_fleet
from psofed.explore.settings import (
    Limits,
    Settings,
    changed,
    from_query,
    make_scenario,
    parse_value,
    to_query,
)
from psofed.explore.sides import SideMaker, with_dependents
from psofed.explore.simulating import TRIALS, simulation_steps
from psofed.explore.theory import Cache, theory_steps
from psofed.explore.words import number_rows, sentence, simulated_sentence, tiles
from psofed.explore.workers import Pool, Question, Worker
from psofed.parts.registry import FAMILIES, part_names
from psofed.scenario import Scenario

pytestmark = pytest.mark.explore

FLEET = psofed.Scenario(
    num_clients=10, dimension=3, num_participants=3, stepsize=0.1, iterations=200,
    attack=psofed.attacks.Gaussian(num_byzantine=3),
)  # fmt: skip


def names(scenario: Scenario) -> list[str]:
    groups = form_groups(scenario, scenario.to_mapping(), Limits())
    return [field["name"] for group in groups for field in group["fields"]]


# Links


@pytest.mark.parametrize("name", list(make_presets()))
def test_a_link_restores_every_preset_on_both_sides(name: str) -> None:
    mapping = make_presets()[name].mapping
    settings = Settings({"A": mapping, "B": FLEET.to_mapping()}, metric="test_mse")
    restored = from_query(to_query(settings))
    assert restored == settings
    assert make_scenario(restored.sides["A"], Limits()) == Scenario.from_mapping(mapping)


def test_a_link_without_settings_says_nothing() -> None:
    assert from_query("?token=abc") is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("num_clients=1000000000&dimension=5", "num_clients must be "),
        ("num_clients=50&dimension=1e9", "dimension must be "),
        ("num_clients=50&dimension=5&iterations=99999999", "iterations must be "),
        ("num_clients=50&dimension=5&stepsize=nan", "stepsize must be "),
        ("num_clients=50&dimension=5&stepsize=1e999", "stepsize must be "),
        ("num_clients=50&dimension=5&plugins=/etc/passwd", "plugins must be "),
        ("num_clients=50&dimension=5&own_data=/etc/passwd", "own_data must be "),
        ("num_clients=50&dimension=5&attack.kind=/etc/passwd", "attack.kind must be "),
        ("num_clients=50&dimension=5&nonsense=1", "Unknown field `nonsense`"),
        ("num_clients=50&dimension=5&a.b.c=1", "Unknown field `a.b.c`"),
        (
            "num_clients=50&dimension=100&model.kind=rff&model.features=1000000000",
            "model.features must be",
        ),
        ("num_clients=50&dimension=5&data.test_instances=1000000000", "data.test_instances must be"),
        ("num_clients=50&dimension=5&data.fleet_seed=" + "9" * 400, "data.fleet_seed must be"),
        ("metric=entropy", "metric must be "),
        ("dimension=5&B.dimension=5", "num_clients is required"),
        ("B.num_clients=50&B.dimension=5", "a link with B has A as well"),
        ("x=" + "1" * 30_000, "30002 characters"),
        ("&".join(f"x{n}=1" for n in range(300)), "cannot be read"),
        ("num_clients=" + "[" * 3_900, "num_clients must be"),
        ("num_clients=%ff", "cannot be read"),
    ],
)
def test_a_hostile_link_is_refused_in_words(query: str, message: str) -> None:
    def restore() -> None:
        settings = from_query(query)
        make_scenario(settings.sides["A"], Limits())

    with pytest.raises(PsofedError) as refused:
        restore()
    assert message in str(refused.value)


def test_the_users_own_file_may_be_larger_than_the_limits() -> None:
    large = Scenario(num_clients=3000, dimension=2)
    assert make_scenario(large.to_mapping(), Limits().including(large)) == large
    with pytest.raises(InvalidValueError, match="num_clients must be"):
        make_scenario(large.to_mapping(), Limits())


# Fields


@pytest.mark.parametrize(
    "family", ["attack", "aggregation", "pre_aggregation", "algorithm", "pattern", "drift", "function"]
)
def test_every_kind_can_be_chosen_and_every_option_has_a_field(family: str) -> None:
    table = {
        "attack": "attack.kind",
        "pattern": "selection.pattern",
        "drift": "drift.kind",
        "pre_aggregation": "pre_aggregation.kind",
        "function": "data.function",
    }
    for kind in part_names(family):
        mapping = changed(FLEET.to_mapping(), table.get(family, family), kind)
        if family == "function":
            mapping = changed(changed(mapping, "model.kind", "rff"), "data.input_dimension", None)
            mapping["data"].pop("input_dimension")
        scenario = make_scenario(mapping, Limits())
        shown = names(scenario)
        part = next(part for part in scenario.parts() if part.family == family)
        assert part.kind == kind
        for option in part.own_options():
            assert any(name.endswith(f".{option}") for name in shown), (kind, option)


def test_all_families_of_parts_are_in_the_form() -> None:
    shown = names(FLEET)
    for family in FAMILIES:
        assert any(family in name.replace("selection.pattern", "pattern") for name in shown), family


def test_a_plugins_attack_has_sliders_of_its_own() -> None:
    class Wobbling(psofed.Attack):
        """Adds a wave."""

        height: float = psofed.option(0.3, low=0.0, high=2.0, text="how high it is", strength=True)

        def corrupt(self, upload: Any) -> float:
            return float(upload.value + self.height)

    scenario = FLEET.replace(attack=Wobbling(num_byzantine=2))
    groups = form_groups(scenario, scenario.to_mapping(), Limits())
    field = next(f for g in groups for f in g["fields"] if f["name"] == "attack.height")
    assert (field["low"], field["high"], field["value"], field["hint"]) == (0.0, 2.0, "0.3", "how high it is")
    assert ["wobbling", "wobbling"] in next(
        f for g in groups for f in g["fields"] if f["name"] == "attack.kind"
    )["choices"]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("num_shared", "7", "num_shared"),
        ("stepsize", "abc", "stepsize"),
        ("attack.num_byzantine", "11", "attack.num_byzantine"),
        ("attack.variance", "-1", "attack.variance"),
        ("data.noise_variance.low", "9", "data.noise_variance.low"),
        ("data.input_correlation", "1", "data.input_correlation"),
        ("num_participants", "", "num_participants"),
    ],
)
def test_a_bad_value_is_shown_at_its_field(name: str, text: str, place: str) -> None:
    mapping = changed(FLEET.to_mapping(), name, parse_value(text))
    with pytest.raises(InvalidValueError, match=" must be ") as refused:
        make_scenario(mapping, Limits())
    groups = form_groups(FLEET, mapping, Limits())
    assert field_for_error(groups, refused.value.field) == place
    field = next(f for g in groups for f in g["fields"] if f["name"] == name)
    assert field["value"] == text  # what was typed stays


def test_an_attack_and_a_drift_can_be_taken_away() -> None:
    mapping = changed(changed(FLEET.to_mapping(), "drift.kind", "random-walk"), "attack.kind", "")
    scenario = make_scenario(mapping, Limits())
    assert scenario.attack is None
    assert scenario.drift.kind == "random-walk"
    assert make_scenario(changed(mapping, "drift.kind", ""), Limits()).drift is None


# Theory and simulation


def test_theory_comes_in_steps_and_says_what_predict_says() -> None:
    picture: dict[str, Any] = {}
    steps = list(theory_steps(FLEET, Cache()))
    assert "point" in steps[0]
    for step in steps:
        picture.update(step)
    prediction = psofed.predict(FLEET)
    assert picture["point"]["network_mse"] == prediction.network_mse
    assert picture["limit"] == pytest.approx(prediction.max_stepsize, rel=2e-3)
    assert picture["best"]["stepsize"] == pytest.approx(prediction.optimal_stepsize, rel=1e-2)
    assert [row["num_shared"] for row in picture["shared"]] == [1, 2, 3]
    for row in picture["shared"]:
        assert row["network_mse"] == psofed.predict(FLEET.replace(num_shared=row["num_shared"])).network_mse
    for row in picture["participants"]:
        other = FLEET.replace(num_shared=3, num_participants=row["num_participants"])
        assert row["network_mse"] == psofed.predict(other).network_mse
    row = picture["stepsizes"][3]
    assert row["network_mse"] == pytest.approx(
        psofed.predict(FLEET.replace(stepsize=row["stepsize"])).network_mse
    )
    curve, exact = picture["curve"], prediction.learning_curve()
    for n, y in zip(curve["iteration"], curve["network_mse"], strict=True):
        assert y == pytest.approx(exact.network_mse[int(n)], rel=1e-3)
    assert steps[-1] == {"finished": True}


def test_moving_the_stepsize_asks_for_nothing_that_is_known() -> None:
    cache = Cache()
    list(theory_steps(FLEET, cache))
    known = cache.of(FLEET)
    before = len(known.rows)
    list(theory_steps(FLEET.replace(stepsize=0.123), cache))
    assert cache.of(FLEET.replace(stepsize=0.5)) is known
    assert len(known.rows) == before + 1


def test_an_unstable_stepsize_diverges_in_words() -> None:
    picture: dict[str, Any] = {}
    for step in theory_steps(FLEET.replace(stepsize=3.0), Cache()):
        picture.update(step)
    assert "diverges" in sentence(FLEET.replace(stepsize=3.0), picture)


def test_theory_that_refuses_says_why() -> None:
    (step,) = theory_steps(FLEET.replace(aggregation="median"), Cache())
    assert '"median" is not linear' in step["refusal"]


def test_simulated_dots_are_what_simulate_says() -> None:
    seen: list[float] = []
    picture: dict[str, Any] = {}
    for step in simulation_steps(FLEET, 0.5, lambda done, total: seen.append(done / total)):
        picture.update(step)
    result = psofed.simulate(FLEET, trials=TRIALS[-1])
    assert picture["present"]["network_mse"] == result.network_mse.mean
    assert picture["present"]["trials"] == TRIALS[-1]
    assert (
        picture["present"]["network_mse_low"],
        picture["present"]["network_mse_high"],
    ) == result.network_mse.interval
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert {row["num_shared"] for row in picture["shared"]} == {1, 2, 3}
    assert "trials" in simulated_sentence(FLEET, picture)
    assert picture["curve"]["iteration"][-1] <= FLEET.iterations


# Words


def test_the_sentence_says_from_how_many_liars_on_it_diverges() -> None:
    attack = psofed.attacks.SignFlip(num_byzantine=1, scale=3.0, probability=1.0)
    fleet = FLEET.replace(attack=attack, stepsize=0.05)
    picture: dict[str, Any] = {}
    for step in theory_steps(fleet, Cache()):
        picture.update(step)
    limit = psofed.attack_limits(fleet).num_byzantine
    assert limit is not None
    assert f"and diverges from {limit + 1} liars on;" in sentence(fleet, picture)


def test_the_readmes_fleet_in_a_sentence() -> None:
    picture: dict[str, Any] = {}
    for step in theory_steps(readme_fleet(), Cache()):
        picture.update(step)
    assert sentence(readme_fleet(), picture) == (
        "Sharing 1 of 5 entries with stepsize 0.077 gives −16.4 dB; "
        "sharing everything gives −8.8 dB (−11.7 dB at its best stepsize, 0.195)."
    )
    shown = tiles({"A": number_rows(readme_fleet(), picture, {}, None)}, "network_mse")
    assert shown[0] == {
        "title": "network MSE", "relation": "B − A",
        "values": [{"side": "A", "key": "network_mse", "text": "−16.43 dB", "stale": False}],
    }  # fmt: skip


# Files


def test_the_numbers_as_files_hold_what_is_drawn() -> None:
    picture: dict[str, Any] = {}
    for step in theory_steps(FLEET.replace(stepsize=3.0), Cache()):
        picture.update(step)
    sides = {"A": {"scenario": FLEET, "theory": picture, "simulation": {}}}
    plain = json.loads(numbers_as_json(sides))
    assert plain["A"]["theory"]["point"]["network_mse"] is None  # diverges, which JSON has no number for
    assert Scenario.from_mapping(plain["A"]["scenario"]) == FLEET
    rows = list(csv.DictReader(io.StringIO(numbers_as_csv(sides))))
    assert {row["picture"] for row in rows} == {"stepsizes", "shared", "participants", "curve", "terms"}


@pytest.mark.parametrize("name", list(make_presets()))
def test_the_python_lines_make_the_same_scenario(name: str) -> None:
    scenario = Scenario.from_mapping(make_presets()[name].mapping)
    lines = as_python(scenario, Origin(), own_data=False, predictable=True)
    made: dict[str, Any] = {}
    exec("\n".join(line for line in lines.splitlines() if not line.startswith("print")), made)
    assert made["scenario"] == scenario


def test_commands_name_data_and_plugins() -> None:
    origin = Origin(
        ("--data", "my table.csv", "--client-column", "id", "--target-column", "y"), ("parts.py",)
    )
    text = as_command(FLEET, origin, own_data=True, predictable=True)
    data = "--data 'my table.csv' --client-column id --target-column y --plugin parts.py"
    assert f"psofed tune scenario.toml {data}\npsofed simulate scenario.toml {data}\n" in text
    lines = as_python(FLEET, origin, own_data=True, predictable=True)
    assert "data = psofed.read_data('my table.csv', 'id', 'y')" in lines
    assert "psofed.load_plugin('parts.py')" in lines


# Processes and the command


def test_a_newer_question_drops_the_older_one() -> None:
    """The first would take minutes; its answer is never heard, and the second comes all the same."""
    import queue

    heard: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
    pool = Pool()
    worker = Worker(pool, lambda number, update: heard.put((number, update)))
    try:
        slow = Scenario(num_clients=200, dimension=12, data=psofed.Data(input_correlation=0.5), iterations=5)
        worker.ask(Question(1, "theory", slow.to_mapping()))
        worker.ask(Question(2, "theory", FLEET.to_mapping()))
        number, update = heard.get(timeout=120)
        assert number == 2
        assert update["point"]["network_mse"] == psofed.predict(FLEET).network_mse
        # The next page goes on with the same process, and hears nothing of what this one has not listened to.
        process, listening = worker._process, threading.Event()
        worker._listener = lambda *_: listening.wait(60)
        worker.ask(Question(3, "theory", FLEET.replace(stepsize=0.01).to_mapping()))
        time.sleep(0.5)  # for some answers to be in the pipe
        worker.close()
        listening.set()
        end = time.monotonic() + 30.0
        while process not in pool._ready and time.monotonic() < end:
            time.sleep(0.02)
        other: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        worker = Worker(pool, lambda number, update: other.put((number, update)))
        assert worker._process is process
        worker.ask(Question(3, "theory", FLEET.to_mapping()))
        assert other.get(timeout=60)[1]["point"]["network_mse"] == psofed.predict(FLEET).network_mse
    finally:
        worker.close()
        pool.close()


def test_a_process_that_was_killed_is_reported_as_that_and_replaced() -> None:
    import queue

    heard: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
    pool = Pool()
    worker = Worker(pool, lambda number, update: heard.put((number, update)))
    try:
        slow = Scenario(num_clients=200, dimension=12, data=psofed.Data(input_correlation=0.5), iterations=5)
        worker.ask(Question(1, "theory", slow.to_mapping()))
        worker._process._process.kill()
        _, update = heard.get(timeout=120)
        expected = "The computing process ended: killed by SIGKILL. Change a setting to try again."
        assert update == {"error": expected, "finished": True}
        worker.ask(Question(2, "theory", FLEET.to_mapping()))
        number, update = heard.get(timeout=120)
        assert (number, "point" in update) == (2, True)
    finally:
        worker.close()
        pool.close()


def test_without_panel_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['panel'] = None; from psofed.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "explore", "--no-browser"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "psofed: the explorer needs Panel; install it with: pip install 'psofed[explore]'\n"


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


# Sides


def test_what_a_link_gets_wrong_is_marked_at_its_field_and_the_rest_is_kept() -> None:
    link = "num_clients=50&dimension=5&num_shared=7&stepsize=nan&attack.kind=gaussian&attack.num_byzantine=99"
    link += "&evasion.epsilon=-1"
    mapping = from_query(link).sides["A"]
    side = SideMaker(Limits()).from_link(dict(mapping), own_data=False)
    assert set(side.errors) == {"num_shared", "stepsize", "attack.kind", "evasion.norm"}
    assert "attack.num_byzantine must be " in side.errors["attack.kind"]
    assert "num_shared must be between 1 and 5 (the dimension); got 7." in side.errors.values()
    assert (side.scenario.num_clients, side.scenario.dimension, side.scenario.num_shared) == (50, 5, 1)
    assert side.draft["num_shared"] == 7
    # What is typed wrong beside it is marked beside it.
    side.draft = changed(side.draft, "iterations", 0)
    assert set(SideMaker(Limits()).marks(side)) == {*side.errors, "iterations"}


@pytest.mark.parametrize("link", ["num_clients=1000000000&dimension=5", "num_clients=50&dimension=0"])
def test_a_link_without_a_fleet_to_fall_back_on_is_refused(link: str) -> None:
    with pytest.raises(InvalidValueError, match=r"num_clients must be|dimension must be"):
        SideMaker(Limits()).from_link(dict(from_query(link).sides["A"]), own_data=False)


def test_what_cannot_be_more_than_the_fleet_shrinks_with_it() -> None:
    mapping = with_dependents(changed(FLEET.to_mapping(), "num_clients", 2), "num_clients")
    scenario = make_scenario(mapping, Limits())
    assert (scenario.num_clients, scenario.num_participants, scenario.attack.num_byzantine) == (2, 2, 2)


def test_moved_inputs_have_a_tile_of_their_own() -> None:
    fleet = FLEET.replace(evasion=psofed.Evasion(epsilon=0.1))
    picture = next(iter(theory_steps(fleet, Cache())))
    bounds = psofed.predict(fleet).evasion
    assert picture["point"]["evasion"] == (bounds.lower, bounds.upper)

    def tile(dot: dict[str, float] | None) -> str:
        made = tiles({"A": number_rows(fleet, picture, {}, dot)}, "network_mse")
        return next(one["values"][0]["text"] for one in made if one["title"] == "test MSE, moved inputs")

    assert re.fullmatch(r"−[\d.]+ to −[\d.]+ dB", tile(None))
    assert tile({"network_mse": 0.1, "evasion_test_mse": 0.05}) == "−13.01 dB"
