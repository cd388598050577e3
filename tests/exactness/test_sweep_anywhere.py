"""The same bits from threads, processes and a Dask cluster, and after a process was killed."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from psofed.common.equality import same_values
from psofed.data.own_data import from_arrays
from psofed.parts.attacks import Gaussian
from psofed.parts.availabilities import Bernoulli
from psofed.scenario import Scenario
from psofed.simulation import blocks
from psofed.simulation.monte_carlo import simulate
from psofed.studies.sweeps import Axis, Cell, CellStore, Grid, read_grid, run_cells, sweep

pytestmark = [pytest.mark.studies, pytest.mark.takes(18)]

SCENARIO = Scenario(num_clients=8, dimension=4, num_participants=3, iterations=100, attack=Gaussian(num_byzantine=3))
CELLS = Grid(
    SCENARIO, (Axis(("uplink",), (("same",), ("redrawn",))), Axis(("num_shared",), ((1,), (2,), (4,)))), trials=17
).cells()

LARGE = Scenario(
    num_clients=140_001, dimension=3, num_participants=40, num_shared=2, iterations=6,
    availability=Bernoulli(probability=0.9), attack=Gaussian(num_byzantine=50_000),
)  # fmt: skip


@pytest.fixture(scope="module")
def expected():
    return run_cells(CELLS, threads=1)


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    assert same_values(list(found), list(expected))


def test_any_number_of_threads_gives_the_same_bits(expected):
    assert_same_bits(run_cells(CELLS, threads=3), expected)


def test_worker_processes_give_the_same_bits(expected):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert_same_bits(run_cells(CELLS, executor=executor), expected)


@pytest.mark.slow
def test_a_dask_cluster_of_two_processes_gives_the_same_bits(expected, tmp_path, monkeypatch, psofed_command):
    """Of drawn streams, of your own data, whose rows travel once, and of one large fleet."""
    distributed = pytest.importorskip("distributed")
    from psofed.studies.sweeps.execute import connect

    rng = np.random.default_rng(0)
    rows = from_arrays(rng.standard_normal((90, 2)), rng.standard_normal(90), np.arange(90) % 3, warmup=5)
    own, sent, scatter = Scenario.from_data(rows, num_participants=3), [], distributed.Client.scatter
    monkeypatch.setattr(
        distributed.Client, "scatter", lambda *given, **named: sent.append(given[1]) or scatter(*given, **named)
    )
    monkeypatch.setattr(blocks, "_LARGE", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask's own making, at start and end
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="ERROR"
        ) as cluster:
            with connect(cluster.scheduler_address) as executor:
                found = run_cells(CELLS, executor=executor, store=CellStore(tmp_path))
                own_found = sweep(own, {"stepsize": [0.01, 0.02]}, trials=2, executor=executor)
                shared = simulate(LARGE, trials=2, executor=executor)
            (tmp_path / "large.toml").write_text(LARGE.to_toml())
            command = ("simulate", tmp_path / "large.toml", "--trials", 2, "--json", "--cluster")
            told = psofed_command(*command, cluster.scheduler_address)
            processes = {worker.process.pid for worker in cluster.workers.values()}
    assert len(processes | {os.getpid()}) == 3
    assert json.loads(told.stdout)["network_mse"]["mean"] == shared.network_mse.mean, told.stderr
    alone, together = simulate(LARGE, trials=2, threads=1), simulate(LARGE, trials=2, threads=2)
    for metric, values in shared.curve.items():
        assert values.tobytes() == alone.curve[metric].tobytes() == together.curve[metric].tobytes()
    assert_same_bits(found, expected)
    assert_same_bits([CellStore(tmp_path).load(cell) for cell in CELLS], expected)
    assert_same_bits(own_found.cells, sweep(own, {"stepsize": [0.01, 0.02]}, trials=2).cells)
    assert sent == [rows]


@pytest.mark.slow
def test_lanes_over_clients_add_up_as_lanes_over_trials_do():
    """Squared errors of more than one block of clients."""
    job = blocks.Job(LARGE, 1)
    found = [blocks.run_block(job, range(1), over_clients=over) for over in (True, False)]
    assert found[0].tail_halves.tobytes() == found[1].tail_halves.tobytes()


def test_a_killed_sweep_goes_on_where_it_was_and_ends_with_the_same_bits(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(
        "trials = 16\nseed = 5\n[base]\nnum_clients = 40\ndimension = 5\niterations = 8000\n"
        "[grid]\nstepsize = [0.01, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13, 0.15]\n"
    )
    cells = read_grid(grid).cells()
    folder = tmp_path / "out" / "cells"
    psofed = [sys.executable, "-c", "from psofed.cli import main; main()"]
    command = [*psofed, "sweep", str(grid), "--out", str(tmp_path / "out"), "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.cell"))) < 2:
        assert process.poll() is None, "the sweep ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.cell")}
    assert 2 <= len(kept) < len(cells)

    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "finished cells were computed again"
    found = [CellStore(folder).load(cell) for cell in cells]
    assert_same_bits(found, run_cells(cells))
    assert (tmp_path / "out" / "sweep.nc").exists()


def test_a_cell_computed_twice_in_one_process_gives_the_same_bits(expected):
    assert_same_bits(run_cells([Cell(cell.scenario, cell.trials, cell.seed, cell.tail) for cell in CELLS]), expected)
