"""What every peer's script needs: the job, what counts as its result, and a clock.

Scripts run in the peer's own environment, in which there is no psofed: NumPy is all they share.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LARGE = 1_000_000  # D of the exchanges whose bytes are counted, float32, as a matrix of 1000 × 1000
SHARES = (0.01, 0.1, 0.5)


@dataclass(frozen=True, eq=False)
class Job:
    """Streams of K clients, who takes part when, and what liars add to their uploads: T trials of N iterations."""

    inputs: Any  # (T, N, K, D)
    outputs: Any  # (T, N, K)
    participants: Any  # (T, N, P), numbers of clients
    lies: Any  # (T, N, K, D), zero for honest clients
    target: Any  # (D,)
    stepsize: float
    tail: int  # iterations at the end that count
    shared: int  # M
    tolerated: int  # liars among the participants that a robust rule is told to expect

    @property
    def trials(self) -> Iterator[int]:
        return iter(range(len(self.inputs)))

    @property
    def num_clients(self) -> int:
        return int(self.inputs.shape[2])

    def steady_msd(self, models: Any) -> float:
        """Return ‖w_n − w‖² over the tail, from the server's models (N, D) of one trial."""
        return float(np.sum((np.asarray(models)[-self.tail :] - self.target) ** 2, axis=1).mean())


def read_job() -> Job:
    """Read the file named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", type=Path)
    with np.load(parser.parse_args().job) as file:
        scalars = {name: file[name].item() for name in ("stepsize", "tail", "shared", "tolerated")}
        arrays = {name: file[name] for name in ("inputs", "outputs", "participants", "lies", "target")}
    return Job(**arrays, **scalars)


def lms_step(model: Any, x: Any, y: float, stepsize: float) -> Any:
    """Return the model after one LMS step."""
    return model + stepsize * (y - model @ x) * x


def run_shared_model(job: Job, join: Callable[[Any], Any], seconds: list[float]) -> list[float]:
    """Let participants take one step from the server's model and send all of it; `join` makes the next of (P, D).

    Returns each trial's MSD; appends processor seconds and client updates to `seconds`.
    """
    found = []
    started = time.process_time()
    for t in job.trials:
        model, models = np.zeros(len(job.target)), []
        for n, chosen in enumerate(job.participants[t]):
            models.append(model)
            sent = [
                lms_step(model, job.inputs[t, n, k], job.outputs[t, n, k], job.stepsize) + job.lies[t, n, k]
                for k in chosen
            ]
            model = np.asarray(join(np.array(sent)))
        found.append(job.steady_msd(models))
    seconds.append(time.process_time() - started)
    return found


def rate_of_shared_model(job: Job, seconds: float) -> float:
    """Return client updates per processor second of :func:`run_shared_model`."""
    return float(job.participants.size / seconds)


def report(packages: list[str], **results: Any) -> None:
    """Print the results as JSON, with the packages' versions."""
    print(json.dumps({"versions": {name: version(name) for name in packages}, **results}))
