"""The algorithms of the paper's figure 1 and other readings of them: the tables of docs/algorithms.md.

Run as `python examples/algorithms.py`; `python examples/algorithms.py 8` takes eight trials instead of 192. It prints
the test MSE at the server in dB for 0, 5, 10, 15 and 20 Byzantine clients.
"""

import sys

import psofed
from psofed.algorithms import CSFed, OnlineFed, PsoFed, QSFed, SignSGD
from psofed.parts import Algorithm

READINGS: list[Algorithm] = [
    PsoFed(),
    CSFed(),
    QSFed(),
    OnlineFed(),
    SignSGD(),
    OnlineFed(budget="fewer-participants"),
    SignSGD(signs="deterministic"),
    SignSGD(signs="deterministic", vote="mean"),
    SignSGD(vote="mean"),
    SignSGD(bound=2.0),
    CSFed(measurements=8),
    CSFed(measurements=32),
    CSFed(magnitude=False),
    QSFed(columns=5),
    QSFed(rows=3),
    QSFed(rows=1, columns=5),
]


def main(trials: int) -> None:
    """Print a row for every reading."""
    for algorithm in READINGS:
        levels = []
        for byzantine in (0, 5, 10, 15, 20):
            attack = psofed.attacks.Gaussian(num_byzantine=byzantine, probability=1.0, variance=0.25)
            scenario = psofed.Scenario(
                num_clients=100,
                dimension=5,
                algorithm=algorithm,
                stepsize=0.08 if algorithm.kind == "signsgd" else 0.15,
                attack=attack,
            )
            levels.append(psofed.simulate(scenario, trials=trials, seed=1).test_mse.decibels)
        print(algorithm, *(f"{level:7.2f}" for level in levels), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 192)
