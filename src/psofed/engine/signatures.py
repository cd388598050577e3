"""Interface between kernels and parts: the tuples that kernels pass, and the signatures of the hooks they call.

L is the number of trials in a block, K of clients, D of entries, P of uploads, M of numbers in each. Kernels hold
errors, w − model; a model's entry i is ``target[i]`` less that. Every hook takes the part's options first.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from numba import boolean, float32, float64, int32, int64, types, uint8, uint64

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import hook_taker
from psofed.engine.streams import WordArray
from psofed.engine.tables import TableType
from psofed.parts.watching import Watching

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock


class AttackState(NamedTuple):
    """Byzantine clients of G groups, and the randomness and memory of their attacks; row r = g · L + l is of group g.

    Attributes
    ----------
    stream : array (2, G · L)
        Randomness of each group.
    probability : array (G,)
        p_a.
    is_redrawn : bool
        Whether the set, then of one group only, is redrawn in each iteration.
    is_byzantine : bool array (G · L, K)
        The sets.
    members, sizes : int arrays (G · L, K) and (G · L,)
        Numbers of the Byzantine clients of a group, ascending, and how many there are.
    everyone : int array (any,)
        Numbers of the Byzantine clients of all groups, where the sets are fixed.
    memory : array (G · L, any)
        Memory of a whole group across iterations.
    client_memory : array (G · L, K, any)
        Memory of each client.
    memory_sizes : int array (G, 2)
        How much of both memories each group has.
    """

    stream: WordArray
    probability: FloatArray
    is_redrawn: bool
    is_byzantine: BoolArray
    members: IntArray
    sizes: IntArray
    everyone: IntArray
    memory: FloatArray
    client_memory: FloatArray
    memory_sizes: IntArray


class Uploads(NamedTuple):
    """Uploads of an iteration.

    Attributes
    ----------
    clients : int array (L, P)
        Which client each upload is from.
    entries : int array (L, P or 1, M)
        Which entry each number belongs to; one row where all clients upload the same entries.
    sent : array (L, P, M)
        The numbers, as errors; NaN for one that is not sent. Attacks, channels and defences change them in place.
    rows : int array (L,)
        How many of the P uploads there are.
    asked : int array (L,)
        How many clients were asked to upload: what the mean divides by.
    """

    clients: IndexArray
    entries: IndexArray
    sent: FloatArray
    rows: IntArray
    asked: IntArray


@kernel_part
def taken(uploads: Uploads) -> Uploads:
    """Return uploads that stand in a table as a tuple, which hooks take."""
    return Uploads(uploads.clients, uploads.entries, uploads.sent, uploads.rows, uploads.asked)


@kernel_part
def sent_at(t: int, block: "TrialBlock") -> Uploads:
    """Return the uploads that are sent in the t-th iteration of a chunk."""
    exchange, state = block.exchange, block.state
    return Uploads(exchange.uploaders[t], exchange.uploaded[t], state.sent, state.rows, state.asked)


@kernel_part
def uploads_at(t: int, block: "TrialBlock") -> Uploads:
    """Return the uploads that reach the server in the t-th iteration of a chunk."""
    return taken(block.arrived) if block.delay.is_on else sent_at(t, block)


class Work(NamedTuple):
    """Scratch of a frame, sized for the largest case; `row_of` is −1 everywhere between calls.

    Attributes
    ----------
    numbers, flags : array (any,)
        Numbers by upload or entry, and which of them were sent.
    row_of, entry_of, counts : int array (D,), (any,), (any,)
        Where each entry stands among those shared, and back; how many numbers there are of each.
    """

    numbers: FloatArray
    flags: BoolArray
    row_of: IntArray
    entry_of: IntArray
    counts: IntArray


_NUMBERS, _TABLE, _CUBE = float64[::1], float64[:, ::1], float64[:, :, ::1]
_PLACES, _PLACE_TABLE, _STREAM = int64[::1], int64[:, ::1], uint64[:, ::1]
ATTACKERS = TableType(
    AttackState,
    (_STREAM, _NUMBERS, boolean, boolean[:, ::1], _PLACE_TABLE, _PLACES, _PLACES, _TABLE, _CUBE, _PLACE_TABLE),
)  # fmt: skip
UPLOADS = types.NamedTuple((int32[:, ::1], int32[:, :, ::1], _CUBE, _PLACES, _PLACES), Uploads)
WORK = TableType(Work, (_NUMBERS, boolean[::1], _PLACES, _PLACES, _PLACES))
WATCHING = TableType(
    Watching,
    (
        float64, int64, boolean, boolean, _TABLE, _CUBE, float64, _NUMBERS, _NUMBERS, _TABLE, _PLACE_TABLE,
        _PLACE_TABLE, _PLACE_TABLE, _PLACE_TABLE, _PLACE_TABLE, _TABLE, _PLACE_TABLE, _TABLE,
    ),
)  # fmt: skip

# attack(options, n, group, attackers, target (D,), server (L, D), uploads)
ATTACK = types.void(_NUMBERS, int64, int64, ATTACKERS, _NUMBERS, _TABLE, UPLOADS)

# remember(options, n, group, attackers, target (D,), shift, mask, models (V, D, 16))
REMEMBER = types.void(_NUMBERS, int64, int64, ATTACKERS, _NUMBERS, int64, int64, _CUBE)

# poison(options, n, k, group, attackers, target (D,), s, sample (S, D, 16), residual (S, 16))
#   sample[s], residual[s]  x and y − wᵀx, to be changed into the x' and y' − wᵀx' that client k learns from
POISON = types.void(_NUMBERS, int64, int64, int64, ATTACKERS, _NUMBERS, int64, _CUBE, _TABLE)

# gain(options, n, k, stepsize, trials, error (16,), power (16,), out (16,))
GAIN = types.void(_NUMBERS, int64, int64, float64, int64, _NUMBERS, _NUMBERS, _NUMBERS)

# learn(options, n, k, stepsize, target (D,), sample (S, D, 16), error (16,), learns (V, 16) or empty,
#       memory (K, L, any), numbers (3, D), models (V, D, 16))
LEARN = types.void(
    _NUMBERS, int64, int64, float64, _NUMBERS, _CUBE, _NUMBERS, uint8[:, ::1], _CUBE, _TABLE, _CUBE
)

# draw(options, n, k, deviation, normals (at least d, 16), memory (K, L, any), numbers (2, d), s, sample (S, d, 16))
DRAW = types.void(_NUMBERS, int64, int64, float64, float32[:, ::1], _CUBE, _TABLE, int64, _CUBE)

# transmit(options, n, num_clients, stream (2, L), draws, target (D,), receiver (L, P, M), messages,
#          memory (L, K, any), words (any,), numbers (any,), places (M,))
CHANNEL = types.void(
    _NUMBERS, int64, int64, _STREAM, int64, _NUMBERS, _CUBE, UPLOADS, _CUBE, uint64[::1], _NUMBERS, _PLACES
)

# judge(options, n, server (L, D), uploads, watching, work)
DEFENCE = types.void(_NUMBERS, int64, _TABLE, UPLOADS, WATCHING, WORK)

# mix(options, n, num_clients, stream (2, L), target (D,), server (L, D), uploads, memory (L, any), work,
#     after (P + 1,), mixed)
MIX = types.void(_NUMBERS, int64, int64, _STREAM, _NUMBERS, _TABLE, UPLOADS, _TABLE, WORK, _PLACES, UPLOADS)

# aggregate(options, n, num_clients, target (D,), uploads, own_step (L, D), memory (L, any), work, server (L, D))
AGGREGATION = types.void(_NUMBERS, int64, int64, _NUMBERS, UPLOADS, _TABLE, _TABLE, WORK, _TABLE)

# encode, decode, apply(options, rows, participants, stepsizes (K,), clients (L, P), inputs (L, any, any),
#                       normals (L, any), uniforms (L, any), client_uniforms (L, P, any), memory (L, any),
#                       out (L, any, any))
#   rows           how many vectors of each trial are to be turned into those of `out`
CODE = types.void(
    _NUMBERS, int64, int64, _NUMBERS, int32[:, ::1], _CUBE, _TABLE, _TABLE, _CUBE, _TABLE, _CUBE
)

take_attack: Any = hook_taker(ATTACK)
take_remember: Any = hook_taker(REMEMBER)
take_poison: Any = hook_taker(POISON)
take_gain: Any = hook_taker(GAIN)
take_learn: Any = hook_taker(LEARN)
take_draw: Any = hook_taker(DRAW)
take_channel: Any = hook_taker(CHANNEL)
take_defence: Any = hook_taker(DEFENCE)
take_mix: Any = hook_taker(MIX)
take_aggregation: Any = hook_taker(AGGREGATION)
take_code: Any = hook_taker(CODE)
