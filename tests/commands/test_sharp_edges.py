"""What goes wrong through a user's hands: misspelt names, full disks, folders that cannot be written, Ctrl-C."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

import psofed
from psofed.common.suggest import closest
from psofed.scenario.file import EXAMPLE
from psofed.studies.sweeps import CellStore, read_grid, run_sweep

pytestmark = [pytest.mark.cli, pytest.mark.scenario, pytest.mark.common, pytest.mark.takes(56)]

PSOFED = [sys.executable, "-c", "from psofed.cli import main; main()"]
SMALL = EXAMPLE.replace("iterations = 3000", "iterations = 40").replace("num_clients = 50 ", "num_clients = 20 ")
GRID = 'trials = 4\nbase = "scenario.toml"\n[grid]\nnum_shared = [1, 5]\n'
LONG = "trials = 16\n[base]\nnum_clients = 20\ndimension = 5\niterations = 40000\n[grid]\nstepsize = {}\n"


def run(*arguments: object, **options) -> subprocess.CompletedProcess:
    command = [*PSOFED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "scenario.toml").write_text(SMALL)
    (tmp_path / "grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nearly_full_disk() -> None:
    """No file may grow beyond 1 kB: a write fails, as on a full disk, for root as well."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("stepsiz=0.1", "Did you mean `stepsize`?"),
        ("attack.varianc=1", "Did you mean `attack.variance`?"),
        ("attak.variance=1", "Did you mean `attack.variance`?"),
        ("variance=1", "Did you mean `attack.variance`?"),
        ("attack.kind=sign_flp", "Did you mean `sign-flip`?"),
        ("aggregation=medain", "Did you mean `median`?"),
        ("selection.patern=random", "Did you mean `selection.pattern`?"),
        ("data.noise_varience=1", "Did you mean `data.noise_variance`?"),
        ("uplink=redrwn", "Did you mean `redrawn`?"),
    ],
)
def test_a_misspelt_setting_is_told_what_may_have_been_meant(wrong: str, meant: str) -> None:
    from psofed.scenario.changes import parse_setting, set_values
    from psofed.scenario.mapping import scenario_from_mapping

    base = {"num_clients": 50, "dimension": 5, "attack": {"num_byzantine": 5}}
    with pytest.raises(psofed.PsofedError, match=meant.replace("?", r"\?")):
        scenario_from_mapping(set_values(base, dict([parse_setting(wrong)])))


def test_a_misspelt_argument_is_told_what_may_have_been_meant() -> None:
    with pytest.raises(TypeError, match=r"Unknown argument of Scenario `stepsiz`. Did you mean `stepsize`\?"):
        psofed.Scenario(num_clients=5, dimension=3, stepsiz=0.1)
    with pytest.raises(TypeError, match=r"Did you mean `variance`\?"):
        psofed.attacks.Gaussian(num_byzantine=1, varince=2.0)
    with pytest.raises(TypeError, match=r"Did you mean `stepsize`\?"):
        psofed.Scenario(num_clients=5, dimension=3).replace(step_size=0.1)
    with pytest.raises(AttributeError, match=r"Did you mean `SignFlip`\?"):
        _ = psofed.attacks.SingFlip


def test_nothing_is_suggested_that_is_not_like_it() -> None:
    assert closest("colour", ["stepsize", "iterations"]) is None


def test_a_small_fleet_needs_no_number_of_participants() -> None:
    assert psofed.Scenario(num_clients=3, dimension=2).num_participants == 3
    assert psofed.Scenario(num_clients=30, dimension=2).num_participants == 5
    assert psofed.Scenario.from_mapping({"num_clients": 2, "dimension": 2}).num_participants == 2
    with pytest.raises(psofed.InvalidValueError, match=r"num_participants must be between 1 and 3 \(num_clients\)"):
        psofed.Scenario(num_clients=3, dimension=2, num_participants=5)


@pytest.mark.parametrize("function", ["simulate", "predict", "tune", "compare", "optimal_stepsize"])
def test_functions_take_the_path_of_a_scenario_or_say_what_they_take(folder, function: str) -> None:
    options = {"simulate": {"trials": 2}, "compare": {"trials": 2}, "tune": {"shared": [1]}}.get(function, {})
    assert getattr(psofed, function)("scenario.toml", **options) is not None
    with pytest.raises(psofed.PsofedError, match=r"a psofed\.Scenario, or the path of its TOML file"):
        getattr(psofed, function)(42, **options)


def test_a_sweep_takes_a_path_and_says_what_a_grid_is(folder) -> None:
    assert len(psofed.sweep("scenario.toml", {"num_shared": [1, 5]}, trials=2).cells) == 2
    with pytest.raises(psofed.PsofedError, match="a mapping of fields to values"):
        psofed.sweep("scenario.toml", [1, 2])
    with pytest.raises(psofed.PsofedError, match="no such file"):
        psofed.sweep("none.toml", {"num_shared": [1, 5]})


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "scenario.toml", "--trials", 4, "--out", "new/deep/result.nc"),
        pytest.param(("simulate", "scenario.toml", "--trials", 4, "--plot", "picture.png"), marks=pytest.mark.slow),
        pytest.param(("compare", "scenario.toml", "--trials", 4, "--plot", "picture.pdf"), marks=pytest.mark.slow),
        pytest.param(("sweep", "grid.toml", "--out", "sweep"), marks=pytest.mark.slow),
    ],
    ids=lambda arguments: arguments[0] + arguments[-1].rpartition(".")[2],
)
def test_a_full_disk_is_one_line_and_leaves_nothing_behind(folder, arguments) -> None:
    import matplotlib.font_manager  # noqa: F401 (writes its cache before the disk is full)

    before = sorted(folder.iterdir())
    # Not measured by `make coverage`, which has to write a file as well.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python 3.11 would keep what it could write of it
    done = run(*arguments, preexec_fn=nearly_full_disk, env=environment)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if "compiling" not in line]
    assert len(lines) == 1, done.stderr
    assert "cannot be written (File too large)" in lines[0]
    assert sorted(folder.iterdir()) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_output_that_cannot_be_written_is_one_line(folder) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [*PSOFED, "predict", "scenario.toml", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "psofed: output: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simulate", "scenario.toml", "--trials", 2, "--out", "/proc/none/result.nc"), "/proc/none/result.nc"),
        (("sweep", "grid.toml", "--out", "/proc/none"), "/proc/none/cells: cannot be written"),
        (("sweep", "grid.toml", "--out", "scenario.toml"), "scenario.toml: this is a file; the store needs a folder"),
    ],
)
def test_a_folder_that_cannot_be_written_is_one_line(folder, arguments, words: str, psofed_command) -> None:
    done = psofed_command(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert ("settles at" in done.stdout) == (arguments[0] == "simulate")  # what was computed is not lost


def test_an_interrupted_sweep_says_what_is_kept_and_goes_on(folder) -> None:
    stepsizes = [round(0.01 * k, 2) for k in range(1, 13)]
    (folder / "long.toml").write_text(LONG.format(stepsizes))
    command = [*PSOFED, "sweep", "long.toml", "--out", "out", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    cells = folder / "out" / "cells"
    deadline = time.monotonic() + 120

    def finished() -> list:
        return [path for path in cells.glob("*.cell") if not path.name.startswith(".")]

    while len(finished()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    kept = len(finished())
    assert process.returncode == 130, errors
    assert 2 <= kept < 12
    assert f"psofed: interrupted: {kept} of 12 points kept; run again to continue" in errors
    assert "Traceback" not in errors
    seen: list[float] = []
    grid = read_grid("long.toml")
    run_sweep(grid, store=CellStore(cells), progress=lambda done, _: seen.append(done))
    assert seen[0] == kept


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("steps", ["stepsize="]),
        ("attack.kind=sig", ["attack.kind=sign-flip"]),
        ("aggregation=med", ["aggregation=median"]),
        ("uplink=r", ["uplink=redrawn"]),
        ("attack.vari", ["attack.variance="]),
    ],
)
def test_settings_are_completed(typed: str, expected: list[str]) -> None:
    from psofed.cli.completion import complete_settings

    assert list(complete_settings(typed)) == expected


def test_the_shell_is_told_completions() -> None:
    environment = {
        **os.environ,
        "_PSOFED_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "psofed simulate s.toml --set steps",
    }
    command = [sys.executable, "-c", "from psofed.cli import app; app(prog_name='psofed')"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert "stepsize=" in done.stdout
    environment["_TYPER_COMPLETE_ARGS"] = "psofed reproduce fig"
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert "fig9" in done.stdout
