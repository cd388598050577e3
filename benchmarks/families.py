"""Time of every learner, stream, availability, channel and delay over that of the paper's plain case."""

import time
from typing import Any

from benchmarks._timing import markdown_table
from psofed import Data, Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.parts.availabilities import Bernoulli, Markov, Schedule
from psofed.parts.channels import Lossy, Noisy, Private, Quantised
from psofed.parts.delays import Fixed, Geometric
from psofed.parts.learners import NLMS, RLS, LeakyLMS, SignLMS
from psofed.parts.streams import DelayLine
from psofed.scenario.tables import Links

PLAIN = Scenario(
    num_clients=50, dimension=5, num_shared=1, num_participants=5, iterations=4000, attack=Gaussian(num_byzantine=15)
)  # fmt: skip
TRIALS, ROUNDS = 16, 15

# What each row changes.
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "learner nlms": {"learner": NLMS()},
    "learner leaky-lms": {"learner": LeakyLMS(leakage=0.01)},
    "learner sign-lms": {"learner": SignLMS()},
    "learner rls": {"learner": RLS()},
    "stream delay-line": {"data": Data(stream=DelayLine(pole=0.5))},
    "inputs correlated": {"data": Data(input_correlation=0.5)},
    "availability bernoulli": {"availability": Bernoulli(probability=0.5)},
    "availability bernoulli, server does not know": {"availability": Bernoulli(probability=0.5, server_knows=False)},
    "availability bernoulli, learns when available": {"availability": Bernoulli(probability=0.5, learns="available")},
    "availability markov": {"availability": Markov(probability=0.5, mean_time=10)},
    "availability schedule": {"availability": Schedule(period=24, share=0.5)},
    "channel lossy": {"channel": Links(up=Lossy(probability=0.1))},
    "channel noisy": {"channel": Links(up=Noisy(variance=0.01))},
    "channel noisy, both ways": {"channel": Links(up=Noisy(variance=0.01), down=Noisy(variance=0.01))},
    "channel quantised": {"channel": Links(up=Quantised(bits=8, reach=4.0))},
    "channel private": {"channel": Links(up=Private(clip=1.0))},
    "delay fixed": {"delay": Fixed(iterations=3)},
    "delay geometric": {"delay": Geometric(ratio=0.5, longest=10)},
}


def run() -> str:
    """Return a table of CPU time, each case interleaved with the plain one."""
    scenarios = {name: PLAIN.replace(**changes) for name, changes in CASES.items()}
    best = dict.fromkeys(scenarios, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, scenario in scenarios.items():
            start = time.process_time()
            simulate(scenario, TRIALS, threads=1)
            if turn:
                best[name] = min(best[name], time.process_time() - start)
    updates = PLAIN.num_clients * PLAIN.iterations * TRIALS
    rows = [
        [name, f"{1e9 * seconds / updates:.1f}", f"{seconds / best['plain']:.2f}"] for name, seconds in best.items()
    ]
    return markdown_table(["", "ns per client update", "plain = 1"], rows)
