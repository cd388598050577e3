"""Algorithms whose clients hold no model, written literally, to test their kernel against.

The loop is here; what one exchange does is the algorithm's own bodies, run as plain Python.
"""

from functools import partial
from typing import Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.draws import draw_participants
from psofed.engine.normals import fill_standard_normal
from psofed.engine.streams import Stream, make_stream
from psofed.fleet import draw_fleet
from psofed.parts.contexts import Message, Received
from psofed.parts.plain import LARGEST, combine_uploads, mix_uploads
from psofed.parts.traffic import Exchange, Momentum
from psofed.parts.watching import Watch, WatchPlan
from psofed.scenario import Scenario
from reference.draws import ReferenceRun, draw_mix_uniforms, draw_trial, draw_uniforms
from reference.network import LiteralGroups, LiteralNetwork


def run_server_model_reference(
    scenario: Scenario, seed: int, trial: int, plan: WatchPlan | None = None
) -> ReferenceRun:
    """Run one trial from a zero model, on the draws of the fast engine."""
    algorithm = scenario.algorithm
    exchange, traffic = algorithm.exchange(scenario), algorithm.traffic(scenario)
    if scenario.aggregation.has_root_data:
        raise NotCoveredError(f'the literal form has no root data for "{scenario.aggregation.kind}"')
    draws, fleet = draw_trial(scenario, seed, trial), draw_fleet(scenario)
    target, stepsizes = fleet.target, scenario.draw_stepsizes()
    participants = _ordered_participants(scenario, algorithm.most_participants(scenario), seed, trial)
    own = make_stream(seed, "algorithm", [trial])
    test_outputs = draws.test_inputs @ target + draws.test_noise
    models = np.zeros((scenario.iterations + 1, 1, scenario.dimension))
    server_msd, test_mse = np.empty(scenario.iterations), np.empty(scenario.iterations)
    errors = np.empty((scenario.iterations, scenario.num_clients))
    memory = np.zeros(exchange.memory)
    numbers = max(scenario.dimension, exchange.numbers)
    rule_memory = np.zeros(scenario.aggregation.memory_size(scenario.num_clients, numbers))
    own_momenta = np.zeros((scenario.num_clients, scenario.dimension))
    read = scenario.dimension if algorithm.defines("decode") and not exchange.decode_joined else exchange.numbers
    server_momenta = np.zeros((scenario.num_clients, read))
    watched = plan is not None and scenario.defence is not None
    watch = Watch(scenario.defence, plan, scenario.num_clients) if watched else None  # type: ignore[arg-type]
    # An attack's draws depend on how many numbers are sent, which are not always the model's entries.
    uploading = LiteralGroups(scenario, seed, trial, exchange.numbers)
    poisoning = LiteralGroups(scenario, seed, trial, scenario.dimension)
    network, availability = LiteralNetwork(scenario, seed, trial, exchange.numbers), scenario.availability
    for n in range(scenario.iterations):
        model = models[n, 0]
        errors[n] = (draws.inputs[n] @ (target - model) + draws.noise[n]) ** 2
        server_msd[n] = np.sum((model - target) ** 2)
        test_mse[n] = np.mean((test_outputs - draws.test_inputs @ model) ** 2)
        models[n + 1] = model
        count = traffic.exchanges_in(n)
        if not count and scenario.delay is None:
            continue
        asked = participants[n]
        if availability is not None and availability.server_knows:
            asked = network.draw_available(n, participants.shape[1], "participation")
        clients = np.sort(asked[:count])
        there = network.reached(n, clients)
        random = _own_draws(scenario, exchange, own, n, clients)
        updates, received = np.full((2, len(clients), scenario.dimension), np.nan)
        for p, k in enumerate(clients):
            if there[p]:
                received[p] = network.transmit("down", n, int(k), model, np.zeros(scenario.dimension))
            there[p] = there[p] and not np.isnan(received[p]).any()
            x = draws.inputs[n, k]
            x, y = poisoning.poison(n, int(k), x, float(target @ x + draws.noise[n, k]))
            updates[p] = stepsizes[k] * (y - x @ received[p]) * x
        if exchange.client_momentum is not None:
            own_momenta = _remember(exchange.client_momentum, own_momenta, clients, updates)
            updates = own_momenta[clients]
        sent = np.full((len(clients), exchange.numbers), np.nan)
        for p in np.flatnonzero(there).tolist():
            algorithm.encode(
                Message(
                    updates[p], float(stepsizes[clients[p]]), random["normals"], random["uniforms"], random["each"][p]
                ),
                sent[p],
            )
        base = model if exchange.sends_model else np.zeros(exchange.numbers)
        uploads = sent + (received if exchange.sends_model else 0.0)
        uploads[there] = uploading.corrupt(n, clients[there], uploads[there], base)
        for p, k in enumerate(clients):
            uploads[p] = network.transmit("up", n, int(k), uploads[p], base)
        arrivals = network.pass_time(n, clients, uploads, base)
        uploads, clients = arrivals.uploads, arrivals.clients
        if watch is not None:
            uploads[watch.judge(uploads, base, clients, n)] = np.nan
        if exchange.sends_model:
            uploads = network.weigh_by_delay(arrivals, model)
            uploads = mix_literally(scenario, seed, trial, n, clients, uploads, model)
            senders = clients if scenario.pre_aggregation is None else None
            models[n + 1] = combine_uploads(
                scenario.aggregation, uploads, model, None, rule_memory, senders, scenario.num_clients
            )
            continue

        receive = partial(
            Received, participants=count, stepsize=scenario.mean_stepsize, normals=random["normals"],
            uniforms=random["uniforms"],
        )  # fmt: skip
        if algorithm.defines("decode") and not exchange.decode_joined:
            rows = [_decode(scenario, receive(numbers)) for numbers in uploads]
            uploads = np.array(rows).reshape(len(clients), scenario.dimension)
        if exchange.server_momentum is not None:
            server_momenta = _remember(exchange.server_momentum, server_momenta, clients, uploads)
            clients, uploads = np.arange(scenario.num_clients), server_momenta
        zeros = np.zeros(uploads.shape[1])
        uploads = mix_literally(scenario, seed, trial, n, clients, uploads, zeros)
        senders = clients if scenario.pre_aggregation is None else None
        joined = combine_uploads(scenario.aggregation, uploads, zeros, None, rule_memory, senders, scenario.num_clients)
        if algorithm.defines("decode") and exchange.decode_joined:
            joined = _decode(scenario, receive(joined))
        change = np.empty(scenario.dimension)
        algorithm.apply(receive(joined), memory, change)
        models[n + 1] += change
    return ReferenceRun(models, errors.mean(axis=1), server_msd, test_mse, watch, uploading.mean_over_honest(errors))


def _remember(momentum: Momentum, memory: FloatArray, clients: Any, updates: FloatArray) -> FloatArray:
    """Return the memories (K, N) after an exchange in which ``clients`` gave ``updates`` (P, N)."""
    after = momentum.absent * memory
    for k, update in zip(clients, updates, strict=True):
        taken = momentum.keep * memory[k] + momentum.take * update
        after[k] = np.where(np.abs(update) <= LARGEST, taken, after[k])
    return after


def mix_literally(
    scenario: Scenario, seed: int, trial: int, n: int, clients: Any, uploads: FloatArray, server: FloatArray
) -> FloatArray:
    """Return the uploads that the rule receives in iteration n, mixed if the scenario has a pre-aggregation."""
    if scenario.pre_aggregation is None or not len(uploads):
        return uploads
    uniforms = draw_mix_uniforms(scenario, seed, trial, n, clients)
    return mix_uploads(scenario.pre_aggregation, uploads, server, uniforms=uniforms)


def _decode(scenario: Scenario, received: Received) -> FloatArray:
    out = np.empty(scenario.dimension)
    with np.errstate(invalid="ignore"):
        scenario.algorithm.decode(received, out)
    return out


def _ordered_participants(scenario: Scenario, most: int, seed: int, trial: int) -> Any:
    stream = make_stream(seed, "participation", [trial])
    return draw_participants(stream, 0, scenario.iterations, scenario.num_clients, most)[:, 0]


def _own_draws(scenario: Scenario, exchange: Exchange, stream: Stream, n: int, clients: Any) -> dict[str, FloatArray]:
    words = exchange.words_per_iteration(scenario.num_clients)
    pairs = (exchange.normals + 1) // 2
    shared = words * n if exchange.fresh else 0
    normals = np.empty((2 * pairs, 1), np.float32)
    fill_standard_normal(stream.key, stream.gamma, shared, normals)
    width = exchange.client_uniforms
    each = draw_uniforms(stream, words * n + pairs + exchange.uniforms, scenario.num_clients * width)
    return {
        "normals": normals[: exchange.normals, 0].astype(np.float64),
        "uniforms": draw_uniforms(stream, shared + pairs, exchange.uniforms),
        "each": each.reshape(scenario.num_clients, width)[clients],
    }
