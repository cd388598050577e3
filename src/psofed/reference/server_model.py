"""Algorithms whose clients hold no model, written literally: slow, and what their kernel is tested against.

The loop is here; what one exchange does to the server's model is each algorithm's own ``reference_step``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.normals import fill_standard_normal
from psofed.engine.participation import draw_participants
from psofed.engine.streams import Stream, make_stream
from psofed.fleet import draw_fleet
from psofed.parts.algorithms._exchange import Exchange
from psofed.parts.registry import load_part
from psofed.reference.block_form import ReferenceRun
from psofed.reference.draws import draw_trial
from psofed.results.traffic import Traffic
from psofed.scenario import Scenario


def run_server_model_reference(
    scenario: Scenario,
    seed: int,
    trial: int,
    exchange: Exchange,
    traffic: Traffic,
    step: Callable[..., FloatArray],
) -> ReferenceRun:
    """Run one trial on the draws that the fast engine makes, from a model that is zero.

    Parameters
    ----------
    scenario, seed, trial
        What is run.
    exchange : Exchange
        How many numbers are sent, and how many random ones are needed.
    traffic : Traffic
        When exchanges happen.
    step : callable
        ``step(scenario, updates=…, perturbations=…, normals=…, uniforms=…, client_uniforms=…, memory=…)``
        returns w_{n+1} − w_n.
    """
    draws, target = draw_trial(scenario, seed, trial), draw_fleet(scenario).target
    participants = _ordered_participants(scenario, seed, trial)
    perturbations = _perturbations(scenario, seed, trial, exchange.numbers)
    own = make_stream(seed, "algorithm", [trial])
    outputs = draws.inputs @ target + draws.noise
    test_outputs = draws.test_inputs @ target + draws.test_noise
    models = np.zeros((scenario.iterations + 1, 1, scenario.dimension))
    network_mse, server_msd, test_mse = (np.empty(scenario.iterations) for _ in range(3))
    memory: dict[str, Any] = {}
    for n in range(scenario.iterations):
        model = models[n, 0]
        errors = outputs[n] - draws.inputs[n] @ model
        network_mse[n] = np.mean(errors**2)
        server_msd[n] = np.sum((model - target) ** 2)
        test_mse[n] = np.mean((test_outputs - draws.test_inputs @ model) ** 2)
        models[n + 1] = model
        clients = participants[n, : traffic.exchanges_in(n)]
        if clients.size:
            models[n + 1] += step(
                scenario,
                updates=scenario.stepsize * errors[clients, None] * draws.inputs[n, clients],
                perturbations=perturbations[n, clients],
                memory=memory,
                **_own_draws(scenario, exchange, own, n, clients),
            )
    return ReferenceRun(models, network_mse, server_msd, test_mse)


def _ordered_participants(scenario: Scenario, seed: int, trial: int) -> Any:
    stream = make_stream(seed, "participation", [trial])
    chosen = np.empty((scenario.iterations, scenario.num_participants, 1), np.int32)
    draw_participants(stream.key, stream.gamma, 0, scenario.num_clients, chosen)
    return chosen[:, :, 0]


def _perturbations(scenario: Scenario, seed: int, trial: int, numbers: int) -> FloatArray:
    if scenario.attack is None:
        return np.zeros((scenario.iterations, scenario.num_clients, numbers))
    stream = make_stream(seed, "attack", [trial])
    # The attack's draws depend on how many numbers are sent, here not the model's entries.
    sender = Scenario(
        num_clients=scenario.num_clients,
        dimension=numbers,
        num_participants=scenario.num_participants,
        iterations=scenario.iterations,
        attack=scenario.attack,
    )
    part = load_part("attacks", scenario.attack.kind)
    if not hasattr(part, "draw_perturbations"):
        raise NotCoveredError(
            f'the literal form knows attacks that add something; "{scenario.attack.kind}" does not'
        )
    perturbations: FloatArray = part.draw_perturbations(stream.key, stream.gamma, sender)
    return perturbations


def _own_draws(
    scenario: Scenario, exchange: Exchange, stream: Stream, n: int, clients: Any
) -> dict[str, FloatArray]:
    words = exchange.words_per_iteration(scenario.num_clients)
    pairs = (exchange.normals + 1) // 2
    shared = words * n if exchange.fresh else 0
    normals = np.empty((2 * pairs, 1), np.float32)
    fill_standard_normal(stream.key, stream.gamma, shared, normals)
    width = exchange.client_uniforms
    each = _uniforms(stream, words * n + pairs + exchange.uniforms, scenario.num_clients * width)
    return {
        "normals": normals[: exchange.normals, 0].astype(np.float64),
        "uniforms": _uniforms(stream, shared + pairs, exchange.uniforms),
        "client_uniforms": each.reshape(scenario.num_clients, width)[clients],
    }


def _uniforms(stream: Stream, first: int, count: int) -> FloatArray:
    return np.float64(2.0**-53) * (stream.words(first, count)[:, 0] >> np.uint64(11)).astype(np.float64)
