"""A scenario as the theory sees it: everything but the stepsize is fixed.

One iteration is, for client k with sample (x, y), mask S and upload weight w_k,

    v_k = w_k + a_k S_k (g − w_k)            download, if a_k = 1      presence, masks
    z_k = v_k + μ_k x (y − v_kᵀx)            learn                     law
    u_k = z_k, or what the attack makes of it                          law
    g'  = g + Σ_k w_k S'_k (u_k − g)         upload                    presence, masks.

The model knows the statistics of the streams (``fleet``), the ``attacks``, the walk
of the target, which entries must be told apart (``entries``), and the masks: one law, or several sets of offsets of
round-robin windows to be averaged over.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.measured import measure_features, measured_fleet
from psofed.parts.affine import Affine, LinearLearner, PoisonedSamples
from psofed.parts.patterns.built_in import Random, RoundRobin
from psofed.scenario import Scenario
from psofed.settings.theory import THEORIES
from psofed.theory.coverage import check_covered, statement_of, walk_of
from psofed.theory.masks import CommonMask, FreshMasks, MaskLaw, OwnMasks
from psofed.theory.offsets import WindowOffsets

_FEW_CLIENTS = 16  # up to here nobody is lumped
_CLEAN = PoisonedSamples(label=1.0, input_noise_variance=0.0)


@dataclass(frozen=True, eq=False)
class AttackLaw:
    """Uploads of a group of attackers, what it learns from, and how likely each, and each pair, is to attack.

    Attributes
    ----------
    upload : Affine
        What they send; as honest clients do, if they poison their samples.
    chance : array (K,)
        E[t_k]: probability that client k is Byzantine, times that of attacking.
    pair_factor : float
        f in E[t_k t_l] = f E[t_k] E[t_l]: 1 for a fixed set of Byzantine clients. Where it is not 1 (a set redrawn in
        every iteration) all chances are equal.
    samples : PoisonedSamples
        What they learn from.
    """

    upload: Affine
    chance: FloatArray
    pair_factor: float = 1.0
    samples: PoisonedSamples = _CLEAN

    @property
    def covariance(self) -> float:
        """Cov(t_k, t_l), k ≠ l, the same for all pairs."""
        return (self.pair_factor - 1.0) * float(self.chance.max()) ** 2

    @property
    def is_poisoning(self) -> bool:
        """Whether they poison their samples."""
        return self.samples != _CLEAN

    @property
    def only_adds(self) -> bool:
        """Whether they only add noise that is independent between clients and entries."""
        return self.upload.is_isotropic and not self.is_poisoning


class Entries(NamedTuple):
    """Entries of a model that the theory tells apart.

    Attributes
    ----------
    size : int
        E. Over white inputs, entries whose masks have the same law are equal: one of them stands for all. Over
        correlated inputs blocks are whole, and E is 1.
    shift : int
        Round-robin masks over white inputs: entries are named by their place in the moving window, so each iteration
        renames entry e to e − `shift`.
    multiplicity : float
        How many entries each of them stands for.
    """

    size: int
    shift: int
    multiplicity: float


@dataclass(frozen=True, eq=False)
class TheoryModel:
    """A scenario as the theory sees it: everything but the stepsize is fixed.

    Parameters
    ----------
    scenario : Scenario
    theory : str
        ``"exact"``, ``"paper"``, or ``"independence"``: exact, but with inputs taken as independent over time.
    small_stepsize : bool
        Drop μ²𝓗 (paper's theory only).
    measured : Fleet, optional
        Statistics of the streams, where they are known already; by default those of the scenario.
    stated : tuple of AttackLaw, optional
        Attacks in the place of the scenario's.
    by_honesty : bool
        Tell honest clients from Byzantine ones even if their models obey the same law; see :attr:`tells_honest`.
    """

    scenario: Scenario
    theory: str = "exact"
    small_stepsize: bool = False
    measured: Fleet | None = None
    stated: tuple[AttackLaw, ...] | None = None
    by_honesty: bool = False

    def __post_init__(self) -> None:
        check_choice("theory", self.theory, THEORIES)
        if self.small_stepsize and self.theory != "paper":
            raise InvalidValueError(
                "small_stepsize", True, f'False with theory = "{self.theory}"; it is an option of "paper"'
            )
        check_covered(self)

    # The clients

    @cached_property
    def fleet(self) -> Fleet:
        """Statistics of the clients' streams; those of the features where the streams or the model are not linear."""
        if self.measured is not None:
            return self.measured
        if self.scenario.data.rows is not None:
            return measured_fleet(self.scenario)
        return draw_fleet(self.scenario) if self.scenario.is_linear else measure_features(self.scenario)

    def stepsizes(self, stepsize: float) -> FloatArray:
        """Return the clients' stepsizes, (K,): the scenario's, scaled to the mean `stepsize`."""
        drawn = self.scenario.draw_stepsizes()
        return np.asarray(drawn * (stepsize / drawn.mean()))

    @cached_property
    def availability(self) -> FloatArray:
        """Share of time that each client is available, (K,)."""
        clients, availability = self.scenario.num_clients, self.scenario.availability
        if availability is None:
            return np.ones(clients)
        return np.asarray(availability.shares(clients, self.scenario.data.fleet_seed))

    @property
    def learner(self) -> LinearLearner:
        """The learner's step."""
        step = self.scenario.learner.linear()
        assert step is not None
        return step

    @property
    def is_lumpable(self) -> bool:
        """Whether clients differ in variances, stepsizes, availability and attacks alone and can be grouped."""
        fleet = self.fleet
        each = (fleet.target_offsets, fleet.explicit_covariances, fleet.fourth_moments)
        return all(moments is None for moments in each) and self.scenario.num_clients > _FEW_CLIENTS

    @cached_property
    def walk(self) -> float:
        """q: variance of the step each entry of the target takes per iteration; 0 if it stays where it is."""
        return walk_of(self.scenario.drift)

    # The attacks

    @cached_property
    def attacks(self) -> tuple[AttackLaw, ...]:
        """All groups that ever attack."""
        if self.stated is not None:
            return self.stated
        laws = []
        for attack in self.scenario.attacks:
            statement = statement_of(attack)
            byzantine, pair_factor = attack.byzantine_moments(self.scenario.num_clients, self.fleet.names)
            chance = attack.probability * byzantine
            if isinstance(statement, PoisonedSamples):
                laws.append(AttackLaw(Affine(), chance, pair_factor, statement))
            else:
                laws.append(AttackLaw(statement, chance, pair_factor))
        return tuple(law for law in laws if np.any(law.chance))

    @cached_property
    def attack_chance(self) -> FloatArray:
        """How likely each client is to attack in an iteration, in whatever group, (K,)."""
        return np.asarray(sum((one.chance for one in self.attacks), np.zeros(self.scenario.num_clients)))

    @cached_property
    def clean(self) -> "TheoryModel":
        """The same fleet without the attack."""
        if not self.attacks:
            return self
        return replace(self, scenario=self.scenario.replace(attack=None), measured=self.fleet, stated=None)

    @cached_property
    def honest(self) -> FloatArray:
        """Weight of each client in the honest clients' MSE, (K,): the chance that it is not Byzantine; sums to 1."""
        clients = self.scenario.num_clients
        byzantine = sum(
            (attack.byzantine_moments(clients, self.fleet.names)[0] for attack in self.scenario.attacks),
            start=np.zeros(clients),
        )
        honest = np.maximum(1.0 - byzantine, 0.0)
        return np.asarray(honest / max(honest.sum(), 1e-300))

    @cached_property
    def tells_honest(self) -> bool:
        """Whether groups tell honest clients from those that only add noise.

        Their models obey the same law under one mask for all. Over correlated inputs, where groups cost most, they
        are told apart only where the honest clients' MSE is wanted (``by_honesty``).
        """
        alike = any(one.only_adds for one in self.attacks)
        return self.by_honesty or self.fleet.is_white or not alike or not np.ptp(self.honest)

    @property
    def is_additive(self) -> bool:
        """Whether the attack only adds noise of mean zero that is independent between clients."""
        return bool(self.attacks) and all(one.upload.is_additive and not one.is_poisoning for one in self.attacks)

    @property
    def adds(self) -> bool:
        """Whether attacks or links add something to what is sent, so that small stepsizes have a price."""
        uploads, links = [one.upload for one in self.attacks], self.scenario.channel
        parts = () if links is None else (*links.up, *links.down)
        return (
            any(np.any(one.variance) or np.any(one.common_variance) or self._pulls(one) for one in uploads)
            or sum(part.added_variance() or 0.0 for part in parts) > 0
        )

    @property
    def has_direction(self) -> bool:
        """Whether constants matter: an attack, a leak or a client's own target pulls away from the common one."""
        pulls = any(one.is_poisoning or self._pulls(one.upload) for one in self.attacks)
        return pulls or self.learner.leakage > 0 or self.fleet.target_offsets is not None

    def _pulls(self, statement: Affine) -> bool:
        lacking = 1.0 - statement.own - statement.server
        return bool(np.any(lacking * self.fleet.target - statement.offset))

    @property
    def is_papers(self) -> bool:
        """Whether the iteration is the paper's: one attack, perfect links, LMS with one stepsize."""
        scenario = self.scenario
        network = (scenario.availability, scenario.channel, scenario.delay)
        return (
            len(self.attacks) <= 1
            and all(part is None for part in network)
            and self.learner == LinearLearner()
            and isinstance(scenario.stepsize, float | int)
        )

    # Stability that is known beforehand

    @property
    def is_contraction(self) -> bool:
        """Whether uploads average honest models and samples are clean and Gaussian, as the paper's bounds assume."""
        honest = all((one.upload.own, one.upload.server) == (1.0, 0.0) and not one.is_poisoning for one in self.attacks)
        gaussian = self.fleet.fourth_moments is None
        return honest and gaussian and self.is_papers and self.scenario.algorithm.holds_models

    @property
    def is_bounded(self) -> bool:
        """Whether stepsizes below the contraction bound are stable.

        A random mask takes all entries with the same probability, so that E‖v_k‖² lies between those of server and
        client. A moving window joins entries of both, and the directions in which clients with covariances of their own
        learn slowly may add up. Where covariances are ς_k² T, no system is known that grows below the bound.
        """
        return self.is_contraction and (not self._moving_window or self.fleet.explicit_covariances is None)

    # The masks

    @property
    def is_redrawn(self) -> bool:
        """Whether the uploading participants are an independent draw, as they always are in the paper's analysis."""
        return self.scenario.uplink == "redrawn" or self.theory == "paper"

    @property
    def is_scattered(self) -> bool:
        """Whether every client has its own moving window."""
        return self._moving_window and not self.scenario.selection.coordinated

    @property
    def is_sampled(self) -> bool:
        """Whether the average over offsets is taken over a sample of them."""
        return self.is_scattered and self.windows.are_sampled

    @cached_property
    def windows(self) -> WindowOffsets:
        """The moving windows of round-robin."""
        scenario = self.scenario
        return WindowOffsets(scenario.num_clients, scenario.dimension, scenario.num_shared, self.fleet.is_white)

    @cached_property
    def entries(self) -> Entries:
        """The entries that are told apart."""
        dimension, shared = self.scenario.dimension, self.scenario.num_shared
        if not self.fleet.is_white:
            return Entries(1, 0, 1.0)
        if not self._moving_window:
            return Entries(1, 0, float(dimension))
        if self.is_scattered:
            return Entries(dimension, shared, 1.0)
        period = self.windows.period
        return Entries(period, shared * period // dimension, dimension / period)

    def masks(self, offsets: NDArray[np.int64] | None = None) -> tuple[tuple[MaskLaw, ...], int]:
        """Masks of one period, for sets of offsets (N, K) if windows are scattered, and the number of sets."""
        if offsets is not None:
            return self.windows.scattered(offsets), len(offsets)
        if not self._moving_window:
            return (self._random_mask(),), 1
        if self.fleet.is_white:
            window = (np.arange(self.entries.size) < self.entries.shift).astype(np.float64)[:, None]
            return (CommonMask(window, window[..., None]),), 1
        # Offsets o and o + M are the same masks one iteration apart; the steady state averages over a period.
        masks = self.windows.common()
        return masks, len(masks[0].p)

    def _random_mask(self) -> MaskLaw:
        scenario, size = self.scenario, 1 if self.fleet.is_white else self.scenario.dimension
        if scenario.num_shared == scenario.dimension or not scenario.algorithm.holds_models:
            return CommonMask(np.ones((1, size)), np.ones((1, size, size)))
        # The paper's theory takes round-robin masks for random ones of the same p_e.
        pattern = scenario.selection.pattern
        pattern = Random() if isinstance(pattern, RoundRobin) else pattern
        moments = pattern.mask_moments(scenario.dimension, scenario.num_shared)
        assert moments is not None
        p, across = moments
        if np.shape(across) not in ((), (scenario.dimension, scenario.dimension)):
            raise PsofedError(
                f'selection.pattern = "{pattern.kind}": mask_moments({scenario.dimension}, {scenario.num_shared}) '
                f"returns second moments of shape {np.shape(across)}, where a number or a matrix (D, D) is wanted"
            )
        q = np.where(np.eye(size) > 0, p, across if size > 1 else p)[None]
        is_common = scenario.selection.coordinated
        if self.theory == "paper":
            return FreshMasks(p, q, is_common)
        return CommonMask(np.full((1, size), p), q) if is_common else OwnMasks(p, q)

    @property
    def _moving_window(self) -> bool:
        # The paper's moments are those of p_e = M/D whatever the pattern; and with M = D all patterns are one.
        scenario = self.scenario
        is_window = isinstance(scenario.selection.pattern, RoundRobin)
        partial = scenario.num_shared < scenario.dimension
        return self.theory != "paper" and is_window and partial and scenario.algorithm.holds_models
