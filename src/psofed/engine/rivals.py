"""Algorithms whose clients hold no model: how participants form and encode updates, and what the server does with them.

Only the server has a model w_n. Every client's data are drawn in every iteration, exactly as for PSO-Fed, since the
network MSE is the mean over all clients of (y_k − w_nᵀx_k)². Between exchanges w_n stands still.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import weigh_by_delay
from psofed.engine.hooks import Body, options_of
from psofed.engine.lanes import fma
from psofed.engine.learning import Sampling
from psofed.engine.normals import normals_at, uniform_at
from psofed.engine.server import mix_and_aggregate
from psofed.engine.streams import WordArray
from psofed.engine.tables import KernelTable, Stage, call
from psofed.engine.uploads import Uploads, copy, make_uploads
from psofed.parts.contexts import Message, Received
from psofed.parts.plain import LARGEST, MOST_MEMORY
from psofed.parts.traffic import Exchange, Momentum

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock
    from psofed.engine.state import Setup


class Momenta(NamedTuple):
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

    keep: float
    take: float
    absent: float
    values: FloatArray
    place: IntArray


class RivalSide(NamedTuple):
    """An algorithm whose clients hold no model, in the form that kernels take.

    Attributes
    ----------
    is_on, sends_model, decode_each, decode_joined, fresh : bool
        Whether there is one, and what its :class:`~psofed.parts.traffic.Exchange` says.
    encode, decode, apply : int arrays (1,)
        Addresses of its methods; 0 where there is nothing to decode.
    options : array (any,)
        Its options.
    words : int
        Words of the random stream that one iteration is given.
    stream : array (2, L)
        Randomness of the algorithm.
    stepsizes, mean_stepsize : array (K,) and float
        μ_k, and their mean.
    normals, uniforms, client_uniforms : arrays (L, any), (L, any) and (L, P, any)
        Random numbers of an iteration.
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

    is_on: bool
    sends_model: bool
    decode_each: bool
    decode_joined: bool
    fresh: bool
    encode: IntArray
    decode: IntArray
    apply: IntArray
    options: FloatArray
    words: int
    stream: WordArray
    stepsizes: FloatArray
    mean_stepsize: float
    normals: FloatArray
    uniforms: FloatArray
    client_uniforms: FloatArray
    updates: FloatArray
    encoded: FloatArray
    memory: FloatArray
    decoded: FloatArray
    joined: FloatArray
    change: FloatArray
    client_momenta: Momenta
    server_momenta: Momenta
    received: Uploads
    uploads: Uploads
    read: Uploads


def make_rival_side(setup: "Setup", received: Uploads) -> RivalSide:
    """Return the algorithm of several trials; off for PSO-Fed."""
    scenario, count, clients = setup.scenario, len(setup.trials), setup.scenario.num_clients
    algorithm, is_on = scenario.algorithm, not scenario.algorithm.holds_models
    exchange = algorithm.exchange(scenario) if is_on else Exchange(numbers=0)
    participants, dimension = (setup.participants, scenario.dimension) if is_on else (0, 0)
    decodes = is_on and algorithm.decodes()
    decode_each = decodes and not exchange.decode_joined
    size, remembers = dimension if decode_each else exchange.numbers, exchange.server_momentum is not None
    read = make_uploads(count, clients if remembers else participants, size)
    side = RivalSide(
        is_on=is_on,
        sends_model=exchange.sends_model,
        decode_each=decode_each,
        decode_joined=decodes and exchange.decode_joined,
        fresh=exchange.fresh,
        encode=np.zeros(1, np.int64),
        decode=np.zeros(1, np.int64),
        apply=np.zeros(1, np.int64),
        options=options_of(algorithm),
        words=exchange.words_per_iteration(clients),
        stream=np.array(setup.stream("algorithm")),
        stepsizes=scenario.draw_stepsizes(),
        mean_stepsize=scenario.mean_stepsize,
        normals=np.empty((count, exchange.normals)),
        uniforms=np.empty((count, exchange.uniforms)),
        client_uniforms=np.empty((count, participants, exchange.client_uniforms)),
        updates=np.empty((count, participants, dimension)),
        encoded=np.empty((count, participants, exchange.numbers)),
        memory=np.zeros((count, exchange.memory)),
        decoded=np.empty((count, participants if decode_each else 1, dimension)),
        joined=np.zeros((count, 1, size)),
        change=np.empty((count, 1, dimension)),
        client_momenta=_make_momenta(exchange.client_momentum, count, clients, dimension),
        server_momenta=_make_momenta(exchange.server_momentum, count, clients, size),
        received=received,
        uploads=setup.uploads,
        read=read,
    )
    if is_on:
        side.encode[0] = setup.hooks.add(algorithm, "encode", _make_encode, side)
        side.apply[0] = setup.hooks.add(algorithm, "apply", _make_apply, side)
        if decodes:
            side.decode[0] = setup.hooks.add(algorithm, "decode", _make_decode, side)
        if not exchange.fresh:
            table: Any = KernelTable(side)
            draw_shared(table, 0)
    return side


def _make_momenta(momentum: Momentum | None, trials: int, clients: int, numbers: int) -> Momenta:
    if momentum is None:
        return Momenta(0.0, 0.0, 0.0, np.zeros((0, 0, 0)), np.zeros(0, np.int64))
    if clients * numbers > MOST_MEMORY:
        raise NotCoveredError(
            f"an algorithm with one momentum per client needs {clients * numbers:,} values of memory for "
            f"{clients} clients and {numbers} entries; the limit is {MOST_MEMORY:,}"
        )
    values = np.zeros((trials, clients, numbers))
    return Momenta(momentum.keep, momentum.take, momentum.absent, values, np.full(clients, -1))


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
    """Write μ_k x_k e_k of the first `count` participants, e_k at the model that each received, (L, P, D)."""
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


@kernel_part
def encode_updates(rival: RivalSide, n: int, count: int) -> None:
    """Turn the updates of the first `count` participants into ``rival.encoded``."""
    own, updates = rival.client_uniforms, rival.updates
    momenta, clients = rival.client_momenta, rival.received.clients
    stream, words, values, (trials, _, width) = rival.stream, rival.words, momenta.values, own.shape
    before = (rival.normals.shape[1] + 1) // 2 + rival.uniforms.shape[1]
    for trial in range(trials):
        for p in range(count):
            for j in range(width):
                word = n * words + before + np.int64(clients[trial, p]) * width + j
                own[trial, p, j] = uniform_at(stream, trial, word)
    if values.size:
        take_in(momenta, clients, count, updates, 1.0)
        for trial in range(trials):
            for p in range(count):
                for i in range(updates.shape[2]):
                    updates[trial, p, i] = values[trial, clients[trial, p], i]
    call(rival.encode[0], n, count, 0, rival)


def upload_encoded(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let participants send encoded updates, added to the model they received where models are sent."""
    rival, draws, uploads, count = block.rival, block.draws, block.uploads, block.draws.exchanges[t]
    form_updates(rival, count, block.sampling)
    if rival.fresh:
        draw_shared(rival, n)
    encode_updates(rival, n, count)
    encoded, reached, rows, asked = rival.encoded, draws.uploads, uploads.rows, uploads.asked
    clients, sent = uploads.clients, uploads.sent
    received, sends_model = rival.received.sent, rival.sends_model
    uploaders, all_asked = draws.uploaders, draws.asked
    for trial in range(sent.shape[0]):
        rows[trial], asked[trial] = count, all_asked[t, trial]
        for p in range(count):
            clients[trial, p] = uploaders[t, trial, p]
            is_present = reached.size == 0 or reached[t, trial, p]
            for i in range(received.shape[2]):
                is_present = is_present and received[trial, p, i] == received[trial, p, i]
            for j in range(sent.shape[2]):
                value = -encoded[trial, p, j]
                if sends_model:
                    value += received[trial, p, j]
                sent[trial, p, j] = value if is_present else np.nan


@kernel_part
def _read_uploads(n: int, rival: RivalSide, count: int) -> None:
    """Write what the rule is to join into ``rival.read``: what was sent, decoded if need be, or the momenta."""
    uploads, momenta, read = rival.uploads, rival.server_momenta, rival.read
    sent, numbers, sign = uploads.sent, uploads.sent, 1.0
    if rival.decode_each:
        for trial in range(sent.shape[0]):
            for p in range(count):
                for j in range(sent.shape[2]):
                    sent[trial, p, j] = -sent[trial, p, j]
        call(rival.decode[0], n, count, count, rival)
        numbers, sign = rival.decoded, -1.0
    if momenta.values.size:
        take_in(momenta, uploads.clients, count, numbers, sign)
        copy(momenta.values, read.sent)
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
    joined, change = rival.joined, rival.change
    if block.delay.by_delay:
        weigh_by_delay(block.delay, server, block.uploads)
    _read_uploads(n, rival, count)
    joined[:] = 0.0
    mix_and_aggregate(n, block.rule)
    for trial in range(joined.shape[0]):
        for i in range(joined.shape[2]):
            joined[trial, 0, i] = -joined[trial, 0, i]
    if rival.decode_joined:
        call(rival.decode[0], n, 1, count, rival)
    call(rival.apply[0], n, 1, count, rival)
    for trial in range(server.shape[0]):
        for i in range(server.shape[1]):
            server[trial, i] -= change[trial, 0, i]


def _make_encode(unpack: Body, body: Body) -> Stage:
    def frame(n: int, rows: int, g: int, rival: RivalSide) -> None:
        self, clients = unpack(rival.options), rival.received.clients
        stepsizes, updates = rival.stepsizes, rival.updates
        normals, uniforms, own, out = rival.normals, rival.uniforms, rival.client_uniforms, rival.encoded
        for trial in range(updates.shape[0]):
            for p in range(rows):
                stepsize = stepsizes[clients[trial, p]]
                message = Message(updates[trial, p], stepsize, normals[trial], uniforms[trial], own[trial, p])
                body(self, message, out[trial, p])

    return frame


def _make_decode(unpack: Body, body: Body) -> Stage:
    def frame(n: int, rows: int, participants: int, rival: RivalSide) -> None:
        self, normals, uniforms, out = unpack(rival.options), rival.normals, rival.uniforms, rival.decoded
        numbers = rival.joined if rival.decode_joined else rival.uploads.sent
        mean_stepsize = rival.mean_stepsize
        for trial in range(out.shape[0]):
            for p in range(rows):
                received = Received(numbers[trial, p], participants, mean_stepsize, normals[trial], uniforms[trial])
                body(self, received, out[trial, p])

    return frame


def _make_apply(unpack: Body, body: Body) -> Stage:
    def frame(n: int, rows: int, participants: int, rival: RivalSide) -> None:
        self, normals, uniforms, memory = unpack(rival.options), rival.normals, rival.uniforms, rival.memory
        numbers, mean_stepsize = rival.decoded if rival.decode_joined else rival.joined, rival.mean_stepsize
        for trial in range(rival.change.shape[0]):
            received = Received(numbers[trial, 0], participants, mean_stepsize, normals[trial], uniforms[trial])
            body(self, received, memory[trial], rival.change[trial, 0])

    return frame
