"""A scenario as the theory sees it: the laws of participation, samples, uploads and masks, everything but the stepsize.

One iteration is v_k = w_k + a_k S_k (g − w_k), z_k = v_k − μ x_k x_kᵀ (v_k + e_k) − μ x_k ν_k, g' = g + (1/s) Σ_k b_k
S'_k (u_k − g). ``drawn`` is the law of a and b, ``mixture`` that of x, ν and e, ``law`` that of u given z and g,
``branches`` that of S: one, or several to be averaged over the offsets of round-robin masks. ``entries`` says which
entries of the moments are tracked, and ``tags`` which method can solve them (:func:`psofed.theory.solve.select`).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.suggest import did_you_mean
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.measured import measured_fleet
from psofed.fleet.nonlinear import measure_features
from psofed.parts.affine import Affine, LinearLearner, PoisonedSamples, Statement
from psofed.parts.patterns.random import Random
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario
from psofed.settings.theory import THEORIES
from psofed.theory.coverage import check_attack, check_scenario, statement_of, walk_of
from psofed.theory.lumped import LumpedFleet
from psofed.theory.maps.general import Recursion
from psofed.theory.moments.layout import Entries, Participation
from psofed.theory.opened import OpenParts, join_poisoned
from psofed.theory.steps.common_mask import CommonMask
from psofed.theory.steps.corruption import AttackChances, Corruption
from psofed.theory.steps.exchange import MaskLaw, MaskMoments
from psofed.theory.steps.independent_masks import IndependentMasks
from psofed.theory.steps.lms import lms_of
from psofed.theory.steps.offsets import WindowMasks
from psofed.theory.steps.samples import Mixture, clean_samples, poisoned_samples
from psofed.theory.steps.uploads import UploadLaw


@dataclass(frozen=True)
class Branch:
    """One way the offsets of round-robin masks can fall, with its probability.

    Attributes
    ----------
    exchanges : tuple of MaskLaw
        Upload and next download of one period.
    weight : float
        Probability, or share of the sample.
    """

    exchanges: tuple[MaskLaw, ...]
    weight: float


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
    """

    scenario: Scenario
    theory: str = "exact"
    small_stepsize: bool = False
    measured: Fleet | None = None

    def __post_init__(self) -> None:
        if self.theory not in THEORIES:
            hint = did_you_mean(self.theory, THEORIES)
            raise InvalidValueError("theory", self.theory, '"exact", "paper" or "independence"', hint)
        if self.small_stepsize and self.theory != "paper":
            raise InvalidValueError(
                "small_stepsize", True, f'False with theory = "{self.theory}"; it is an option of "paper"'
            )
        check_scenario(self.scenario, self.theory)
        check_attack(self)

    @cached_property
    def fleet(self) -> Fleet:
        """Statistics of the clients' streams; those of the features where the streams or the model are not linear."""
        if self.measured is not None:
            return self.measured
        if self.scenario.data.rows is not None:
            return measured_fleet(self.scenario)
        return draw_fleet(self.scenario) if self.scenario.is_linear else measure_features(self.scenario)

    @cached_property
    def drawn(self) -> Participation:
        """Probabilities of participation."""
        return Participation(self.scenario.num_clients, self.scenario.num_participants)

    @cached_property
    def statements(self) -> tuple[tuple[Statement, AttackChances], ...]:
        """Effects and chances of all groups that ever attack."""
        found, clients = [], self.scenario.num_clients
        for attack in self.scenario.attacks:
            statement = statement_of(attack)
            byzantine, pair_factor = attack.byzantine_moments(clients, self.fleet.names)
            chances = AttackChances(attack.probability * byzantine, pair_factor)
            if np.any(chances.chance):
                found.append((statement, chances))
        return tuple(found)

    @property
    def statement(self) -> Statement | None:
        """The effect of the (first) attack, as it states it; None if nobody ever attacks."""
        return self.statements[0][0] if self.statements else None

    @cached_property
    def attackers(self) -> AttackChances:
        """How likely each client is to attack in an iteration, in whatever group."""
        if not self.statements:
            return AttackChances(np.zeros(self.scenario.num_clients))
        chance = np.sum([chances.chance for _, chances in self.statements], axis=0)
        return AttackChances(chance, self.statements[0][1].pair_factor)

    @property
    def is_opened(self) -> bool:
        """Whether the iteration has parts that the paper's has not, and that need all moments."""
        scenario = self.scenario
        network = (scenario.availability, scenario.channel, scenario.delay)
        learns_otherwise = scenario.learner.linear() != LinearLearner()
        if len(self.statements) > 1 or learns_otherwise or any(part is not None for part in network):
            return True
        return not isinstance(scenario.stepsize, float | int)

    def stepsizes(self, stepsize: float) -> FloatArray:
        """Return the clients' stepsizes, (K,): the scenario's, scaled to the mean `stepsize`."""
        drawn = self.scenario.draw_stepsizes()
        return np.asarray(drawn * (stepsize / drawn.mean()))

    @cached_property
    def open_parts(self) -> OpenParts:
        """The parts that the paper's iteration has not."""
        return OpenParts(self)

    @cached_property
    def clean(self) -> "TheoryModel":
        """The same fleet without the attack."""
        if self.statement is None:
            return self
        return replace(self, scenario=self.scenario.replace(attack=None), measured=self.fleet)

    @property
    def is_additive(self) -> bool:
        """Whether the attack only adds noise of mean zero that is independent between clients."""
        return bool(self.statements) and all(
            isinstance(statement, Affine) and statement.is_additive for statement, _ in self.statements
        )

    @cached_property
    def law(self) -> UploadLaw:
        """The law of the uploads."""
        affine = self.statement if isinstance(self.statement, Affine) else Affine()
        attackers = self.attackers
        if not isinstance(self.statement, Affine):
            attackers = AttackChances(np.zeros(self.scenario.num_clients))
        constant = (1.0 - affine.own - affine.server) * self.fleet.target - affine.offset
        shaped = np.array(self.entries.vector(constant)) if np.any(constant) else None
        return UploadLaw(self.drawn, self.entries, Corruption(attackers, affine, shaped))

    @cached_property
    def mixture(self) -> Mixture:
        """The samples that clients learn from."""
        return self.mixture_of(self.fleet, self.attackers)

    def mixture_of(self, fleet: Fleet, attackers: AttackChances) -> Mixture:
        """Return the samples of a fleet under this model's attack."""
        clean = clean_samples(fleet, self.entries)
        groups = [
            (chances.chance, poisoned_samples(fleet, self.entries, statement))
            for statement, chances in self.statements
            if isinstance(statement, PoisonedSamples)
        ]
        if not groups:
            return Mixture(clean)
        if len(self.statements) > 1:
            attackers = AttackChances(np.sum([chance for chance, _ in groups], axis=0))
        return Mixture(clean, join_poisoned(groups), attackers)

    @property
    def has_direction(self) -> bool:
        """Whether first moments are needed: an attack or a client's own target pulls away from the common one."""
        if self.is_opened:
            return self.open_parts.has_direction
        return self.law.corruption.constant is not None or any(
            samples.displacement is not None for _, samples in self.mixture.branches
        )

    @property
    def is_contraction(self) -> bool:
        """Whether uploads average honest models, and samples are clean, as the paper's bounds on μ assume."""
        gaussian = self.fleet.fourth_moments is None and self.scenario.algorithm.holds_models
        return (
            gaussian
            and not self.is_opened
            and self.law.corruption.is_linear_part_honest
            and self.mixture.poisoned is None
        )

    @property
    def is_bounded(self) -> bool:
        """Whether stepsizes below the contraction bound are stable.

        A random mask takes all entries with the same probability, so that E‖v_k‖² lies between those of server and
        client. A moving window joins entries of both, and the directions in which clients with covariances of their own
        learn slowly may add up. Where covariances are ς_k² T, no system is known that grows below the bound.
        """
        return self.is_contraction and (not self._moving_window or self.fleet.explicit_covariances is None)

    @cached_property
    def walk(self) -> float:
        """q: variance of the step each entry of the target takes per iteration; 0 if it stays where it is."""
        return walk_of(self.scenario.drift)

    @cached_property
    def entries(self) -> Entries:
        """Tracked entries of the blocks."""
        scenario = self.scenario
        if not self.fleet.is_white:
            return Entries.full(scenario.dimension)
        kinds = 1 if self.fleet.target_offsets is None else scenario.dimension
        if not self._moving_window:
            return Entries.white(scenario.dimension, 1, kinds=kinds)
        if scenario.selection.coordinated:
            period = RoundRobin().mask_period(scenario.dimension, scenario.num_shared)
            return Entries.white(
                scenario.dimension, period, scenario.num_shared * period // scenario.dimension, kinds
            )
        return Entries.white(scenario.dimension, scenario.dimension, scenario.num_shared, kinds)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """The cases whose steady states are averaged."""
        if not self._moving_window:
            return (Branch((self._random_exchange(),), 1.0),)
        if self.is_scattered:
            return self.offset_branches(64)
        if self.fleet.is_white:
            place = np.arange(self.entries.size) < self.entries.shift
            mask = place.astype(np.float64)
            return (Branch((CommonMask(self.drawn, self.entries, MaskMoments(mask, mask, mask)),), 1.0),)
        # Offsets o and o + M are the same masks one iteration apart; the steady state averages over a period.
        masks = self.round_robin
        distinct = self.scenario.dimension // masks.period
        return tuple(Branch(masks.common(offset), 1.0 / distinct) for offset in range(distinct))

    @cached_property
    def tags(self) -> frozenset[str]:
        """Properties that a method may need: "white" or "correlated" inputs, "separable" or "scattered" masks.

        Masks are scattered if each client has its own moving window, else separable. Clients that hold no model have
        neither: their scenario is "server-held". So does one with parts that the paper's iteration has not: "opened".
        """
        if not self.scenario.algorithm.holds_models:
            return frozenset({"server-held"})
        if self.is_opened:
            return frozenset({"opened"})
        inputs = "white" if self.fleet.is_white else "correlated"
        return frozenset({inputs, "scattered" if self.is_scattered else "separable"})

    @property
    def round_robin(self) -> WindowMasks:
        """The moving windows, where the pattern is round-robin."""
        return WindowMasks(self.drawn, self.entries, self.scenario.num_shared, self.is_opened)

    @property
    def is_scattered(self) -> bool:
        """Whether every client has its own moving window."""
        return self._moving_window and not self.scenario.selection.coordinated

    @property
    def is_sampled(self) -> bool:
        """Whether the average over offsets is taken over a sample of them."""
        return self.is_scattered and self.round_robin.are_sampled

    def recursion(self, stepsize: float, branch: Branch, lumped: bool = True) -> Recursion:
        """Return the recursion of one branch at one stepsize; `lumped` False keeps every client apart."""
        if self.is_opened or self.is_scattered:  # masks that are known are exchanged there
            return self.open_parts.recursion(stepsize, branch)
        together = self._lumped_fleet.at(stepsize) if lumped and self._lumped_fleet is not None else None
        mixture, law = together or (self.mixture, self.law)
        return Recursion(
            lms_of(mixture, stepsize, self.entries, self.small_stepsize),
            branch.exchanges,
            self.drawn,
            self.entries,
            self.is_redrawn,
            law,
            self.fleet.target,
            self.walk,
            self.has_direction,
        )

    @cached_property
    def _lumped_fleet(self) -> LumpedFleet | None:
        # Clients can stand for each other if they differ in variances and chances only.
        own = (self.fleet.target_offsets, self.fleet.explicit_covariances, self.fleet.fourth_moments)
        alike = "separable" in self.tags and all(moments is None for moments in own)
        return LumpedFleet(self) if alike else None

    def can_lump(self, stepsize: float) -> bool:
        """Whether :meth:`recursion` lumps clients together at a stepsize."""
        return self._lumped_fleet is not None and self._lumped_fleet.at(stepsize) is not None

    @property
    def is_redrawn(self) -> bool:
        """Whether the uploading participants are an independent draw, as they always are in the paper's analysis."""
        return self.scenario.uplink == "redrawn" or self.theory == "paper"

    @property
    def _moving_window(self) -> bool:
        # The paper's moments are those of p_e = M/D whatever the pattern; and with M = D all patterns are one.
        scenario = self.scenario
        shares_a_window = self._is_window and scenario.num_shared < scenario.dimension
        return self.theory != "paper" and shares_a_window and scenario.algorithm.holds_models

    @property
    def _is_window(self) -> bool:
        return isinstance(self.scenario.selection.pattern, RoundRobin)

    def _random_exchange(self) -> MaskLaw:
        scenario = self.scenario
        # The paper's theory takes round-robin masks for random ones of the same p_e.
        pattern = Random() if self._is_window else scenario.selection.pattern
        moments = pattern.mask_moments(scenario.dimension, scenario.num_shared)
        assert moments is not None
        first, off_diagonal = moments
        if np.shape(off_diagonal) not in ((), (scenario.dimension, scenario.dimension)):
            raise PsofedError(
                f'selection.pattern = "{pattern.kind}": mask_moments({scenario.dimension}, {scenario.num_shared}) '
                f"returns second moments of shape {np.shape(off_diagonal)}, where a number or a matrix (D, D) is wanted"
            )
        p = np.full(self.entries.size, first)
        # Of white inputs only diagonals are tracked.
        others = np.ravel(off_diagonal) if self.entries.is_full else first
        pair = np.where(self.entries.diagonal > 0, first, others)
        kind = CommonMask if scenario.selection.coordinated else IndependentMasks
        return kind(self.drawn, self.entries, MaskMoments(p, p, pair), remembered=self.theory != "paper")

    def offset_branches(self, count: int) -> tuple[Branch, ...]:
        """Round-robin masks with an offset each, given the offsets: one branch for each of these."""
        masks = self.round_robin
        offsets = masks.offsets(count)
        return tuple(Branch(masks.scattered(offset), 1.0 / len(offsets)) for offset in offsets)

    def window_masks(self, count: int) -> FloatArray:
        """Masks in the moving frame for each of :meth:`.WindowMasks.offsets`, (N, K, D)."""
        return self.round_robin.masks(self.round_robin.offsets(count))
