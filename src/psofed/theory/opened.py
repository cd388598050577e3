"""A scenario's open parts as the theory sees them: availability, channels, groups of attackers, learners, stepsizes.

The paper's iteration has none of them, and faster methods. With any of them all moments are kept
(:mod:`psofed.theory.maps.opened`). What they need to know of the scenario is put together here: with the stepsizes μ_k
(``stepsizes``), leakage γ and w* the learner's a_k = 1 − μ_k γ (``keep``) and b_k = μ_k γ w* (``push``), the constants
c = (1 − α − γ') w* − offset of attacks α u + γ' g + offset, the uplink's and downlink's variances, which add up over
channels in series, and their losses 1 − Π (1 − loss).
"""

from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import Affine, LinearLearner
from psofed.parts.network import Channel
from psofed.theory.maps.opened import OpenedRecursion
from psofed.theory.maps.scattered import ScatteredRecursion
from psofed.theory.steps.learning import LearningStep, normalised, rescaled
from psofed.theory.steps.lms import lms_of
from psofed.theory.steps.presence import PresenceLaw, PresenceMoments
from psofed.theory.steps.received import CommonNoise, ReceivedLaw
from psofed.theory.steps.samples import Mixture, SampleLaw

if TYPE_CHECKING:
    from psofed.theory.model import Branch, TheoryModel


class DelayLaw(NamedTuple):
    """Iterations d that every upload takes, the probability that it never arrives, and its weight β = α^d."""

    iterations: int
    loss: float
    weight: float


class OpenParts:
    """The open parts of a model's scenario.

    Parameters
    ----------
    model : TheoryModel
        Covered by the theory (:mod:`psofed.theory.coverage`).
    """

    def __init__(self, model: "TheoryModel") -> None:
        self._model = model

    @cached_property
    def delay(self) -> DelayLaw:
        """When uploads arrive."""
        scenario = self._model.scenario
        loss = _loss(() if scenario.channel is None else scenario.channel.up)
        if scenario.delay is None:
            return DelayLaw(0, loss, 1.0)
        chances = scenario.delay.chances()
        assert chances is not None, "the theory refuses other delays"
        (iterations,) = np.flatnonzero(chances).tolist()
        arrives = float(chances[iterations]) * (1.0 - loss)
        return DelayLaw(iterations, 1.0 - arrives, scenario.delay.weight**iterations)

    @cached_property
    def presence(self) -> PresenceMoments:
        """Who downloads, learns and uploads."""
        scenario, delay = self._model.scenario, self.delay
        availability, channel = scenario.availability, scenario.channel
        shares = None
        if availability is not None:
            shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
        return PresenceMoments.of(
            PresenceLaw(
                scenario.num_clients,
                scenario.num_participants,
                shares,
                availability is None or availability.server_knows,
                availability is None or availability.learns == "always",
                self._model.is_redrawn,
                _loss(() if channel is None else channel.down),
                delay.loss,
                counts_arrivals=scenario.delay is not None,
                withheld=self._withheld,
            )
        )

    @cached_property
    def _withheld(self) -> FloatArray | None:
        """Probability that each client withholds its upload, where the mean divides by arrivals; else None."""
        lost = [
            attackers.chance
            for statement, attackers in self._model.statements
            if isinstance(statement, Affine) and statement.is_lost
        ]
        if self._model.scenario.delay is None or not lost:
            return None
        return np.asarray(sum(lost))

    @cached_property
    def received(self) -> ReceivedLaw:
        """The law of the uploads."""
        model = self._model
        clients, entries, channel = model.scenario.num_clients, model.entries, model.scenario.channel
        chance, server, variance, lost = (np.zeros(clients) for _ in range(4))
        own, constant = np.ones(clients), np.zeros((clients, *entries.first_shape))
        common, covariance = [], 0.0
        for statement, attackers in model.statements:
            if not isinstance(statement, Affine) or (statement.is_lost and self._withheld is not None):
                continue
            member = attackers.chance > 0
            chance[member] = attackers.chance[member]
            own[member], server[member] = statement.own, statement.server
            variance[member], lost[member] = statement.variance, float(statement.is_lost)
            pull = (1.0 - statement.own - statement.server) * model.fleet.target - statement.offset
            constant[member] = entries.vector(pull)
            covariance += attackers.covariance
            if statement.common_variance:
                common.append(CommonNoise(statement.common_variance, attackers.chance, attackers.pair_factor))
        noise = added_variance(() if channel is None else channel.up)
        return ReceivedLaw(
            self.presence,
            entries,
            chance,
            own,
            server,
            variance,
            constant,
            lost,
            tuple(common),
            covariance,
            noise,
            self.delay.iterations,
        )

    @cached_property
    def down_variance(self) -> float:
        """Variance that the downlink adds."""
        channel = self._model.scenario.channel
        return added_variance(() if channel is None else channel.down)

    def learning(self, stepsize: float) -> LearningStep:
        """Return the learner's step."""
        model, mixture, step = self._model, self._model.mixture, self._step
        stepsizes, keep, push = model.stepsizes(stepsize), None, None
        if step.leakage:
            keep = 1.0 - stepsizes * step.leakage
            push = model.entries.per_client(1.0 - keep) * model.entries.vector(model.fleet.target)
            if np.any(keep == 0.0):
                raise NotCoveredError(
                    "the theory does not cover learner.leakage = 1/stepsize, which forgets the model"
                )

        def changed(samples: SampleLaw) -> SampleLaw:
            if step.regularisation is not None:
                return normalised(samples, stepsizes, step.regularisation, model.scenario.dimension)
            return rescaled(samples, stepsizes if keep is None else stepsizes / keep)

        poisoned = None if mixture.poisoned is None else changed(mixture.poisoned)
        lms = lms_of(Mixture(changed(mixture.clean), poisoned, mixture.attackers), 1.0, model.entries)
        return LearningStep(lms, model.entries, keep, push)

    @property
    def has_direction(self) -> bool:
        """Whether something pulls to one side, so that first moments are needed."""
        displaced = any(samples.displacement is not None for _, samples in self._model.mixture.branches)
        return self.received.has_constant or displaced or self._step.leakage > 0

    @property
    def _step(self) -> LinearLearner:
        step = self._model.scenario.learner.linear()
        assert step is not None
        return step

    def recursion(self, stepsize: float, branch: "Branch") -> OpenedRecursion:
        """Return the recursion of one branch at one stepsize."""
        model = self._model
        kind = OpenedRecursion if model.is_opened else ScatteredRecursion
        return kind(
            lms_of(model.mixture, stepsize, model.entries),
            branch.exchanges,
            model.drawn,
            model.entries,
            model.is_redrawn,
            model.law,
            model.fleet.target,
            model.walk,
            model.has_direction,
            received=self.received,
            learning=self.learning(stepsize),
            down_variance=self.down_variance,
            delay_weight=self.delay.weight,
        )


def added_variance(channels: tuple[Channel, ...]) -> float:
    """Return the variance that channels in series add."""
    return float(sum(channel.added_variance() or 0.0 for channel in channels))


def _loss(channels: tuple[Channel, ...]) -> float:
    """Probability that one of several channels in series loses a message."""
    arrives = np.prod([1.0 - (channel.loss_probability() or 0.0) for channel in channels])
    return float(1.0 - arrives)


def join_poisoned(groups: list[tuple[FloatArray, SampleLaw]]) -> SampleLaw:
    """Return the samples of clients that belong to groups, each given by its chances (K,) and its samples."""
    (_, joined), *others = groups
    for chance, samples in others:
        changed = {}
        for field in fields(SampleLaw):
            old, new = getattr(joined, field.name), getattr(samples, field.name)
            if old is not None:
                changed[field.name] = np.where(chance.reshape(-1, *(1,) * (old.ndim - 1)) > 0, new, old)
        joined = replace(joined, **changed)
    return joined
