"""Arguments of the parts' bodies, as named tuples of numbers and arrays.

A body is plain Python on ``self.<field>``, one of these, and NumPy or :mod:`math`. It runs as it is, and compiled
by the engine. Everything here is of models, never of errors, and of one trial.
"""

import math
from typing import NamedTuple

import numpy as np

from psofed.common.types import BoolArray, FloatArray, IntArray

_NOTHING: FloatArray = np.zeros(0)
_NOBODY: IntArray = np.zeros(0, np.int64)


class Upload(NamedTuple):
    """One entry that an attacker is about to upload: the argument of ``corrupt``.

    What the attack does not know (:attr:`psofed.Attack.knows`) is NaN or empty.

    Attributes
    ----------
    value : float
        What an honest client would send.
    entry, client, iteration : int
        Which entry of which client's model, and when.
    normal : float
        A standard normal number of this client, iteration and entry.
    common_normal : float
        The same for all attackers.
    server : float
        The server's value; known from ``"server"`` on.
    accomplices : array (count,)
        What all current attackers, in the order of clients, would honestly send; known from ``"accomplices"`` on.
    honest : array (count,)
        What the other participants who share the entry send; known with ``"everyone"``.
    accomplice_clients : int array (count,)
        Who sent `accomplices`.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, ascending, whether or not they attack now.
    """

    value: float
    entry: int
    client: int
    iteration: int
    normal: float
    common_normal: float
    server: float = math.nan
    accomplices: FloatArray = _NOTHING
    honest: FloatArray = _NOTHING
    accomplice_clients: IntArray = _NOBODY
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


# Values of `Attack.knows`, from least to most.
KNOWLEDGE = ("upload", "server", "accomplices", "everyone")


class Conspiracy(NamedTuple):
    """All uploads of an iteration as vectors, in the order of clients: the argument of ``craft``.

    Attributes
    ----------
    honest, honest_shared : array (H, E), bool array (H, E)
        How much the other participants change the server's model, 0 where not shared; which of the E entries they
        share.
    accomplices, accomplices_shared : array (A, E), bool array (A, E)
        The same for current attackers: what they would honestly send.
    honest_clients, accomplice_clients : int arrays (H,), (A,)
        Who they are.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, whether or not they attack now.
    server : array (E,)
        The server's values.
    entries : int array (E,)
        The entries of the model that anybody shares, ascending.
    common_normals : array (E,)
        Standard normal numbers of this iteration and entry.
    num_clients, dimension, iteration : int
        K, D and n.
    memory : array (any,)
        ``group_memory_size`` numbers that last from iteration to iteration, zeros at first.
    client_memory : array (K, any)
        Each client's ``memory_size`` numbers, zeros at first and filled by ``remember``.
    scratch : array (any,)
        Scratch memory of at least P² + 2 · P + 2 · E numbers.
    """

    honest: FloatArray
    honest_shared: BoolArray
    honest_clients: IntArray
    accomplices: FloatArray
    accomplices_shared: BoolArray
    server: FloatArray
    entries: IntArray
    common_normals: FloatArray
    num_clients: int
    dimension: int
    iteration: int
    memory: FloatArray
    scratch: FloatArray
    accomplice_clients: IntArray
    group: IntArray
    byzantine: IntArray
    client_memory: FloatArray


class Moment(NamedTuple):
    """A Byzantine client after its local step: the argument of an attack's ``remember``.

    Attributes
    ----------
    model : array (D,)
        The client's model.
    client, iteration : int
        k and n.
    """

    model: FloatArray
    client: int
    iteration: int


class Sample(NamedTuple):
    """A sample that an attacker is about to learn from: the argument of ``poison``.

    Attributes
    ----------
    inputs : array (D,)
        x, or its features.
    label : float
        y.
    normals : array (D,)
        Standard normal numbers of this client and iteration.
    client, iteration : int
        k and n.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, ascending.
    """

    inputs: FloatArray
    label: float
    normals: FloatArray
    client: int
    iteration: int
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


class Residual(NamedTuple):
    """A client's prediction error on a sample: the argument of a learner's ``gain``.

    Attributes
    ----------
    error : float
        e = y − vᵀx, v the client's model after the download.
    power : float
        ‖x‖².
    stepsize : float
        μ_k.
    client, iteration : int
        k and n.
    """

    error: float
    power: float
    stepsize: float
    client: int
    iteration: int


class Observation(NamedTuple):
    """A sample that a client is about to learn from: the argument of a learner's ``learn``.

    Attributes
    ----------
    inputs : array (D,)
        x, or its features.
    error : float
        e = y − vᵀx.
    model : array (D,)
        v, the client's model after the download.
    stepsize : float
        μ_k.
    client, iteration : int
        k and n.
    """

    inputs: FloatArray
    error: float
    model: FloatArray
    stepsize: float
    client: int
    iteration: int


class Innovation(NamedTuple):
    """Random numbers that an input is made of: the argument of a stream.

    Attributes
    ----------
    normals : array (d,)
        Standard normal numbers of this client and iteration.
    deviation : float
        ς_k, the square root of ``data.input_variance``.
    client, iteration : int
        k and n.
    """

    normals: FloatArray
    deviation: float
    client: int
    iteration: int


class Numbers(NamedTuple):
    """Values sent for one entry: the argument of a rule ``over = "entries"``.

    Attributes
    ----------
    values : array (count,)
        Values that arrived, in no particular order; the server's own stands in for those missing to the rule's quorum.
    server : float
        The server's value.
    entry : int
        Which entry of the model it is.
    """

    values: FloatArray
    server: float
    entry: int = 0


def scratch_size(count: int, entries: int) -> int:
    """Return the least size of the scratch of :class:`Updates`."""
    return count * count + 2 * count + 2 * entries


class Updates(NamedTuple):
    """Uploads as vectors: the argument of a rule ``over = "vectors"``.

    Attributes
    ----------
    changes : array (count, E)
        How much each upload would change the server's model; 0 in entries that it lacks.
    shared : bool array (count, E)
        Which entries each of them shared.
    server : array (E,)
        The server's values.
    own_step : array (E,)
        The step the server would take on its root data; zeros unless the rule has ``root_size``.
    scratch : array (any,)
        Scratch memory of at least count² + 2 · count + 2 · E numbers; new arrays would be slow.
    entries : int array (E,)
        The entries of the model that anybody shared.
    clients : int array (count,)
        Who uploaded.
    num_clients : int
        K.
    """

    changes: FloatArray
    shared: BoolArray
    server: FloatArray
    own_step: FloatArray
    scratch: FloatArray
    entries: IntArray = _NOBODY
    clients: IntArray = _NOBODY
    num_clients: int = 0


class Evidence(NamedTuple):
    """Evidence on a client from one upload: the argument of a defence.

    Attributes
    ----------
    scores : array (count,)
        Each value's distance from what was expected, in deviations of an honest client, within ±1000.
    client, iteration : int
        k and n.
    """

    scores: FloatArray
    client: int
    iteration: int


class AllUpdates(NamedTuple):
    """Uploads of all participants as vectors: the argument of a pre-aggregation.

    Attributes
    ----------
    changes : array (P, E)
        How much each participant would change the server's model; 0 in entries that did not arrive.
    shared : bool array (P, E)
        Which entries arrived from each of them.
    server : array (E,)
        The server's values.
    uniforms : array (P,)
        A random number in [0, 1) per participant, fresh in each iteration.
    scratch : array (any,)
        Scratch memory of at least P² + 2 · P + 2 · E numbers.
    """

    changes: FloatArray
    shared: BoolArray
    server: FloatArray
    uniforms: FloatArray
    scratch: FloatArray


class Mask(NamedTuple):
    """Request for a mask: the argument of a pattern.

    Attributes
    ----------
    iteration, client : int
        When, and for whom; client 0 where one mask is for all.
    dimension, num_shared : int
        D and M.
    uniforms : array (M,)
        Random numbers in [0, 1), fresh for this mask.
    client_uniform : float
        A random number in [0, 1), drawn once for this client.
    """

    iteration: int
    client: int
    dimension: int
    num_shared: int
    uniforms: FloatArray
    client_uniform: float


class Step(NamedTuple):
    """Position of the target before it moves: the argument of a drift.

    Attributes
    ----------
    iteration : int
        n.
    position : array (D,)
        w*_{n−1} − w*_0, zeros for n = 0.
    normals : array (D,)
        Standard normal numbers of this iteration.
    direction : array (D,)
        A unit vector drawn once per trial, uniform over the sphere.
    """

    iteration: int
    position: FloatArray
    normals: FloatArray
    direction: FloatArray


class Message(NamedTuple):
    """A participant's update before encoding: the argument of ``encode``.

    Attributes
    ----------
    update : array (D,)
        u_k = μ x_k e_k.
    stepsize : float
        μ_k.
    normals, uniforms : array (any,)
        Random numbers shared by server and clients, as many as the exchange asks for.
    client_uniforms : array (any,)
        Random numbers of this client alone.
    """

    update: FloatArray
    stepsize: float
    normals: FloatArray
    uniforms: FloatArray
    client_uniforms: FloatArray


class Received(NamedTuple):
    """Numbers that arrived at the server, from one client or combined, with the shared random numbers.

    Attributes
    ----------
    numbers : array (N,)
        What arrived, or what the aggregation rule made of it.
    participants : int
        How many sent.
    stepsize : float
        μ; the mean of the clients' stepsizes where they differ.
    normals, uniforms : array (any,)
        As in :class:`Message`.
    """

    numbers: FloatArray
    participants: int
    stepsize: float
    normals: FloatArray
    uniforms: FloatArray


class Presence(NamedTuple):
    """A client in an iteration: the argument of an availability.

    Attributes
    ----------
    iteration, client, num_clients : int
        n, k and K.
    share : float
        Share of the time that this client is available, as the part states it.
    uniform : float
        A random number in [0, 1) of this client and iteration.
    client_uniform : float
        A random number in [0, 1), drawn once for this client.
    was_available : bool
        Whether the client was available in the iteration before; false in the first.
    """

    iteration: int
    client: int
    num_clients: int
    share: float
    uniform: float
    client_uniform: float
    was_available: bool


class Transmission(NamedTuple):
    """A message on a link: the argument of a channel.

    Attributes
    ----------
    values : array (M,)
        Entries of the sender's model; NaN for one that is not sent.
    receiver : array (M,)
        The receiver's own values of these entries: the server's on the way up, the client's on the way down.
    entries : int array (M,)
        Which entries of the model these are.
    client, iteration : int
        Which client's link it is, and when.
    normals, uniforms : array (M,)
        Random numbers of this link, iteration and entry: standard normal, and in [0, 1). Those that the channel does
        not ask for (``draws``) are empty.
    message_uniform : float
        A random number in [0, 1) of this message.
    """

    values: FloatArray
    receiver: FloatArray
    entries: IntArray
    client: int
    iteration: int
    normals: FloatArray
    uniforms: FloatArray
    message_uniform: float


class Departure(NamedTuple):
    """An upload that is about to be sent: the argument of a delay.

    Attributes
    ----------
    client, iteration : int
        Whose it is, and when it was made.
    uniform : float
        A random number in [0, 1) of this client and iteration.
    """

    client: int
    iteration: int
    uniform: float


class TrialState(NamedTuple):
    """One trial in one iteration, after its clients have learned and before they upload.

    Attributes
    ----------
    iteration : int
        n, from 0 on.
    target : array (D,)
        w, the weights to be learned; with a drift those of this iteration.
    server : array (D,)
        The server's model w_n at the beginning of the iteration.
    models : array (K, D)
        The clients' models after learning; (1, D) with the initial model if the algorithm's clients hold none.
    errors : array (K,)
        Prediction errors y − wᵀx that the clients made before learning; NaN where a client has no sample.
    is_byzantine : bool array (K,)
        Which clients are Byzantine in this iteration.
    """

    iteration: int
    target: FloatArray
    server: FloatArray
    models: FloatArray
    errors: FloatArray
    is_byzantine: BoolArray
