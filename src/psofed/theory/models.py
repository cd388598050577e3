"""Which recursions a scenario means: one, or several to be averaged over the offsets of round-robin masks."""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.suggest import did_you_mean
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.nonlinear import measure_features
from psofed.parts.affine import Affine, PoisonedSamples, Statement
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Attack
from psofed.parts.patterns.random import Random
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.scenario import Scenario
from psofed.theory.corruption import Attackers, Corruption
from psofed.theory.exchange import CommonMask, IndependentMasks, MaskMoments
from psofed.theory.fixed_masks import FixedMasks
from psofed.theory.lms import lms_of
from psofed.theory.lumps import NODES, Lumps
from psofed.theory.moments import Entries, Participation
from psofed.theory.recursion import Exchange, Recursion
from psofed.theory.samples import Mixture, clean_samples, poisoned_samples
from psofed.theory.uploads import UploadLaw

THEORIES = ("exact", "paper")

_ENUMERATED_OFFSETS = 4096  # up to here all combinations of offsets are gone through
_ENUMERATED_CORRELATED = 32  # likewise with correlated inputs, where each takes longer
_OFFSET_SEED = (
    20240817  # of the sample of offsets beyond that; the same for all, so that predictions are repeatable
)


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


def statement_of(attack: Attack) -> Statement:
    """Return what an attack states of itself.

    Raises
    ------
    NotCoveredError
        For attacks that are not affine in the models, by name and with the reason.

    Examples
    --------
    >>> from psofed.attacks import SignFlip
    >>> statement_of(SignFlip(num_byzantine=1, scale=2.0, of="update"))
    Affine(own=-2.0, server=3.0, offset=0.0, variance=0.0, common_variance=0.0)
    """
    statement = attack.affine()
    if statement is None:
        raise NotCoveredError(
            f'the theory does not cover attack.kind = "{attack.kind}": {attack.not_affine_because}'
        )
    return statement


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
        if not self.scenario.algorithm.holds_models:
            raise NotCoveredError(
                'the theory covers algorithm = "pso-fed"; it has none for '
                f'"{self.scenario.algorithm.kind}", which can only be simulated'
            )
        if not isinstance(self.scenario.aggregation, Mean):
            raise NotCoveredError(
                f'the theory covers aggregation = "mean"; "{self.scenario.aggregation.kind}" is not linear in what is '
                "uploaded and can only be simulated"
            )
        defence = self.scenario.defence
        if defence is not None:
            raise NotCoveredError(
                f'the theory does not cover defence.kind = "{defence.kind}": whom it leaves out depends on the data, '
                "so it can only be simulated; psofed.predict_recovery says what follows an exclusion"
            )
        if self.scenario.pre_aggregation is not None:
            raise NotCoveredError(
                f'the theory covers no pre-aggregation; "{self.scenario.pre_aggregation.kind}" mixes uploads in a way '
                "that depends on them or on chance, and can only be simulated"
            )
        pattern = self.scenario.selection.pattern
        if (
            not self._is_window
            and pattern.mask_moments(self.scenario.dimension, self.scenario.num_shared) is None
        ):
            raise NotCoveredError(
                f'the theory does not cover selection.pattern = "{pattern.kind}": it states no moments'
            )
        self._check_attack()

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
        if self.is_scattered or self.entries.is_full or self.entries.kinds > 1:
            return None
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

    def _check_attack(self) -> None:
        statement, kind = self.statement, getattr(self.scenario.attack, "kind", None)
        _ = self.walk
        if self.theory == "paper" and self.fleet.target_offsets is not None:
            raise NotCoveredError(
                "the paper's theory covers clients that all have the same target; data.target_spread is not 0"
            )
        if statement is None:
            return
        if self.theory == "paper" and not self.is_additive:
            raise NotCoveredError(
                f'the paper\'s theory covers attacks of mean zero, independent between clients; "{kind}" is not: '
                'use theory = "exact"'
            )
        if isinstance(statement, PoisonedSamples) and not self.scenario.is_linear:
            raise NotCoveredError(
                f'the theory covers attack.kind = "{kind}" on linear streams; here it can only be simulated'
            )
        noisy_inputs = isinstance(statement, PoisonedSamples) and statement.input_noise_variance > 0
        if noisy_inputs and self.fleet.fourth_moments is not None:
            raise NotCoveredError(
                f'the theory covers attack.kind = "{kind}" on Gaussian inputs, not on measured fourth moments'
            )
        if self.walk and (self.law.corruption.constant is not None or self.mixture.poisoned is not None):
            raise NotCoveredError(
                f'attack.kind = "{kind}" pulls towards a fixed point, from which a target that walks moves away for '
                "ever: there is no steady state; it can only be simulated"
            )

    @cached_property
    def walk(self) -> float:
        """q: variance of the step each entry of the target takes per iteration; 0 if it stays where it is."""
        drift = self.scenario.drift
        if drift is None:
            return 0.0
        variance = drift.increment_variance()
        if variance is None:
            raise NotCoveredError(
                f'the theory covers drift.kind = "random-walk"; "{drift.kind}" states no steps of equal variance, and '
                "can only be simulated"
            )
        return variance

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
            period = self._period
            return Entries.white(
                scenario.dimension, period, scenario.num_shared * period // scenario.dimension, kinds
            )
        return Entries.white(scenario.dimension, scenario.dimension, scenario.num_shared, kinds)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """What has to be averaged, for the steady state."""
        scenario = self.scenario
        if not self._moving_window:
            return (Branch((self._random_exchange(),), 1.0),)
        if self.is_scattered:
            return self.offset_branches(64)
        if self.fleet.is_white:
            place = np.arange(self.entries.size) < self.entries.shift
            mask = place.astype(np.float64)
            return (Branch((CommonMask(self.drawn, self.entries, MaskMoments(mask, mask, mask)),), 1.0),)
        # Offsets o and o + M are the same masks one iteration apart; the steady state averages over a period.
        distinct = scenario.dimension // self._period
        return tuple(
            Branch(tuple(self._window_exchange(offset, n) for n in range(self._period)), 1.0 / distinct)
            for offset in range(distinct)
        )

    @property
    def is_scattered(self) -> bool:
        """Whether every client has a moving window of its own."""
        return self._moving_window and not self.scenario.selection.coordinated

    @property
    def is_sampled(self) -> bool:
        """Whether the average over offsets is taken over a sample of them."""
        if not self.is_scattered:
            return False
        free = (self.scenario.num_clients - 1) * math.log(self.scenario.dimension)
        if self.fleet.is_white:
            return free > math.log(_ENUMERATED_OFFSETS)
        return free + math.log(self.scenario.dimension / self._period) > math.log(_ENUMERATED_CORRELATED)

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

    @property
    def _period(self) -> int:
        return RoundRobin().mask_period(self.scenario.dimension, self.scenario.num_shared)

    def _random_exchange(self) -> Exchange:
        scenario = self.scenario
        # The paper's theory takes round-robin masks for random ones of the same p_e.
        pattern = Random() if self._is_window else scenario.selection.pattern
        moments = pattern.mask_moments(scenario.dimension, scenario.num_shared)
        assert moments is not None
        first, off_diagonal = moments
        p = np.full(self.entries.size, first)
        pair = np.where(self.entries.diagonal > 0, first, off_diagonal)
        kind = CommonMask if scenario.selection.coordinated else IndependentMasks
        return kind(self.drawn, self.entries, MaskMoments(p, p, pair), remembered=self.theory == "exact")

    def _window_exchange(self, offset: int, n: int) -> Exchange:
        mask = self._masks(np.array(offset), n + 1)
        row, column = np.repeat(mask, mask.size), np.tile(mask, mask.size)
        return CommonMask(self.drawn, self.entries, MaskMoments(row, column, row * column))

    def offsets(self, count: int) -> NDArray[np.int64]:
        """Offsets of all clients, (N, K): all combinations if they can be gone through, else `count` drawn ones."""
        scenario = self.scenario
        clients, dimension = scenario.num_clients, scenario.dimension
        if self.is_sampled:
            return np.random.default_rng(_OFFSET_SEED).integers(0, dimension, (count, clients))
        if self.fleet.is_white:
            # Entries are exchangeable: only differences of offsets matter.
            return np.array([(0, *rest) for rest in itertools.product(range(dimension), repeat=clients - 1)])
        # The steady state is averaged over a period, so offsets that all move on by M are the same.
        first = range(dimension // self._period)
        return np.array(
            [(o, *rest) for o in first for rest in itertools.product(range(dimension), repeat=clients - 1)]
        )

    def offset_branches(self, count: int) -> tuple[Branch, ...]:
        """Round-robin masks with an offset each, given the offsets: one branch for each of :meth:`offsets`."""
        offsets = self.offsets(count)
        make = self._white_windows if self.fleet.is_white else self._full_windows
        return tuple(Branch(make(offset), 1.0 / len(offsets)) for offset in offsets)

    def window_masks(self, count: int) -> FloatArray:
        """Masks in the moving frame for each of :meth:`offsets`, (N, K, D)."""
        return self._masks(self.offsets(count), 0)

    def _white_windows(self, offsets: NDArray[np.int64]) -> tuple[Exchange, ...]:
        mask = self._masks(offsets, 0)
        return (FixedMasks(self.drawn, self.entries, mask, mask),)

    def _full_windows(self, offsets: NDArray[np.int64]) -> tuple[Exchange, ...]:
        exchanges = []
        for n in range(self._period):
            mask = self._masks(offsets, n + 1)
            dimension = mask.shape[-1]
            exchanges.append(
                FixedMasks(
                    self.drawn, self.entries, np.repeat(mask, dimension, axis=-1), np.tile(mask, dimension)
                )
            )
        return tuple(exchanges)

    def _masks(self, offsets: NDArray[np.int64], n: int) -> FloatArray:
        return RoundRobin().mask_given_offset(self.scenario.dimension, self.scenario.num_shared, offsets, n)
