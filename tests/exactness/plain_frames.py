"""What frames of the engine are run on as plain Python: uploads in several lanes, and memory that nobody has written.

Compiled code looks at no index: what lies beyond its memory it reads and writes all the same. NumPy looks. And nothing
is compiled, so it takes a moment.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from psofed.engine.bodies import Frame, MakeFrame
from psofed.engine.hooks import Uploads
from psofed.engine.normals import fill_standard_normal
from psofed.engine.streams import Stream
from psofed.parts.part import Part

LANES, CLIENTS = 3, 7


class Fleet(NamedTuple):
    """What is uploaded in several lanes, as models (P, D, lanes), NaN where nothing is; and the server's (D, lanes)."""

    target: np.ndarray
    server: np.ndarray
    clients: np.ndarray
    entries: np.ndarray
    models: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """The server's errors, as kernels hold them."""
        return self.target[:, None] - self.server

    def uploads(self) -> Uploads:
        """The uploads as kernels hold them."""
        sent = np.take_along_axis(self.target[None, :, None] - self.models, self.entries.astype(int), axis=1)
        return Uploads(self.clients, self.entries, sent, np.full(sent.shape[2], len(sent)))

    def received(self, uploads: Uploads) -> np.ndarray:
        """Models (P, D, lanes) that have arrived."""
        models = np.full((len(uploads.sent), *self.server.shape), np.nan)
        sent = self.target[uploads.entries] - uploads.sent
        places = np.isfinite(uploads.sent)
        for p, m, lane in zip(*np.nonzero(places), strict=True):
            models[p, uploads.entries[p, m, lane], lane] = sent[p, m, lane]
        return models


def draw_fleet(size: tuple[int, int, int, float], seed: int = 0, lanes: int = LANES) -> Fleet:
    """Draw a fleet whose participants share masks of their own, or all the same where they share all."""
    participants, dimension, shared, bad = size
    rng = np.random.default_rng(seed)
    orders = [[rng.permutation(dimension)[:shared] for _ in range(participants)] for _ in range(lanes)]
    if shared == dimension:
        orders = [[np.arange(dimension)] * participants] * lanes
    entries = np.array(orders).transpose(1, 2, 0)
    sent = rng.normal(size=entries.shape)
    spoiled = rng.random(sent.shape) < bad
    sent[spoiled] = rng.choice([np.nan, np.inf, -np.inf, 1e200], size=spoiled.sum())
    models = np.full((participants, dimension, lanes), np.nan)
    np.put_along_axis(models, entries, sent, axis=1)
    clients = np.array([rng.permutation(CLIENTS)[:participants] for _ in range(lanes)]).T
    return Fleet(
        rng.normal(size=dimension), rng.normal(size=(dimension, lanes)), clients.astype(np.int32),
        entries.astype(np.int32), models,
    )  # fmt: skip


def frame_of(part: Part, body: str | Callable, make_frame: MakeFrame) -> Frame:
    """The frame around a part's method, as plain Python."""
    return make_frame(lambda _: part, getattr(type(part), body) if isinstance(body, str) else body)


def forget(*arrays: np.ndarray) -> None:
    """Make what nobody has written yet look like it."""
    for array in arrays:
        array[:] = {"f": np.nan, "b": True, "i": -9}[array.dtype.kind]


def one_lane(stream: Stream, lane: int) -> Stream:
    """The stream of one trial."""
    return Stream(stream.key[lane : lane + 1], stream.gamma[lane : lane + 1])


# Random numbers, without compiling what kernels inline.


def uniform_at(key: np.uint64, gamma: np.uint64, number: int) -> float:
    """The uniform number that a word of a stream gives."""
    word = Stream(np.array([key]), np.array([gamma])).words(int(number), 1)[0, 0]
    return float(word >> np.uint64(11)) * 2.0**-53


def normal_at(key: np.uint64, gamma: np.uint64, word: int, entry: int) -> float:
    """An entry's normal number, of those that begin behind a word of a stream."""
    pair = np.empty((2, 1), np.float32)
    fill_standard_normal(np.array([key]), np.array([gamma]), int(word) + 1 + int(entry) // 2, pair)
    return float(pair[entry % 2, 0])
