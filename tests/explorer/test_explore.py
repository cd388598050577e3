"""The explorer without its page: settings, links, fields, words, steps and files."""

import csv
import functools
import io
import json
import queue
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import psofed
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.numbers import to_decibels
from psofed.explore.answering import TheoryQuestion
from psofed.explore.answers import Answers, Dot, Interval, Simulation, Theory
from psofed.explore.exports import Origin, as_command, as_python, numbers_as_csv, numbers_as_json
from psofed.explore.fields import field_for_error, form_groups
from psofed.explore.glossary import GLOSSARY
from psofed.explore.headline import headline, sentence, simulated_sentence, tiles
from psofed.explore.presets import make_presets, readme_fleet
from psofed.explore.settings import (
    Limits,
    PageSettings,
    changed,
    from_query,
    make_scenario,
    parse_value,
    to_query,
)
from psofed.explore.sides import Side, SideMaker, with_dependents
from psofed.explore.simulating import TRIALS, simulation_steps
from psofed.explore.theory import Cache, theory_steps
from psofed.explore.workers import Pool, Worker
from psofed.paper.figures import load_figure
from psofed.parts.registry import find_part
from psofed.scenario import Scenario

pytestmark = [pytest.mark.explore, pytest.mark.takes(12)]

FLEET = psofed.Scenario(
    num_clients=10, dimension=3, num_participants=3, stepsize=0.1, iterations=200,
    attack=psofed.attacks.Gaussian(num_byzantine=3),
)  # fmt: skip


# Links


@pytest.mark.parametrize("name", list(make_presets()))
def test_a_link_restores_every_preset_on_both_sides(name: str) -> None:
    mapping = make_presets()[name].scenario.to_mapping()
    settings = PageSettings({"A": mapping, "B": FLEET.to_mapping()}, metric="test_mse")
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
            "model.features must be between 1 and 10000 (the explorer's limit)",
        ),
        (
            "num_clients=50&dimension=5&data.test_instances=1000000000",
            "data.test_instances must be between 1 and 10000 (the explorer's limit)",
        ),
        (
            "num_clients=50&dimension=5&data.fleet_seed=" + "9" * 400,
            "data.fleet_seed must be an integer of at least 0",
        ),
        ("metric=entropy", "metric must be "),
        ("dimension=5&B.dimension=5", "num_clients is required"),
        ("B.num_clients=50&B.dimension=5", "The link has settings for B but none for A."),
        ("x=" + "1" * 30_000, "30002 characters"),
        ("&".join(f"x{n}=1" for n in range(300)), "cannot be read"),
        (
            "num_clients=" + "[" * 3_900,
            "num_clients must be an integer between 1 and 1000 (the explorer's limit)",
        ),
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
    with pytest.raises(
        InvalidValueError, match=r"num_clients must be between 1 and 1000 \(the explorer's limit\)"
    ):
        make_scenario(large.to_mapping(), Limits())


# Fields


def test_a_plugins_attack_has_sliders_of_its_own() -> None:
    class Wobbling(psofed.Attack):
        """Adds a wave."""

        height: float = psofed.option(0.3, low=0.0, high=2.0, text="how high it is", strength=True)

        def corrupt(self, upload: Any) -> float:
            return float(upload.value + self.height)

    scenario = FLEET.replace(attack=Wobbling(num_byzantine=2))
    groups = form_groups(scenario, scenario.to_mapping(), Limits())
    field = next(f for g in groups for f in g.fields if f.name == "attack.height")
    assert (field.low, field.high, field.value, field.hint) == (0.0, 2.0, "0.3", "how high it is")
    assert ("wobbling", "wobbling") in next(
        f for g in groups for f in g.fields if f.name == "attack.kind"
    ).choices


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
    field = next(f for g in groups for f in g.fields if f.name == name)
    assert field.value == text  # what was typed stays


def test_an_attack_and_a_drift_can_be_taken_away() -> None:
    mapping = changed(changed(FLEET.to_mapping(), "drift.kind", "random-walk"), "attack.kind", "")
    scenario = make_scenario(mapping, Limits())
    assert scenario.attack is None
    assert scenario.drift.kind == "random-walk"
    assert make_scenario(changed(mapping, "drift.kind", ""), Limits()).drift is None


# Theory and simulation


def final_theory(scenario: Scenario, cache: Cache | None = None) -> Theory:
    return _final_theory(scenario) if cache is None else list(theory_steps(scenario, cache))[-1]


@functools.cache
def _final_theory(scenario: Scenario) -> Theory:
    return list(theory_steps(scenario, Cache()))[-1]


def test_theory_comes_in_steps_and_says_what_predict_says() -> None:
    steps = list(theory_steps(FLEET, Cache()))
    prediction = psofed.predict(FLEET)
    assert [step.point.network_mse for step in steps] == [prediction.network_mse] * len(steps)
    assert [step.finished for step in steps] == [False] * (len(steps) - 1) + [True]
    theory = steps[-1]
    assert theory.limit == pytest.approx(prediction.max_stepsize, rel=2e-3)
    assert theory.best.point.stepsize == pytest.approx(prediction.optimal_stepsize, rel=1e-2)
    assert [design.count for design in theory.shared] == [1, 2, 3]
    for design in theory.shared:
        assert design.point.network_mse == psofed.predict(FLEET.replace(num_shared=design.count)).network_mse
    for design in theory.participants:
        other = FLEET.replace(num_shared=3, num_participants=design.count)
        assert design.point.network_mse == psofed.predict(other).network_mse
    point = theory.stepsizes[3]
    assert point.network_mse == pytest.approx(
        psofed.predict(FLEET.replace(stepsize=point.stepsize)).network_mse
    )
    exact = prediction.learning_curve()
    for n, y in zip(theory.curve.iterations, theory.curve.values["network_mse"], strict=True):
        assert y == pytest.approx(exact.network_mse[int(n)], rel=1e-3)


def test_moving_the_stepsize_asks_for_nothing_that_is_known() -> None:
    cache = Cache()
    final_theory(FLEET, cache)
    known = cache.of(FLEET)
    before = len(known.points)
    final_theory(FLEET.replace(stepsize=0.123), cache)
    assert cache.of(FLEET.replace(stepsize=0.5)) is known
    assert len(known.points) == before + 1


def test_charts_keep_the_old_curves_until_the_new_ones_are_known() -> None:
    before = final_theory(FLEET)
    first = next(theory_steps(FLEET.replace(stepsize=0.05), Cache()))
    shown = first.over(before)
    assert (shown.point, shown.shared, shown.finished) == (first.point, before.shared, False)
    refused = Theory(refusal="not covered", finished=True)
    assert refused.over(before) == refused


def test_an_unstable_stepsize_diverges_in_words_and_the_charts_say_what_to_do() -> None:
    unstable = FLEET.replace(stepsize=3.0)
    theory = final_theory(unstable)
    assert "diverges" in sentence(unstable, theory)
    best, limit = psofed.tune(FLEET, shared=(1,)).recommended.stepsize, theory.limit
    advice = f"Unstable: stepsize 3 exceeds the largest stable stepsize, {limit:.3g}; use {best:.3g}."
    [line] = [
        line
        for line in headline({"A": side_of(unstable, theory)}, "network_mse").lines
        if "Unstable" in line.text
    ]
    assert (line.text, line.trouble) == (advice, False)
    pytest.importorskip("bokeh", reason="the explorer's extra is not installed")
    from psofed.explore.charts import Charts

    texts = Charts().show(
        {"A": Answers(unstable, theory), "B": Answers(FLEET, final_theory(FLEET))}, "network_mse"
    )
    assert texts[0].caption == ""  # no figure of the paper
    terms = texts[2]
    assert (terms.gaps, terms.empty) == ((("A", advice),), False)
    assert terms.summary.startswith("B: noise absorbed by the models 4 %, attack ")
    assert "lowest −" in texts[1].summary


def test_presets_of_the_paper_open_their_figure() -> None:
    figures = [preset for preset in make_presets().values() if preset.figure]
    assert len({(preset.scenario, preset.other, preset.figure) for preset in figures}) == 9
    assert all(preset.scenario != preset.other for preset in figures)
    pytest.importorskip("bokeh", reason="the explorer's extra is not installed")
    from psofed.explore.charts import Charts

    charts = Charts()
    words = charts.show({"A": Answers(FLEET)}, "network_mse", "fig2")[0]
    assert words.caption.startswith("Steady-state MSE of PSO-Fed for M = 1 … 5")
    exact = [to_decibels(psofed.predict(load_figure("fig2").examples()[1].replace(num_shared=m)).network_mse)
             for m in range(1, 6)]  # fmt: skip
    assert charts.paper.lines["|S_B| = 15"] == pytest.approx(exact)


def test_the_glossary_is_that_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    plain = " ".join(page.replace("*", "").replace(", `num_shared`", "").split())
    for word, text in GLOSSARY.items():
        assert f"### {word} {text}" in plain


def test_titles_of_presets_fit_into_the_menu_of_a_phone() -> None:
    assert [preset.title for preset in make_presets().values() if len(preset.title) > 36] == []


def test_the_simple_level_explains_in_words_not_symbols() -> None:
    groups = form_groups(FLEET, FLEET.to_mapping(), Limits())
    hints = [field.hint for group in groups for field in group.fields if field.simple]
    assert all(re.match(r"[A-Za-z]+ ", hint) and "_" not in hint for hint in hints), hints


def test_the_simple_level_asks_who_attacks_how_and_what_is_shared() -> None:
    def simple(scenario: Scenario) -> dict[str, str]:
        groups = form_groups(scenario, scenario.to_mapping(), Limits())
        return {field.name: field.label for group in groups for field in group.fields if field.simple}

    assert set(simple(FLEET)) == {
        "num_shared", "stepsize", "attack.num_byzantine", "attack.probability", "attack.variance"
    }  # fmt: skip
    assert simple(FLEET)["attack.variance"] == "attack strength (variance)"
    assert set(simple(FLEET.replace(attack=None))) == {"num_shared", "stepsize", "attack.kind"}
    named = psofed.attacks.Gaussian(clients=(1, 2))
    assert "attack.clients" in simple(FLEET.replace(attack=named))


def test_theory_that_refuses_says_why() -> None:
    (theory,) = theory_steps(FLEET.replace(aggregation="median"), Cache())
    assert 'not "median"' in theory.refusal
    assert theory.finished


def test_simulated_dots_are_what_simulate_says() -> None:
    seen: list[float] = []
    simulation = list(simulation_steps(FLEET, 0.5, lambda done, total: seen.append(done / total)))[-1]
    result = psofed.simulate(FLEET, trials=TRIALS[-1])
    found = simulation.present.metrics["network_mse"]
    assert found == Interval(result.network_mse.mean, *result.network_mse.interval)
    assert simulation.present.trials == TRIALS[-1]
    assert seen == sorted(seen)
    assert seen[-1] == simulation.progress == 1.0
    assert [count for count, _ in simulation.shared] == [1, 2, 3]
    assert FLEET.stepsize in dict(simulation.stepsizes)
    assert simulation.participants == ((3, dict(simulation.shared)[3]),)  # theory has the others
    assert "trials" in simulated_sentence(FLEET, simulation)
    assert simulation.curve.iterations[-1] <= FLEET.iterations


# Sentences and numbers


def side_of(scenario: Scenario, theory: Theory, dot: Dot | None = None) -> Side:
    return Side(scenario.to_mapping(), scenario, theory=theory, drawn=theory, simulation=Simulation(dot))


def test_the_sentence_says_with_how_many_byzantine_clients_it_diverges() -> None:
    attack = psofed.attacks.SignFlip(num_byzantine=1, scale=3.0, probability=1.0)
    fleet = FLEET.replace(attack=attack, stepsize=0.05)
    limit = psofed.attack_limits(fleet).num_byzantine
    assert limit is not None
    first = next(theory_steps(fleet, Cache()))
    theory = replace(first, full=first.point, most_byzantine=limit)
    assert f"and diverges with {limit + 1} or more Byzantine clients;" in sentence(fleet, theory)


def test_the_limit_is_that_of_the_theory_that_the_page_shows() -> None:
    attack = psofed.attacks.SignFlip(num_byzantine=1, scale=3.0, probability=1.0, of="update")
    data = psofed.Data(stream=psofed.streams.DelayLine(pole=0.5))
    fleet = Scenario(num_clients=6, dimension=2, stepsize=0.05, attack=attack, data=data)
    limit = psofed.attack_limits(fleet, theory="independence").num_byzantine
    assert limit is not None
    assert final_theory(fleet).most_byzantine == limit


def test_the_readmes_fleet_in_a_sentence() -> None:
    theory = final_theory(readme_fleet())
    assert sentence(readme_fleet(), theory) == (
        "Sharing 1 of 5 parameters with stepsize 0.077 gives −16.4 dB; "
        "sharing all gives −8.8 dB (−11.7 dB at its best stepsize, 0.195)."
    )
    first = tiles({"A": side_of(readme_fleet(), theory)}, "network_mse")[0]
    assert (first.title, first.relation) == ("network MSE", "B − A")
    assert [(value.side, value.key, value.text, value.stale) for value in first.values] == [
        ("A", "network_mse", "−16.43 dB", False)
    ]


def test_tiles_compare_two_sides() -> None:
    other = FLEET.replace(num_shared=3)
    sides = {"A": side_of(FLEET, final_theory(FLEET)), "B": side_of(other, final_theory(other))}
    shown = {tile.values[0].key: tile for tile in tiles(sides, "network_mse")}
    assert [value.text for value in shown["values_sent"].values] == ["6", "18", "3.00"]
    assert shown["network_mse"].values[2].text.endswith(" dB")


# Files


def test_the_numbers_as_files_hold_what_is_drawn() -> None:
    theory = final_theory(FLEET.replace(stepsize=3.0))
    dot = Dot(16, 0, {name: Interval(0.1, 0.05, 0.2) for name in ("network_mse", "server_msd", "test_mse")})
    simulation = Simulation(dot, ((3.0, dot),), ((1, dot),))
    sides = {"A": Answers(FLEET, theory, simulation)}
    plain = json.loads(numbers_as_json(sides))
    assert plain["A"]["theory"]["point"]["network_mse"] is None  # diverges, which JSON has no number for
    assert plain["A"]["simulation"]["present"]["metrics"]["test_mse"]["high"] == 0.2
    assert Scenario.from_mapping(plain["A"]["scenario"]) == FLEET
    rows = list(csv.DictReader(io.StringIO(numbers_as_csv(sides))))
    assert {row["chart"] for row in rows} == {"stepsizes", "shared", "participants", "curve", "terms"}
    assert {row["source"] for row in rows} == {"theory", "simulation"}


@pytest.mark.parametrize("name", list(make_presets()))
def test_the_python_lines_make_the_same_scenario(name: str) -> None:
    scenario = make_presets()[name].scenario
    lines = as_python(scenario, Origin(), predictable=True)
    made: dict[str, Any] = {}
    exec("\n".join(line for line in lines.splitlines() if not line.startswith("print")), made)
    assert made["scenario"] == scenario


def test_commands_name_data_and_plugins(tmp_path) -> None:
    lines = [f"{'ab'[n % 2]},{n % 7},{n % 5}" for n in range(80)]
    (tmp_path / "my table.csv").write_text("id,x,y\n" + "\n".join(lines), encoding="utf-8")
    fleet = Scenario.from_data(psofed.read_data(tmp_path / "my table.csv", "id", "y"), stepsize=0.02)
    text = as_command(fleet, Origin(("parts.py",)), predictable=True)
    assert "my table.csv" in text
    assert 'features = ["x"]' in text
    assert (
        "psofed predict scenario.toml --plugin parts.py\npsofed simulate scenario.toml --plugin parts.py\n"
        in text
    )
    lines = as_python(fleet, Origin(), predictable=True)
    made: dict[str, Any] = {}
    exec("\n".join(line for line in lines.splitlines() if not line.startswith("print")), made)
    assert made["scenario"] == fleet
    assert "psofed.load_plugin('parts.py')" in as_python(fleet, Origin(("parts.py",)), predictable=True)


# Processes and the command


@pytest.mark.slow
def test_worker_processes(tmp_path: Path) -> None:
    """A newer question drops the older one, a process serves page after page, and a killed one is replaced."""
    (tmp_path / "leaning_parts.py").write_text(
        "import psofed\n\n\nclass Leaning(psofed.Attack):\n    'Adds a constant.'\n\n"
        "    size: float = psofed.option(default=0.1, low=0.0, strength=True)\n\n"
        "    def corrupt(self, upload):\n        return upload.value + self.size\n",
        encoding="utf-8",
    )
    psofed.load_plugin(tmp_path / "leaning_parts.py")
    leaning = FLEET.replace(attack=find_part("attack", "leaning")(num_byzantine=2))
    slow = Scenario(num_clients=200, dimension=12, data=psofed.Data(input_correlation=0.5), iterations=5)
    heard: queue.Queue[tuple[int, Theory]] = queue.Queue()
    pool = Pool()
    worker = Worker(pool, lambda number, update: heard.put((number, update)))
    try:
        # The first would take minutes; its answer is never heard, and the second comes all the same.
        worker.ask(TheoryQuestion(1, slow, metric="network_mse"))
        worker.ask(TheoryQuestion(2, leaning, metric="network_mse"))
        number, update = heard.get(timeout=120)
        assert (number, update.error) == (2, "")
        assert update.point is not None or update.refusal
        # The next page continues with the same process, and hears nothing of what this one has not listened to.
        process, listening = worker._process, threading.Event()
        worker._listener = lambda *_: listening.wait(60)
        worker.ask(TheoryQuestion(3, FLEET.replace(stepsize=0.01), metric="network_mse"))
        time.sleep(0.5)  # for some answers to be in the pipe
        worker.close()
        listening.set()
        end = time.monotonic() + 30.0
        while process not in pool._ready and time.monotonic() < end:
            time.sleep(0.02)
        heard = queue.Queue()
        worker = Worker(pool, lambda number, update: heard.put((number, update)))
        assert worker._process is process
        worker.ask(TheoryQuestion(3, FLEET, metric="network_mse"))
        assert heard.get(timeout=60)[1].point.network_mse == psofed.predict(FLEET).network_mse
        # A killed process is reported as that, and replaced.
        worker.ask(TheoryQuestion(4, slow, metric="network_mse"))
        worker._process._process.kill()
        while (update := heard.get(timeout=120))[0] != 4 or not update[1].error:
            pass
        expected = "The computing process ended: killed by SIGKILL. Change a setting to try again."
        assert update[1] == Theory(error=expected, finished=True)
        worker.ask(TheoryQuestion(5, FLEET, metric="network_mse"))
        number, update = heard.get(timeout=120)
        assert number == 5
        assert update.point is not None
    finally:
        worker.close()
        pool.close()


def test_without_panel_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['panel'] = None; from psofed.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "explore", "--no-browser"], capture_output=True, text=True
    )
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


# Sides


def test_what_a_link_gets_wrong_is_marked_at_its_field_and_the_rest_is_kept() -> None:
    link = "num_clients=50&dimension=5&num_shared=7&stepsize=nan&attack.kind=gaussian&attack.num_byzantine=99"
    mapping = from_query(link).sides["A"]
    side = SideMaker(Limits()).from_link(dict(mapping), own_data=False)
    assert set(side.errors) == {"num_shared", "stepsize", "attack.kind"}
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
