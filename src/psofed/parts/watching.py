"""Judge uploads and exclude suspicious clients: once for the engine, which compiles it, and for the federation.

An upload's residuals are its values less those that could be expected. :func:`find_deviations` compares them with what
honest clients show, the defence's own method turns them into a suspicion, :func:`take_note` excludes or readmits the
client, and :func:`learn_variances` follows the variances of those who are in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.parts.base import Defence
from psofed.parts.contexts import Evidence
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import middle, part_of

# The median of the square of a standard normal number.
MEDIAN_SQUARE = 0.4549364231195728

# Scores beyond this are shown as this: one number cannot weigh more.
LARGEST_SCORE = 1000.0

# Estimating on the way: how fast the fleet's level follows an iteration's median, by what factor at most in one
# iteration; how fast a client's own variance follows, how much one upload counts at most, and its range over the
# fleet's.
LEVEL_RATE, LEVEL_FACTOR = 0.2, 4.0
OWN_RATE, OWN_MOST = 0.05, 9.0
OWN_LOW, OWN_HIGH = 0.05, 20.0

# Peaks of honest suspicion are counted in bins: LOWEST_PEAK · PEAK_RATIO^b is the lower end of bin b.
LOWEST_PEAK, PEAK_RATIO, PEAK_BINS = 0.01, 1.02, 1400


@dataclass(frozen=True, eq=False)
class WatchPlan:
    """Thresholds and variances that a defence needs before a run.

    Attributes
    ----------
    threshold : float
        Suspicion above it is an alarm.
    variance : array (N, K), or empty
        Variance of honest residuals in iterations 0 … N − 1, and in all that follow as in the last; empty if it is
        estimated on the way.
    usual_level : float
        What the fleet's level of squared residuals over `variance` is without an attack. Where it is above that, all
        variances are taken to be larger by as much: a poisoned server is far from everybody.
    by_past : bool
        Whether each client's variance is estimated from its own past alone, instead of over the fleet's level.
    """

    threshold: float
    variance: FloatArray
    usual_level: float = 1.0
    by_past: bool = False

    @property
    def is_estimated(self) -> bool:
        """Whether variances are estimated during the run."""
        return self.variance.size == 0


class Watching:
    """Memory of a defence for K clients of L trials; empty for no trials.

    Attributes
    ----------
    threshold : float
        Suspicion above it is an alarm.
    return_after : int
        Uploads without an alarm until a client is readmitted; −1: never.
    by_server : bool
        Whether an upload is compared with the server's own number alone.
    by_past : bool
        Whether each client's variance is estimated from its own past alone.
    variance : array (N, K)
        Of honest residuals, by iteration; empty if it is estimated on the way.
    memory : array (L, K, any)
        The defence's own numbers.
    usual_level : float
        The fleet's level without an attack, where variances are known.
    level, log_levels, relative : arrays (L,), (L,) and (L, K)
        The fleet's level, the sum of its logarithms, and each client's variance over it, estimated on the way; or its
        variance by its past, 0 if it has none.
    left, first, since, exclusions, finished : int arrays (L, K)
        Uploads until a client is readmitted, 0 if it is in; when it was excluded first, and last; how often; for how
        long, not counting now.
    peak, peaks : arrays (L, K) and (L, bins)
        The highest suspicion of this excursion, and a count of such peaks; no bins unless they are counted.
    suspicion : array (L, K)
        Of each client after its last upload.
    """

    def __init__(self, defence: Defence | None, plan: WatchPlan, clients: int, trials: int) -> None:
        clients = clients if trials else 0
        whole = (trials, clients)
        self.threshold: float = plan.threshold
        self.return_after: int = -1 if defence is None else defence.return_after or -1
        self.by_server: bool = defence is not None and defence.reference == "server"
        self.by_past: bool = plan.by_past
        self.variance: FloatArray = np.zeros((0, clients)) if plan.is_estimated else plan.variance.copy()
        self.memory: FloatArray = np.zeros((*whole, 0 if defence is None else defence.memory_size))
        self.usual_level: float = plan.usual_level
        self.level: FloatArray = np.full(trials, 0.0 if plan.is_estimated else plan.usual_level)
        self.log_levels: FloatArray = np.zeros(trials)
        self.relative: FloatArray = np.full(whole, 0.0 if plan.by_past else 1.0)
        self.left: IntArray = np.zeros(whole, np.int64)
        self.first: IntArray = np.full(whole, -1, np.int64)
        self.since: IntArray = np.zeros(whole, np.int64)
        self.exclusions: IntArray = np.zeros(whole, np.int64)
        self.finished: IntArray = np.zeros(whole, np.int64)
        self.peak: FloatArray = np.zeros(whole)
        self.peaks: IntArray = np.zeros((trials, PEAK_BINS if plan.threshold == math.inf else 0), np.int64)
        self.suspicion: FloatArray = np.zeros(whole)


def all_peaks(watching: Watching) -> NDArray[np.int64]:
    """Return the number of peaks in each bin.

    A peak counts once suspicion has fallen to half of it. What has not by the end of a run counts with the highest it
    came to: the suspicion of a client whose honest uploads always differ from the others' keeps climbing, and is what
    raises most alarms.
    """
    still = watching.peak.ravel()
    still = still[still >= LOWEST_PEAK]
    bins = np.minimum(np.log(still / LOWEST_PEAK) / math.log(PEAK_RATIO), PEAK_BINS - 1).astype(np.int64)
    counts: NDArray[np.int64] = watching.peaks.sum(axis=0) + np.bincount(bins, minlength=PEAK_BINS)
    return counts


# --- one trial, compiled by the engine -------------------------------------------------------------------------------


def upper_median(values: FloatArray) -> float:
    """Return the median without the lowest third of the values: quiet clients cannot lower it.

    Examples
    --------
    >>> upper_median(np.array([3.0, 0.0, 1.0, 2.0]))
    2.0
    """
    return middle(np.sort(values)[(values.size - 1) // 3 :])


def find_deviations(
    n: int, trial: int, clients: NDArray[Any], residuals: FloatArray, watch: Watching
) -> tuple[FloatArray, FloatArray]:
    """Return the mean squares of residuals (P, M), and the deviations that honest ones would have, both (P,).

    Residuals are NaN where nothing was sent, and so is the mean square of a client that sent nothing.
    """
    count, own, left, known = len(clients), watch.relative[trial], watch.left[trial], watch.variance.shape[0]
    numbers = np.empty((5, count))  # one array, since to get one takes longer than most of what follows
    squares, deviations, scales, ratios, scratch = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    for p in range(count):
        sent, total = 0, 0.0
        for residual in residuals[p]:
            if residual == residual:
                sent += 1
                total += residual * residual
        squares[p] = total / sent if sent else np.nan
    if watch.by_past:
        _begin_past(trial, clients, squares, watch)
    for p in range(count):
        k = clients[p]
        scales[p] = max(own[k] if known == 0 else watch.variance[min(n, known - 1), k], 1e-300)
        ratios[p] = squares[p] / scales[p] if left[k] == 0 else np.nan
    level = 1.0
    if not watch.by_past:
        _follow_level(_median_of_others(-1, ratios, scratch) / MEDIAN_SQUARE, trial, watch)
        level = watch.level[trial]
    if known > 0:
        watch.log_levels[trial] += math.log(level)
        level = max(1.0, level / watch.usual_level)
    for p in range(count):
        scales[p] = max(level * scales[p], 1e-300)
        ratios[p] = squares[p] / scales[p] if watch.by_past or left[clients[p]] == 0 else np.nan
    for p in range(count):
        calm = _median_of_others(p, ratios, scratch) / MEDIAN_SQUARE
        deviations[p] = math.sqrt(scales[p] * (calm if calm > 1.0 else 1.0))
    return squares, deviations


def take_note(suspicion: float, n: int, trial: int, k: int, watch: Watching) -> None:
    """Exclude or readmit a client."""
    left = watch.left[trial]
    watch.suspicion[trial, k] = suspicion
    if watch.peaks.shape[1]:
        _count_peak(suspicion, trial, k, watch)
    if not suspicion <= watch.threshold:
        watch.memory[trial, k] = 0.0
        if left[k] == 0:
            if watch.by_past and np.sum(left != 0) >= (left.size - 1) // 3:
                return
            watch.exclusions[trial, k] += 1
            watch.since[trial, k] = n
            if watch.first[trial, k] < 0:
                watch.first[trial, k] = n
        left[k] = watch.return_after
    elif left[k] > 0:
        left[k] -= 1
        if left[k] == 0:
            watch.finished[trial, k] += n - watch.since[trial, k]


def learn_variances(trial: int, clients: NDArray[Any], squares: FloatArray, watch: Watching) -> None:
    """Move the variances of those who are in towards their squares, and hold them within a range of the fleet's."""
    own, level = watch.relative[trial], 1.0 if watch.by_past else watch.level[trial]
    if watch.variance.shape[0] > 0 or level == 0.0:
        return
    for p in range(squares.size):
        k = clients[p]
        if squares[p] == squares[p] and watch.left[trial, k] == 0:
            own[k] += OWN_RATE * (min(squares[p] / level, OWN_MOST * own[k]) - own[k])
            if not watch.by_past:
                own[k] = min(max(own[k], OWN_LOW), OWN_HIGH)
    if watch.by_past and np.any(own > 0.0):
        fleet = upper_median(own[own > 0.0])
        for k in range(own.size):
            if own[k] > 0.0:
                own[k] = min(max(own[k], OWN_LOW * fleet), OWN_HIGH * fleet)


def _begin_past(trial: int, clients: NDArray[Any], squares: FloatArray, watch: Watching) -> None:
    """Let clients without a past begin with the fleet's variance, or with the squares of the first iteration."""
    own = watch.relative[trial]
    values = own[own > 0.0]
    if values.size == 0:
        values = squares[~np.isnan(squares)] / MEDIAN_SQUARE
    fleet = upper_median(values) if values.size else 0.0
    for p in range(squares.size):
        if squares[p] == squares[p] and own[clients[p]] == 0.0:
            own[clients[p]] = fleet


def _follow_level(typical: float, trial: int, watch: Watching) -> None:
    """Update the fleet's level from the median of an iteration, NaN if nothing was sent."""
    level = watch.level[trial]
    if level == 0.0 and typical == typical:
        watch.level[trial] = typical
    elif typical > 0.0:
        ratio = min(max(typical / level, 1.0 / LEVEL_FACTOR), LEVEL_FACTOR)
        watch.level[trial] = level * ratio**LEVEL_RATE


def _median_of_others(p: int, values: FloatArray, scratch: FloatArray) -> float:
    """Return the median of all values but number p that are not NaN; NaN if there are none."""
    count = 0
    for q in range(values.size):
        if q != p and values[q] == values[q]:
            scratch[count] = values[q]
            count += 1
    return middle(part_of(scratch, 0, (count,))) if count else np.nan


def _count_peak(suspicion: float, trial: int, k: int, watch: Watching) -> None:
    """Count the highest suspicion of an excursion once it has fallen to half of it."""
    peak = watch.peak[trial, k]
    if suspicion > peak:
        watch.peak[trial, k] = suspicion
    elif suspicion <= 0.5 * peak:
        if peak >= LOWEST_PEAK:
            b = int(math.log(peak / LOWEST_PEAK) / math.log(PEAK_RATIO))
            watch.peaks[trial, min(b, watch.peaks.shape[1] - 1)] += 1
        watch.peak[trial, k] = suspicion


# --- one federation --------------------------------------------------------------------------------------------------

# What is kept of each client.
_OF_CLIENTS = ("memory", "relative", "left", "first", "since", "exclusions", "finished", "suspicion")


class Watch:
    """A defence with its memory, for one trial or one federation.

    With `by_past` a client's variance v_k is learned from its own uploads, so that no minority can shift what others
    are compared with. It begins at the fleet's (in the first iteration, at the squares of that iteration), moves by

        v_k ← v_k + 0.05 (min(r², 9 v_k) − v_k)

    with every upload that counts, r² its mean square, and is held within 0.05 and 20 times the fleet's: the median over
    the clients without the lowest third. What the others show in an iteration includes excluded clients. At most a
    third of the clients, ⌊(K − 1)/3⌋, are excluded at a time.

    Attributes
    ----------
    left : int array (K,)
        How many uploads without an alarm each client has to make before it is let in; 0 for those who are in.
    first : int array (K,)
        When each was left out first, −1 if never.
    since : int array (K,)
        When each was left out last.
    exclusions : int array (K,)
        How often each was left out.
    suspicion : array (K,)
        Of each after its last upload.
    """

    def __init__(self, defence: Defence, plan: WatchPlan, num_clients: int) -> None:
        self._defence, self._plan = defence, plan
        self._state = Watching(defence, plan, num_clients, 1)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_CLIENTS:
            raise AttributeError(name)
        return getattr(self._state, name)[0]

    def resize(self, num_clients: int) -> None:
        """Make space for clients that join later."""
        before, self._state = self._state, Watching(self._defence, self._plan, num_clients, 1)
        self._state.level[:] = before.level
        for name in _OF_CLIENTS:
            values = getattr(before, name)
            getattr(self._state, name)[:, : values.shape[1]] = values

    def to_mapping(self) -> dict[str, Any]:
        """Return the memory as plain lists, for JSON."""
        level = float(self._state.level[0])
        return {"level": level, **{name: getattr(self, name).tolist() for name in _OF_CLIENTS}}

    def restore(self, known: Mapping[str, Any]) -> None:
        """Restore the memory from :meth:`to_mapping`."""
        self.resize(len(known["left"]))
        self._state.level[:] = float(known["level"])
        for name in _OF_CLIENTS:
            getattr(self, name)[:] = known[name]

    @property
    def is_out(self) -> NDArray[np.bool_]:
        """Which clients are excluded, shape (K,)."""
        return np.asarray(self.left != 0)

    def judge(
        self, uploads: FloatArray, server: FloatArray, clients: NDArray[Any], iteration: int
    ) -> NDArray[np.bool_]:
        """Judge the uploads of an iteration; return which participants are excluded, shape (P,).

        Parameters
        ----------
        uploads : array (P, D)
            What arrived; NaN where an entry was not sent.
        server : array (D,)
            The server's own model.
        clients : int array (P,)
            Whose uploads they are.
        iteration : int
            n.
        """
        state, sent = self._state, ~np.isnan(uploads)
        residuals = np.where(sent, self._residuals(uploads, server, self.left[clients] != 0), np.nan)
        with np.errstate(over="ignore"):
            squares, deviations = find_deviations(iteration, 0, clients, residuals, state)
            for p in np.flatnonzero(sent.any(axis=1)):
                k = int(clients[p])
                scores = np.clip(residuals[p, sent[p]] / deviations[p], -LARGEST_SCORE, LARGEST_SCORE)
                suspicion = self._defence.suspicion(Evidence(scores, k, iteration), self.memory[k])
                take_note(suspicion, iteration, 0, k, state)
            learn_variances(0, clients, squares, state)
        return np.asarray(self.left[clients] != 0)

    def _residuals(self, uploads: FloatArray, server: FloatArray, out: NDArray[np.bool_]) -> FloatArray:
        expected = np.broadcast_to(server, uploads.shape).astype(np.float64)
        if not self._state.by_server:
            heard = np.where((np.abs(uploads) <= LARGEST) & ~out[:, None], uploads, np.nan)
            for p in range(len(uploads)):
                others = heard.copy()
                others[p] = server
                expected[p] = np.nanmedian(others, axis=0)
        return np.clip(uploads - expected, -LARGEST, LARGEST)
