"""The kernel of algorithms whose clients hold no model: one for all of them.

The kernel holds the server's error w − w_n. Every client's data are drawn in every iteration, exactly as for
PSO-Fed, since the network MSE is the mean over all clients of (y_k − w_nᵀx_k)² at the server's model. Between
exchanges w_n stands still.
"""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.attack_steps import corrupt_uploads, poison_samples, poisons_samples, redraw_byzantine
from psofed.engine.bodies import Hook
from psofed.engine.compiling import compiled
from psofed.engine.frames.channel import transmit
from psofed.engine.frames.delay import first_arrivals, pass_time, weigh_by_delay
from psofed.engine.frames.stream import Inputs, draw_input
from psofed.engine.hooks import Uploads, take_apply, take_decode, take_encode
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH
from psofed.engine.lms import add_inner_product, add_squares, fill_row, scale_row, set_product
from psofed.engine.momentum import Memories, read_out, take_in
from psofed.engine.network import NetworkSide
from psofed.engine.normals import WORDS_AHEAD, mix_word, next_normals, normal_pair, unit_uniform
from psofed.engine.server_side import AttackSide, DefenceSide, GroupSide, RuleSide
from psofed.engine.server_steps import aggregate, leave_out
from psofed.engine.streams import Stream, WordArray
from psofed.engine.test_set import TestSet, test_error


class ExchangeHooks(NamedTuple):
    """The algorithm's methods: what clients send, what the server reads from it, and what it does with that."""

    encode: Hook
    decode: Hook
    apply: Hook


class Momenta(NamedTuple):
    """Momenta of the clients' updates before they are encoded, and of what the server received from each."""

    clients: Memories
    server: Memories


class ExchangeLayout(NamedTuple):
    """An :class:`Exchange` in the form that the kernel takes."""

    words: int
    normals: int
    uniforms: int
    client_uniforms: int
    fresh: bool
    has_decode: bool
    decode_joined: bool
    sends_model: bool
    numbers: int


@compiled
def advance(
    first: int,
    data: Stream,
    over_time: Inputs,
    inputs: InputModel,
    stepsizes: FloatArray,
    stepsize: float,
    participants: IndexArray,
    exchanges: IntArray,
    network: NetworkSide | None,
    attack: AttackSide,
    groups: GroupSide | None,
    defence: DefenceSide | None,
    rule: RuleSide,
    own: Stream,
    layout: ExchangeLayout,
    hooks: ExchangeHooks,
    memory: FloatArray,
    momenta: Momenta,
    tests: TestSet,
    base: FloatArray,
    target: FloatArray,
    server: FloatArray,
    metrics: FloatArray,
) -> None:
    """Run ``metrics.shape[0]`` iterations from number `first` on, writing ``metrics[t, metric, lane]``."""
    poisons = poisons_samples(attack, groups)
    encode, decode, apply = hooks.encode, hooks.decode, hooks.apply
    encode_, decode_, apply_ = (
        take_encode(encode.address),
        take_decode(decode.address),
        take_apply(apply.address),
    )
    num_clients = inputs.noise_deviation.size
    dimension, lanes = server.shape
    numbers, sends_model, has_decode = layout.numbers, layout.sends_model, layout.has_decode
    decode_joined, words_drawn = layout.decode_joined, layout.words
    words = (dimension + 2) // 2
    most = participants.shape[1]
    remembers = momenta.server.is_on
    joining = num_clients if remembers else most
    counter = np.empty(lanes, np.uint64)
    hashed = np.empty((WORDS_AHEAD, lanes), np.uint64)
    drawn = np.empty((2 * words, lanes), np.float32)
    sample = np.empty((dimension, lanes))
    error, clean = np.empty(lanes), np.empty(lanes)
    # Place of each client among the participants, −1 for the others.
    place = np.full((num_clients, lanes), -1, np.int32)
    updates = np.empty((most, dimension, lanes))
    normals = np.empty((layout.normals, lanes))
    uniforms = np.empty((layout.uniforms, lanes))
    client_uniforms = np.empty((most, layout.client_uniforms, lanes))
    sent = np.empty((most, numbers, lanes))
    decodes_each = has_decode and not decode_joined
    joined_size = dimension if decodes_each else numbers
    joined = np.empty((joined_size, lanes))
    joined_scratch, zeros = np.empty((joined_size, lanes)), np.zeros(joined_size)
    nothing = np.zeros((numbers, lanes))
    decoded = np.empty((most if decodes_each else 1, dimension, lanes))
    change = np.empty((dimension, lanes))
    # Participants and lanes need not differ in which number is which.
    entries = np.empty((joining, max(numbers, dimension), lanes), np.int32)
    for i in range(entries.shape[1]):
        entries[:, i] = i
    sent_entries = entries[:most, :numbers].copy()
    joined_entries = entries[:, :joined_size].copy()
    # The server's model as each participant has it, as errors.
    down_entries = entries[:most, :dimension].copy()
    asked, all_asked = np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    for lane in range(lanes):
        all_asked[lane] = num_clients
    everyone = np.empty((num_clients if remembers else 0, lanes), np.int32)
    for k in range(everyone.shape[0]):
        everyone[k] = k
    remembered = np.empty((everyone.shape[0], joined_size, lanes))
    if not layout.fresh:
        _draw_shared(0, own.key, own.gamma, words_drawn, normals, uniforms)
    # Here and below numbers are copied one by one: for arrays, Numba would compile an error that shapes differ, whose
    # text takes as long to compile as all the rest.
    for lane in range(lanes):
        counter[lane] = data.key[lane] + np.uint64(first * num_clients * words) * data.gamma[lane]

    for t in range(metrics.shape[0]):
        fill_row(metrics, 3 * t, lanes, 0.0)
        fill_row(metrics, 3 * t + 1, lanes, 0.0)
        add_squares(metrics, 3 * t + 1, server, 0, dimension)
        test_error(server, tests, metrics, 3 * t + 2)

        count = exchanges[t]
        redraw_byzantine(attack, t)
        for p in range(count):
            for lane in range(lanes):
                place[participants[t, p, lane], lane] = p
        if network is not None and count:
            _download(
                t, first + t, network, server, target, participants[t], down_entries, asked, num_clients
            )
        for k in range(num_clients):
            for lane in range(0, lanes, WIDTH):
                next_normals(lane, counter, data.gamma, hashed, drawn)
            draw_input(over_time, inputs, first + t, k, drawn, sample)
            set_product(error, inputs.noise_deviation[k], drawn, dimension)
            set_product(clean, 1.0, error, 0)
            add_inner_product(clean, sample, server, 0, dimension)
            add_squares(metrics, 3 * t, clean, 0, 1)
            # Metrics are of the clean sample, the update of the poisoned one.
            learnt = clean
            if count and poisons:
                poison_samples(first + t, k, attack, groups, target, sample, error)
                if network is None:
                    add_inner_product(error, sample, server, 0, dimension)
                learnt = error
            if count and network is not None:
                for lane in range(lanes):
                    p = place[k, lane]
                    if p >= 0:
                        place[k, lane] = -1
                        received = error[lane]
                        for i in range(dimension):
                            received += network.received[p, i, lane] * sample[i, lane]
                        for i in range(dimension):
                            updates[p, i, lane] = stepsizes[k] * received * sample[i, lane]
            elif count:
                for lane in range(lanes):
                    p = place[k, lane]
                    if p >= 0:
                        place[k, lane] = -1
                        for i in range(dimension):
                            updates[p, i, lane] = stepsizes[k] * learnt[lane] * sample[i, lane]
        scale_row(metrics, 3 * t, lanes, 1.0 / num_clients)
        # Without an exchange, uploads of earlier iterations may still arrive.
        if count == 0 and (network is None or not network.delay.is_on):
            continue

        n = first + t
        if layout.fresh:
            _draw_shared(n, own.key, own.gamma, words_drawn, normals, uniforms)
        _draw_per_client(
            n, own.key, own.gamma, words_drawn, (layout.normals + 1) // 2 + layout.uniforms,
            participants[t][:count], client_uniforms[:count],
        )  # fmt: skip
        if momenta.clients.is_on:
            take_in(momenta.clients, participants[t][:count], updates[:count])
            read_out(momenta.clients, participants[t][:count], updates[:count])
        sends = sent[:count]
        encode_(
            encode.token, stepsizes, encode.options, participants[t][:count], updates[:count], normals, uniforms,
            client_uniforms[:count], sends,
        )  # fmt: skip
        # Hooks of attacks and rules take errors: a model's entry is `base` less what they see.
        _negate(sends)
        if sends_model:
            for p in range(count):
                for i in range(dimension):
                    for lane in range(lanes):
                        if network is None:
                            sends[p, i, lane] += server[i, lane]
                        else:
                            sends[p, i, lane] += network.received[p, i, lane]
        for lane in range(lanes):
            asked[lane] = count
        if network is not None:
            for lane in range(lanes):
                asked[lane] = network.asked[t, lane]
            for p in range(count):
                for lane in range(lanes):
                    is_there = network.uploads[t, p, lane]
                    for i in range(dimension):
                        is_there = is_there and not np.isnan(network.received[p, i, lane])
                    if not is_there:
                        for i in range(numbers):
                            sends[p, i, lane] = np.nan
        uploads = Uploads(participants[t][:count], sent_entries[:count], sends, asked)
        corrupt_uploads(attack, groups, n, base, server if sends_model else nothing, uploads)
        if network is not None and network.up.addresses.size:
            for p in range(min(count, network.up.receiver.shape[0])):
                for i in range(numbers):
                    for lane in range(lanes):
                        network.up.receiver[p, i, lane] = server[i, lane] if sends_model else 0.0
            transmit(network.up, n, num_clients, base, uploads)
        if network is not None and network.delay.is_on:
            arrived = pass_time(network.delay, t, n, server, uploads)
            uploads = first_arrivals(network.delay, arrived)
        if defence is not None:
            leave_out(defence, n, server if sends_model else nothing, uploads)
        if network is not None and network.delay.by_delay:
            weigh_by_delay(network.delay, server, uploads)
        if sends_model:
            aggregate(rule, n, base, uploads, change, server)
            continue
        joined[:] = 0.0
        if decodes_each:
            _negate(sends)
            decode_(decode.token, count, stepsize, decode.options, sends, normals, uniforms, decoded[:count])
            _negate(decoded[:count])
            uploads = Uploads(participants[t][:count], joined_entries[:count], decoded[:count], asked)
        if remembers:
            take_in(momenta.server, uploads.clients, uploads.sent)
            read_out(momenta.server, everyone, remembered)
            uploads = Uploads(everyone, joined_entries, remembered, all_asked)
        aggregate(rule, n, zeros, uploads, joined_scratch, joined)
        for i in range(joined_size):
            for lane in range(lanes):
                joined[i, lane] = -joined[i, lane]
        result = joined
        if has_decode and decode_joined:
            decode_(
                decode.token, count, stepsize, decode.options, joined.reshape((1, numbers, lanes)), normals,
                uniforms, decoded,
            )  # fmt: skip
            result = decoded[0]
        apply_(apply.token, count, stepsize, apply.options, result, normals, uniforms, memory, change)
        for i in range(dimension):
            for lane in range(lanes):
                server[i, lane] -= change[i, lane]


@compiled
def _download(
    t: int,
    n: int,
    network: NetworkSide,
    server: FloatArray,
    target: FloatArray,
    participants: IndexArray,
    entries: IndexArray,
    asked: IntArray,
    num_clients: int,
) -> None:
    """Write the server's model as each participant receives it into ``network.received``; NaN where nothing arrives."""
    received = network.received
    for p in range(received.shape[0]):
        for i in range(received.shape[1]):
            for lane in range(received.shape[2]):
                received[p, i, lane] = server[i, lane] if network.downloads[t, p, lane] else np.nan
    own = network.down.receiver
    for p in range(own.shape[0]):
        for i in range(own.shape[1]):
            for lane in range(own.shape[2]):
                own[p, i, lane] = target[i]  # clients hold no model
    if network.down.addresses.size:
        transmit(network.down, n, num_clients, target, Uploads(participants, entries, received, asked))


@compiled
def _negate(values: FloatArray) -> None:
    for p in range(values.shape[0]):
        for i in range(values.shape[1]):
            for lane in range(values.shape[2]):
                values[p, i, lane] = -values[p, i, lane]


@compiled
def _draw_shared(
    n: int, key: WordArray, gamma: WordArray, words: int, normals: FloatArray, uniforms: FloatArray
) -> None:
    """Fill ``normals`` (any, lanes), then ``uniforms`` (any, lanes), from the words of iteration `n`."""
    pairs = (normals.shape[0] + 1) // 2
    for j in range(pairs):
        for lane in range(normals.shape[1]):
            x, y = normal_pair(mix_word(key[lane] + np.uint64(n * words + j) * gamma[lane]))
            normals[2 * j, lane] = x
            if 2 * j + 1 < normals.shape[0]:
                normals[2 * j + 1, lane] = y
    for j in range(uniforms.shape[0]):
        for lane in range(uniforms.shape[1]):
            word = mix_word(key[lane] + np.uint64(n * words + pairs + j) * gamma[lane])
            uniforms[j, lane] = unit_uniform(word)


@compiled
def _draw_per_client(
    n: int,
    key: WordArray,
    gamma: WordArray,
    words: int,
    shared_words: int,
    clients: IndexArray,
    uniforms: FloatArray,
) -> None:
    """Fill ``uniforms`` (P, any, lanes) with the draws of each of ``clients`` (P, lanes) in iteration `n`."""
    width = uniforms.shape[1]
    for p in range(uniforms.shape[0]):
        for j in range(width):
            for lane in range(uniforms.shape[2]):
                address = n * words + shared_words + clients[p, lane] * width + j
                uniforms[p, j, lane] = unit_uniform(mix_word(key[lane] + np.uint64(address) * gamma[lane]))
