"""Algorithms whose clients hold no model: how participants form and encode updates, and what the server does with them.

Only the server has a model w_n. Every client's data are drawn in every iteration, exactly as for PSO-Fed, since the
network MSE is the mean over all clients of (y_k − w_nᵀx_k)². Between exchanges w_n stands still.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.channels import transmit
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import weigh_by_delay
from psofed.engine.hooks import NO_HOOK, Body, Frame, Hook, make_hook
from psofed.engine.lanes import fma
from psofed.engine.learning import Sampling
from psofed.engine.normals import normals_at, uniform_at
from psofed.engine.server import mix_and_aggregate
from psofed.engine.signatures import CODE, Uploads, take_code, taken, uploads_at
from psofed.engine.streams import WordArray, make_stream
from psofed.engine.tables import KernelTable
from psofed.parts.contexts import Message, Received
from psofed.parts.plain import LARGEST, MOST_MEMORY
from psofed.parts.traffic import Exchange, Momentum

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock
    from psofed.scenario import Scenario


class Momenta(NamedTuple):
    """Momentum of each client, held by the clients or the server (:class:`psofed.parts.traffic.Momentum`).

    Attributes
    ----------
    is_on : bool
        Whether there are any.
    keep, take, absent : float
        As in :class:`~psofed.parts.traffic.Momentum`.
    values : array (L, K, N)
        What is remembered.
    place : int array (K,)
        Scratch to work in: −1 everywhere.
    """

    is_on: bool
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
    encode, decode, apply : Hook
        Of its methods; none where there is nothing to decode.
    words : int
        Words of the random stream that one iteration is given.
    stream : array (2, L)
        Randomness of the algorithm.
    exchanges : int array (T,)
        How many of the participants drawn exchange in each iteration.
    stepsizes, mean_stepsize : arrays (K,) and (1,)
        μ_k, and their mean.
    normals, uniforms, client_uniforms : arrays (L, any), (L, any) and (L, P, any)
        Random numbers of an iteration.
    updates, encoded : arrays (L, P, D) and (L, P, N)
        Updates and what is sent of them.
    memory : array (L, any)
        Numbers that the server keeps.
    decoded, joined, change : arrays (L, P or 1, D), (L, J) and (L, 1, D)
        What the server reads, what the rule makes of it, and the change of its model.
    zeros : array (J,)
        The target of what is joined.
    client_momenta, server_momenta : Momenta
        Of updates before they are encoded, and of what the server received from each client.
    read : Uploads
        What the rule joins: J numbers of each participant, or the momenta of all clients.
    """

    is_on: bool
    sends_model: bool
    decode_each: bool
    decode_joined: bool
    fresh: bool
    encode: Hook
    decode: Hook
    apply: Hook
    words: int
    stream: WordArray
    exchanges: IntArray
    stepsizes: FloatArray
    mean_stepsize: FloatArray
    normals: FloatArray
    uniforms: FloatArray
    client_uniforms: FloatArray
    updates: FloatArray
    encoded: FloatArray
    memory: FloatArray
    decoded: FloatArray
    joined: FloatArray
    change: FloatArray
    zeros: FloatArray
    client_momenta: Momenta
    server_momenta: Momenta
    read: Uploads


def make_rival_side(scenario: "Scenario", seed: int, trials: range, participants: int) -> RivalSide:
    """Return the algorithm of several trials; off for PSO-Fed."""
    algorithm, count = scenario.algorithm, len(trials)
    clients, dimension = scenario.num_clients, scenario.dimension
    is_on = not algorithm.holds_models
    exchange = algorithm.exchange(scenario) if is_on else Exchange(numbers=0)
    if not is_on:
        participants = dimension = 0
    decodes = is_on and algorithm.decodes()
    decode_each = decodes and not exchange.decode_joined
    size = dimension if decode_each else exchange.numbers
    remembers = exchange.server_momentum is not None
    joining = clients if remembers else participants
    counts = np.full(count, clients if remembers else 0)
    side = RivalSide(
        is_on=is_on,
        sends_model=exchange.sends_model,
        decode_each=decode_each,
        decode_joined=decodes and exchange.decode_joined,
        fresh=exchange.fresh,
        encode=make_hook(algorithm, "encode", CODE, _make_encode) if is_on else NO_HOOK,
        decode=make_hook(algorithm, "decode", CODE, _make_decode) if decodes else NO_HOOK,
        apply=make_hook(algorithm, "apply", CODE, _make_apply) if is_on else NO_HOOK,
        words=exchange.words_per_iteration(clients),
        stream=np.array(make_stream(seed, "algorithm", trials)),
        exchanges=np.zeros(0, np.int64),
        stepsizes=scenario.draw_stepsizes(),
        mean_stepsize=np.array([scenario.mean_stepsize]),
        normals=np.empty((count, exchange.normals)),
        uniforms=np.empty((count, exchange.uniforms)),
        client_uniforms=np.empty((count, participants, exchange.client_uniforms)),
        updates=np.empty((count, participants, dimension)),
        encoded=np.empty((count, participants, exchange.numbers)),
        memory=np.zeros((count, exchange.memory)),
        decoded=np.empty((count, participants if decode_each else 1, dimension)),
        joined=np.zeros((count, size)),
        change=np.empty((count, 1, dimension)),
        zeros=np.zeros(size),
        client_momenta=_make_momenta(exchange.client_momentum, count, clients, dimension),
        server_momenta=_make_momenta(exchange.server_momentum, count, clients, size),
        read=Uploads(
            np.repeat(np.arange(joining, dtype=np.int32)[None], count, axis=0),
            np.repeat(np.arange(size, dtype=np.int32)[None, None], count, axis=0),
            np.empty((count, joining, size)), counts, counts.copy(),
        ),
    )  # fmt: skip
    if is_on and not exchange.fresh:
        table: Any = KernelTable(side)
        draw_shared(table, 0)
    return side


def _make_momenta(momentum: Momentum | None, trials: int, clients: int, numbers: int) -> Momenta:
    if momentum is None:
        return Momenta(False, 0.0, 0.0, 0.0, np.zeros((0, 0, 0)), np.zeros(0, np.int64))
    if clients * numbers > MOST_MEMORY:
        raise NotCoveredError(
            f"an algorithm with one momentum per client needs {clients * numbers:,} values of memory for "
            f"{clients} clients and {numbers} entries; the limit is {MOST_MEMORY:,}"
        )
    values = np.zeros((trials, clients, numbers))
    return Momenta(True, momentum.keep, momentum.take, momentum.absent, values, np.full(clients, -1))


def receive(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: write the server's model as each participant receives it; clients hold no model."""
    exchange, down, state, num_clients = block.exchange, block.down, block.state, block.layout.clients
    received, server, reached, target = state.received, state.server, exchange.downloads, state.target
    rows, own_values, has_channels = state.rows, down.receiver, down.addresses.size > 0
    trials, count, dimension = received.shape
    for trial in range(trials):
        rows[trial] = count
        for p in range(count):
            takes = reached.size == 0 or reached[t, trial, p]
            for i in range(dimension):
                received[trial, p, i] = server[trial, i] if takes else np.nan
                if has_channels:
                    own_values[trial, p, i] = target[i]
    if has_channels:
        messages = Uploads(exchange.participants[t], state.every, received, rows, state.asked)
        transmit(down, n, num_clients, target, messages)


@kernel_part
def take_in(momenta: Momenta, clients: IndexArray, count: int, updates: FloatArray) -> None:
    """Update momenta with ``updates`` (L, P, N) of the first `count` ``clients`` (L, P), unless they are too large."""
    values, place = momenta.values, momenta.place
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
                    factor, new = momenta.keep, momenta.take * updates[trial, p, i]
                values[trial, k, i] = factor * values[trial, k, i] + new


@kernel_part
def form_updates(
    rival: RivalSide, clients: IndexArray, count: int, received: FloatArray, sampling: Sampling
) -> None:
    """Write μ_k x_k e_k of the first `count` ``clients`` (L, P), e_k at the model that each received, (L, P, D)."""
    sample, residual, updates = sampling.sample, sampling.residual, rival.updates
    trials, _, dimension = updates.shape
    for trial in range(trials):
        for p in range(count):
            k, product = clients[trial, p], 0.0
            for i in range(dimension):
                product = fma(sample[k, i, trial], received[trial, p, i], product)
            error = product + residual[k, trial]
            for i in range(dimension):
                updates[trial, p, i] = rival.stepsizes[k] * error * sample[k, i, trial]


@compiled
def draw_shared(rival: RivalSide, n: int) -> None:
    """Fill the random numbers that server and clients share in iteration n: normals, then uniforms."""
    normals, uniforms = rival.normals, rival.uniforms
    pairs = (normals.shape[1] + 1) // 2
    for trial in range(normals.shape[0]):
        for j in range(pairs):
            x, y = normals_at(rival.stream, trial, n * rival.words + j)
            normals[trial, 2 * j] = x
            if 2 * j + 1 < normals.shape[1]:
                normals[trial, 2 * j + 1] = y
        for j in range(uniforms.shape[1]):
            uniforms[trial, j] = uniform_at(rival.stream, trial, n * rival.words + pairs + j)


@kernel_part
def encode_updates(rival: RivalSide, n: int, clients: IndexArray, count: int) -> None:
    """Turn the updates of the first `count` ``clients`` (L, P) into ``rival.encoded``."""
    own, updates, momenta = rival.client_uniforms, rival.updates, rival.client_momenta
    trials, _, width = own.shape
    before = (rival.normals.shape[1] + 1) // 2 + rival.uniforms.shape[1]
    for trial in range(trials):
        for p in range(count):
            for j in range(width):
                word = n * rival.words + before + np.int64(clients[trial, p]) * width + j
                own[trial, p, j] = uniform_at(rival.stream, trial, word)
    if momenta.is_on:
        take_in(momenta, clients, count, updates)
        for trial in range(trials):
            for p in range(count):
                for i in range(updates.shape[2]):
                    updates[trial, p, i] = momenta.values[trial, clients[trial, p], i]
    take_code(rival.encode.address)(
        rival.encode.options, count, count, rival.stepsizes, clients, updates, rival.normals, rival.uniforms, own,
        rival.memory, rival.encoded,
    )  # fmt: skip


def upload_encoded(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: let participants send encoded updates, added to the model they received where models are sent."""
    rival, exchange, state, count = block.rival, block.exchange, block.state, block.rival.exchanges[t]
    form_updates(rival, exchange.participants[t], count, state.received, block.sampling)
    if rival.fresh:
        draw_shared(rival, n)
    encode_updates(rival, n, exchange.participants[t], count)
    encoded, reached, rows, asked = rival.encoded, exchange.uploads, state.rows, state.asked
    sent, received, sends_model = state.sent, state.received, rival.sends_model
    trials, _, numbers = sent.shape
    for trial in range(trials):
        rows[trial], asked[trial] = count, exchange.asked[t, trial]
        for p in range(count):
            is_present = reached.size == 0 or reached[t, trial, p]
            for i in range(received.shape[2]):
                is_present = is_present and received[trial, p, i] == received[trial, p, i]
            for j in range(numbers):
                value = -encoded[trial, p, j]
                if sends_model:
                    value += received[trial, p, j]
                sent[trial, p, j] = value if is_present else np.nan


@kernel_part
def _read_uploads(rival: RivalSide, uploads: Uploads, count: int, read: Uploads) -> None:
    """Write what the rule is to join into ``read``: what was sent, decoded if need be, or the momenta."""
    sent, decoded, momenta = uploads.sent, rival.decoded, rival.server_momenta
    trials, _, size = read.sent.shape
    if rival.decode_each:
        for trial in range(trials):
            for p in range(count):
                for j in range(sent.shape[2]):
                    sent[trial, p, j] = -sent[trial, p, j]
        take_code(rival.decode.address)(
            rival.decode.options, count, count, rival.mean_stepsize, uploads.clients, sent, rival.normals,
            rival.uniforms, rival.client_uniforms, rival.memory, rival.decoded,
        )  # fmt: skip
    if momenta.is_on and rival.decode_each:
        for trial in range(trials):
            for p in range(count):
                for i in range(size):
                    decoded[trial, p, i] = -decoded[trial, p, i]
        take_in(momenta, uploads.clients, count, decoded)
    elif momenta.is_on:
        take_in(momenta, uploads.clients, count, sent)
    for trial in range(trials):
        if not momenta.is_on:
            read.rows[trial], read.asked[trial] = count, uploads.asked[trial]
        for p in range(read.rows[trial]):
            if not momenta.is_on:
                read.clients[trial, p] = uploads.clients[trial, p]
            for i in range(size):
                if momenta.is_on:
                    read.sent[trial, p, i] = momenta.values[trial, p, i]
                elif rival.decode_each:
                    read.sent[trial, p, i] = -decoded[trial, p, i]
                else:
                    read.sent[trial, p, i] = sent[trial, p, i]


def apply_uploads(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: let the server change its model by numbers that are not models: read, join, decode, apply."""
    rival, count, server = block.rival, block.rival.exchanges[t], block.state.server
    uploads, read = uploads_at(t, block), taken(rival.read)
    if block.delay.by_delay:
        weigh_by_delay(block.delay, server, uploads)
    _read_uploads(rival, uploads, count, read)
    joined, decoded, change = rival.joined, rival.decoded, rival.change
    trials, size = joined.shape
    for trial in range(trials):
        for i in range(size):
            joined[trial, i] = 0.0
    mix_and_aggregate(n, block, rival.zeros, read, joined)
    for trial in range(trials):
        for i in range(size):
            joined[trial, i] = -joined[trial, i]
    result = joined.reshape((trials, 1, size))
    if rival.decode_joined:
        take_code(rival.decode.address)(
            rival.decode.options, 1, count, rival.mean_stepsize, uploads.clients, result, rival.normals,
            rival.uniforms, rival.client_uniforms, rival.memory, decoded,
        )  # fmt: skip
        result = decoded
    take_code(rival.apply.address)(
        rival.apply.options, 1, count, rival.mean_stepsize, uploads.clients, result, rival.normals, rival.uniforms,
        rival.client_uniforms, rival.memory, change,
    )  # fmt: skip
    for trial in range(trials):
        for i in range(server.shape[1]):
            server[trial, i] -= change[trial, 0, i]


def _make_encode(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, rows: int, participants: int, stepsizes: FloatArray, clients: IndexArray,
        inputs: FloatArray, normals: FloatArray, uniforms: FloatArray, client_uniforms: FloatArray,
        memory: FloatArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for trial in range(inputs.shape[0]):
            for p in range(rows):
                stepsize = stepsizes[clients[trial, p]]
                message = Message(
                    inputs[trial, p], stepsize, normals[trial], uniforms[trial], client_uniforms[trial, p]
                )
                body(self, message, out[trial, p])

    return frame


def _make_decode(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, rows: int, participants: int, stepsizes: FloatArray, clients: IndexArray,
        inputs: FloatArray, normals: FloatArray, uniforms: FloatArray, client_uniforms: FloatArray,
        memory: FloatArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for trial in range(inputs.shape[0]):
            for p in range(rows):
                received = Received(
                    inputs[trial, p], participants, stepsizes[0], normals[trial], uniforms[trial]
                )
                body(self, received, out[trial, p])

    return frame


def _make_apply(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, rows: int, participants: int, stepsizes: FloatArray, clients: IndexArray,
        inputs: FloatArray, normals: FloatArray, uniforms: FloatArray, client_uniforms: FloatArray,
        memory: FloatArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for trial in range(inputs.shape[0]):
            received = Received(inputs[trial, 0], participants, stepsizes[0], normals[trial], uniforms[trial])
            body(self, received, memory[trial], out[trial, 0])

    return frame
