"""Algorithms whose clients hold no model: how participants form and encode updates, and what the server does with them.

Only the server has a model w_n. Every client's data are drawn in every iteration, exactly as for PSO-Fed, since the
network MSE is the mean over all clients of (y_k − w_nᵀx_k)². Between exchanges w_n stands still.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Method, options_of
from psofed.engine.lanes import fma
from psofed.engine.learning import Sampling
from psofed.engine.network import weigh_by_delay
from psofed.engine.normals import normals_at, uniform_at
from psofed.engine.server import mix_and_aggregate
from psofed.engine.state import Setup, Uploads, copy_array
from psofed.engine.tables import KernelTable, TableData, call
from psofed.parts.contexts import Message, Received
from psofed.parts.plain import LARGEST, MOST_MEMORY
from psofed.parts.traffic import Exchange, Momentum
from psofed.parts.vectors import scale

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock


class Momenta(TableData):
    """Momentum of each client, held by the clients or the server (:class:`psofed.parts.traffic.Momentum`).

    Attributes
    ----------
    keep, take, absent : float
        As in :class:`~psofed.parts.traffic.Momentum`.
    values : array (L, K, N), or empty
        What is remembered.
    place : int array (K,)
        Scratch to work in: −1 everywhere.
    """

    def __init__(self, momentum: Momentum | None, trials: int, clients: int, numbers: int) -> None:
        if momentum is not None and clients * numbers > MOST_MEMORY:
            raise NotCoveredError(
                f"an algorithm with one momentum per client needs {clients * numbers:,} values of memory for "
                f"{clients} clients and {numbers} entries; the limit is {MOST_MEMORY:,}"
            )
        factors = (0.0, 0.0, 0.0) if momentum is None else (momentum.keep, momentum.take, momentum.absent)
        self.keep, self.take, self.absent = map(float, factors)
        self.values = np.zeros((0, 0, 0) if momentum is None else (trials, clients, numbers))
        self.place = np.full(0 if momentum is None else clients, -1)


class RivalSide(TableData):
    """An algorithm whose clients hold no model, in the form that kernels take; off for PSO-Fed.

    Attributes
    ----------
    is_on, sends_model, decode_each, decode_joined, fresh : bool
        Whether there is one, and what its :class:`~psofed.parts.traffic.Exchange` says.
    encode, decode, apply : int
        Addresses of its methods; 0 where there is nothing to decode.
    options : array (any,)
        Its options.
    words : int
        Words of the random stream that one iteration is given.
    stream : array (2, L)
        Randomness of the algorithm.
    stepsizes, mean_stepsize : array (K,) and float
        μ_k, and their mean.
    normals, uniforms : arrays (L, any)
        Random numbers of an iteration that server and clients share.
    client_uniforms : array (any,)
        Scratch: random numbers of one client.
    updates, encoded : arrays (L, P, D) and (L, P, N)
        Updates and what is sent of them.
    memory : array (L, any)
        Numbers that the server keeps.
    decoded, joined, change : arrays (L, P or 1, D), (L, 1, J) and (L, 1, D)
        What the server reads, what the rule makes of it, and the change of its model.
    client_momenta, server_momenta : Momenta
        Of updates before they are encoded, and of what the server received from each client.
    received, uploads : Uploads
        The server's model as participants receive it, and what they send.
    read : Uploads
        What the rule joins: J numbers of each participant, or the momenta of all clients.
    """

    def __init__(self, setup: Setup, received: Uploads) -> None:
        scenario, algorithm, clients = setup.scenario, setup.scenario.algorithm, setup.scenario.num_clients
        count, is_on, exchange = len(setup.trials), setup.exchange is not None, setup.exchange or Exchange(numbers=0)
        participants, dimension = (setup.participants, scenario.dimension) if is_on else (0, 0)
        decodes, numbers = is_on and algorithm.defines("decode"), exchange.numbers
        decode_each = decodes and not exchange.decode_joined
        size, remembers = dimension if decode_each else numbers, exchange.server_momentum is not None
        self.is_on, self.sends_model, self.fresh = is_on, exchange.sends_model, exchange.fresh
        self.decode_each, self.decode_joined = decode_each, decodes and exchange.decode_joined
        self.encode, self.decode, self.apply, self.options = 0, 0, 0, options_of(algorithm)
        self.words, self.stream = exchange.words_per_iteration(clients), np.array(setup.stream("algorithm"))
        self.stepsizes, self.mean_stepsize = scenario.draw_stepsizes(), scenario.mean_stepsize
        self.normals, self.uniforms = np.empty((count, exchange.normals)), np.empty((count, exchange.uniforms))
        self.client_uniforms = np.empty(exchange.client_uniforms)
        self.updates = np.empty((count, participants, dimension))
        self.encoded = np.empty((count, participants, numbers))
        self.memory = np.zeros((count, exchange.memory))
        self.decoded = np.empty((count, participants if decode_each else 1, dimension))
        self.joined, self.change = np.zeros((count, 1, size)), np.empty((count, 1, dimension))
        self.client_momenta = Momenta(exchange.client_momentum, count, clients, dimension)
        self.server_momenta = Momenta(exchange.server_momentum, count, clients, size)
        self.received, self.uploads = received, setup.uploads
        self.read = Uploads(count, clients if remembers else participants, size)
        if is_on:
            self.encode = setup.hooks.add(algorithm, "encode", _encode, self)
            self.apply = setup.hooks.add(algorithm, "apply", _apply, self)
            if decodes:
                self.decode = setup.hooks.add(algorithm, "decode", _decode, self)
            if not exchange.fresh:
                table: Any = KernelTable(self)
                draw_shared(table, 0)


@kernel_part
def take_in(momenta: Momenta, clients: IndexArray, count: int, updates: FloatArray, sign: float) -> None:
    """Update momenta with `sign` times ``updates`` (L, P, N) of the first `count` ``clients`` (L, P).

    Numbers that are too large count as not sent.
    """
    values, place, keep, take = momenta.values, momenta.place, momenta.keep, momenta.take
    trials, num_clients, numbers = values.shape
    for trial in range(trials):
        for p in range(count):
            place[clients[trial, p]] = p
        for k in range(num_clients):
            p = place[k]
            place[k] = -1
            for i in range(numbers):
                factor, new = momenta.absent, 0.0
                if p >= 0 and abs(updates[trial, p, i]) <= LARGEST:
                    factor, new = keep, take * (sign * updates[trial, p, i])
                values[trial, k, i] = factor * values[trial, k, i] + new


@kernel_part
def form_updates(rival: RivalSide, count: int, sampling: Sampling) -> None:
    """Write μ_k x_k e_k of the first `count` participants, e_k at the model that each received, or their momenta."""
    sample, residual, updates, stepsizes = sampling.sample, sampling.residual, rival.updates, rival.stepsizes
    clients, received = rival.received.clients, rival.received.sent
    trials, _, dimension = updates.shape
    for trial in range(trials):
        for p in range(count):
            k, product = clients[trial, p], 0.0
            for i in range(dimension):
                product = fma(sample[k, i, trial], received[trial, p, i], product)
            error = product + residual[k, trial]
            for i in range(dimension):
                updates[trial, p, i] = stepsizes[k] * error * sample[k, i, trial]
    values = rival.client_momenta.values
    if values.size:
        take_in(rival.client_momenta, clients, count, updates, 1.0)
        for trial in range(trials):
            for p in range(count):
                copy_array(values[trial, clients[trial, p]], updates[trial, p])


@compiled
def draw_shared(rival: RivalSide, n: int) -> None:
    """Fill the random numbers that server and clients share in iteration n: normals, then uniforms."""
    normals, uniforms, stream, words = rival.normals, rival.uniforms, rival.stream, rival.words
    pairs = (normals.shape[1] + 1) // 2
    for trial in range(normals.shape[0]):
        for j in range(pairs):
            x, y = normals_at(stream, trial, n * words + j)
            normals[trial, 2 * j] = x
            if 2 * j + 1 < normals.shape[1]:
                normals[trial, 2 * j + 1] = y
        for j in range(uniforms.shape[1]):
            uniforms[trial, j] = uniform_at(stream, trial, n * words + pairs + j)


def upload_encoded(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let participants send encoded updates, added to the model they received where models are sent."""
    rival, draws, uploads, count = block.rival, block.draws, block.uploads, block.draws.exchanges[t]
    form_updates(rival, count, block.sampling)
    if rival.fresh:
        draw_shared(rival, n)
    call(rival.encode, n, count, 0, rival)
    received, reached, sent = rival.received.sent, draws.uploads, uploads.sent
    for trial in range(sent.shape[0]):
        uploads.rows[trial] = count
        uploads.asked[trial] = draws.asked[t, trial]
        for p in range(count):
            uploads.clients[trial, p] = draws.uploaders[t, trial, p]
            is_present = reached.size == 0 or reached[t, trial, p]
            for i in range(received.shape[2]):
                is_present = is_present and received[trial, p, i] == received[trial, p, i]
            for j in range(sent.shape[2]):
                value = -rival.encoded[trial, p, j]
                if rival.sends_model:
                    value += received[trial, p, j]
                sent[trial, p, j] = value if is_present else np.nan


@kernel_part
def _read_uploads(n: int, rival: RivalSide, count: int) -> None:
    """Write what the rule is to join into ``rival.read``: what was sent, decoded if need be, or the momenta."""
    uploads, momenta, read = rival.uploads, rival.server_momenta, rival.read
    numbers, sign = uploads.sent, 1.0
    if rival.decode_each:
        call(rival.decode, n, count, count, rival)
        numbers, sign = rival.decoded, -1.0
    if momenta.values.size:
        take_in(momenta, uploads.clients, count, numbers, sign)
        copy_array(momenta.values, read.sent)
        return
    for trial in range(read.sent.shape[0]):
        read.rows[trial], read.asked[trial] = count, uploads.asked[trial]
        for p in range(count):
            read.clients[trial, p] = uploads.clients[trial, p]
            for i in range(read.sent.shape[2]):
                read.sent[trial, p, i] = sign * numbers[trial, p, i]


def apply_uploads(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let the server change its model by numbers that are not models: read, join, decode, apply."""
    rival, count, server = block.rival, block.draws.exchanges[t], block.state.server
    if block.delay.by_delay:
        weigh_by_delay(block.delay, server, block.uploads)
    _read_uploads(n, rival, count)
    rival.joined[:] = 0.0
    mix_and_aggregate(n, block.rule)
    if rival.decode_joined:
        call(rival.decode, n, 1, count, rival)
    call(rival.apply, n, 1, count, rival)
    for trial in range(server.shape[0]):
        for i in range(server.shape[1]):
            server[trial, i] -= rival.change[trial, 0, i]


def _encode(method: Method, n: int, rows: int, g: int, rival: RivalSide) -> None:
    """Frame of what participants send: write ``rival.encoded`` of the first `rows` of them."""
    normals, uniforms, own, clients = rival.normals, rival.uniforms, rival.client_uniforms, rival.received.clients
    first = n * rival.words + (normals.shape[1] + 1) // 2 + uniforms.shape[1]
    for trial in range(clients.shape[0]):
        for p in range(rows):
            k: Any = np.int64(clients[trial, p])
            for j in range(own.size):
                own[j] = uniform_at(rival.stream, trial, first + k * own.size + j)
            message = Message(rival.updates[trial, p], rival.stepsizes[k], normals[trial], uniforms[trial], own)
            method(rival.options, None, message, rival.encoded[trial, p])


def _decode(method: Method, n: int, rows: int, participants: int, rival: RivalSide) -> None:
    """Frame of what the server reads in uploads, or in what the rule made of them, whose signs it changes."""
    numbers = rival.joined if rival.decode_joined else rival.uploads.sent
    for trial in range(numbers.shape[0]):
        for p in range(rows):
            scale(-1.0, numbers[trial, p])
            received = _received(numbers[trial, p], trial, participants, rival)
            method(rival.options, None, received, rival.decoded[trial, p])


def _apply(method: Method, n: int, rows: int, participants: int, rival: RivalSide) -> None:
    """Frame of how the server's model changes."""
    for trial in range(rival.change.shape[0]):
        if not rival.decode_joined:
            scale(-1.0, rival.joined[trial, 0])
        numbers = rival.decoded[trial, 0] if rival.decode_joined else rival.joined[trial, 0]
        received = _received(numbers, trial, participants, rival)
        method(rival.options, rival.memory[trial], received, rival.change[trial, 0])


@register_jitable
def _received(numbers: FloatArray, trial: int, participants: int, rival: RivalSide) -> Received:
    return Received(numbers, participants, rival.mean_stepsize, rival.normals[trial], rival.uniforms[trial])
