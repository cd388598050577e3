"""A run in pieces, and trials in another block, are the same bit for bit, whatever is simulated.

Most tests run fewer iterations than a chunk has, and fewer trials than a vector of lanes: all of theirs begin at 0.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psofed import Scenario, Selection
from psofed.engine import over_clients
from psofed.engine.lanes import WIDTH
from psofed.engine.pso_fed import PsoFedRun
from psofed.fleet import draw_fleet
from psofed.parts.attacks import Gaussian
from psofed.parts.availabilities import Bernoulli
from psofed.parts.channels import Lossy, Noisy, Quantised
from psofed.parts.delays import Geometric
from psofed.scenario.tables import Links
from psofed.simulation.blocks import runs_over_clients

sys.path.insert(0, str(Path(__file__).parent))
import plain_engine
from every_kind import KINDS, start
from plain_engine import run_as_python

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_pieces_and_in_another_block_is_the_same(kind: str) -> None:
    whole, pieces = np.empty((12, 3, 2 * WIDTH)), np.empty((12, 3, WIDTH))
    run, again = start(kind, range(2 * WIDTH)), start(kind, range(WIDTH, 2 * WIDTH))
    run.advance(0, whole)
    for first, last in ((0, 4), (4, 5), (5, 12)):
        again.advance(first, pieces[first:last])
    assert np.array_equal(whole[:, :, WIDTH:], pieces)
    assert np.array_equal(run.server[:, WIDTH:], again.server)
    assert not np.array_equal(whole[:, :, :WIDTH], pieces)
    if kind == "a table":
        assert np.array_equal(run.client_squares[:, WIDTH:], again.client_squares)
        assert (again.client_squares > 0.0).all(axis=1).tolist() == [True, False, *[True] * 5]


# K is not a multiple of a vector's lanes, and threads get unequal parts.
FLEET = Scenario(
    num_clients=4 * WIDTH + 5,
    dimension=5,
    num_shared=2,
    num_participants=7,
    uplink="redrawn",
    attack=Gaussian(num_byzantine=20),
    selection=Selection(coordinated=False),
    stepsize=[0.05 + 0.001 * k for k in range(4 * WIDTH + 5)],
)
NETWORK = {
    "num_participants": 30,  # more than are drawn by comparing each with all others
    "availability": Bernoulli(probability=0.4, learns="available"),
    "channel": Links(up=[Noisy(variance=0.01), Lossy(probability=0.2)], down=Quantised(bits=6, reach=3.0)),
    "delay": Geometric(ratio=0.5, longest=2),
    "aggregation": "median",
}


def compare_lanes(scenario: Scenario, width: int, iterations: int) -> None:
    """Compare `width` trials in lock step with the first of them, its clients in lanes, on one thread and on two."""
    fleet = draw_fleet(scenario)
    runs = [
        PsoFedRun(scenario, fleet, 5, range(3, 3 + width)),
        PsoFedRun(scenario, fleet, 5, range(3, 4)),
        PsoFedRun(scenario, fleet, 5, range(3, 4), threads=2),
    ]
    metrics = [np.empty((iterations, 3, run.server.shape[1])) for run in runs]
    for run, out in zip(runs, metrics, strict=True):
        run.advance(0, out[:3])
        run.advance(3, out[3:])
    for run, out in zip(runs[1:], metrics[1:], strict=True):
        assert np.array_equal(out[:, :, 0], metrics[0][:, :, 0])
        assert np.array_equal(run.clients[:, :, 0], runs[0].clients[:, :, 0])


@pytest.mark.parametrize(
    "changes", [{}, pytest.param(NETWORK, marks=pytest.mark.slow)], ids=["plain", "network"]
)
def test_lanes_over_clients_give_the_bits_of_lanes_over_trials(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_clients, "_CLIENTS_PER_THREAD", 2 * WIDTH)
    compare_lanes(FLEET.replace(**changes), WIDTH, 20)


@pytest.mark.filterwarnings("ignore:overflow")  # of counters, also on the other thread
def test_lanes_over_clients_of_a_network_give_the_bits_of_lanes_over_trials_as_plain_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As plain Python, since its kernels take long to compile."""
    run_as_python(monkeypatch)
    monkeypatch.setattr(over_clients, "_CLIENTS_PER_THREAD", 2 * WIDTH)
    with np.errstate(all="ignore"):
        compare_lanes(FLEET.replace(**NETWORK), plain_engine.WIDTH, 6)


def test_few_trials_of_a_large_fleet_have_their_lanes_over_clients() -> None:
    large = Scenario(num_clients=100_000, dimension=5, iterations=1000)
    assert runs_over_clients(large, 8)
    assert not runs_over_clients(large, 9)
    assert not runs_over_clients(large.replace(iterations=100), 1)
    assert not runs_over_clients(large.replace(learner="nlms"), 1)
