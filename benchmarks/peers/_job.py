"""The job that all peers do, as a file: psofed's own draws, so that differences between them are paired."""

import sys
from pathlib import Path

import numpy as np

from psofed import Scenario, draw_fleet
from psofed.parts.attacks import Gaussian

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from reference.draws import draw_trial

SEED, TRIALS, ITERATIONS, TAIL = 1, 8, 400, 250
TOLERATED = 1

# The paper's figure 1 with 10 of 100 clients lying.
SCENARIO = Scenario(
    num_clients=100, dimension=5, num_shared=1, num_participants=5, stepsize=0.15, iterations=ITERATIONS,
    attack=Gaussian(num_byzantine=10, probability=1.0, variance=0.25),
)  # fmt: skip


def write_job(path: Path) -> None:
    """Write streams, participants and lies of all trials."""
    target = draw_fleet(SCENARIO).target
    rows: dict[str, list[object]] = {name: [] for name in ("inputs", "outputs", "participants", "lies")}
    for trial in range(TRIALS):
        draws = draw_trial(SCENARIO, SEED, trial)
        rows["inputs"].append(draws.inputs)
        rows["outputs"].append(draws.inputs @ target + draws.noise)
        rows["participants"].append([np.flatnonzero(one) for one in draws.participants])
        lies = draws.shocks.normals * draws.shocks.attacking[..., None]
        rows["lies"].append(SCENARIO.attack.variance**0.5 * lies)  # type: ignore[union-attr]
    np.savez(
        path, target=target, stepsize=SCENARIO.stepsize, tail=TAIL, shared=SCENARIO.num_shared, tolerated=TOLERATED,
        **{name: np.array(values) for name, values in rows.items()},
    )  # fmt: skip
