"""Effect of a sample and an upload on a client's model, in errors w̃ = w* − w.

Learning. Client k has v, the error of its model, and draws a sample y = (w* + e)ᵀx + ν (e: how far its target lies from
w*). LMS, leaky LMS (leakage γ) and NLMS are all

    z = (a v + b) − S̃ (v + e) − noise,    a = 1 − μγ,    b = μγ w*,    E[S̃] = S = μR,

so that on average z = F v + h with F = aI − S and h = b − S e. A Byzantine client that poisons its samples,
(x + ξ, φy) with ξ ~ N(0, νI), learns from a sample of the same kind with R' = R + νI and

    e' = φ R'⁻¹R (w* + d) − w*,    noise φ² (σ² + (w* + d)ᵀ(R − R R'⁻¹R)(w* + d)).

Uploading. What arrives at the server is, less its own model g_L when it arrives,

    δ = β (A z + G g_0 + c + noise − g_L),    c = (1 − A − G) w* − offset,

with (A, G) = (1, 0) for honest clients and ``own``, ``server`` of the attack for those that attack. g_0 is the server's
model now, g_L the one L = ``delay`` iterations later (L = 0 without a delay), β = weight^L.

Constants. w*, offsets and the clients' own targets are fixed vectors. They are carried along as ``constants``: with
correlated inputs (d = D) as one constant 1 that multiplies vectors (D, 1), with white inputs (d = 1, entries alike) as
one constant each, of which only inner products matter. In both cases a pull on a client is an array (d, C), and
E[constant constantᵀ] is ``products`` (C, C).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.groups import PRECISION, Groups, group_clients
from psofed.theory.presence import PresenceLaw, PresenceMoments

if TYPE_CHECKING:
    from psofed.theory.model import AttackLaw, TheoryModel


@dataclass(frozen=True, eq=False)
class SampleLaw:
    """One kind of samples, scaled by the stepsizes; arrays over groups.

    Attributes
    ----------
    chance : array (n,)
        Probability that a client learns from a sample of this kind.
    step : array (n, d, d)
        S = μR.
    displacement : array (n, d, C)
        e.
    noise, residual : array (n, d, d)
        E of the squared noise in z: due to the clients' noise, and due to poisoned inputs.
    fourth_factor : array (n,)
        τ in E[S̃ M S̃] = τ (2SMS + S tr(SM)); 1 for LMS on Gaussian inputs, 0 if it is left out.
    """

    chance: FloatArray
    step: FloatArray
    displacement: FloatArray
    noise: FloatArray
    residual: FloatArray
    fourth_factor: FloatArray


@dataclass(frozen=True, eq=False)
class Law:
    """The laws of learning and uploading at one stepsize.

    Parameters
    ----------
    model : TheoryModel
    stepsize : float
        Mean of the clients' stepsizes.
    precision : float
        Relative error that lumping clients may have.
    directed : bool
        Whether constants are carried along; False for questions about second moments alone.
    apart : int
        The number of fastest and slowest clients that are not lumped.
    lumped : bool
        False: every client is a group of its own.
    participants : int, optional
        P where it is not the scenario's.
    offsets : array of int (K,), optional
        Offsets of the clients' windows, by which they are grouped.
    """

    model: "TheoryModel"
    stepsize: float
    precision: float = PRECISION
    directed: bool = True
    apart: int = 0
    lumped: bool = True
    participants: int | None = None
    offsets: NDArray[np.int64] | None = None

    @cached_property
    def groups(self) -> Groups:
        """The groups of clients."""
        return group_clients(self.model, self.stepsize, self.precision, self.apart, self.lumped, self.offsets)

    @property
    def block(self) -> int:
        """d: 1 for white inputs, else D."""
        return int(self.groups.covariance.shape[-1])

    # Constants

    @cached_property
    def constants(self) -> FloatArray:
        """Constant vectors, (C, D): w*, offsets of attacks, the clients' own targets; none if nothing is directed."""
        target = self.model.fleet.target
        if not (self.directed and self.model.has_direction):
            return np.zeros((0, target.size))
        rows = [target, *(np.broadcast_to(one.upload.offset, target.shape) for one, _ in self._affine)]
        offsets = self.groups.target_offsets
        return np.concatenate([np.array(rows), np.zeros((0, target.size)) if offsets is None else offsets])

    @cached_property
    def products(self) -> FloatArray:
        """E[constant constantᵀ] per entry, (C, C)."""
        if self.block > 1:
            return np.ones((min(len(self.constants), 1),) * 2)
        return np.asarray(self.constants @ self.constants.T / self.constants.shape[1])

    def pull(self, index: int) -> FloatArray:
        """Constant `index` as a pull, (d, C)."""
        if not self.constants.size:
            return np.zeros((self.block, 0))
        return self.constants[index][:, None] if self.block > 1 else np.eye(len(self.constants))[[index]]

    @cached_property
    def targets(self) -> FloatArray:
        """d_k of every group as a pull, (n, d, C)."""
        offsets, size = self.groups.target_offsets, self.groups.size
        if offsets is None or not self.constants.size:
            return np.zeros((size, self.block, len(self.products)))
        first = len(self.constants) - size
        return np.stack([self.pull(first + k) for k in range(size)])

    @property
    def _affine(self) -> list[tuple["AttackLaw", NDArray[np.bool_]]]:
        """Attacks that change uploads otherwise than by adding independent noise, and the groups that attack so."""
        attacks = enumerate(self.model.attacks)
        return [(one, self.groups.attack == k) for k, one in attacks if not (one.only_adds or one.is_poisoning)]

    # Learning

    @cached_property
    def samples(self) -> list[SampleLaw]:
        """Clean samples and, if clients poison theirs, poisoned ones."""
        groups, size = self.groups, self.groups.size
        label, added, chance = np.ones(size), np.zeros(size), np.zeros(size)
        for index, attack in enumerate(self.model.attacks):
            if attack.is_poisoning:
                member = groups.attack == index
                label[member], added[member] = attack.samples.label, attack.samples.input_noise_variance
                chance[member] = groups.chance[member]
        clean = self._samples(1.0 - chance, np.ones(size), np.zeros(size))
        return [clean, self._samples(chance, label, added)] if np.any(chance) else [clean]

    def _samples(self, chance: FloatArray, label: FloatArray, added: FloatArray) -> SampleLaw:
        groups, fleet, eye = self.groups, self.model.fleet, np.eye(self.block)
        covariance = groups.covariance + _wide(added) * eye
        ratio = np.broadcast_to(eye, covariance.shape)  # R'⁻¹R; I without input noise, even where R is singular
        if np.any(added):
            ratio = np.asarray(np.linalg.solve(covariance, groups.covariance), dtype=np.float64)
        learned = self.pull(0) + self.targets
        displacement = _wide(label) * (ratio @ learned) - self.pull(0)
        lost = groups.covariance - groups.covariance @ ratio
        step = _wide(groups.stepsize) * covariance
        square = _wide(groups.stepsize * label**2) * step
        noise = _wide(groups.noise_variance) * square
        if fleet.weighted_noise is not None:
            noise = _wide(groups.stepsize**2 * label**2) * fleet.weighted_noise
        residual = _wide(self._lost_power(lost)) * square if np.any(added) else np.zeros_like(step)
        one = np.full(groups.size, 0.0 if self.model.small_stepsize else 1.0)
        regularisation = self.model.learner.regularisation
        if regularisation is None:
            return SampleLaw(chance, step, displacement, noise, residual, one)
        e1, e2, e3 = normalised_moments(covariance[:, 0, 0], regularisation, fleet.target.size)
        size, safe = fleet.target.size, np.where(e1 > 0.0, e1, 1.0)
        shrink = np.where(covariance[:, 0, 0] > 0.0, e3 / (size * np.maximum(covariance[:, 0, 0], 1e-300)), 0.0)
        step = _wide(groups.stepsize * e1 / size)
        factor = size * e2 / ((size + 2.0) * safe**2)
        return SampleLaw(chance, step, displacement, _wide(shrink) * noise, _wide(shrink) * residual, factor)

    def _lost_power(self, lost: FloatArray) -> FloatArray:
        """(w* + d)ᵀ lost (w* + d) of every group."""
        offsets = self.groups.target_offsets
        targets = self.model.fleet.target + (np.zeros((1, 1)) if offsets is None else offsets)
        targets = np.broadcast_to(targets, (self.groups.size, targets.shape[1]))
        if self.block == 1:
            return np.asarray(lost[:, 0, 0] * (targets**2).sum(axis=1))
        return np.asarray(np.einsum("ki,kij,kj->k", targets, lost, targets))

    @cached_property
    def keep(self) -> FloatArray:
        """a, (n, 1, 1)."""
        return _wide(1.0 - self.groups.stepsize * self.model.learner.leakage)

    @cached_property
    def push(self) -> FloatArray:
        """The pull b, (n, d, C)."""
        return np.asarray((1.0 - self.keep) * self.pull(0))

    def fourth(self, sample: SampleLaw, moments: FloatArray, sets: int = 1) -> FloatArray:
        """E[S̃ M S̃] of moments M (sets · E, 2, n, d, d) that are symmetric."""
        measured = self.model.fleet.fourth_moments
        if measured is not None:
            flat = moments.reshape(*moments.shape[:-2], -1)
            stepped = np.einsum("kab,eckb->ecka", _wide(self.groups.stepsize**2) * measured, flat)
            return np.asarray(stepped.reshape(moments.shape))
        left = sample.step @ moments
        trace = np.einsum("ecnii->ecn", left).reshape(sets, -1, *left.shape[1:3]).sum(axis=1)
        trace = self.model.entries.multiplicity * np.repeat(trace, len(left) // sets, axis=0)[..., None, None]
        return np.asarray(_wide(sample.fourth_factor) * (2.0 * left @ sample.step + sample.step * trace))

    @cached_property
    def learning(self) -> list[tuple[float, FloatArray, FloatArray]]:
        """Terms λ, F (n, d, d), h (n, d, C): E[z_k z_lᵀ] of two clients is the sum of λ (F v + h)_k (F v + h)_lᵀ.

        The first is the mean. Clients whose poisoning is correlated (a set redrawn in each iteration) add the
        difference of the two steps. Without terms in μ² (small stepsizes) S v v Sᵀ is taken away again.
        """
        eye = np.eye(self.block)
        steps = [(self.keep * eye - one.step, self.push - one.step @ one.displacement) for one in self.samples]
        chances = [_wide(one.chance) for one in self.samples]
        step, push = (
            np.sum([c * part for c, part in zip(chances, parts, strict=True)], axis=0)
            for parts in zip(*steps, strict=True)
        )
        terms = [(1.0, step, push)]
        covariance = sum(attack.covariance for attack in self.model.attacks if attack.is_poisoning)
        if covariance:
            (clean, clean_push), (poisoned, poisoned_push) = steps
            terms.append((covariance, poisoned - clean, poisoned_push - clean_push))
        if self.model.small_stepsize:
            terms.append((-1.0, self.samples[0].step, np.zeros_like(steps[0][1])))
        return terms

    # Uploading

    @cached_property
    def attacking(self) -> FloatArray:
        """Probability that a client's upload is honest, and that it is attacked, (2, n)."""
        chance = np.zeros(self.groups.size)
        for _, member in self._affine:
            chance[member] = self.groups.chance[member]
        return np.stack([1.0 - chance, chance])

    @cached_property
    def upload(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A (2, n), G (2, n) and c (2, n, d, C) of honest and of attacked uploads."""
        size = self.groups.size
        own, server = np.ones((2, size)), np.zeros((2, size))
        constant = np.zeros((2, size, self.block, len(self.products)))
        for position, (attack, member) in enumerate(self._affine):
            own[1, member], server[1, member] = attack.upload.own, attack.upload.server
            lacking = 1.0 - attack.upload.own - attack.upload.server
            constant[1, member] = lacking * self.pull(0) - self.pull(1 + position)
        return own, server, constant

    @cached_property
    def attack_covariance(self) -> float:
        """Cov(t_k, t_l) of the attacks on uploads of two different clients."""
        return float(sum(attack.covariance for attack, _ in self._affine))

    def upload_noise(self, noise: float, attack: float) -> FloatArray:
        """Covariance of what attackers and links add to an upload, (n, d, d)."""
        lost, covariance = np.zeros(self.groups.size), np.zeros((self.groups.size, self.block, self.block))
        for one, member in self._affine:
            covariance[member] = self._covariance(one.upload.variance) + self._covariance(one.upload.common_variance)
            lost[member] = one.upload.is_lost
        chance = self.attacking[1]
        white = attack * self.groups.added_variance + noise * self.up_variance * (1.0 - chance * lost)
        return np.asarray(attack * _wide(chance) * covariance + _wide(white) * np.eye(self.block))

    def _covariance(self, variance: float | FloatArray) -> FloatArray:
        """Return a stated variance as a matrix (d, d); entries that are alike have the mean of its diagonal."""
        matrix = np.asarray(variance, dtype=np.float64)
        if matrix.ndim == 0:
            return np.asarray(matrix * np.eye(self.block))
        size = self.model.scenario.dimension
        if matrix.shape != (size, size):
            raise PsofedError(f"an attack states a covariance of shape {matrix.shape}, not ({size}, {size})")
        return matrix if self.block > 1 else np.full((1, 1), np.trace(matrix) / size)

    @cached_property
    def common_noise(self) -> list[tuple[FloatArray, FloatArray]]:
        """Noise that attackers share: its covariance (d, d), and E[t_k t_l] of two of them (n, n)."""
        noises = []
        for attack, member in self._affine:
            if np.any(attack.upload.common_variance):
                chance = np.where(member, self.groups.chance, 0.0)
                both = attack.pair_factor * np.outer(chance, chance)
                noises.append((self._covariance(attack.upload.common_variance), both))
        return noises

    @property
    def delay(self) -> int:
        """L."""
        return int(np.flatnonzero(self._delay_chances)[0])

    @property
    def _delay_chances(self) -> tuple[float, ...]:
        delay = self.model.scenario.delay
        chances = (1.0,) if delay is None else delay.chances()
        assert chances is not None
        return chances

    @property
    def delay_weight(self) -> float:
        """β."""
        delay = self.model.scenario.delay
        return 1.0 if delay is None else float(delay.weight**self.delay)

    # The network

    @cached_property
    def up_variance(self) -> float:
        """Variance that the uplink adds."""
        return self._link("up")[0]

    @cached_property
    def down_variance(self) -> float:
        """Variance that the downlink adds."""
        return self._link("down")[0]

    def _link(self, direction: str) -> tuple[float, float]:
        """Variance that the channels of a direction add, and the probability that they lose a message."""
        channel = self.model.scenario.channel
        parts = () if channel is None else getattr(channel, direction)
        arrives = math.prod(1.0 - (part.loss_probability() or 0.0) for part in parts)
        return sum(part.added_variance() or 0.0 for part in parts), 1.0 - arrives

    @cached_property
    def presence(self) -> PresenceMoments:
        """Moments of participation."""
        model, scenario = self.model, self.model.scenario
        availability = scenario.availability
        classes, index = np.unique(self.groups.availability, return_inverse=True)
        counts = np.bincount(index, self.groups.copies).astype(np.float64)
        delay = scenario.delay
        arriving = float(sum(self._delay_chances))
        law = PresenceLaw(
            scenario.num_clients,
            self.participants or scenario.num_participants,
            classes,
            counts,
            availability is None or availability.server_knows,
            availability is None or availability.learns == "always",
            model.is_redrawn,
            self._link("down")[1],
            1.0 - (1.0 - self._link("up")[1]) * arriving,
            by_arrivals=delay is not None,
            all_download=not scenario.algorithm.holds_models,
        )
        return law.moments().of(index)


def normalised_moments(variance: FloatArray, regularisation: float, dimension: int) -> FloatArray:
    """Return E[r/(ε + r)], E[r²/(ε + r)²] and E[r/(ε + r)²] of r = ‖x‖² for input variances ς² (n,): an array (3, n).

    r is independent of the direction of x, which is uniform, so NLMS on white inputs needs these three alone. They are
    integrals over log r, smooth and falling off at both ends, for which the trapezoidal rule converges exponentially.

    Examples
    --------
    >>> normalised_moments(np.array([0.5]), 0.0, 4).ravel().round(9).tolist()  # the last is 1/(ς²(D − 2))
    [1.0, 1.0, 1.0]
    """
    from scipy.special import gammaln

    half = dimension / 2.0
    u = np.arange(-80.0 / min(half, 2.0), 6.0, 0.02)
    density = 0.02 * np.exp(half * u - np.exp(u) - gammaln(half))  # r/(2ς²) = eᵘ has a gamma distribution
    power = 2.0 * variance[:, None] * np.exp(u)
    inverse = np.divide(1.0, regularisation + power, out=np.zeros_like(power), where=power > 0.0)
    share = power * inverse
    return np.stack([share @ density, share**2 @ density, (share * inverse) @ density])


def _wide(values: FloatArray) -> FloatArray:
    """Shape numbers (n,) so that they multiply matrices (n, d, d)."""
    return np.asarray(values)[:, None, None]
