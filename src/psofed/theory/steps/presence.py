"""Who downloads, learns and uploads in an iteration: joint probabilities of two clients, with availability and losses.

In an iteration client k is in one of the states

    0  it learns from the model that it has kept,    1  it downloads and learns,    2  it is away and does nothing,

and its upload has the weight ω_k in the server's mean: 1/s for a participant whose upload arrives, with s the number of
clients asked, else 0. Iterations are independent. Moments of the models are known given the states of two
clients, so that all the theory needs are, for states c of k and c' of l,

    P(c_k = c), E[ω_k; c_k = c], E[ω_k²; c_k = c], P(c, c'), E[ω_k; c, c'], E[ω_k ω_l; c, c'].

Client j is available with probability p_j. If the server knows who is available it draws s = min(|S_n|, N) of the N
available clients, and with n the number of the others that are available, everything is an expectation E[f(n)]. All
pairs are taken at once: with φ_j(t) = 1 − p_j + p_j e^{it} on T > K odd points t of the circle,

    E[f(n)] = (1/T) Σ_t f̂(t) Π_{j≠k,l} φ_j(t),    f̂(t) = Σ_n f(n) e^{−itn}.

If it does not know, |S_n| of all K clients are drawn, and only those available take part. A download is lost with
probability ``loss_down`` and an upload with ``loss_up``, independently. With delays the mean divides by the number of
uploads that arrive instead of s: 1 + m for ω_k. If the server knows who is available, m is binomial, of s − 1 uploads
that are not lost. If it does not, m counts the arrivals of u = s − 1 clients drawn from the others, each of which
arrives with its own probability q_j; with ψ_j(t, τ) = 1 − u/K' + (u/K') e^{it} (1 − q_j + q_j e^{iτ}) of the K' others,
E[f(m)] is the same sum over both angles, divided by the probability that K' draws of chance u/K' succeed u times.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

KEPT, TAKEN, AWAY = 0, 1, 2

_Counts = NDArray[np.int_]  # numbers of available clients


@dataclass(frozen=True, eq=False)
class PresenceLaw:
    """The settings that decide who takes part.

    Attributes
    ----------
    clients, participants : int
        K and |S_n|.
    available : array (K,) or None
        p_k; None if everybody always is.
    server_knows : bool
        Whether participants are drawn from the available clients.
    learns_away : bool
        Whether clients that are not available still learn.
    redrawn : bool
        Whether uploading participants are a second, independent draw.
    loss_down, loss_up : float
        Probabilities that a message is lost.
    counts_arrivals : bool
        Whether the mean divides by the number of uploads that arrive, not of clients asked.
    withheld : array (K,) or None
        Probability that a client withholds its upload, where arrivals are counted and the server does not know who is
        available.
    """

    clients: int
    participants: int
    available: FloatArray | None = None
    server_knows: bool = True
    learns_away: bool = True
    redrawn: bool = False
    loss_down: float = 0.0
    loss_up: float = 0.0
    counts_arrivals: bool = False
    withheld: FloatArray | None = None

    @property
    def heard(self) -> FloatArray:
        """Probability that the upload of an available client arrives, (K,)."""
        sent = np.ones(self.clients) if self.withheld is None else 1.0 - self.withheld
        return np.asarray((1.0 - self.loss_up) * sent)

    @property
    def differs_by_arrivals(self) -> bool:
        """Whether the weights depend on which of the others arrive."""
        return self.counts_arrivals and not (self.server_knows and self.available is not None)


@dataclass(frozen=True, eq=False)
class PresenceMoments:
    """The expectations of the module's docstring, for C states.

    Attributes
    ----------
    single, weight, square : array (C, K)
        P(c_k), E[ω_k; c_k], E[ω_k²; c_k].
    pair, pair_weight, pair_product : array (C, C, K, K)
        P(c_k, c_l), E[ω_k; c_k, c_l], E[ω_k ω_l; c_k, c_l]; zero where k = l.
    """

    single: FloatArray
    weight: FloatArray
    square: FloatArray
    pair: FloatArray
    pair_weight: FloatArray
    pair_product: FloatArray

    @property
    def download(self) -> FloatArray:
        """Probability that a client downloads, (K,)."""
        return np.asarray(self.single[TAKEN])

    @classmethod
    def of(cls, law: PresenceLaw) -> "PresenceMoments":
        """Compute the expectations.

        Examples
        --------
        >>> presence = PresenceMoments.of(PresenceLaw(clients=4, participants=2))
        >>> presence.single[:, 0].tolist(), float(presence.weight.sum())
        ([0.5, 0.5], 1.0)
        >>> law = PresenceLaw(clients=4, participants=2, available=np.full(4, 0.5), learns_away=False)
        >>> half = PresenceMoments.of(law)
        >>> half.single[:, 0].round(6).tolist(), round(float(half.weight.sum()), 6)  # nobody is there with 1/16
        ([0.09375, 0.40625, 0.5], 0.9375)
        """
        states = 2 if law.learns_away else 3
        size, heard = law.clients, law.heard
        singles = np.zeros((3, states, size))
        for here, taken in ((0, 0), (1, 0), (1, 1)):
            for state, chance in _states(law, here, taken):
                for order, factor in enumerate((np.ones(size), heard, heard)):
                    rows = _single(law, here, taken, order)
                    singles[order, state] += chance * factor * rows
        pairs = np.zeros((3, states, states, size, size))
        arrive = (np.ones((1, 1)), heard[:, None], np.outer(heard, heard))
        if size > 1:
            for (k, j), (m, l) in itertools.product(((0, 0), (1, 0), (1, 1)), repeat=2):  # noqa: E741
                values = [_pair(law, (k, m), (j, l), order) for order in range(3)]
                for (state, chance), (other, also) in itertools.product(
                    _states(law, k, j), _states(law, m, l)
                ):
                    for order in range(3):
                        pairs[order, state, other] += chance * also * arrive[order] * values[order]
        diagonal = np.arange(size)
        pairs[..., diagonal, diagonal] = 0.0
        return cls(*singles, *pairs)


def _states(law: PresenceLaw, here: int, taken: int) -> list[tuple[int, float]]:
    """States and probabilities of a client that is available or not, and asked to download or not."""
    if not here:
        return [(KEPT if law.learns_away else AWAY, 1.0)]
    return [(TAKEN, 1.0 - law.loss_down), (KEPT, law.loss_down)] if taken else [(KEPT, 1.0)]


def _single(law: PresenceLaw, here: int, taken: int, order: int) -> FloatArray:
    """P(available, asked) of each client, (K,), times ω^order where all uploads arrive."""
    available = np.ones(law.clients) if law.available is None else law.available
    chance = available if here else 1.0 - available
    if order and law.differs_by_arrivals:
        return np.asarray(chance * _by_arrivals(law, (here,), (taken,), order))
    if not law.server_knows or law.available is None:
        return np.asarray(chance * _drawn(law, np.array([law.clients]), (here,), (taken,), order)[0])
    return np.asarray(chance * _expect(law, lambda n: _drawn(law, n + here, (here,), (taken,), order), 1))


def _pair(law: PresenceLaw, here: tuple[int, int], taken: tuple[int, int], order: int) -> FloatArray:
    """Return the same of pairs (k, l), (K, K): order 0 is the probability, 1 that times ω_k, 2 times ω_k ω_l."""
    available = np.ones(law.clients) if law.available is None else law.available
    first, second = (available if there else 1.0 - available for there in here)
    chance = first[:, None] * second[None, :]
    if order and law.differs_by_arrivals:
        return np.asarray(chance * _by_arrivals(law, here, taken, order))
    if not law.server_knows or law.available is None:
        return np.asarray(chance * _drawn(law, np.array([law.clients]), here, taken, order)[0])
    return np.asarray(chance * _expect(law, lambda n: _drawn(law, n + sum(here), here, taken, order), 2))


def _drawn(
    law: PresenceLaw, count: _Counts, here: tuple[int, ...], taken: tuple[int, ...], order: int
) -> FloatArray:
    """Probability that of one or two clients exactly `taken` download, times their weights, given N = `count`.

    Clients that are not available are neither asked nor counted if the server knows. If it does not, they may be asked,
    to no avail.
    """
    asked = np.minimum(law.participants, count)
    uploading: int = min(order, len(here))
    if any(t and not there for t, there in zip(taken, here, strict=True)):
        return np.zeros(count.shape)
    # Who must upload, for ω_k (the first) and ω_k ω_l (both)
    must = tuple(int(place < uploading) for place in range(len(here)))
    if any(m and not there for m, there in zip(must, here, strict=True)):
        return np.zeros(count.shape)

    def chosen(pattern: tuple[int, ...]) -> FloatArray:
        """P(exactly these of the available ones are drawn)."""
        drawn = [p for p, there in zip(pattern, here, strict=True) if there]
        total = np.ones(count.shape)
        left, places = asked.astype(np.float64), count.astype(np.float64)
        for is_drawn in drawn:
            share = np.divide(left, places, out=np.zeros_like(left), where=places > 0)
            total = total * (share if is_drawn else 1.0 - share)
            left, places = left - is_drawn, places - 1.0
        return total

    if law.redrawn:
        free = [(1,) if m else (0, 1)[: 1 + there] for m, there in zip(must, here, strict=True)]
        patterns = itertools.product(*free)
        upload = sum(chosen(pattern) for pattern in patterns) if any(must) else 1.0
        probability = chosen(taken) * upload
    elif any(m and not t for m, t in zip(must, taken, strict=True)):
        return np.zeros(count.shape)
    else:
        probability = chosen(taken)
    return np.asarray(probability * _share(law, asked, uploading, order))


def _by_arrivals(
    law: PresenceLaw, here: tuple[int, ...], taken: tuple[int, ...], order: int
) -> FloatArray | float:
    """Return what :func:`_drawn` does, (K,) or (K, K), if the mean divides by arrivals of all K clients that are asked.

    The others' arrivals are averaged over; that the clients that must upload arrive is left to the caller.
    """
    single = len(here) == 1
    if any(t > there for t, there in zip(taken, here, strict=True)) or not all(here[:order]):
        return 0.0
    uploading = [1] if single else [1, 1] if order == 2 else [1, None]
    heard, total = law.heard, np.zeros((law.clients,) * len(here))
    for second in (None,) if single else (0, 1):
        # Whether l is asked for an upload; k always is.
        asked = (1,) if second is None else (1, second)
        if any(must is not None and must != a for must, a in zip(uploading, asked, strict=True)):
            continue
        if law.redrawn:
            chance = _all_asked(law, taken, here) * _all_asked(law, asked)
        elif any(there and t != a for t, a, there in zip(taken, asked, here, strict=True)):
            continue
        else:
            chance = _all_asked(law, asked)
        left = law.participants - sum(asked)
        if chance == 0.0 or left < 0:
            continue
        if order == 2:
            total += chance * _expect_arrivals(law, _inverse_square(len(here)), left, len(here))
            continue
        alone = _expect_arrivals(law, lambda m: 1.0 / (1.0 + m), left, len(here))
        if single or not (second and here[1]):
            total += chance * alone
        else:
            joined = _expect_arrivals(law, lambda m: 1.0 / (2.0 + m), left, 2)
            total += chance * (heard[None, :] * joined + (1.0 - heard[None, :]) * alone)
    return total


def _inverse_square(first: int) -> Callable[[FloatArray], FloatArray]:
    return lambda m: (first + m) ** -2.0


def _all_asked(law: PresenceLaw, asked: tuple[int, ...], counts: tuple[int, ...] | None = None) -> float:
    """Probability that exactly these of one or two clients are asked; only those that `counts` marks are looked at."""
    chance, left, places = 1.0, float(law.participants), float(law.clients)
    for is_asked, looked_at in zip(asked, counts or (1,) * len(asked), strict=True):
        if looked_at:
            chance *= left / places if is_asked else 1.0 - left / places
            left, places = left - is_asked, places - 1.0
    return chance


def _expect_arrivals(
    law: PresenceLaw, function: Callable[[FloatArray], FloatArray], drawn: int, excluded: int
) -> FloatArray:
    """E[f(m)], m the number of arrivals of `drawn` clients, all but one or two being drawn from: (K,) or (K, K)."""
    from scipy.stats import binom

    size = law.clients
    others, shape = size - excluded, (size,) * excluded
    arrives = law.heard * (1.0 if law.available is None else law.available)
    values = function(np.arange(drawn + 1.0))
    if drawn == 0 or np.ptp(arrives) == 0.0:
        chances = binom.pmf(np.arange(drawn + 1), drawn, arrives[0])
        return np.full(shape, float(values @ chances))
    share, total = drawn / others, np.zeros(shape)
    points, inner = (n + 1 + n % 2 for n in (size, drawn))  # odd, so that no ψ is zero by symmetry
    angle, circle = (2.0 * np.pi * np.arange(n) / n for n in (points, inner))
    transform = np.exp(-1j * np.outer(circle, np.arange(drawn + 1))) @ values / inner
    scale = binom.pmf(drawn, others, share) * points
    for tau, weight in zip(circle, transform, strict=True):
        step = 1.0 - arrives + arrives * np.exp(1j * tau)
        psi = 1.0 - share + share * step[:, None] * np.exp(1j * angle)
        every = np.exp(-1j * drawn * angle) * weight / scale * np.prod(psi, axis=0)
        total += ((1.0 / psi) @ every if excluded == 1 else (every / psi) @ (1.0 / psi).T).real
    return total


def _share(law: PresenceLaw, asked: _Counts, uploading: int, order: int) -> FloatArray:
    """1/s^order of the `asked` clients, or its expectation over those that arrive, given that `uploading` do."""
    if not law.counts_arrivals or law.loss_up == 0.0 or order == 0:
        return np.asarray(1.0 / np.maximum(asked, 1).astype(np.float64) ** order)
    from scipy.stats import binom

    others = np.maximum(asked - uploading, 0)
    numbers = np.arange(int(others.max(initial=0)) + 1)
    chances = binom.pmf(numbers[:, None], others.ravel(), 1.0 - law.loss_up)
    return np.asarray(((uploading + numbers) ** -float(order) @ chances).reshape(asked.shape))


def _expect(law: PresenceLaw, function: Callable[[_Counts], FloatArray], excluded: int) -> FloatArray:
    """E[f(n)], n the number of available clients but one or two: (K,) or (K, K)."""
    assert law.available is not None
    size = law.clients
    points = size + 1 + size % 2  # odd, so that no φ is zero
    angle = 2.0 * np.pi * np.arange(points) / points
    phi = 1.0 - law.available[:, None] + law.available[:, None] * np.exp(1j * angle)
    numbers = np.arange(size - excluded + 1)
    transform = np.exp(-1j * np.outer(angle, numbers)) @ function(numbers) / points
    every = transform * np.prod(phi, axis=0)
    if excluded == 1:
        return np.asarray(((1.0 / phi) @ every).real)
    return np.asarray(((every / phi) @ (1.0 / phi).T).real)
