"""Where parts plug into kernels: the tuples that kernels hand over, and the signatures of what they call.

Arrays have the trial (lane) as their last axis; P is the number of uploads, M of numbers in each. Kernels hold errors,
w − model; a model's entry i is ``target[i]`` less that. Every hook gets a `token` first: it says whose Python body to
run where a body could not be compiled.
"""

from typing import Any, NamedTuple

from numba import boolean, float64, int32, int64, types, uint64

from psofed.engine.streams import WordArray


class Words(NamedTuple):
    """A counter-based stream of several lanes (see :mod:`psofed.engine.streams`)."""

    key: WordArray
    gamma: WordArray


class Attackers(NamedTuple):
    """Who attacks and when.

    Attributes
    ----------
    words : Words
        The attack's randomness.
    probability : float
        p_a.
    redrawn : int
        |S_B| where the set is redrawn in each iteration, else −1.
    is_byzantine : bool array (K, lanes)
        The set; it is overwritten where it is redrawn.
    options : array (any,)
        Values of the attack's fields.
    """

    words: Words
    probability: float
    redrawn: int
    is_byzantine: Any
    options: Any


class Uploads(NamedTuple):
    """What is uploaded in an iteration.

    Attributes
    ----------
    clients : int array (P, lanes)
        Which client each upload is from.
    entries : int array (P, M, lanes)
        Which entry each number belongs to.
    sent : array (P, M, lanes)
        The numbers, as errors; NaN for one that is not sent. Attacks change them in place.
    """

    clients: Any
    entries: Any
    sent: Any


_VECTOR, _MATRIX, _CUBE = float64[::1], float64[:, ::1], float64[:, :, ::1]
_WORDS = types.NamedUniTuple(uint64[::1], 2, Words)
ATTACKERS = types.NamedTuple((_WORDS, float64, int64, boolean[:, ::1], _VECTOR), Attackers)
UPLOADS = types.NamedTuple((int32[:, ::1], int32[:, :, ::1], _CUBE), Uploads)

# attack(token, n, attackers, target (D,), server (D, lanes), uploads)
ATTACK = types.void(int64, int64, ATTACKERS, _VECTOR, _MATRIX, UPLOADS)

# poison(token, n, k, attackers, target (D,), inputs (D, lanes), noise (lanes,))
#   inputs, noise  x and ν = y − wᵀx, to be changed into the x' and y' − wᵀx' that client k learns from
POISON = types.void(int64, int64, int64, ATTACKERS, _VECTOR, _MATRIX, _VECTOR)

# aggregate(token, target (D,), uploads, options (any,), own_step (D, lanes), server (D, lanes))
#   own_step       change of the server's error by its own step, where the rule has root data
#   server         to be changed in place; no NaN or infinity in what was sent may reach it
AGGREGATION = types.void(int64, _VECTOR, UPLOADS, _VECTOR, _MATRIX, _MATRIX)

# evaluate(token, options (any,), inputs (d, N), out (N,))
FUNCTION = types.void(int64, _VECTOR, _MATRIX, _VECTOR)

# select(token, options, first, words, clients (T, P, lanes), num_clients, dimension, coordinated, out (T, P, M, lanes))
SELECTION = types.void(
    int64, _VECTOR, int64, _WORDS, int32[:, :, ::1], int64, int64, boolean, int32[:, :, :, ::1]
)

# move(token, options, first, words, direction (D, lanes), position (D, lanes), out (T, D, lanes))
DRIFT = types.void(int64, _VECTOR, int64, _WORDS, _MATRIX, _MATRIX, _CUBE)

# encode(token, stepsize, options, updates (P, D, lanes), normals, uniforms (any, lanes),
#        client_uniforms (P, any, lanes), sent (P, N, lanes))
ENCODE = types.void(int64, float64, _VECTOR, _CUBE, _MATRIX, _MATRIX, _CUBE, _CUBE)

# decode(token, participants, stepsize, options, sent (P, N, lanes), normals, uniforms, decoded (P, D, lanes))
DECODE = types.void(int64, int64, float64, _VECTOR, _CUBE, _MATRIX, _MATRIX, _CUBE)

# apply(token, participants, stepsize, options, joined (N, lanes), normals, uniforms, memory (any, lanes),
#       change (D, lanes))
APPLY = types.void(int64, int64, float64, _VECTOR, _MATRIX, _MATRIX, _MATRIX, _MATRIX, _MATRIX)
