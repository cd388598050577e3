"""Who downloads, learns and uploads in an iteration: the moments of participation.

In an iteration a client is in one of three states: it has *taken* the server's entries, it has *kept* its model and
learns all the same, or it is *away* and stands still. Its upload counts with weight w_k, so that the server adds
Σ_k w_k S_k (u_k − g). With φ_k = (1[kept], 1[taken], 1[away], w_k 1[kept], w_k 1[taken]), the recursion needs

    E[φ_k],    E[w_k²; state],    Cov(φ_k, φ_l) of two different clients = Σ_q λ_q f_q(k) f_q(l)ᵀ,

the last as a sum over few eigenvectors f_q (``swings``).

A client is available with probability p_k. The server asks s = min(P, N) clients, of all N = K or, if it knows who is
available, of these. Lossy links lose a download or an upload with probabilities ``loss_down`` and ``loss_up``. Weights
are 1/s, or 1/(number of uploads that arrive) where uploads are delayed. P = ``participants``, K = ``clients``.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

KEPT, TAKEN, AWAY = 0, 1, 2
_WEIGHTS = np.array([0, 0, 0, 1, 1])  # weights in each entry of φ
_TABULATED = 10  # probabilities of availability up to which each has a table; beyond, they are interpolated


@dataclass(frozen=True, eq=False)
class PresenceMoments:
    """Moments of φ for c classes of clients.

    Attributes
    ----------
    mean : array (5, c)
        E[φ_k].
    square : array (2, c)
        E[w_k²; kept] and E[w_k²; taken].
    swings : tuple of (float, array (5, c))
        λ_q and f_q.
    """

    mean: FloatArray
    square: FloatArray
    swings: tuple[tuple[float, FloatArray], ...]

    def of(self, index: NDArray[np.int64]) -> "PresenceMoments":
        """Return the moments of clients whose classes are `index`."""
        swings = tuple((weight, vector[:, index]) for weight, vector in self.swings)
        return PresenceMoments(self.mean[:, index], self.square[:, index], swings)


@dataclass(frozen=True, eq=False)
class PresenceLaw:
    """How participants are drawn.

    Parameters
    ----------
    clients, participants : int
        K and P.
    probability : array (c,)
        p of each class of clients.
    counts : array (c,)
        The clients in each class.
    server_knows : bool
        Whether only available clients are asked.
    learns_away : bool
        Whether clients that are away learn.
    redrawn : bool
        Whether uploads come from an independent draw.
    loss_down, loss_up : float
    by_arrivals : bool
        Whether the mean divides by the uploads that arrive.
    all_download : bool
        Whether every client has the server's model in every iteration (Online-Fed).
    """

    clients: int
    participants: int
    probability: FloatArray
    counts: FloatArray
    server_knows: bool = True
    learns_away: bool = True
    redrawn: bool = False
    loss_down: float = 0.0
    loss_up: float = 0.0
    by_arrivals: bool = False
    all_download: bool = False

    def moments(self) -> PresenceMoments:
        """Return the moments for all classes.

        Examples
        --------
        >>> moments = PresenceLaw(5, 2, np.ones(1), np.full(1, 5.0)).moments()
        >>> moments.mean[:, 0].round(3).tolist()
        [0.6, 0.4, 0.0, 0.0, 0.2]
        """
        nodes, spread = self._nodes
        mean, square = np.zeros((5, len(nodes))), np.zeros((2, len(nodes)))
        for k, p in enumerate(nodes):
            for chances, (phi,) in self._cases((p,)):
                mean[:, k] += chances[_WEIGHTS] * phi
                square[:, k] += chances[2] * phi[3:]
        swings = self._swings(nodes, mean) if self.clients > 1 else ()
        wide = tuple((weight, vector @ spread.T) for weight, vector in swings)
        return PresenceMoments(mean @ spread.T, square @ spread.T, wide)

    @cached_property
    def _nodes(self) -> tuple[FloatArray, FloatArray]:
        """Probabilities to tabulate, and the matrix that interpolates between them (smooth in p)."""
        p = self.probability
        if len(p) <= _TABULATED:
            return p, np.eye(len(p))
        node = np.cos(np.pi * (np.arange(_TABULATED) + 0.5) / _TABULATED)
        place = (2.0 * p - p.min() - p.max()) / np.ptp(p)
        spread = _chebyshev(place) @ np.linalg.inv(_chebyshev(node))
        return (node * np.ptp(p) + p.min() + p.max()) / 2.0, spread

    def _swings(self, nodes: FloatArray, mean: FloatArray) -> tuple[tuple[float, FloatArray], ...]:
        count = len(nodes)
        joint = np.zeros((5, count, 5, count))
        for k, m in itertools.combinations_with_replacement(range(count), 2):
            for chances, (phi, other) in self._cases((nodes[k], nodes[m])):
                joint[:, k, :, m] += chances[_WEIGHTS[:, None] + _WEIGHTS] * np.outer(phi, other)
            joint[:, m, :, k] = joint[:, k, :, m].T
        covariance = (joint - mean[:, :, None, None] * mean).reshape(5 * count, 5 * count)
        scale = np.repeat([1.0, 1.0, 1.0, self.participants, self.participants], count)  # weights are near 1/P
        values, vectors = np.linalg.eigh(scale[:, None] * (covariance + covariance.T) / 2.0 * scale)
        used = np.abs(values) > 1e-12 * np.abs(values).max(initial=1e-30)
        return tuple(
            (float(value), (vector / scale).reshape(5, count))
            for value, vector in zip(values[used], vectors.T[used], strict=True)
        )

    def _cases(self, probabilities: tuple[float, ...]) -> Iterator[tuple[FloatArray, list[FloatArray]]]:
        """Yield what can happen to one or two clients: its chance, and φ of each but for the weights.

        The chance is summed over the numbers of others that are available, times 1, w, and w² or w_k w_l: (3,).
        """
        others, chance = self._others_available(probabilities)
        size = len(probabilities)
        outcomes = list(itertools.product((0, 1), repeat=size))
        for here, asked, redrawn in itertools.product(outcomes, outcomes, outcomes if self.redrawn else (None,)):
            pool = others + (sum(here) if self._knows else size)
            number = np.minimum(self.participants, pool)
            presence = np.prod([p if h else 1.0 - p for p, h in zip(probabilities, here, strict=True)])
            total = presence * chance * self._draw_chance(asked, here, number, pool)
            if redrawn is not None:
                total = total * self._draw_chance(redrawn, here, number, pool)
            if not np.any(total):
                continue
            uploads = asked if redrawn is None else redrawn
            sends = [u * h for u, h in zip(uploads, here, strict=True)]
            weights = self._weights(number, size, sum(uploads), sum(sends))
            states = [self._state(a, h) for a, h in zip(asked, here, strict=True)]
            arrives = [(1.0 - self.loss_up) * one for one in sends]
            phi = [np.append(state, arrive * state[:2]) for state, arrive in zip(states, arrives, strict=True)]
            yield np.array([float((total * weight).sum()) for weight in (np.ones(1), *weights)]), phi

    @property
    def _knows(self) -> bool:
        return self.server_knows and bool(np.any(self.probability < 1.0))

    def _others_available(self, left_out: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
        """Numbers of other clients that the server may ask, and their probabilities (Poisson binomial, by FFT)."""
        if not self._knows:
            return np.array([float(self.clients - len(left_out))]), np.ones(1)
        size = self.clients + 1
        angle = np.exp(2j * np.pi * np.arange(size) / size)

        def log_factor(p: float) -> FloatArray:
            return np.asarray(np.log(1.0 - p + p * angle + 1e-300))

        total = sum(count * log_factor(p) for p, count in zip(self.probability, self.counts, strict=True))
        total = total - sum(log_factor(p) for p in left_out)
        chance = np.fft.fft(np.exp(total)).real / size
        numbers = np.flatnonzero(chance > 1e-18)
        return numbers.astype(np.float64), chance[numbers]

    def _draw_chance(
        self, drawn: tuple[int, ...], here: tuple[int, ...], number: FloatArray, pool: FloatArray
    ) -> FloatArray | float:
        """P(exactly these clients are among `number` drawn from `pool`); clients known to be away are not."""
        chance: FloatArray | float = 1.0
        left, places = number.astype(float), pool.astype(float)
        for is_drawn, is_here in zip(drawn, here, strict=True):
            if self._knows and not is_here:
                if is_drawn:
                    return 0.0
                continue
            share = left / np.maximum(places, 1.0)
            chance = chance * (share if is_drawn else 1.0 - share)
            left, places = left - is_drawn, places - 1.0
        return chance

    def _state(self, asked: int, here: int) -> FloatArray:
        state = np.zeros(3)
        if self.all_download:
            state[TAKEN] = 1.0
        elif here:
            state[TAKEN] = asked * (1.0 - self.loss_down)
            state[KEPT] = 1.0 - state[TAKEN]
        else:
            state[KEPT if self.learns_away else AWAY] = 1.0
        return state

    def _weights(self, asked_number: FloatArray, clients: int, asked: int, sending: int) -> tuple[FloatArray, ...]:
        """E[w] of each and E[w²] of one client, or E[w_k w_l] of two, given that they arrive; by the number asked.

        Of the one or two `clients`, `asked` are asked to upload, and `sending` of these are available.
        """
        number = np.maximum(asked_number, 1).astype(float)
        available = 1.0 if self._knows else float(self.probability @ self.counts) / self.clients
        rate = (1.0 - self.loss_up) * available
        if not self.by_arrivals or rate >= 1.0:
            return 1.0 / number, 1.0 / number**2
        left = asked_number - asked
        weight = _mean_inverse(left, 1, 1, rate)
        if sending == 2:
            weight = self.loss_up * weight + (1.0 - self.loss_up) * _mean_inverse(left, 2, 1, rate)
        return weight, _mean_inverse(left, clients, 2, rate)


def _mean_inverse(count: FloatArray, first: int, power: int, rate: float) -> FloatArray:
    """E[(first + B)^−power], B binomial with `count` draws of probability `rate`."""
    from scipy.stats import binom

    numbers = np.arange(int(max(count.max(), 0)) + 1)
    chances = binom.pmf(numbers[:, None], np.maximum(count, 0), rate)
    return np.asarray((first + numbers) ** -float(power) @ chances)


def _chebyshev(x: FloatArray) -> FloatArray:
    return np.asarray(np.cos(np.outer(np.arccos(np.clip(x, -1.0, 1.0)), np.arange(_TABULATED))))
