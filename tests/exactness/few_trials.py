"""Run a few trials of a scenario in the engine, without the rest of a simulation."""

from typing import Any

import numpy as np

from psofed import Scenario, draw_fleet
from psofed.engine.run import Run

TRIALS = 2


def advance(scenario: Scenario, seed: int, iterations: int, **more: Any) -> tuple[np.ndarray, Run]:
    """Return the metrics (iterations, 3, TRIALS) of a scenario, and the run."""
    found = np.empty((iterations, 3, TRIALS))
    run = Run(scenario, draw_fleet(scenario), seed, range(TRIALS), **more)
    run.advance(0, found)
    return found, run
