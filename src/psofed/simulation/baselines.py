"""Baselines on the same samples without a federation: each client alone, all data pooled, no model.

All see the samples of the simulation in the same order, with the same stepsizes, and are judged by the error made
*before* learning from a sample:

alone
    Every client runs LMS on its own samples; nobody talks to anybody, so nobody can be poisoned.
pooled
    One LMS model that predicts every client's sample of an iteration and then learns from them one after another: what
    sending all data to one place would give.
least squares
    w° fitted to all samples at once and judged on them: the best that one linear model could do in hindsight.
average
    The forecast "as on average so far", ỹ = 0.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import finite_or_none
from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.fleet.measured import table_samples
from psofed.results import SimulationResult, estimate
from psofed.results.metrics import BASELINE_TITLES
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.engine.samples import Chunk, TableSamples

NAMES = tuple(BASELINE_TITLES)

_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Baselines:
    """Mean squared errors without a federation.

    Attributes
    ----------
    curves : dict of arrays (iterations,)
        Mean over the clients that have a sample.
    client_mse : dict of arrays (K,)
        Over the tail; NaN for a client without a sample in it.
    tail : int
        Iterations at the end that the clients' MSE, and :meth:`network_mse`, are taken over.
    """

    curves: dict[str, FloatArray]
    client_mse: dict[str, FloatArray]
    tail: int

    def network_mse(self, name: str) -> float:
        """Return the MSE over the tail, as the simulation's ``network_mse``."""
        return float(self.curves[name][-self.tail :].mean())


def run_baselines(scenario: Scenario, tail: int) -> Baselines:
    """Run all baselines on the samples of a scenario with your own data."""
    data = scenario.own_data
    assert data is not None
    (fleet, samples), clients, iterations = table_samples(scenario), scenario.num_clients, scenario.iterations
    squares = np.empty((len(NAMES), iterations, clients))  # 0 where a client has no sample
    squares[:2] = lms_errors(samples, fleet.target, scenario.draw_stepsizes(), clients, iterations)
    for first, chunk in _chunks(samples, iterations):
        inputs, residuals = chunk.inputs[..., 0], chunk.residuals[..., 0]
        part = squares[:, first : first + len(inputs)]
        part[2], part[3] = residuals**2, (residuals + inputs @ fleet.target) ** 2
    active = np.stack([data.samples_from(n) > 0 for n in range(iterations)])
    counts = active[-tail:].sum(axis=0)
    curves, client_mse = {}, {}
    for name, errors in zip(NAMES, squares, strict=True):
        curves[name] = errors.sum(axis=1) / np.maximum(active.sum(axis=1), 1)
        client_mse[name] = np.where(counts > 0, errors[-tail:].sum(axis=0) / np.maximum(counts, 1), np.nan)
    return Baselines(curves, client_mse, tail)


def describe_result(result: SimulationResult, client_mse: FloatArray) -> dict[str, Any]:
    """Return the data's description, the baselines and every client's MSE (trials, K), as plain values."""
    data = result.scenario.own_data
    assert data is not None
    baselines = run_baselines(result.scenario, result.tail)
    clients = []
    byzantine = result.fleet.byzantine_mask(result.scenario.attack)
    for k, name in enumerate(data.table.clients):
        value = estimate(client_mse[:, k])
        errors = {"mse": value.mean, "mse_standard_error": value.standard_error}
        errors |= {f"{other}_mse": float(baselines.client_mse[other][k]) for other in NAMES}
        numbers = {key: finite_or_none(number) for key, number in errors.items()}
        clients.append({"name": name, "samples": data.samples[k], "is_byzantine": bool(byzantine[k]), **numbers})
    return {
        **data.describe(),
        "trials_differ_in": ["participants", "masks", "attack"],
        "safe_stepsize": finite_or_none(_safe_stepsize(result.scenario)),
        "baselines": {name: baselines.network_mse(name) for name in NAMES},
        "clients": clients,
    }


def _safe_stepsize(scenario: Scenario) -> float:
    """Return the largest stepsize at which no row makes a client overshoot its target: μ ‖x‖² ≤ 1."""
    (_, samples), iterations = table_samples(scenario), scenario.iterations
    largest = max(float((chunk.inputs**2).sum(axis=2).max()) for _, chunk in _chunks(samples, iterations))
    return 1 / largest if largest > 0 else math.inf


def lms_errors(
    samples: "TableSamples", target: FloatArray, stepsize: FloatArray | float, clients: int, iterations: int
) -> tuple[FloatArray, FloatArray]:
    """Squared errors of each client alone and of the pooled model, (iterations, K) each; 0 without a sample."""
    out, stepsizes = np.zeros((2, iterations, clients)), np.broadcast_to(stepsize, clients).astype(np.float64)
    # Errors w° − w of models that start from zero, as in the simulation's kernel.
    alone, pooled = np.tile(target, (clients, 1)), target.copy()
    for first, chunk in _chunks(samples, iterations):
        _run_lms(
            chunk.inputs[..., 0], chunk.residuals[..., 0], stepsizes, alone, pooled, out[:, first : first + _CHUNK]
        )
    return out[0], out[1]


def _chunks(samples: "TableSamples", iterations: int) -> "Iterator[tuple[int, Chunk]]":
    """Yield samples of all iterations, with the number of the first one."""
    for first in range(0, iterations, _CHUNK):
        yield first, samples.chunk(first, min(_CHUNK, iterations - first))


@compiled
def _run_lms(
    inputs: FloatArray, residuals: FloatArray, stepsizes: FloatArray, alone: FloatArray, pooled: FloatArray, out: Any
) -> None:
    """Write squared errors, alone and pooled, into ``out`` (2, T, K)."""
    for n in range(inputs.shape[0]):
        for k in range(inputs.shape[1]):
            out[0, n, k] = _error(inputs[n, k], residuals[n, k], alone[k]) ** 2
            out[1, n, k] = _error(inputs[n, k], residuals[n, k], pooled) ** 2
            _step(inputs[n, k], residuals[n, k], stepsizes[k], alone[k])
        for k in range(inputs.shape[1]):  # only now: targets of one moment may have a common cause
            _step(inputs[n, k], residuals[n, k], stepsizes[k], pooled)


@kernel_part
def _error(x: FloatArray, residual: float, model: FloatArray) -> float:
    """Return the prediction error of a model, which is held as an error too."""
    error = residual
    for i in range(x.size):
        error += x[i] * model[i]
    return error


@kernel_part
def _step(x: FloatArray, residual: float, stepsize: float, model: FloatArray) -> None:
    """Let a model learn from a sample."""
    error = _error(x, residual, model)
    for i in range(x.size):
        model[i] -= stepsize * error * x[i]
