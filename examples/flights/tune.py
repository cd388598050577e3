"""Recommended stepsizes against the best of a fine grid, on the flights: the table of docs/studies.md.

Run as `python examples/flights/tune.py 1,2,6`; some minutes for each number of shared entries.
"""

import sys
from pathlib import Path

import numpy as np

from psofed import Scenario, read_data, simulate, tune
from psofed.attacks import Gaussian

FEATURES = ("departure_delay", "air_time", "wind_speed", "visibility", "rain", "pressure")
STEPSIZES = np.geomspace(0.008, 0.12, 16)


def main(shared: list[int]) -> None:
    """Print one row for each number of shared entries."""
    table = Path(__file__).parent / "flights.csv"
    data = read_data(table, "destination", "arrival_delay", FEATURES)
    flights = Scenario.from_data(data, attack=Gaussian(num_byzantine=4))
    print("| M | tune says | predicted MSE | best of the grid | its MSE | ratio |")
    print("|---|---|---|---|---|---|")
    for count in shared:
        point = tune(flights, shared=[count]).points[0]
        errors = []
        for stepsize in STEPSIZES:
            run = flights.replace(num_shared=count, stepsize=float(stepsize))
            errors.append(simulate(run, trials=48, seed=1, tail=data.iterations).network_mse.mean)
        best = STEPSIZES[int(np.argmin(errors))]
        ratio = max(point.stepsize / best, best / point.stepsize)
        row = (count, point.stepsize, point.horizon_error, best, min(errors), ratio)
        print("| {} | {:.4f} | {:.3f} | {:.4f} | {:.3f} | {:.2f} |".format(*row), flush=True)


if __name__ == "__main__":
    main([int(part) for part in sys.argv[1].split(",")] if len(sys.argv) > 1 else [1, 2, 6])
