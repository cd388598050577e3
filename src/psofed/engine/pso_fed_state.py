"""Arguments of PSO-Fed's kernel: what is exchanged, what goes beyond the plain case, state and scratch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.frames.learner import Learning
from psofed.engine.frames.stream import Inputs
from psofed.engine.lanes import empty_lanes
from psofed.engine.normals import WORDS_AHEAD
from psofed.engine.streams import WordArray


class Exchanges(NamedTuple):
    """Participants and masks of T iterations.

    Attributes
    ----------
    participants, uploaders : array (T, P, lanes)
        Clients that download, and clients that upload.
    downloaded, uploaded : array (T, P, M, lanes)
        The entries each of them exchanges.
    """

    participants: IndexArray
    downloaded: IndexArray
    uploaders: IndexArray
    uploaded: IndexArray


class Extras(NamedTuple):
    """Everything beyond LMS on independent white samples of one fixed target.

    Attributes
    ----------
    has_samples : bool
        Whether samples are given; else they are drawn.
    inputs, residuals : arrays (T, K, D, lanes or 1) and (T, K, lanes or 1), or empty
        See :class:`psofed.engine.samples.Chunk`.
    tests_on_next : bool
        The test MSE is that on the clients' next samples.
    watched_from : int
        From which t on each client's squares are added up (given samples only).
    moves : array (T, D, lanes), or empty
        w*_n − w*_0.
    offsets : array (K, D, lanes), or empty
        d_k: how far each client's own target lies from the common one.
    learning : Learning
        What clients make of a sample.
    stream : Inputs
        Where inputs come from, unless samples are given.
    """

    has_samples: bool
    inputs: FloatArray
    residuals: FloatArray
    tests_on_next: bool
    watched_from: int
    moves: FloatArray
    offsets: FloatArray
    learning: Learning
    stream: Inputs


class ModelState(NamedTuple):
    """State that the kernel advances.

    Attributes
    ----------
    clients, server : arrays (K, D, lanes) and (D, lanes)
        Errors w − w_{k,n} and w − w_n.
    client_squares : array (K, lanes)
        Sums of each client's squared errors (given samples only).
    remembered : array (K, D, lanes)
        `clients`, for attackers that remember models; empty where lanes are clients, which such attackers cannot have.
    """

    clients: FloatArray
    server: FloatArray
    client_squares: FloatArray
    remembered: FloatArray


class Scratch(NamedTuple):
    """Scratch of the kernel.

    Attributes
    ----------
    counter : array (lanes,)
        Where the stream of samples stands.
    hashed, normals, sample : arrays (any, lanes), (2·words, lanes), (D, lanes)
        A sample on its way: hashed words, normals, inputs.
    error, clean : arrays (lanes,)
        Prediction errors.
    distance : array (D, lanes)
        The server's error to a target that moves; after that, to aggregate in.
    sent : array (P, M, lanes)
        What is uploaded.
    asked : int array (lanes,)
        Number of clients that were asked to upload.
    nobody : int array (0, lanes)
        No clients, passed as the excluded ones where there is no defence.
    """

    counter: WordArray
    hashed: WordArray
    normals: NDArray[np.float32]
    sample: FloatArray
    error: FloatArray
    clean: FloatArray
    distance: FloatArray
    sent: FloatArray
    asked: IntArray
    nobody: IntArray


def make_scratch(dimension: int, participants: int, shared: int, lanes: int) -> Scratch:
    """Allocate the scratch of a run."""
    words = (dimension + 2) // 2
    return Scratch(
        counter=empty_lanes(lanes, dtype=np.uint64),
        hashed=empty_lanes(WORDS_AHEAD, lanes, dtype=np.uint64),
        normals=empty_lanes(2 * words, lanes, dtype=np.float32),
        sample=empty_lanes(dimension, lanes),
        error=empty_lanes(lanes),
        clean=empty_lanes(lanes),
        distance=empty_lanes(dimension, lanes),
        sent=empty_lanes(participants, shared, lanes),
        asked=np.full(lanes, participants),
        nobody=np.zeros((0, lanes), np.int64),
    )
