"""Scenarios that leave no part of the engine out, each run for few iterations."""

import dataclasses
from functools import cache

import numpy as np

from psofed import Data, Links, Scenario, Selection, Uniform, draw_fleet
from psofed.engine.run import Run
from psofed.engine.samples import TableSamples
from psofed.fleet import Fleet
from psofed.parts.aggregations import FLTrust
from psofed.parts.attacks import ColludingGaussian, DataPoisoning, Gaussian, Mimic, SignFlip
from psofed.parts.availabilities import Bernoulli, Markov
from psofed.parts.channels import Lossy, Noisy, Private, Quantised
from psofed.parts.defences import Cusum
from psofed.parts.delays import Geometric
from psofed.parts.drifts import RandomWalk
from psofed.parts.learners import RLS, LeakyLMS
from psofed.parts.models import Rff
from psofed.parts.streams import DelayLine
from psofed.parts.watching import WatchPlan

REDRAWN = {"num_byzantine": 3, "probability": 0.5, "byzantine_set": "redrawn"}
KINDS = {
    "as in the paper": {},
    "masks and uploaders of their own": {"uplink": "redrawn", "selection": Selection(coordinated=False)},
    "round robin": {"selection": Selection(pattern="round-robin", coordinated=False)},
    "correlated inputs": {"data": Data(input_correlation=0.6)},
    "a walk": {"drift": RandomWalk(variance=0.01)},
    "rls on a delay line": {"learner": RLS(), "data": Data(stream=DelayLine(pole=0.6))},
    "leaky steps of their own size": {"learner": LeakyLMS(leakage=0.2), "stepsize": Uniform(0.05, 0.2)},
    "normalised steps, wrong inputs": {"learner": "nlms", "attack": DataPoisoning(**REDRAWN)},
    "features of a delay line": {
        "model": Rff(),
        "learner": "sign-lms",
        "data": Data(function="sine", input_dimension=2, stream="delay-line"),
    },
    "features": {"model": Rff(), "data": Data(function="sine", input_dimension=2)},
    "a table": {},
    "targets of their own": {"data": Data(target_spread=0.3)},
    "wrong inputs": {"attack": DataPoisoning(**REDRAWN)},
    "colluding clients": {"attack": ColludingGaussian(**REDRAWN)},
    "one to copy": {"attack": Mimic(num_byzantine=3, warm_up=5)},
    "root data": {"aggregation": FLTrust(root_size=2)},
    "buckets": {"pre_aggregation": "bucketing", "aggregation": "median"},
    "a defence": {"defence": Cusum(threshold=4.0, return_after=2)},
    "sleepers": {
        "availability": Bernoulli(probability=Uniform(0.2, 0.9), learns="available"),
        "pre_aggregation": "bucketing",
    },
    "bad links": {
        "availability": Markov(probability=0.6, mean_time=4, server_knows=False),
        "channel": Links(
            up=(Private(clip=0.4, multiplier=0.1), Lossy(probability=0.2)),
            down=(Noisy(variance=0.01), Quantised(bits=6, reach=2.0)),
        ),
        "delay": Geometric(ratio=0.5, longest=2, weight=0.6, grouping="by-delay"),
        "attack": SignFlip(clients=(1, 4), probability=0.5),
    },
    "online-fed": {"algorithm": "online-fed", "stepsize": Uniform(0.05, 0.2), "data": Data(stream=DelayLine(pole=0.6))},
    "signsgd": {"algorithm": "signsgd"},
    "cs-fed": {"algorithm": "cs-fed"},
    "qs-fed": {"algorithm": "qs-fed"},
    "rosdhb": {"algorithm": "rosdhb"},
    "demoa": {"algorithm": "demoa", "attack": DataPoisoning(**REDRAWN)},
    # Last, and so not among those of `make test` that are compiled: no other test needs such a kernel.
    "two groups behind bad links": {
        "attack": (SignFlip(clients=(1, 4), probability=0.5), DataPoisoning(clients=(0,), probability=0.5)),
        "channel": Links(up=Lossy(probability=0.2)),
    },
}


PLAN = WatchPlan(4.0, np.ones((1, 7)))


def scenario_of(kind: str) -> Scenario:
    """A scenario of this kind, whose sizes all differ; test sets are small, and of both forms."""
    base = Scenario(
        num_clients=7, dimension=6, num_participants=5, num_shared=2, iterations=12,
        attack=Gaussian(num_byzantine=3, probability=0.5),
    )  # fmt: skip
    scenario = base.replace(**KINDS[kind])
    tests = 3 if len(kind) % 2 else 9
    return scenario.replace(data=dataclasses.replace(scenario.data, test_instances=tests))


@cache
def fleet_of(kind: str) -> Fleet:
    """The fleet of a scenario of this kind."""
    return draw_fleet(scenario_of(kind))


def start(kind: str, trials: range) -> Run:
    """A run of these trials, with seed 3."""
    scenario, fleet = scenario_of(kind), fleet_of(kind)
    plan = PLAN if scenario.defence else None
    if kind != "a table":
        return Run(scenario, fleet, 3, trials, plan=plan)
    rng, rows = np.random.default_rng(0), (4, 2, 9, 9, 9, 9, 9)
    samples = TableSamples([rng.normal(size=(n, 6)) for n in rows], [rng.normal(size=n) for n in rows], 2)
    run = Run(scenario, fleet, 3, trials, samples)
    run.watched_from = 6
    return run
