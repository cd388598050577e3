"""The commands sweep and reproduce, as one types them."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from psofed.common.errors import PsofedError
from psofed.studies.sweeps.execute import connect

pytestmark = [pytest.mark.cli, pytest.mark.studies, pytest.mark.takes(11)]

GRID = """
trials = 4
[base]
num_clients = 8
dimension = 4
num_participants = 3
iterations = 50
[base.attack]
num_byzantine = 2
[grid]
num_shared = [1, 4]
uplink = ["same", "redrawn"]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_a_sweep_prints_a_table_and_leaves_data_picture_and_cells(grid, tmp_path, psofed_command):
    out, plot = tmp_path / "out", tmp_path / "sweep.svg"
    done = psofed_command("sweep", grid, "--out", out, "--plot", plot)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Of 4 designs, num_shared = ")
    assert "2 values of num_shared × 2 values of uplink: 4 points, 4 trials each" in done.stdout
    rows = [line.replace("*", "").split() for line in lines if line.strip()[:1] in "14" and "−" in line]
    assert [row[:2] for row in rows] == [["1", "same"], ["1", "redrawn"], ["4", "same"], ["4", "redrawn"]]
    assert {path.name for path in out.iterdir()} == {"sweep.nc", "sweep.csv", "cells"}
    assert len(list((out / "cells").iterdir())) == 4
    assert plot.read_text().lstrip().startswith("<?xml")


def test_the_next_step_uses_the_points_that_are_kept(grid, tmp_path, psofed_command):
    done = psofed_command("sweep", str(grid), "--out", str(tmp_path / "out"), "--trials", "2")
    printed = done.stdout.replace(" \\\n   ", "")
    assert f"psofed sweep {grid} --trials 2 --out {tmp_path / 'out'} --plot sweep.png" in printed


def test_a_saved_sweep_is_drawn_as_asked(grid, tmp_path, psofed_command):
    out = tmp_path / "out"
    assert psofed_command("sweep", grid, "--out", out).returncode == 0
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    asked = ("--x", "num_shared", "--hue", "uplink", "--metric", "server_msd", "--only", "uplink=same")
    for done in (psofed_command("plot", out, first), psofed_command("plot", out / "sweep.nc", second, *asked)):
        assert done.returncode == 0, done.stderr
    assert first.read_bytes() != second.read_bytes()
    wrong = psofed_command("plot", out, tmp_path / "c.svg", "--x", "num_share")
    assert wrong.returncode == 2
    assert "Did you mean `num_shared`?" in wrong.stderr
    twice = psofed_command("plot", out, tmp_path / "c.svg", "--x", "num_shared", "--hue", "num_shared")
    assert "--hue must be a field that has no other role in the picture" in twice.stderr
    assert not (tmp_path / "c.svg").exists()


def test_a_sweep_tells_machines_in_json_and_the_options_beat_the_file(grid, psofed_command):
    done = psofed_command("sweep", grid, "--json", "--trials", 5, "--seed", 3, "--threads", 1)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["trials"], result["seed"]) == (5, 3)
    assert [axis["fields"] for axis in result["axes"]] == [["num_shared"], ["uplink"]]
    assert len(result["points"]) == 4
    assert {"mean", "standard_error", "interval_95", "mean_db"} <= result["points"][0]["network_mse"].keys()


def test_a_damaged_cell_is_said(grid, tmp_path, psofed_command):
    out = tmp_path / "out"
    psofed_command("sweep", grid, "--out", out)
    victim = next((out / "cells").iterdir())
    victim.write_bytes(victim.read_bytes()[:-1])
    done = psofed_command("sweep", grid, "--out", out)
    assert done.returncode == 0
    assert "1 damaged points were simulated again" in done.stderr


def test_a_cluster_that_does_not_answer_leaves_nothing_behind(grid, tmp_path, psofed_command):
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    (tmp_path / "scenario.toml").write_text("num_clients = 5\ndimension = 2\n")
    for command in (("sweep", grid), ("simulate", tmp_path / "scenario.toml")):
        done = psofed_command(*command, "--cluster", "nonsense://x")
        assert done.returncode == 2, done.stderr
        assert "--cluster nonsense://x" in done.stderr
        assert "Traceback" not in done.stderr
    assert dask.config.get("scheduler", None) is None
    with pytest.raises(ValueError, match="No global client"):
        distributed.get_client(timeout=0)


def test_a_cluster_is_asked_for_from_a_notebook_too():
    """A notebook runs an event loop in the thread of its cells."""
    pytest.importorskip("distributed")

    async def cell() -> None:
        with pytest.raises(PsofedError, match="no Dask scheduler answers"), connect("nonsense://x"):
            pass

    with ThreadPoolExecutor(1) as thread:  # that of the tests may run an event loop already, beside a browser
        thread.submit(lambda: asyncio.run(cell())).result()


def test_one_figure_is_reproduced_as_json_with_its_claims(tmp_path, psofed_command):
    done = psofed_command("reproduce", "fig3", "--trials", 4, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["figure"] == "fig3"
    assert {series["kind"] for series in result["series"]} == {
        "simulation",
        "paper-theory",
        "exact-theory",
        "published",
    }
    assert result["trials"] == 4
    assert result["claims"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "cells", "claims.json", "report.html", *(f"fig3.{kind}" for kind in ("svg", "png", "json", "nc", "csv")),
    }  # fmt: skip


def test_a_figure_with_other_settings_is_written_for_a_column_and_drawn_again(tmp_path, psofed_command):
    out = tmp_path / "out"
    given = ("fig3", "--trials", 2, "--out", out, "--set", "stepsize=0.1", "--pdf", "--width", "column", "--json")
    done = psofed_command("reproduce", *given)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["scenario"]["stepsize"] == 0.1
    assert result["caption"].endswith("Changed: stepsize = 0.1.")
    assert result["claims"] == []
    assert "published" not in {series["kind"] for series in result["series"]}
    assert b"MediaBox [ 0 0 252 " in (out / "fig3.pdf").read_bytes()
    drawn = psofed_command("plot", out / "fig3.nc", tmp_path / "again.pdf", "--width", "column")
    assert drawn.returncode == 0, drawn.stderr
    assert b"MediaBox [ 0 0 252 " in (tmp_path / "again.pdf").read_bytes()
