"""Interface between kernels and parts: the tuples that kernels pass, and the signatures of the hooks they call.

Arrays have the trial (lane) as their last axis; P is the number of uploads, M of numbers in each. Kernels hold errors,
w − model; a model's entry i is ``target[i]`` less that. Every hook gets a `token` first: it says whose Python body to
run where a body could not be compiled.
"""

from typing import NamedTuple

from numba import boolean, float32, float64, int32, int64, types, uint64

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import HookTaker, hook_taker
from psofed.engine.streams import Stream


class AttackState(NamedTuple):
    """Byzantine clients, and the randomness and memory of their attack.

    Attributes
    ----------
    stream : Stream
        The attack's randomness.
    probability : float
        p_a.
    is_redrawn : bool
        Whether the set is redrawn in each iteration.
    is_byzantine : bool array (K, lanes)
        The set; it is overwritten where it is redrawn.
    options : array (any,)
        Values of the attack's fields.
    memory : array (lanes, any)
        Memory of the whole group across iterations.
    members, sizes : int arrays (lanes, K) and (lanes,)
        Numbers of the Byzantine clients of this group, ascending, and how many there are.
    everyone : int array (any,)
        Numbers of the Byzantine clients of all groups, where the sets are fixed.
    client_memory : array (lanes, K, any)
        Memory of each client.
    """

    stream: Stream
    probability: float
    is_redrawn: bool
    is_byzantine: BoolArray
    options: FloatArray
    memory: FloatArray
    members: IntArray
    sizes: IntArray
    everyone: IntArray
    client_memory: FloatArray


class Uploads(NamedTuple):
    """Uploads of an iteration.

    Attributes
    ----------
    clients : int array (P, lanes)
        Which client each upload is from.
    entries : int array (P, M, lanes)
        Which entry each number belongs to.
    sent : array (P, M, lanes)
        The numbers, as errors; NaN for one that is not sent. Attacks change them in place.
    counts : int array (lanes,)
        How many clients were asked, at most P: what the mean divides by. Later places are empty.
    """

    clients: IndexArray
    entries: IndexArray
    sent: FloatArray
    counts: IntArray


class RuleMemory(NamedTuple):
    """Scratch of a rule's frame, sized for the largest case; `row_of` is −1 everywhere between calls.

    Attributes
    ----------
    numbers, flags : array (any,)
        Numbers by participant or entry, and which of them were sent.
    row_of, entry_of, counts : int array (D,), (any,), (any,)
        Where each entry stands among those shared, and back; how many numbers there are of each.
    """

    numbers: FloatArray
    flags: BoolArray
    row_of: IntArray
    entry_of: IntArray
    counts: IntArray


class Watching(NamedTuple):
    """Memory of a defence for K clients, and its scratch; `row_of` is −1 everywhere between calls.

    Attributes
    ----------
    threshold : float
        Suspicion above it is an alarm.
    return_after : int
        Uploads without an alarm until a client is let in again; −1: never.
    by_server, by_past : bool
        Whether the server's own number alone says what an upload is compared with; whether each client's variance is
        estimated from its own past.
    variance : array (N, K)
        Of honest residuals, by iteration; none if it is estimated on the way.
    memory : array (K, lanes, any)
        The defence's own numbers.
    usual_level : float
        What the fleet's level is without an attack; no matter where variances are estimated.
    level, log_levels, relative : arrays (lanes,), (lanes,) and (K, lanes)
        What is estimated on the way: the fleet's level; the sum of its logarithms; each client's variance over it, or
        by its past, where 0 is that it has none.
    left, first, since, exclusions, finished : int arrays (K, lanes)
        Uploads until a client is let in again, 0 if it is in; when it was left out first, and last; how often; for how
        long, not counting now.
    peak, peaks : arrays (K, lanes) and (bins, lanes)
        The highest suspicion of this excursion, and a count of such peaks; no bins unless they are counted.
    numbers, row_of, entry_of : arrays (any,), (D,), (any,)
        To work in.
    """

    threshold: float
    return_after: int
    by_server: bool
    by_past: bool
    variance: FloatArray
    memory: FloatArray
    usual_level: float
    level: FloatArray
    log_levels: FloatArray
    relative: FloatArray
    left: IntArray
    first: IntArray
    since: IntArray
    exclusions: IntArray
    finished: IntArray
    peak: FloatArray
    peaks: IntArray
    numbers: FloatArray
    row_of: IntArray
    entry_of: IntArray


class MixMemory(NamedTuple):
    """Scratch of a pre-aggregation's frame, as :class:`RuleMemory`; it writes `mixed`.

    Attributes
    ----------
    numbers, flags, row_of, entry_of
        As in :class:`RuleMemory`.
    after : int array (P + 1,)
        Number of mixed uploads, by number of participants.
    mixed : Uploads
        The mixed uploads, with all entries that can be shared.
    """

    numbers: FloatArray
    flags: BoolArray
    row_of: IntArray
    entry_of: IntArray
    after: IntArray
    mixed: Uploads


_VECTOR, _MATRIX, _CUBE = float64[::1], float64[:, ::1], float64[:, :, ::1]
_STREAM = types.NamedUniTuple(uint64[::1], 2, Stream)
ATTACKERS = types.NamedTuple(
    (
        _STREAM, float64, boolean, boolean[:, ::1], _VECTOR, _MATRIX, int64[:, ::1], int64[::1], int64[::1], _CUBE,
    ),
    AttackState,
)  # fmt: skip
UPLOADS = types.NamedTuple((int32[:, ::1], int32[:, :, ::1], _CUBE, int64[::1]), Uploads)

# attack(token, n, attackers, target (D,), server (D, lanes), uploads)
ATTACK = types.void(int64, int64, ATTACKERS, _VECTOR, _MATRIX, UPLOADS)

# corrupt(token, options, n, clients (P,), attacking (P,), group (any,), server (D,), uploads (P, D), normals (P, D),
#         common (D,), received (P, D))
#   uploads        models, not errors, of one server; NaN where an entry is not sent
CORRUPT = types.void(
    int64, float64[::1], int64, int64[::1], boolean[::1], int64[::1], float64[::1], float64[:, ::1], float64[:, ::1],
    float64[::1], float64[:, ::1],
)  # fmt: skip

# remember(token, n, attackers, target (D,), clients (K, D, lanes))
REMEMBER = types.void(int64, int64, ATTACKERS, _VECTOR, _CUBE)

# poison(token, n, k, attackers, target (D,), inputs (D, lanes), noise (lanes,))
#   inputs, noise  x and ν = y − wᵀx, to be changed into the x' and y' − wᵀx' that client k learns from
POISON = types.void(int64, int64, int64, ATTACKERS, _VECTOR, _MATRIX, _VECTOR)

# aggregate(token, target (D,), uploads, options (any,), own_step (D, lanes), memory, server (D, lanes))
#   own_step       change of the server's error by its own step, where the rule has root data
#   server         to be changed in place; no NaN or infinity in what was sent may reach it
_PLACES = int64[::1]
MEMORY = types.NamedTuple((_VECTOR, boolean[::1], _PLACES, _PLACES, _PLACES), RuleMemory)
AGGREGATION = types.void(int64, _VECTOR, UPLOADS, _VECTOR, _MATRIX, MEMORY, _MATRIX)

# judge(token, n, server (D, lanes), uploads, options (any,), watching)
#   uploads        what is sent by those who are left out becomes NaN
_COUNTS = int64[:, ::1]
WATCHING = types.NamedTuple(
    (
        float64, int64, boolean, boolean, _MATRIX, _CUBE, float64, _VECTOR, _VECTOR, _MATRIX, _COUNTS, _COUNTS, _COUNTS,
        _COUNTS, _COUNTS, _MATRIX, _COUNTS, _VECTOR, _PLACES, _PLACES,
    ),
    Watching,
)  # fmt: skip
DEFENCE = types.void(int64, int64, _MATRIX, UPLOADS, _VECTOR, WATCHING)

# mix(token, n, num_clients, target (D,), uploads, options (any,), stream, memory, server (D, lanes))
MIX_MEMORY = types.NamedTuple((_VECTOR, boolean[::1], _PLACES, _PLACES, _PLACES, UPLOADS), MixMemory)
MIX = types.void(int64, int64, int64, _VECTOR, UPLOADS, _VECTOR, _STREAM, MIX_MEMORY, _MATRIX)

# evaluate(token, options (any,), inputs (d, N), out (N,))
FUNCTION = types.void(int64, _VECTOR, _MATRIX, _VECTOR)

# select(token, options, first, stream, clients (T, P, lanes), num_clients, dimension, coordinated,
#        drawn (M, lanes), uniforms (M,), chosen (M,), out (T, P, M, lanes))
#   drawn, uniforms, chosen  scratch
SELECTION = types.void(
    int64, _VECTOR, int64, _STREAM, int32[:, :, ::1], int64, int64, boolean, _MATRIX, _VECTOR, int64[::1],
    int32[:, :, :, ::1],
)  # fmt: skip

# choose(token, options, n, stream, target (D,), clients (K, D, lanes), memory (lanes, K, any), wrong (1,),
#        out (K, M, lanes))
#   wrong          set to 1 if a mask has other than M distinct entries
CHOOSE = types.void(int64, _VECTOR, int64, _STREAM, _VECTOR, _CUBE, _CUBE, int64[::1], int32[:, :, ::1])

# note(token, options, n, is_upload, target (D,), shared, memory (lanes, K, any))
NOTE = types.void(int64, _VECTOR, int64, boolean, _VECTOR, UPLOADS, _CUBE)

# move(token, options, first, stream, direction (D, lanes), position (D, lanes), out (T, D, lanes))
DRIFT = types.void(int64, _VECTOR, int64, _STREAM, _MATRIX, _MATRIX, _CUBE)

# fill(token, options, first, stream, shares (K,), client_uniforms (K, lanes), memory (lanes, K, any),
#      uniforms (any, lanes), out (1 + T, K, lanes))
#   uniforms       scratch
#   out            its first row is that of the iteration before
AVAILABILITY = types.void(
    int64, _VECTOR, int64, _STREAM, _VECTOR, _MATRIX, _CUBE, _MATRIX, boolean[:, :, ::1]
)

# transmit(token, options, n, num_clients, stream, target (D,), receiver (P, M, lanes), messages, draws,
#          drawn (P, M, lanes), numbers (4 · M,), places (M,), memory (lanes · K · any,))
#   receiver       the receivers' own values, as errors
#   messages       to be changed in place
#   draws, drawn   what the channel draws for every value, and the random numbers
CHANNEL = types.void(
    int64, _VECTOR, int64, int64, _STREAM, _VECTOR, _CUBE, UPLOADS, int64, _CUBE, _VECTOR, _PLACES, _VECTOR
)

# delay(token, options, first, stream, clients (T, P, lanes), asked (T, lanes), memory (lanes, K, any),
#       out (T, P, lanes))
DELAY = types.void(int64, _VECTOR, int64, _STREAM, int32[:, :, ::1], int64[:, ::1], _CUBE, int64[:, :, ::1])

# gain(token, n, k, stepsize, options, error (lanes,), power (lanes,), out (lanes,))
#   power          ‖x‖²
#   out            g in v + g x
GAIN = types.void(int64, int64, int64, float64, _VECTOR, _VECTOR, _VECTOR, _VECTOR)

# learn(token, n, k, stepsize, options, target (D,), inputs (D, lanes), error (lanes,), memory (lanes, any),
#       scratch (3, D), errors (D, lanes))
#   errors         of client k's models, to be changed in place
LEARN = types.void(
    int64, int64, int64, float64, _VECTOR, _VECTOR, _MATRIX, _VECTOR, _MATRIX, _MATRIX, _MATRIX
)

# draw(token, n, k, deviation, options, normals (at least d, lanes), memory (lanes, any), scratch (d,), out (d, lanes))
DRAW = types.void(int64, int64, int64, float64, _VECTOR, float32[:, ::1], _MATRIX, _VECTOR, _MATRIX)

# encode(token, stepsizes (K,), options, participants (P, lanes), updates (P, D, lanes), normals, uniforms (any, lanes),
#        client_uniforms (P, any, lanes), sent (P, N, lanes))
ENCODE = types.void(int64, _VECTOR, _VECTOR, int32[:, ::1], _CUBE, _MATRIX, _MATRIX, _CUBE, _CUBE)

# decode(token, participants, stepsize, options, sent (P, N, lanes), normals, uniforms, decoded (P, D, lanes))
DECODE = types.void(int64, int64, float64, _VECTOR, _CUBE, _MATRIX, _MATRIX, _CUBE)

# apply(token, participants, stepsize, options, joined (N, lanes), normals, uniforms, memory (any, lanes),
#       change (D, lanes))
APPLY = types.void(int64, int64, float64, _VECTOR, _MATRIX, _MATRIX, _MATRIX, _MATRIX, _MATRIX)

take_attack: HookTaker = hook_taker(ATTACK)
take_corrupt: HookTaker = hook_taker(CORRUPT)
take_remember: HookTaker = hook_taker(REMEMBER)
take_poison: HookTaker = hook_taker(POISON)
take_aggregation: HookTaker = hook_taker(AGGREGATION)
take_defence: HookTaker = hook_taker(DEFENCE)
take_mix: HookTaker = hook_taker(MIX)
take_function: HookTaker = hook_taker(FUNCTION)
take_selection: HookTaker = hook_taker(SELECTION)
take_choose: HookTaker = hook_taker(CHOOSE)
take_note: HookTaker = hook_taker(NOTE)
take_drift: HookTaker = hook_taker(DRIFT)
take_availability: HookTaker = hook_taker(AVAILABILITY)
take_channel: HookTaker = hook_taker(CHANNEL)
take_delay: HookTaker = hook_taker(DELAY)
take_gain: HookTaker = hook_taker(GAIN)
take_learn: HookTaker = hook_taker(LEARN)
take_draw: HookTaker = hook_taker(DRAW)
take_encode: HookTaker = hook_taker(ENCODE)
take_decode: HookTaker = hook_taker(DECODE)
take_apply: HookTaker = hook_taker(APPLY)
