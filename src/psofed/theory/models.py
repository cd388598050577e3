"""Which recursions a scenario means: one, or several to be averaged over the offsets of round-robin masks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.suggest import did_you_mean
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.nonlinear import measure_features
from psofed.parts.affine import Affine, PoisonedSamples, Statement
from psofed.parts.patterns.random import Random
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario
from psofed.theory.corruption import Attackers, Corruption
from psofed.theory.coverage import check_attack, check_scenario, statement_of, walk_of
from psofed.theory.exchange import CommonMask, IndependentMasks, MaskMoments
from psofed.theory.lms import lms_of
from psofed.theory.lumps import NODES, Lumps
from psofed.theory.moments import Entries, Participation
from psofed.theory.recursion import Exchange, Recursion
from psofed.theory.samples import Mixture, clean_samples, poisoned_samples
from psofed.theory.uploads import UploadLaw
from psofed.theory.window_masks import WindowMasks

THEORIES = ("exact", "paper")


@dataclass(frozen=True)
class Branch:
    """One way the offsets of round-robin masks can fall, with its probability.

    Attributes
    ----------
    exchanges : tuple of exchanges
        Upload and next download of one period.
    weight : float
        Probability, or share of the sample.
    """

    exchanges: tuple[Exchange, ...]
    weight: float


@dataclass(frozen=True, eq=False)
class Model:
    """A scenario as the theory sees it: everything but the stepsize is fixed.

    Parameters
    ----------
    scenario : Scenario
    theory : str
        ``"exact"`` or ``"paper"``.
    small_stepsize : bool
        Drop μ²𝓗 (paper's theory only).
    measured : Fleet, optional
        Statistics of the streams as measured, in the place of those the scenario describes.
    """

    scenario: Scenario
    theory: str = "exact"
    small_stepsize: bool = False
    measured: Fleet | None = None

    def __post_init__(self) -> None:
        if self.theory not in THEORIES:
            hint = did_you_mean(self.theory, ("exact", "paper"))
            raise InvalidValueError("theory", self.theory, '"exact" or "paper"', hint)
        if self.small_stepsize and self.theory == "exact":
            raise InvalidValueError(
                "small_stepsize", True, 'False with theory = "exact"; it is an option of "paper"'
            )
        check_scenario(self.scenario)
        check_attack(self)

    @cached_property
    def fleet(self) -> Fleet:
        """Statistics of the clients' streams; those of the features where the streams or the model are not linear."""
        if self.measured is not None:
            return self.measured
        return draw_fleet(self.scenario) if self.scenario.is_linear else measure_features(self.scenario)

    @cached_property
    def drawn(self) -> Participation:
        """Probabilities of participation."""
        return Participation(self.scenario.num_clients, self.scenario.num_participants)

    @cached_property
    def statement(self) -> Statement | None:
        """What the attack states of itself; None if nobody ever attacks."""
        attack = self.scenario.attack
        if attack is None:
            return None
        statement = statement_of(attack)
        return statement if np.any(self.attackers.chance) else None

    @cached_property
    def attackers(self) -> Attackers:
        """Who attacks in an iteration."""
        attack, clients = self.scenario.attack, self.scenario.num_clients
        if attack is None:
            return Attackers(np.zeros(clients))
        byzantine, pair_factor = attack.byzantine_moments(clients, self.fleet.names)
        return Attackers(attack.probability * byzantine, pair_factor)

    @cached_property
    def clean(self) -> "Model":
        """The same fleet without the attack."""
        return self if self.statement is None else replace(self, scenario=self.scenario.replace(attack=None))

    @property
    def is_additive(self) -> bool:
        """Whether the attack only adds noise of mean zero that is independent between clients."""
        return isinstance(self.statement, Affine) and self.statement.is_additive

    @cached_property
    def law(self) -> UploadLaw:
        """What the server receives from whom."""
        affine = self.statement if isinstance(self.statement, Affine) else Affine()
        attackers = self.attackers
        if not isinstance(self.statement, Affine):
            attackers = Attackers(np.zeros(self.scenario.num_clients))
        constant = (1.0 - affine.own - affine.server) * self.fleet.target - affine.offset
        shaped = np.array(self.entries.vector(constant)) if np.any(constant) else None
        return UploadLaw(self.drawn, self.entries, Corruption(attackers, affine, shaped))

    @cached_property
    def mixture(self) -> Mixture:
        """What the clients learn from."""
        return self._mixture_of(self.fleet, self.attackers)

    def _mixture_of(self, fleet: Fleet, attackers: Attackers) -> Mixture:
        clean = clean_samples(fleet, self.entries)
        if not isinstance(self.statement, PoisonedSamples):
            return Mixture(clean)
        return Mixture(clean, poisoned_samples(fleet, self.entries, self.statement), attackers)

    def _lumped(self, stepsize: float) -> tuple[Mixture, UploadLaw] | None:
        """Return samples and uploads of the fleet lumped together, where that is possible and worth it."""
        if self.is_scattered or self.entries.is_full or self.fleet.target_offsets is not None:
            return None  # clients differ in more than their variances
        # Poisoned inputs have a larger variance: at most this factor of it
        variance = self.fleet.input_variance
        widest = np.max([samples.covariance.max() for _, samples in self.mixture.branches])
        pole = 2.0 / (stepsize * (self.scenario.dimension + 2)) * float(variance.max()) / float(widest)
        for nodes in NODES:
            lumps, mixture, law = self._lumps(nodes)
            if 2 * lumps.copies.size >= variance.size:
                return None
            if lumps.is_precise(variance, pole):
                return mixture, law
        return None

    def _lumps(self, nodes: int) -> tuple[Lumps, Mixture, UploadLaw]:
        if nodes not in self._known_lumps:
            fleet, corruption, chance = self.fleet, self.law.corruption, self.attackers.chance
            if self.is_additive and self.scenario.selection.coordinated:
                # With one mask for all, noise that is added only counts by its sum.
                chance = np.full_like(chance, chance.mean())
            lumps = Lumps.of(fleet.input_variance, fleet.noise_variance, chance, nodes)
            fleet = replace(fleet, input_variance=lumps.input_variance, noise_variance=lumps.noise_variance)
            attackers = Attackers(lumps.chance, self.attackers.pair_factor)
            honest = not np.any(corruption.attackers.chance)
            uploading = Attackers(np.zeros_like(lumps.chance)) if honest else attackers
            law = replace(self.law, corruption=replace(corruption, attackers=uploading), copies=lumps.copies)
            self._known_lumps[nodes] = (lumps, self._mixture_of(fleet, attackers), law)
        return self._known_lumps[nodes]

    @cached_property
    def _known_lumps(self) -> dict[int, tuple[Lumps, Mixture, UploadLaw]]:
        return {}

    @property
    def has_direction(self) -> bool:
        """Whether first moments are needed: somebody pulls away from the target."""
        return self.law.corruption.constant is not None or any(
            samples.displacement is not None for _, samples in self.mixture.branches
        )

    @property
    def is_contraction(self) -> bool:
        """Whether uploads average honest models, and samples are clean: what the paper's bounds on μ assume."""
        gaussian = self.fleet.fourth_moments is None
        return gaussian and self.law.corruption.is_linear_part_honest and self.mixture.poisoned is None

    @cached_property
    def walk(self) -> float:
        """q: variance of the step each entry of the target takes per iteration; 0 if it stays where it is."""
        return walk_of(self.scenario.drift)

    @cached_property
    def entries(self) -> Entries:
        """Which entries of the blocks are tracked."""
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
        """What has to be averaged, for the steady state."""
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

    @property
    def round_robin(self) -> WindowMasks:
        """The moving windows, where the pattern is round-robin."""
        return WindowMasks(self.drawn, self.entries, self.scenario.num_shared)

    @property
    def is_scattered(self) -> bool:
        """Whether every client has a moving window of its own."""
        return self._moving_window and not self.scenario.selection.coordinated

    @property
    def is_sampled(self) -> bool:
        """Whether the average over offsets is taken over a sample of them."""
        return self.is_scattered and self.round_robin.are_sampled

    def recursion(self, stepsize: float, branch: Branch, lumped: bool = True) -> Recursion:
        """Return the recursion of one branch at one stepsize; `lumped` False keeps every client apart."""
        mixture, law = (self._lumped(stepsize) if lumped else None) or (self.mixture, self.law)
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

    @property
    def is_redrawn(self) -> bool:
        """Whether the uploading participants are drawn afresh; the paper's analysis always has it so."""
        return self.scenario.uplink == "redrawn" or self.theory == "paper"

    @property
    def _moving_window(self) -> bool:
        # The paper's moments are those of p_e = M/D whatever the pattern; and with M = D all patterns are one.
        scenario = self.scenario
        return self.theory == "exact" and self._is_window and scenario.num_shared < scenario.dimension

    @property
    def _is_window(self) -> bool:
        return isinstance(self.scenario.selection.pattern, RoundRobin)

    def _random_exchange(self) -> Exchange:
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
        return kind(self.drawn, self.entries, MaskMoments(p, p, pair), remembered=self.theory == "exact")

    def offset_branches(self, count: int) -> tuple[Branch, ...]:
        """Round-robin masks with an offset each, given the offsets: one branch for each of these."""
        masks = self.round_robin
        offsets = masks.offsets(count)
        return tuple(Branch(masks.scattered(offset), 1.0 / len(offsets)) for offset in offsets)

    def window_masks(self, count: int) -> FloatArray:
        """Masks in the moving frame for each of :meth:`.WindowMasks.offsets`, (N, K, D)."""
        return self.round_robin.masks(self.round_robin.offsets(count))
