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
        Which entry of the model it is, whose, and when.
    normal : float
        A standard normal number of this client, iteration and entry alone.
    common_normal : float
        A standard normal number of this iteration and entry, the same for all attackers.
    server : float
        The server's value of the entry; known from ``"server"`` on.
    accomplices : array (count,)
        Clean numbers of this entry by all who attack in this iteration, the client itself included, in the order
        of clients; known from ``"accomplices"`` on.
    honest : array (count,)
        Numbers of this entry by all participants who do not attack in this iteration, in the order of clients;
        empty if nobody else shares the entry. Known with ``"everyone"``: such an attacker is omniscient.
    accomplice_clients : int array (count,)
        Who sent `accomplices`.
    group : int array (any,)
        The Byzantine clients of this attack, ascending, whether or not they attack in this iteration.
    byzantine : int array (any,)
        The Byzantine clients of all groups, ascending.
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
    """All uploads of an iteration as vectors: the argument of ``craft``, which therefore knows everyone's uploads.

    Clients are in the order of their numbers.

    Attributes
    ----------
    honest : array (H, E)
        By how much each participant who does not attack now would change the server's model; 0 in entries it does not
        share. E is the number of entries that anybody shares.
    honest_shared : bool array (H, E)
        Which entries each of them shares.
    honest_clients : int array (H,)
        Who they are.
    accomplices, accomplices_shared : arrays (A, E)
        Likewise, of those who attack now: what they would honestly send.
    accomplice_clients : int array (A,)
        Who they are.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, whether or not they attack now.
    server : array (E,)
        The server's own numbers.
    entries : int array (E,)
        Which entries of the model these are, ascending.
    common_normals : array (E,)
        Standard normal numbers of this iteration and entry.
    num_clients, dimension, iteration : int
        K, D and n.
    memory : array (any,)
        Kept from iteration to iteration, zeros at first; its length is ``group_memory_size``.
    client_memory : array (K, any)
        The memory of each client, zeros at first and filled by ``remember``; of the size ``memory_size``.
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
        Whose, and when.
    """

    model: FloatArray
    client: int
    iteration: int


class Sample(NamedTuple):
    """A sample that an attacker is about to learn from.

    Attributes
    ----------
    inputs : array (D,)
        x, or its features.
    label : float
        y.
    normals : array (D,)
        Standard normal numbers of this client and iteration.
    client, iteration : int
        Whose, and when.
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
        Whose, and when.
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
        Whose, and when.
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
        Whose, and when.
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
        Numbers that arrived, in no particular order; at least one. Where fewer arrived than the rule's quorum, the
        server's own value stands in for the missing ones.
    server : float
        The server's own number.
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
        By how much each participant who answered would change the server's model; 0 in entries it did not share.
        E is the number of entries that anybody shared.
    shared : bool array (count, E)
        Which entries each of them shared.
    server : array (E,)
        The server's own numbers.
    own_step : array (E,)
        The step the server would take on its root data; zeros unless the rule has ``root_size``.
    scratch : array (any,)
        Scratch memory of at least count² + 2 · count + 2 · E numbers: new arrays are slow to get where a rule is
        called millions of times.
    entries : int array (E,)
        Which entries of the model these are.
    clients : int array (count,)
        Who answered.
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
        For each number it sent, in no particular order: how far it is from what was to be expected, over the
        deviation of an honest client. So their mean square is near 1 for an honest one. Infinite numbers, and any
        beyond ±1000, are shown as ±1000.
    client, iteration : int
        Whose, and when.
    """

    scores: FloatArray
    client: int
    iteration: int


class AllUpdates(NamedTuple):
    """Uploads of all participants as vectors: the argument of a pre-aggregation.

    Attributes
    ----------
    changes : array (P, E)
        By how much each participant would change the server's model; 0 in entries it did not share, and everywhere
        if it did not answer. E is the number of entries that anybody shared.
    shared : bool array (P, E)
        Which entries each of them shared; none if it did not answer.
    server : array (E,)
        The server's own numbers.
    uniforms : array (P,)
        A random number in [0, 1) of each participant, fresh in each iteration.
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
        D, and M, how many entries are to be chosen.
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
    """A participant's update before encoding, with random numbers: the argument of ``encode``.

    Attributes
    ----------
    update : array (D,)
        u_k = μ x_k e_k.
    stepsize : float
        μ_k.
    normals, uniforms : array (any,)
        Random numbers shared by server and clients; the exchange sets their number.
    client_uniforms : array (any,)
        Random numbers of this client alone; the exchange sets their number.
    """

    update: FloatArray
    stepsize: float
    normals: FloatArray
    uniforms: FloatArray
    client_uniforms: FloatArray


class Received(NamedTuple):
    """Numbers that arrived at the server, from one client or joined, and the shared random numbers.

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
