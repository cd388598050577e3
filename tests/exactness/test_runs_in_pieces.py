"""A run in pieces, and trials in another block, are the same bit for bit, whatever is simulated.

Most tests run fewer iterations than a chunk has, and fewer trials than a vector of lanes: all of theirs begin at 0.
"""

from typing import Any

import numpy as np
import pytest

from psofed import Data, Scenario, Selection, draw_fleet
from psofed.engine.lanes import WIDTH
from psofed.engine.pso_fed import PsoFedRun
from psofed.engine.samples import TableSamples
from psofed.parts.aggregations import FLTrust
from psofed.parts.attacks import ColludingGaussian, DataPoisoning, InnerProduct, Mimic
from psofed.parts.defences import Cusum
from psofed.parts.drifts import RandomWalk
from psofed.parts.models import Rff
from psofed.parts.watching import WatchPlan
from psofed.simulation.blocks import _start

REDRAWN = {"num_byzantine": 3, "probability": 0.5, "byzantine_set": "redrawn"}
KINDS = {
    "as in the paper": {},
    "masks and uploaders of their own": {"uplink": "redrawn", "selection": Selection(coordinated=False)},
    "round robin": {"selection": Selection(pattern="round-robin", coordinated=False)},
    "correlated inputs": {"data": Data(input_correlation=0.6)},
    "a walk": {"drift": RandomWalk(variance=0.01)},
    "features": {"model": Rff(), "data": Data(function="sine", input_dimension=2)},
    "a table": {},
    "targets of their own": {"data": Data(target_spread=0.3)},
    "wrong inputs": {"attack": DataPoisoning(**REDRAWN)},
    "colluding liars": {"attack": ColludingGaussian(**REDRAWN)},
    "one to copy": {"attack": Mimic(num_byzantine=3, warm_up=5)},
    "a strength that is searched": {
        "attack": InnerProduct(num_byzantine=3, search=2),
        "aggregation": "median",
    },
    "root data": {"aggregation": FLTrust(root_size=2)},
    "buckets": {"pre_aggregation": "bucketing", "aggregation": "median"},
    "a defence": {"defence": Cusum(threshold=4.0, return_after=2)},
    "online-fed": {"algorithm": "online-fed"},
    "signsgd": {"algorithm": "signsgd"},
    "cs-fed": {"algorithm": "cs-fed"},
    "qs-fed": {"algorithm": "qs-fed"},
    "rosdhb": {"algorithm": "rosdhb"},
    "demoa": {"algorithm": "demoa", "attack": DataPoisoning(**REDRAWN)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_pieces_and_in_another_block_is_the_same(small_scenario: Scenario, kind: str) -> None:
    scenario = small_scenario.replace(**KINDS[kind])
    plan = WatchPlan(4.0, np.ones((1, 7))) if scenario.defence else None

    def start(trials: range) -> Any:
        if kind != "a table":
            return _start(scenario, 3, trials, None, plan)
        rng, rows = np.random.default_rng(0), (4, 2, 9, 9, 9, 9, 9)
        samples = TableSamples([rng.normal(size=(n, 4)) for n in rows], [rng.normal(size=n) for n in rows], 2)
        run = PsoFedRun(scenario, draw_fleet(scenario), 3, trials, samples)
        run.watched_from = 6
        return run

    whole, pieces = np.empty((12, 3, 2 * WIDTH)), np.empty((12, 3, WIDTH))
    run = start(range(2 * WIDTH))
    run.advance(0, whole)
    again = start(range(WIDTH, 2 * WIDTH))
    for first, last in ((0, 4), (4, 5), (5, 12)):
        again.advance(first, pieces[first:last])
    assert np.array_equal(whole[:, :, WIDTH:], pieces)
    assert np.array_equal(run.server[:, WIDTH:], again.server)
    if kind == "a table":
        assert np.array_equal(run.client_squares[:, WIDTH:], again.client_squares)
        assert (again.client_squares > 0.0).all(axis=1).tolist() == [True, False, *[True] * 5]
    assert not np.array_equal(whole[:, :, :WIDTH], pieces)
