import io
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from psofed import read_scenario, simulate
from psofed.cli import app, outputs
from psofed.scenario.file import EXAMPLE

pytestmark = [pytest.mark.cli, pytest.mark.takes(15)]


@pytest.fixture
def scenario_file(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(EXAMPLE.replace("iterations = 3000", "iterations = 100"))
    return path


def test_example_prints_the_scenario_to_start_from() -> None:
    assert CliRunner().invoke(app, ["example"]).stdout == EXAMPLE


def test_json_holds_what_was_promised(scenario_file, psofed_command) -> None:
    done = psofed_command("simulate", scenario_file, "--trials", 4, "--seed", 9, "--json", "--set", "stepsize=0.1")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for metric in ("network_mse", "server_msd", "test_mse"):
        assert {"mean", "standard_error"} <= result[metric].keys()
    assert result["scenario"]["stepsize"] == 0.1
    assert result["seed"] == 9
    assert result["communication"]["ratio_to_full_sharing"] == 0.2
    assert result["client_updates_per_second"] > 0
    assert result["version"]
    assert len(result["fleet"]["input_variance"]) == 50


def test_divergence_is_valid_json_and_said(scenario_file, psofed_command) -> None:
    done = psofed_command("simulate", scenario_file, "--trials", 2, "--json", "--set", "stepsize=5")
    result = json.loads(done.stdout)
    assert result["network_mse"]["mean"] is None
    assert result["diverged"]["trials"] == [0, 1]
    assert (
        "All 2 trials diverged"
        in psofed_command("simulate", scenario_file, "--trials", 2, "--set", "stepsize=5").stdout
    )


def test_an_error_of_nothing_has_not_diverged(scenario_file, psofed_command) -> None:
    quiet = ("--set", "data.noise_variance=0", "--set", "attack.num_byzantine=0", "--trials", 2)
    done = psofed_command("simulate", scenario_file, *quiet, "--set", "data.input_variance=0")
    assert "diverged" not in done.stdout
    assert "−∞ dB" in done.stdout


def test_a_result_and_a_picture_are_written(scenario_file, tmp_path, psofed_command) -> None:
    done = psofed_command(
        "simulate", scenario_file, "--trials", 4, "--out", tmp_path / "r.nc", "--plot", tmp_path / "p.svg"
    )
    assert done.returncode == 0, done.stderr
    assert "network MSE" in done.stdout
    assert (tmp_path / "r.nc").exists()
    assert "<svg" in (tmp_path / "p.svg").read_text()
    assert psofed_command("plot", tmp_path / "r.nc", tmp_path / "again.svg").returncode == 0
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "p.svg").read_bytes()
    refused = psofed_command("plot", tmp_path / "p.svg", tmp_path / "again.svg")
    assert refused.returncode == 2
    assert "not a psofed result" in refused.stderr


def test_two_scenarios_are_compared_trial_by_trial(scenario_file, tmp_path, psofed_command) -> None:
    other = tmp_path / "full.toml"
    other.write_text(scenario_file.read_text().replace("num_shared = 1 ", "num_shared = 5 "))
    done = psofed_command("simulate", scenario_file, "--versus", other, "--trials", 8, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["difference"]["paired"] is True
    assert told["difference"]["network_mse"]["db"] < 0
    assert told["versus"]["scenario"]["num_shared"] == 5
    shown = CliRunner().invoke(app, ["simulate", str(scenario_file), "--versus", str(other), "--trials", "8"])
    assert "8 pairs of trials on equal draws" in " ".join(shown.stdout.split())
    compared = ["simulate", scenario_file, "--versus", other, "--trials", 4]
    drawn = psofed_command(*compared, "--plot", tmp_path / "difference.svg")
    assert drawn.returncode == 0, drawn.stderr
    assert "difference (dB)" in (tmp_path / "difference.svg").read_text()
    refused = psofed_command(*compared, "--out", tmp_path / "both.nc")
    assert refused.returncode == 2
    assert "--versus makes two" in refused.stderr


def test_options_for_sweeps_are_refused_for_simulations(scenario_file, tmp_path, psofed_command) -> None:
    simulate(read_scenario(scenario_file), trials=2).save(tmp_path / "r.nc")
    for option, value in (("--x", "stepsize"), ("--metric", "server_msd")):
        refused = psofed_command("plot", tmp_path / "r.nc", tmp_path / "p.svg", option, value)
        assert refused.returncode == 2
        assert f"{option} is for sweeps" in refused.stderr


def test_help_and_import_load_nothing_heavy() -> None:
    code = "import sys, psofed, psofed.cli; print([m for m in sys.modules if m.split('.')[0] in {heavy!r}])"
    heavy = {"numba", "numpy", "scipy", "xarray", "matplotlib", "flwr", "dask"}
    done = subprocess.run([sys.executable, "-c", code.format(heavy=heavy)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_long_work_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(outputs, "_PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    deadline = time.monotonic() + 30.0
    with outputs.progress("predicting") as report:
        while "predicting" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "predicting" in terminal.getvalue(), "before it is known how much there is to do"
        report(3, 4)
    assert "75%" in terminal.getvalue()


def test_interrupting_ends_cleanly(tmp_path) -> None:
    path = tmp_path / "long.toml"
    path.write_text("num_clients = 1000\ndimension = 50\niterations = 1000000\n")
    # The first block says when it begins, kernels being loaded, so that nobody need guess how long that takes.
    begin = (
        "from psofed.simulation import monte_carlo as m\nreal = m.run_block\n"
        "def run_block(job, *a):\n"
        "    if job.scenario.iterations > 1:\n        print('begun', flush=True)\n"
        "    return real(job, *a)\n"
        "m.run_block = run_block\nfrom psofed.cli import main\nmain()\n"
    )
    command = [sys.executable, "-c", begin, "simulate", str(path), "--trials", "64", "--threads", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.2)  # inside the kernel
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()  # if it has not ended, no other test shall suffer from it
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "my readings.csv"
    with path.open("w") as file:
        file.write("station,wind,sun,output\n")
        for row in range(240):
            wind, sun = rng.standard_normal(2)
            file.write(f"s{row % 4},{wind:.4f},{sun:.4f},{wind - sun + rng.standard_normal():.4f}\n")
    return path


def next_step(printed):
    """The command that a report ends with, in one line."""
    return printed.rstrip().rpartition("\n\n")[2].partition(":")[2].replace("\\\n", "")


@pytest.mark.parametrize("command", ["simulate", "predict", "compare", "tune", "advise"])
@pytest.mark.parametrize("given", ["file", "table", "file that names a table"])
def test_the_next_step_is_about_the_scenario_that_was_given(command, given, scenario_file, table, tmp_path) -> None:
    kept = ["--set", "aggregation=median" if command == "advise" else "num_shared=1"]
    if given == "file":
        words = [str(scenario_file), "--set", "data.noise_variance={uniform=[0.1, 0.2]}", *kept]
        if command == "advise":
            return
    elif given == "table":
        columns = ["--client-column", "station", "--target-column", "output"]
        words = ["--data", str(table), *columns, "--leave-out", "s3", *kept]
    else:
        own = tmp_path / "own.toml"
        own.write_text(f'[data]\nfile = "{table.name}"\nclient_column = "station"\ntarget_column = "output"\n')
        words = [str(own), *kept]
    done = CliRunner().invoke(app, [command, *words, *(["--trials", "4"] if command == "simulate" else [])])
    assert done.exit_code in (0, 1), done.output
    step = shlex.split(next_step(done.stdout))
    assert step[0] == "psofed", done.stdout
    pairs = list(itertools.pairwise(step))
    for option, value in itertools.pairwise(words):
        if option in ("--set", "--data", "--client-column", "--target-column"):
            replaced = any(
                other.partition("=")[0] == value.partition("=")[0] for name, other in pairs if name == "--set"
            )
            assert (option, value) in pairs or (option == "--set" and replaced), done.stdout
        if option == "--leave-out":
            assert any(name == option and value in other.split(",") for name, other in pairs), done.stdout
    again = CliRunner().invoke(app, step[1:])
    assert again.exit_code in (0, 1), (step, again.output)


@pytest.mark.parametrize(
    ("typed", "step"),
    [
        ("predict --theory paper --set stepsize=0.15", "psofed predict FILE --theory paper --set stepsize=0.071"),
        ("predict --theory paper --set stepsize=0.071", "psofed compare FILE --set stepsize=0.071 --theory paper"),
        ("simulate --trials 3 --seed 5 --tail 40", "psofed compare FILE --seed 5 --tail 40"),
        ("tune --theory paper --shared 1", "psofed simulate FILE --set num_shared=1 --set stepsize=0.071"),
        ("compare --trials 3 --seed 5 --theory paper", "psofed tune FILE --theory paper"),
    ],
)
def test_the_next_step_repeats_the_settings_that_it_has_too(typed, step, scenario_file) -> None:
    command, *options = typed.split()
    done = CliRunner().invoke(app, [command, str(scenario_file), *options, "--set", "iterations=2000"])
    expected = step.replace("FILE", str(scenario_file)).split()
    found = next_step(done.stdout).split()
    at = found.index("iterations=2000")
    assert found[: at - 1] + found[at + 1 :] == expected


def test_a_report_names_the_inputs_that_were_chosen_by_default(table) -> None:
    words = ["simulate", "--data", str(table), "--client-column", "station", "--target-column", "output"]
    done = CliRunner().invoke(app, [*words, "--trials", "4"])
    assert "output is predicted from all other numeric columns: wind and sun." in done.stdout
    assert "numeric columns" not in CliRunner().invoke(app, [*words, "--features", "wind", "--trials", "4"]).stdout


@pytest.mark.parametrize(
    "change",
    [
        "aggregation=median",
        "attack.kind=min-max",
        "algorithm=qs-fed",
        "defence.kind=cusum",
        "learner.kind=rls",
        "data.stream=delay-line",
        "channel.up={kind='private', clip=0.1}",
        "delay={kind='geometric', ratio=0.5, longest=3}",
    ],
)
def test_the_next_step_is_not_a_comparison_with_a_theory_that_does_not_cover_it(change, scenario_file) -> None:
    words = [str(scenario_file), "--set", change]
    assert CliRunner().invoke(app, ["compare", *words]).exit_code != 0
    assert "compare" not in CliRunner().invoke(app, ["simulate", *words, "--trials", "2"]).stdout
