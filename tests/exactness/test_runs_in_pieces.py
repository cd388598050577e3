"""A run in pieces, and trials in another block, are the same bit for bit, whatever is simulated.

Most tests run fewer iterations than a chunk has, and fewer trials than a vector of lanes: all of theirs begin at 0.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psofed import Scenario, Selection
from psofed.engine import run as engine_run
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run
from psofed.fleet import draw_fleet
from psofed.parts.attacks import Gaussian
from psofed.parts.availabilities import Bernoulli
from psofed.parts.channels import Lossy, Noisy, Quantised
from psofed.parts.delays import Geometric
from psofed.scenario.tables import Links
from psofed.simulation.blocks import runs_over_clients

sys.path.insert(0, str(Path(__file__).parent))
from every_kind import KINDS, start

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_pieces_and_in_another_block_is_the_same(kind: str) -> None:
    whole, pieces = np.empty((12, 3, 5)), np.empty((12, 3, 2))
    run, again = start(kind, range(3, 8)), start(kind, range(6, 8))
    run.advance(0, whole)
    for first, last in ((0, 4), (4, 5), (5, 12)):
        again.advance(first, pieces[first:last])
    assert np.array_equal(whole[:, :, 3:], pieces)
    assert np.array_equal(run.server[3:], again.server)
    assert not np.array_equal(whole[:, :, :2], pieces)
    if kind == "a table":
        assert np.array_equal(run.client_squares[:, 3:], again.client_squares)
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
        Run(scenario, fleet, 5, range(3, 3 + width)),
        Run(scenario, fleet, 5, range(3, 4), over_clients=True),
        Run(scenario, fleet, 5, range(3, 4), over_clients=True, threads=2),
    ]
    metrics = [np.empty((iterations, 3, len(run.server))) for run in runs]
    for run, out in zip(runs, metrics, strict=True):
        run.advance(0, out[:3])
        run.advance(3, out[3:])
    for run, out in zip(runs[1:], metrics[1:], strict=True):
        assert np.array_equal(out[:, :, 0], metrics[0][:, :, 0])
        assert np.array_equal(run.clients[:, :, 0], runs[0].clients[:, :, 0])


@pytest.mark.parametrize("changes", [{}, NETWORK], ids=["plain", "network"])
def test_lanes_over_clients_give_the_bits_of_lanes_over_trials(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_run, "_CLIENTS_PER_THREAD", 2 * WIDTH)
    compare_lanes(FLEET.replace(**changes), WIDTH, 20)


def test_few_trials_of_a_large_fleet_have_their_lanes_over_clients() -> None:
    large = Scenario(num_clients=100_000, dimension=5, iterations=1000)
    assert runs_over_clients(large, 8)
    assert not runs_over_clients(large, 9)
    assert not runs_over_clients(large.replace(iterations=100), 1)
    assert not runs_over_clients(large.replace(learner="nlms"), 1)
