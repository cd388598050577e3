"""Who is available, and who takes part: in each iteration |S_n| clients, drawn uniformly without replacement.

A partial Fisher–Yates shuffle, addressed by words: draw number c swaps place c with a place from c on, and the value
that arrives in place c is chosen. Each choice starts from the identity, so it depends on its own words alone.
"""

from typing import Any

import numpy as np

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Method, run_method
from psofed.engine.lanes import WIDTH, empty_lanes, filled, load, store
from psofed.engine.normals import bounded, mix_word, unit_uniform
from psofed.engine.state import Layout
from psofed.engine.step import WordSource
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import KernelTable, Table
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability
from psofed.parts.plain import check_size

NO_PRESENCE: BoolArray = np.zeros((0, 0, 0), np.bool_)


class Choice(Table):
    """Up to `most` participants in each of `count` iterations from number `first` on.

    Parameters
    ----------
    stream : array (2, L)
        Their randomness.
    first, count, most : int
    layout : Layout
        Where columns stand.
    present : bool array (T, V, 16), or empty
        Who is available.
    only_present : bool
        Whether participants are drawn from those available, all of them if there are too few.

    Attributes
    ----------
    participants : int array (T, L, P)
        The participants; places that stay empty hold different clients that are not available.
    reached : bool array (T, L, P), or empty
        Whether there is an available client in each place; empty if all clients are available.
    asked : int array (T, L)
        How many participants are asked to upload.
    numbers, swapped : int arrays (K,) and (P,)
        Scratch.
    """

    def __init__(
        self,
        stream: WordArray,
        first: int,
        count: int,
        most: int,
        layout: Layout,
        present: BoolArray = NO_PRESENCE,
        only_present: bool = False,
    ) -> None:
        shape = (count, stream.shape[1], most)
        self.stream, self.layout = stream, layout
        self.present, self.only_present = present, only_present and present.size > 0
        self.numbers = np.arange(layout.clients, dtype=np.int32)
        self.swapped = np.empty(most, np.int64)
        self.participants: IndexArray = np.empty(shape, np.int32)
        self.reached = np.empty(shape if present.size else (0, 0, 0), np.bool_)
        self.asked = np.full(shape[:2], most)
        table: Any = KernelTable(self)
        _fill(first, table)


def draw_participants(stream: Stream, first: int, count: int, clients: int, most: int) -> IndexArray:
    """Draw `most` different clients in each of `count` iterations from number `first` on, shape (T, L, most)."""
    return Choice(np.array(stream), first, count, most, Layout(clients, 0, 0)).participants


@compiled
def _fill(first: int, choice: Choice) -> None:
    stream, present, numbers, swapped = choice.stream, choice.present, choice.numbers, choice.swapped
    out, reached, asked, only_present = choice.participants, choice.reached, choice.asked, choice.only_present
    shift, mask = choice.layout.shift, choice.layout.mask
    iterations, trials, participants = out.shape
    for t in range(iterations):
        for trial in range(trials):
            gamma = stream[1, trial]
            word = stream[0, trial] + np.uint64((first + t) * participants) * gamma
            size = numbers.size
            if only_present:
                size = 0
                for k in range(numbers.size):  # without a branch, which nobody could foresee
                    numbers[size] = k
                    size += int(present[t, k >> shift, trial + (k & mask)])
                asked[t, trial] = min(participants, size)
            _choose(word, gamma, size, numbers, swapped, out[t, trial])
            if only_present and size < participants:  # each client at most once, also in places that stay empty
                for k in range(numbers.size):
                    if not present[t, k >> shift, trial + (k & mask)]:
                        if size < participants:
                            out[t, trial, size] = k
                        size += 1
            for p in range(participants if present.size else 0):
                client: Any = np.int64(out[t, trial, p])
                reached[t, trial, p] = present[t, client >> shift, trial + (client & mask)]


@kernel_part
def _choose(
    word: np.uint64, gamma: np.uint64, size: int, numbers: IndexArray, swapped: IntArray, out: IndexArray
) -> None:
    """Fill ``out`` with distinct members of the first `size` of ``numbers``, which are swapped and swapped back."""
    count = out.size
    for c in range(count):
        place = c + bounded(mix_word(word), max(size - c, 1))
        word += gamma
        swapped[c] = place
        numbers[c], numbers[place] = numbers[place], numbers[c]
        out[c] = numbers[c]
    for c in range(count - 1, -1, -1):
        numbers[c], numbers[swapped[c]] = numbers[swapped[c]], numbers[c]


class AvailableClients:
    """Which clients are available in several trials, drawn in order.

    Parameters
    ----------
    availability : Availability
        The part.
    shares : array (K,)
        Share of the time that each client is available.
    stream : Stream
        Its randomness, which is nobody else's: data, masks and attack do not depend on who is available.
    layout : Layout
        Where columns stand.
    memory_size : int
        Values that it keeps for each client.
    """

    def __init__(
        self, availability: Availability, shares: FloatArray, stream: Stream, layout: Layout, memory_size: int = 0
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        words = stream.words(0, shares.size).T
        uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._availability, self._before = availability, np.zeros((layout.vectors, WIDTH), np.bool_)
        self._fields = {
            "source": WordSource(stream, layout, 1), "layout": layout, "shares": shares,
            "client_uniforms": np.ascontiguousarray(uniforms),
            "memory": np.zeros((stream.key.size, shares.size, memory_size)), "uniforms": empty_lanes(WIDTH),
        }  # fmt: skip

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, V, 16)."""
        present: BoolArray = filled(False, count + 1, *self._before.shape, dtype=np.bool_)
        present[0] = self._before
        run_method(self._availability, "is_available", _draw_presence, first, present=present, **self._fields)
        self._before = present[-1]
        return present[1:]


def _draw_presence(method: Method, first: int, k: int, g: int, table: Any) -> None:
    """Frame of an availability; the columns' random numbers are one word for each iteration, shape (16,)."""
    source, shares, own, memory = table.source, table.shares, table.client_uniforms, table.memory
    out, uniforms, shift, mask = table.present, table.uniforms, table.layout.shift, table.layout.mask
    trials, num_clients = own.shape
    for t in range(1, out.shape[0]):
        n = first + t - 1
        for v in range(out.shape[1]):
            # The first K words are drawn once per client.
            _fill_uniforms(source.origin, source.stride, source.hop, n + 1, v, uniforms)
            for lane in range(uniforms.size if mask else trials):
                client, trial = (v << shift) + (lane & mask), lane if mask == 0 else 0
                if client >= num_clients:
                    continue
                presence = Presence(
                    n, client, num_clients, shares[client], uniforms[lane], own[trial, client], out[t - 1, v, lane]
                )
                out[t, v, lane] = bool(method(table.options, memory[trial, client], presence))


@kernel_part
def _fill_uniforms(origin: WordArray, stride: WordArray, hop: WordArray, n: int, v: int, out: FloatArray) -> None:
    """Write a uniform number for each column of a vector in iteration n, where :class:`WordSource` says."""
    word = load(origin, 0) + np.uint64(n) * load(stride, 0) + np.uint64(v) * load(hop, 0)
    store(out, 0, unit_uniform(mix_word(word)))
