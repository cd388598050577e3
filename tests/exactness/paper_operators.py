"""The paper's operators on second moments, as small immutable objects that never form a matrix unless asked.

A second moment of the extended error col{w̃_n, w̃_{1,n}, …, w̃_{K,n}} is an array P of shape (K+1, K+1, d, d): block
(a, b) is E[w̃_a w̃_bᵀ], block 0 the server. ``mv`` is what the matrix does to bvec{P}, ``rmv`` what its transpose does.
With white inputs all entries are alike, and one (d = 1) stands for D of them (`multiplicity`).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.theory.model import TheoryModel


class Participation(NamedTuple):
    """K and |S_n|."""

    clients: int
    participants: int

    @property
    def single(self) -> float:
        """E[a_k] = p_c."""
        return self.participants / self.clients

    @property
    def pair(self) -> float:
        """E[a_k a_l], k ≠ l (Appendix A); 0 for a single client."""
        return self.single * (self.participants - 1) / (self.clients - 1) if self.clients > 1 else 0.0


class MomentOperator(Protocol):
    """A linear map on second moments."""

    def mv(self, p: FloatArray) -> FloatArray:
        """Apply the operator."""

    def rmv(self, p: FloatArray) -> FloatArray:
        """Apply its transpose."""


@dataclass(frozen=True, eq=False)
class Selection:
    """First and second moments of a_k S_k, shared by 𝓠_𝓐, 𝓠_𝓑 and 𝓠_𝓒 (Appendix A).

    Attributes
    ----------
    drawn : Participation
    share : float
        p_e.
    weights : array (K, K, d, d)
        𝓢: E[a_k S_k(i) a_l S_l(j)].
    """

    drawn: Participation
    share: float
    weights: FloatArray

    @classmethod
    def of(cls, drawn: Participation, share: float, pair: FloatArray, coordinated: bool) -> "Selection":
        """Build 𝓢 from `pair`, E[S(i) S(j)] of one mask, (d, d)."""
        clients = drawn.clients
        across = drawn.pair * (pair if coordinated else np.full_like(pair, share**2))
        weights = np.tile(across, (clients, clients, 1, 1))
        weights[np.arange(clients), np.arange(clients)] = drawn.single * pair
        return cls(drawn, share, weights)


@dataclass(frozen=True, eq=False)
class DownloadOperator:
    """𝓠_𝓐 = E[𝓐_n ⊗_b 𝓐_n]: the download (eq9, Appendix A)."""

    selection: Selection

    def mv(self, p: FloatArray) -> FloatArray:
        """E[𝓐 P 𝓐ᵀ]."""
        rate, both = self._rate, self.selection.weights
        out = np.empty_like(p)
        server = p[0, 0]
        out[0, 0] = server
        out[0, 1:] = (1 - rate) * p[0, 1:] + rate * server
        out[1:, 0] = (1 - rate) * p[1:, 0] + rate * server
        out[1:, 1:] = (
            (1 - 2 * rate + both) * p[1:, 1:] + (rate - both) * (p[0, 1:][None] + p[1:, 0][:, None]) + both * server
        )
        return out

    def rmv(self, p: FloatArray) -> FloatArray:
        """E[𝓐ᵀ P 𝓐]."""
        rate, both = self._rate, self.selection.weights
        out = np.empty_like(p)
        half = (rate - both) * p[1:, 1:]
        out[0, 0] = p[0, 0] + rate * (p[0, 1:].sum(axis=0) + p[1:, 0].sum(axis=0)) + (both * p[1:, 1:]).sum(axis=(0, 1))
        out[0, 1:] = (1 - rate) * p[0, 1:] + half.sum(axis=0)
        out[1:, 0] = (1 - rate) * p[1:, 0] + half.sum(axis=1)
        out[1:, 1:] = (1 - 2 * rate + both) * p[1:, 1:]
        return out

    @property
    def _rate(self) -> float:
        return self.selection.share * self.selection.drawn.single


@dataclass(frozen=True, eq=False)
class UploadOperator:
    """𝓠_𝓑 = E[𝓑_{n+1} ⊗_b 𝓑_{n+1}]: the upload (eq11, Appendix A)."""

    selection: Selection

    def mv(self, p: FloatArray) -> FloatArray:
        """E[𝓑 P 𝓑ᵀ]."""
        share, clients = self.selection.share, self.selection.drawn.clients
        out = p.copy()
        out[0, 0] = (
            self._server * p[0, 0]
            + (self._mixed * p[0, 1:]).sum(axis=0)
            + (self._mixed_left * p[1:, 0]).sum(axis=0)
            + (self._weights * p[1:, 1:]).sum(axis=(0, 1))
        )
        out[0, 1:] = (1 - share) * p[0, 1:] + share / clients * p[1:, 1:].sum(axis=0)
        out[1:, 0] = (1 - share) * p[1:, 0] + share / clients * p[1:, 1:].sum(axis=1)
        return out

    def rmv(self, p: FloatArray) -> FloatArray:
        """E[𝓑ᵀ P 𝓑]."""
        share, clients = self.selection.share, self.selection.drawn.clients
        out = np.empty_like(p)
        server = p[0, 0]
        out[0, 0] = self._server * server
        out[0, 1:] = self._mixed * server + (1 - share) * p[0, 1:]
        out[1:, 0] = self._mixed_left * server + (1 - share) * p[1:, 0]
        out[1:, 1:] = p[1:, 1:] + self._weights * server
        out[1:, 1:] += share / clients * (p[0, 1:][None] + p[1:, 0][:, None])
        return out

    @property
    def _weights(self) -> FloatArray:
        return np.asarray(self.selection.weights / self.selection.drawn.participants**2)

    @property
    def _server(self) -> FloatArray:
        return np.asarray(1 - 2 * self.selection.share + self._weights.sum(axis=(0, 1)))

    @property
    def _mixed(self) -> FloatArray:
        return np.asarray(self.selection.share / self.selection.drawn.clients - self._weights.sum(axis=0))

    @property
    def _mixed_left(self) -> FloatArray:
        return np.asarray(self.selection.share / self.selection.drawn.clients - self._weights.sum(axis=1))


@dataclass(frozen=True, eq=False)
class InjectionOperator:
    """𝓠_𝓒 = E[𝓒_{n+1} ⊗_b 𝓒_{n+1}]: what the attack adds reaches the server alone (Appendix C)."""

    selection: Selection

    def mv(self, p: FloatArray) -> FloatArray:
        """E[𝓒 P 𝓒ᵀ]."""
        out = np.zeros_like(p)
        out[0, 0] = (self.selection.weights * p[1:, 1:]).sum(axis=(0, 1)) / self.selection.drawn.participants**2
        return out

    def rmv(self, p: FloatArray) -> FloatArray:
        """E[𝓒ᵀ P 𝓒]."""
        out = np.zeros_like(p)
        out[1:, 1:] = self.selection.weights * p[0, 0] / self.selection.drawn.participants**2
        return out


@dataclass(frozen=True, eq=False)
class CovarianceOperator:
    """𝓚 = (I ⊗_b 𝓡) + (𝓡 ⊗_b I); symmetric.

    Attributes
    ----------
    covariances : array (K, d, d)
        R_k.
    """

    covariances: FloatArray

    def mv(self, p: FloatArray) -> FloatArray:
        """𝓡 P + P 𝓡."""
        out = np.zeros_like(p)
        out[1:] += self.covariances[:, None] @ p[1:]
        out[:, 1:] += p[:, 1:] @ self.covariances[None]
        return out

    rmv = mv


@dataclass(frozen=True, eq=False)
class FourthMomentOperator:
    """𝓗 = E[𝐗𝐗ᵀ ⊗_b 𝐗𝐗ᵀ] for Gaussian inputs (Appendix B, Isserlis); symmetric.

    Attributes
    ----------
    covariances : array (K, d, d)
        R_k.
    multiplicity : float
        How many equal entries each tracked one stands for.
    """

    covariances: FloatArray
    multiplicity: float = 1.0

    def mv(self, p: FloatArray) -> FloatArray:
        """R_k P_kl R_l for k ≠ l; R (P + Pᵀ) R + R tr(RP) for k = l."""
        covariances, out = self.covariances, np.zeros_like(p)
        out[1:, 1:] = covariances[:, None] @ p[1:, 1:] @ covariances[None]
        k = np.arange(covariances.shape[0])
        own = p[1 + k, 1 + k]
        trace = self.multiplicity * np.einsum("kij,kji->k", covariances, own)[:, None, None]
        out[1 + k, 1 + k] = covariances @ (own + own.swapaxes(1, 2)) @ covariances + covariances * trace
        return out

    rmv = mv


@dataclass(frozen=True, eq=False)
class PaperOperators:
    """All operators and vectors of the paper's analysis of one scenario.

    Attributes
    ----------
    download, upload, injection : operators
        𝓠_𝓐, 𝓠_𝓑, 𝓠_𝓒.
    covariance, fourth : operators
        𝓚, 𝓗.
    data_source, attack_source : array (K+1, K+1, d, d)
        φ and ω, as moments.
    reader : array (K+1, K+1, d, d)
        𝓠_𝓐ᵀ bvec{𝓡}, with which the network MSE is read off.
    noise : float
        tr(Θ_ν)/K.
    """

    download: DownloadOperator
    upload: UploadOperator
    injection: InjectionOperator
    covariance: CovarianceOperator
    fourth: FourthMomentOperator
    data_source: FloatArray
    attack_source: FloatArray
    reader: FloatArray
    noise: float

    @classmethod
    def of(cls, scenario: Scenario) -> "PaperOperators":
        """Build them for a scenario, whose pattern and uplink play no part in the paper's analysis."""
        model = TheoryModel(scenario, theory="paper")
        (mask,), _ = model.masks()
        entries, fleet, clients = model.entries, model.fleet, scenario.num_clients
        d, pair = mask.q.shape[-1], mask.q[0]  # type: ignore[attr-defined]
        covariances = fleet.input_variance[:, None, None].copy() if fleet.is_white else fleet.covariances()
        selection = Selection.of(
            Participation(clients, scenario.num_participants),
            scenario.share_probability,
            pair,
            scenario.selection.coordinated,
        )
        download, upload = DownloadOperator(selection), UploadOperator(selection)
        injection = InjectionOperator(selection)

        def moment(blocks: FloatArray) -> FloatArray:
            out = np.zeros((clients + 1, clients + 1, d, d))
            out[np.arange(1, clients + 1), np.arange(1, clients + 1)] = blocks
            return out

        phi_nu = moment(fleet.noise_variance[:, None, None] * covariances)
        added = sum((one.chance * one.upload.variance for one in model.attacks), np.zeros(clients))
        omega = moment(added[:, None, None] * np.eye(d))
        return cls(
            download,
            upload,
            injection,
            CovarianceOperator(covariances),
            FourthMomentOperator(covariances, entries.multiplicity),
            upload.mv(phi_nu),
            injection.mv(omega),
            entries.multiplicity * download.rmv(moment(covariances)),
            float(fleet.noise_variance.mean()),
        )

    def transition(self, stepsize: float, small_stepsize: bool = False) -> "TransitionOperator":
        """𝓕 at one stepsize."""
        return TransitionOperator(self, stepsize, small_stepsize)


@dataclass(frozen=True, eq=False)
class TransitionOperator:
    """𝓕 = 𝓠_𝓑 (I − μ𝓚 + μ²𝓗) 𝓠_𝓐 (Fmat).

    Attributes
    ----------
    operators : PaperOperators
    stepsize : float
        μ.
    small_stepsize : bool
        Drop μ²𝓗.
    """

    operators: PaperOperators
    stepsize: float
    small_stepsize: bool = False

    def mv(self, p: FloatArray) -> FloatArray:
        """𝓕 bvec{P}."""
        return self.operators.upload.mv(self._step(self.operators.download.mv(p)))

    def rmv(self, p: FloatArray) -> FloatArray:
        """𝓕ᵀ bvec{P}."""
        return self.operators.download.rmv(self._step(self.operators.upload.rmv(p)))

    def _step(self, p: FloatArray) -> FloatArray:
        out = p - self.stepsize * self.operators.covariance.mv(p)
        return out if self.small_stepsize else out + self.stepsize**2 * self.operators.fourth.mv(p)


def as_matrix(operator: MomentOperator, clients: int, size: int) -> FloatArray:
    """Return the matrix of an operator on moments of (K+1)² blocks of size × size; for tiny cases."""
    shape = (clients + 1, clients + 1, size, size)
    columns = [operator.mv(column.reshape(shape)).ravel() for column in np.eye(int(np.prod(shape)))]
    return np.stack(columns, axis=1)


def closed_form_stepsize(scenario: Scenario, terms: int = 3) -> float:
    """Evaluate the paper's closed-form μ* with a J-term Neumann series, J = `terms` (muopt2).

    With x_j = (𝓕ᵀ)^j 𝓠_𝓐ᵀ bvec{𝓡} as a polynomial in μ cut off after μ², E(μ) is a parabola whose minimum is μ*.

    Parameters
    ----------
    scenario : Scenario
    terms : int
        J, at least 3.

    Notes
    -----
    𝐁_{2,J} is taken with Σ_j 𝐂_{2,j}; as printed it sums 𝐂_{2,J} over and over. The series does not converge in J,
    for 𝐀_0 has spectral radius 1: μ* goes to 0 as J grows. Use :func:`psofed.optimal_stepsize`.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> scenario = Scenario(num_clients=20, dimension=3, attack=Gaussian(num_byzantine=5))
    >>> closed_form_stepsize(scenario, 10) > closed_form_stepsize(scenario, 400) > 0
    True
    """
    operators = PaperOperators.of(scenario)
    if not np.any(operators.attack_source):
        return 0.0
    down, up = operators.download.rmv, operators.upload.rmv
    order0, order1, order2 = (operators.reader, np.zeros_like(operators.reader), np.zeros_like(operators.reader))
    sum0, sum1, sum2 = order0.copy(), order1.copy(), order2.copy()
    for _ in range(terms):
        up0, up1, up2 = up(order0), up(order1), up(order2)
        order0 = down(up0)
        order1 = down(up1 - operators.covariance.mv(up0))
        order2 = down(up2 - operators.covariance.mv(up1) + operators.fourth.mv(up0))
        sum0, sum1, sum2 = sum0 + order0, sum1 + order1, sum2 + order2
    numerator = -float((operators.attack_source * sum1).sum())
    denominator = 2.0 * float((operators.data_source * sum0).sum() + (operators.attack_source * sum2).sum())
    return numerator / denominator
