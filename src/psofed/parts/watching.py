"""Apply a defence to one trial's uploads in plain Python, for the reference, the federation and the debugger.

The engine does the same in compiled loops over many trials (:mod:`psofed.engine.defence`), and is tested
against this.
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


# What is kept of each client, and what it begins with; its own past begins with 0, which is nothing.
_BEGINNINGS = {
    "_memory": 0.0, "_relative": 1.0, "left": 0, "first": -1, "since": 0, "exclusions": 0, "_finished": 0,
    "suspicion": 0.0,
}  # fmt: skip


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


def upper_median(values: FloatArray, dropped: int) -> float:
    """Return the median of the values without the `dropped` lowest: quiet clients, a third at most, cannot lower it.

    Examples
    --------
    >>> upper_median(np.array([3.0, 0.0, 1.0, 2.0]), 1)
    2.0
    """
    return float(np.median(np.sort(values)[dropped:]))


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
        self._memory = np.zeros((num_clients, defence.memory_size))
        self._level = 0.0 if plan.is_estimated else plan.usual_level
        self._relative = np.full(num_clients, 0.0 if plan.by_past else 1.0)
        self.left: IntArray = np.zeros(num_clients, np.int64)
        self.first: IntArray = np.full(num_clients, -1, np.int64)
        self.since: IntArray = np.zeros(num_clients, np.int64)
        self.exclusions: IntArray = np.zeros(num_clients, np.int64)
        self._finished = np.zeros(num_clients, np.int64)
        self.suspicion: FloatArray = np.zeros(num_clients)

    def resize(self, num_clients: int) -> None:
        """Make space for clients that join later."""
        more = num_clients - len(self.left)
        if more <= 0:
            return
        for name, beginning in _BEGINNINGS.items():
            known = getattr(self, name)
            value = 0.0 if name == "_relative" and self._plan.by_past else beginning
            new = np.full((more, *known.shape[1:]), value, known.dtype)
            setattr(self, name, np.concatenate([known, new]))

    def to_mapping(self) -> dict[str, Any]:
        """Return the memory as plain lists, for JSON."""
        return {"level": self._level, **{name: getattr(self, name).tolist() for name in _BEGINNINGS}}

    def restore(self, known: Mapping[str, Any]) -> None:
        """Restore the memory from :meth:`to_mapping`."""
        self._level = float(known["level"])
        for name in _BEGINNINGS:
            was = getattr(self, name)
            setattr(self, name, np.asarray(known[name], was.dtype).reshape(-1, *was.shape[1:]))

    @property
    def is_out(self) -> NDArray[np.bool_]:
        """Which clients are excluded, shape (K,)."""
        return np.asarray(self.left != 0)

    def time_out(self, iterations: int) -> NDArray[np.int64]:
        """Return in how many of the first `iterations` each client was excluded."""
        return np.asarray(self._finished + np.where(self.is_out, iterations - self.since, 0))

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
        sent = ~np.isnan(uploads)
        out = self.left[clients] != 0
        residuals = self._residuals(uploads, sent, out, server)
        squares = np.array(
            [np.mean(r[s] ** 2) if s.any() else np.nan for r, s in zip(residuals, sent, strict=True)]
        )
        spoke = np.asarray(sent.any(axis=1))
        by_past = self._plan.by_past
        if by_past:
            scale = self._past_variances(squares, spoke, clients)
        else:
            scale = self._variances(squares, spoke & ~out, clients, iteration)
        with np.errstate(over="ignore"):
            ratios = squares / scale
        for p in np.flatnonzero(spoke):
            others = spoke.copy() if by_past else spoke & ~out
            others[p] = False
            calm = max(1.0, float(np.median(ratios[others])) / MEDIAN_SQUARE) if others.any() else 1.0
            scores = residuals[p, sent[p]] / math.sqrt(scale[p] * calm)
            self._take_note(int(clients[p]), np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE), iteration)
        if by_past:
            self._learn_past(squares, spoke, clients)
        elif self._plan.is_estimated:
            self._learn(squares, spoke, clients)
        return np.asarray(self.left[clients] != 0)

    def _residuals(
        self, uploads: FloatArray, sent: NDArray[np.bool_], out: NDArray[np.bool_], server: FloatArray
    ) -> FloatArray:
        expected = np.broadcast_to(server, uploads.shape).astype(np.float64)
        if self._defence.reference == "participants":
            heard = np.where((np.abs(uploads) <= LARGEST) & ~out[:, None], uploads, np.nan)
            for p in range(len(uploads)):
                others = heard.copy()
                others[p] = server
                expected[p] = _middle_of_columns(others)
        return np.clip(np.where(sent, uploads - expected, 0.0), -LARGEST, LARGEST)

    def _variances(
        self, squares: FloatArray, heard: NDArray[np.bool_], clients: NDArray[Any], iteration: int
    ) -> FloatArray:
        """Return the variance of honest residuals of each upload, before what the others show."""
        plan = self._plan
        own = self._relative[clients]
        if not plan.is_estimated:
            own = np.maximum(plan.variance[min(iteration, len(plan.variance) - 1), clients], 1e-300)
        if heard.any():
            with np.errstate(over="ignore"):
                typical = float(np.median(squares[heard] / own[heard])) / MEDIAN_SQUARE
            if self._level == 0.0:
                self._level = typical
            elif typical > 0.0:
                ratio = min(max(typical / self._level, 1.0 / LEVEL_FACTOR), LEVEL_FACTOR)
                self._level *= ratio**LEVEL_RATE
        level = self._level if plan.is_estimated else max(1.0, self._level / plan.usual_level)
        return np.asarray(np.maximum(level * own, 1e-300))

    def _past_variances(
        self, squares: FloatArray, spoke: NDArray[np.bool_], clients: NDArray[Any]
    ) -> FloatArray:
        """Return the variance of each upload by its client's past; those without one begin with the fleet's."""
        own = self._relative
        if spoke.any() and (own[clients[spoke]] == 0.0).any():
            values = own[own > 0.0] if own.any() else squares[spoke] / MEDIAN_SQUARE
            new = clients[spoke & (own[clients] == 0.0)]
            own[new] = upper_median(values, (len(values) - 1) // 3)
        return np.asarray(np.maximum(own[clients], 1e-300))

    def _learn_past(self, squares: FloatArray, spoke: NDArray[np.bool_], clients: NDArray[Any]) -> None:
        own = self._relative
        for p in np.flatnonzero(spoke):
            k = clients[p]
            if self.left[k] == 0:
                own[k] += OWN_RATE * (min(squares[p], OWN_MOST * own[k]) - own[k])
        begun = own > 0.0
        if begun.any():
            fleet = upper_median(own[begun], (int(begun.sum()) - 1) // 3)
            own[begun] = np.clip(own[begun], OWN_LOW * fleet, OWN_HIGH * fleet)

    def _take_note(self, client: int, scores: FloatArray, iteration: int) -> None:
        defence = self._defence
        suspicion = defence.suspicion(Evidence(scores, client, iteration), self._memory[client])
        self.suspicion[client] = suspicion
        if not suspicion <= self._plan.threshold:
            if self.left[client] == 0:
                if self._plan.by_past and np.sum(self.is_out) >= (len(self.left) - 1) // 3:
                    self._memory[client] = 0.0
                    return
                self.exclusions[client] += 1
                self.since[client] = iteration
                if self.first[client] < 0:
                    self.first[client] = iteration
            self.left[client] = defence.return_after if defence.return_after else -1
            self._memory[client] = 0.0
        elif self.left[client] > 0:
            self.left[client] -= 1
            if self.left[client] == 0:
                self._finished[client] += iteration - self.since[client]

    def _learn(self, squares: FloatArray, spoke: NDArray[np.bool_], clients: NDArray[Any]) -> None:
        for p in np.flatnonzero(spoke):
            k = clients[p]
            if self.left[k] == 0 and self._level > 0.0:
                own = self._relative[k]
                own += OWN_RATE * (min(squares[p] / self._level, OWN_MOST * own) - own)
                self._relative[k] = min(max(own, OWN_LOW), OWN_HIGH)


def _middle_of_columns(values: FloatArray) -> FloatArray:
    """Return the median of every column's numbers; each column holds at least one."""
    ordered, count = np.sort(values, axis=0), np.sum(~np.isnan(values), axis=0)
    low, high = (
        np.take_along_axis(ordered, place[None], axis=0)[0] for place in ((count - 1) // 2, count // 2)
    )
    return np.asarray(np.where(count % 2, low, 0.5 * (low + high)))
