"""The local steps of PSO-Fed's kernel: on the paper's white samples, or on any kind of sample."""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.attack_steps import poison_samples, poisons_samples, redraw_byzantine
from psofed.engine.compiling import kernel_part
from psofed.engine.frames.learner import step_client
from psofed.engine.frames.stream import draw_input
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH, fma, load, pick_if_equal, spread, store, to_float64
from psofed.engine.lms import add_inner_product, add_squares, fill_row, scale_row, set_product
from psofed.engine.network import NetworkSide
from psofed.engine.normals import next_normals
from psofed.engine.over_clients import SUM_BLOCK
from psofed.engine.pso_fed_state import Extras, ModelState, Scratch
from psofed.engine.samples import has_sample, take_sample
from psofed.engine.server_side import AttackSide, GroupSide
from psofed.engine.streams import Stream, WordArray


@kernel_part
def learn_plainly(
    gamma: WordArray,
    inputs: InputModel,
    stepsizes: FloatArray,
    learns: NDArray[np.uint8] | None,
    scratch: Scratch,
    clients: FloatArray,
    metrics: FloatArray,
    t: int,
) -> None:
    """Let every client make its step on a white sample x = ς_k z, and write the network MSE.

    The same as :func:`learn_in_general`, bit for bit up to SUM_BLOCK clients, but x is never stored.
    """
    num_clients, dimension, lanes = clients.shape
    counter, hashed, normals = scratch.counter, scratch.hashed, scratch.normals
    scale, deviation = inputs.scale, inputs.noise_deviation
    for lane in range(0, lanes, WIDTH):
        total = spread(0.0)
        for block in range(0, num_clients, SUM_BLOCK):
            squares = spread(0.0)
            for k in range(block, min(block + SUM_BLOCK, num_clients)):
                next_normals(lane, counter, gamma, hashed, normals)
                first = k * dimension * lanes + lane
                product = spread(0.0)
                for i in range(dimension):
                    x = scale[k] * to_float64(load(normals, i * lanes + lane))
                    product = fma(x, load(clients, first + i * lanes), product)
                error = product + deviation[k] * to_float64(load(normals, dimension * lanes + lane))
                squares = fma(error, error, squares)
                step = -stepsizes[k] * error
                if learns is not None:
                    does = load(learns, (t * num_clients + k) * lanes + lane)
                    step = pick_if_equal(does, spread(np.uint8(1)), step, spread(0.0))
                for i in range(dimension):
                    x = scale[k] * to_float64(load(normals, i * lanes + lane))
                    store(clients, first + i * lanes, fma(x, step, load(clients, first + i * lanes)))
            total = total + squares
        store(metrics, 3 * t * lanes + lane, (1.0 / num_clients) * total)


@kernel_part
def learn_in_general(
    first: int,
    t: int,
    data: Stream,
    inputs: InputModel,
    attack: AttackSide,
    groups: GroupSide | None,
    target: FloatArray,
    extras: Extras,
    network: NetworkSide | None,
    scratch: Scratch,
    state: ModelState,
    metrics: FloatArray,
) -> None:
    """Let every client make its step on any kind of sample, and write the network MSE."""
    clients, client_squares = state.clients, state.client_squares
    num_clients, dimension, lanes = clients.shape
    counter, hashed, normals = scratch.counter, scratch.hashed, scratch.normals
    sample, error, clean = scratch.sample, scratch.error, scratch.clean
    poisons = poisons_samples(attack, groups)
    if attack.on_samples:
        redraw_byzantine(attack, t)
    fill_row(metrics, 3 * t, lanes, 0.0)
    for k in range(num_clients):
        if extras.has_samples:
            take_sample(extras.inputs[t, k], extras.residuals[t, k], sample, error)
        else:
            for lane in range(0, lanes, WIDTH):
                next_normals(lane, counter, data.gamma, hashed, normals)
            draw_input(extras.stream, inputs, first + t, k, normals, sample)
            set_product(error, inputs.noise_deviation[k], normals, dimension)
        if extras.moves.size:
            add_inner_product(error, sample, extras.moves, t * dimension, dimension)
        if extras.offsets.size:
            add_inner_product(error, sample, extras.offsets, k * dimension, dimension)
        # Metrics are of the clean sample, the step of the poisoned one.
        set_product(clean, 1.0, error, 0)
        add_inner_product(clean, sample, clients, k * dimension, dimension)
        add_squares(metrics, 3 * t, clean, 0, 1)
        if extras.has_samples and t >= extras.watched_from:
            add_squares(client_squares, k, clean, 0, 1)
        if extras.has_samples and not has_sample(extras.inputs[t, k]):
            continue
        if network is not None and network.learns.size:
            _copy_absent(network.learns[t, k], clients[k], network.held)
            _copy_absent_rows(network.learns[t, k], extras.learning.memory[k], network.held_memory)
        if poisons:
            poison_samples(first + t, k, attack, groups, target, sample, error)
            add_inner_product(error, sample, clients, k * dimension, dimension)
            step_client(extras.learning, first + t, k, target, sample, error, clients)
        else:
            step_client(extras.learning, first + t, k, target, sample, clean, clients)
        if network is not None and network.learns.size:
            _copy_absent(network.learns[t, k], network.held, clients[k])
            _copy_absent_rows(network.learns[t, k], network.held_memory, extras.learning.memory[k])
    scale_row(metrics, 3 * t, lanes, 1.0 / num_clients)


@kernel_part
def _copy_absent(learns: NDArray[np.uint8], numbers: FloatArray, out: FloatArray) -> None:
    """Copy the columns (D, lanes) of trials in which a client does not learn."""
    for i in range(out.shape[0]):
        for lane in range(out.shape[1]):
            if not learns[lane]:
                out[i, lane] = numbers[i, lane]


@kernel_part
def _copy_absent_rows(learns: NDArray[np.uint8], numbers: FloatArray, out: FloatArray) -> None:
    """Copy the rows (lanes, any) of trials in which a client does not learn."""
    for lane in range(out.shape[0]):
        if not learns[lane]:
            for i in range(out.shape[1]):
                out[lane, i] = numbers[lane, i]
