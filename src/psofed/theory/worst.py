"""Finds the worst additive attack of a given power, with a breakdown of what makes it worse than the paper's.

The paper's Byzantine clients add isotropic noise, independent of each other. The steady state is linear in the second
moment of what is added, so the worst noise of the same power can be found, step by step:

1. isotropic noise δ_k ~ N(0, σ² I), independent over clients: the paper's attack, of power E‖δ_k‖² = D σ²,
2. the same power in one direction u, δ_k = √D σ ν_k u. The excess is uᵀW u with a matrix W that D (D + 1)/2 steady
   states give, so the worst u is its first eigenvector. White inputs have no worst direction,
3. collusion: all attackers of an iteration add the same noise, which does not average out,
4. a common coin: they attack in the same iterations. Only E[t_k t_l δ_k δ_lᵀ] counts, so this is the same as attacking
   always, with p_a σ² in the place of σ²,
5. power on sent entries alone: noise on entries that are not sent costs power and does nothing, so that M of D sent
   entries get D/M times as much.

A constant bias of the same mean power, always and by all, is not noise and may be worse. It is tried in the principal
directions of the inputs. σ² = ``power``, p_a = the scenario's ``attack.probability``.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.numbers import json_object
from psofed.common.types import FloatArray
from psofed.common.validation import check_number
from psofed.parts.affine import Affine
from psofed.parts.attacks.by_value import ColludingGaussian, ConstantBias, Gaussian
from psofed.parts.base import Attack
from psofed.render import Column, Kind, Report, Reported, Table
from psofed.render.numbers import decibels
from psofed.scenario.describe import describe_scenario
from psofed.theory.model import AttackLaw, TheoryModel
from psofed.theory.solve import Solver

if TYPE_CHECKING:
    from psofed.theory.prediction import Prediction

_LARGEST_DIMENSION = 12  # up to which the worst direction is sought over correlated inputs


@dataclass(frozen=True)
class WorstStep:
    """One attack of the breakdown.

    Attributes
    ----------
    name : str
    network_mse, server_msd : float
        Predicted under the worst attack of this kind for each.
    attack : Attack or None
        A part that attacks so, to simulate it; None where a direction matters that no part has.
    """

    name: str
    network_mse: float
    server_msd: float
    attack: Attack | None


@dataclass(frozen=True, repr=False, eq=False)
class WorstAttack(Reported):
    """The worst additive attacks of a given power; each step adds to the one before, but for the last two.

    Attributes
    ----------
    power : float
        σ²: variance of the noise per entry.
    steps : tuple of WorstStep
    prediction : Prediction
        Whose scenario is attacked.
    """

    power: float
    steps: tuple[WorstStep, ...]
    prediction: "Prediction"

    @property
    def worst(self) -> WorstStep:
        """The step with the largest network MSE."""
        return max(self.steps, key=lambda step: step.network_mse)

    def report(self) -> Report:
        """Return the breakdown."""
        columns = (Column(""), *(Column(title, Kind.LEVEL) for title in ("network MSE", "server MSD")))
        rows = tuple((step.name, step.network_mse, step.server_msd) for step in self.steps)
        first, worst = self.steps[1], self.worst
        return Report(
            f"At worst, an additive attack of power {self.power:g} per entry raises the network MSE to "
            f"{decibels(worst.network_mse)} ({worst.name}), instead of {decibels(first.network_mse)}.",
            f"{describe_scenario(self.prediction.scenario)}.",
            (Table("Worst attacks of the same power (lower is better)", columns, rows),),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and numbers."""
        steps = {step.name: {"network_mse": step.network_mse, "server_msd": step.server_msd} for step in self.steps}
        return json_object({"power": self.power, "steps": steps, "scenario": self.prediction.scenario.to_mapping()})


def find_worst_attack(prediction: "Prediction", power: float | None = None) -> WorstAttack:
    """Find the worst additive attacks of a power by the Byzantine clients of a scenario.

    Parameters
    ----------
    prediction : Prediction
        Of a scenario with one attack, which says who is Byzantine and how often they attack.
    power : float, optional
        σ²; by default the attack's variance.
    """
    search = _Search.of(prediction, power)
    if not search.is_stable:
        raise NotCoveredError("there is no worst attack at a stepsize that is unstable without an attack")
    return WorstAttack(search.power, search.steps(), prediction)


def worst_network_mse(prediction: "Prediction", power: float | None = None) -> float:
    """Return the network MSE under the worst additive attack of a power, from two steady states.

    The larger one of the last noise and the last bias of the breakdown. Over correlated inputs both point in the
    direction in which models learn most slowly, the last principal one. Infinite if unstable without an attack.
    """
    search = _Search.of(prediction, power)
    if not search.is_stable:
        return math.inf
    directions = search.principal_directions[-1:]
    shape = np.eye(search.size) if search.is_white else np.outer(directions, directions)
    noise = search.noise_step(search.noises[-1], [shape])
    return max(noise.network_mse, search.bias_step("", search.sent, directions).network_mse)


class _Noise(NamedTuple):
    """Noise of a variance per entry, and the part that adds it with a probability."""

    name: str
    part: type[Gaussian | ColludingGaussian]
    variance: float
    probability: float


@dataclass(frozen=True, eq=False)
class _Search:
    model: TheoryModel
    stepsize: float
    attack: Attack
    power: float
    precision: float

    @classmethod
    def of(cls, prediction: "Prediction", power: float | None) -> "_Search":
        scenario, attack = prediction.scenario, prediction.scenario.attack
        if attack is None or len(scenario.attacks) > 1:
            raise InvalidValueError("attack", None, "one attack that says who is Byzantine, and how often")
        if prediction.theory == "paper":
            raise NotCoveredError(
                'the worst attack colludes, which the paper\'s theory leaves out; use theory = "exact"'
            )
        power = check_number("power", getattr(attack, "variance", None) if power is None else power, 0.0)
        return cls(prediction.model, scenario.mean_stepsize, attack, power, prediction.solver.precision)

    @property
    def is_stable(self) -> bool:
        """Whether the stepsize is stable without an attack; what attacks add makes no difference."""
        return Solver(self.model.clean).is_stable(self.stepsize)

    @property
    def is_white(self) -> bool:
        """Whether no direction is worse than another."""
        return self.model.fleet.is_white

    @property
    def size(self) -> int:
        """D."""
        return self.model.scenario.dimension

    @property
    def sent(self) -> float:
        """How many times as much power an entry gets if none goes to entries that are not sent, D/M."""
        scenario = self.model.scenario
        return scenario.dimension / scenario.num_shared if scenario.algorithm.holds_models else 1.0

    @property
    def noises(self) -> tuple[_Noise, ...]:
        """The steps of noise, from the paper's on."""
        coin, power = self.attack.probability, self.power
        return (
            _Noise("isotropic noise", Gaussian, power, coin),
            _Noise("+ worst direction", Gaussian, power, coin),
            _Noise("+ collusion", ColludingGaussian, power, coin),
            _Noise("+ common coin", ColludingGaussian, coin * power, 1.0),
            _Noise("+ power on sent entries", ColludingGaussian, self.sent * coin * power, 1.0),
        )

    @cached_property
    def principal_directions(self) -> FloatArray:
        """Principal directions of the inputs, of squared length D, by falling variance; (1, …, 1) for white inputs."""
        if self.is_white:
            return np.ones((1, self.size))
        _, vectors = np.linalg.eigh(self.model.fleet.covariances().mean(axis=0))
        return np.asarray(math.sqrt(self.size) * vectors.T[::-1])

    def steps(self) -> tuple[WorstStep, ...]:
        """Return the breakdown."""
        first, *others = self.noises
        shapes, directions = self._worst_shapes(), self.principal_directions
        return (
            WorstStep("no attack", *self._metrics(None, self.attack.probability), None),
            replace(self.noise_step(first, [np.eye(self.size)]), attack=self._part(first)),
            *(self.noise_step(noise, shapes) for noise in others),
            self.bias_step("constant bias", 1.0, directions),
            self.bias_step("constant bias on sent entries", self.sent, directions),
        )

    def noise_step(self, noise: _Noise, shapes: list[FloatArray]) -> WorstStep:
        """Return a step of noise whose covariance is its variance times the worst shape for each metric."""
        is_common = noise.part is ColludingGaussian
        values = []
        for shape in shapes:
            covariance = noise.variance * shape
            statement = Affine(common_variance=covariance) if is_common else Affine(variance=covariance)
            values.append(self._metrics(statement, noise.probability))
        return WorstStep(noise.name, values[0][0], values[-1][1], self._part(noise) if self.is_white else None)

    def _part(self, noise: _Noise) -> Attack:
        return noise.part(variance=noise.variance, probability=noise.probability, **self._who)

    @property
    def _who(self) -> dict[str, Any]:
        """Who is Byzantine, as the attack says it."""
        attack = self.attack
        named = {"clients": attack.clients} if attack.clients else {"num_byzantine": attack.num_byzantine}
        return {"byzantine_set": attack.byzantine_set} | named

    def bias_step(self, name: str, factor: float, directions: FloatArray) -> WorstStep:
        """Return a constant bias by all, of `factor` times the mean power, in the worst of some directions."""
        bias = math.sqrt(factor * self.attack.probability * self.power)
        values = np.array([self._metrics(Affine(offset=bias * direction), 1.0) for direction in directions])
        part = ConstantBias(bias=bias, probability=1.0, **self._who) if self.is_white else None
        network, server = values.max(axis=0).tolist()
        return WorstStep(name, network, server, part)

    def _worst_shapes(self) -> list[FloatArray]:
        """Covariances of trace D in the worst direction for network MSE and for server MSD; I for white inputs."""
        size = self.size
        if self.is_white or size == 1:
            return [np.eye(size)]
        if size > _LARGEST_DIMENSION:
            raise NotCoveredError(
                f"the worst direction is sought for correlated inputs of dimension at most {_LARGEST_DIMENSION}; this "
                f"scenario has dimension = {size}"
            )
        nobody = np.array(self._metrics(None, 1.0))
        weights = np.zeros((2, size, size))

        def excess(vector: FloatArray) -> FloatArray:
            statement = Affine(variance=np.outer(vector, vector))
            return np.asarray(self._metrics(statement, self.attack.probability) - nobody)

        unit = np.eye(size)
        for i in range(size):
            weights[:, i, i] = excess(unit[i])
            for j in range(i):
                both = excess(unit[i] + unit[j]) - weights[:, i, i] - weights[:, j, j]
                weights[:, i, j] = weights[:, j, i] = 0.5 * both
        tops = [np.linalg.eigh(weight)[1][:, -1] for weight in weights]
        return [size * np.outer(top, top) for top in tops]

    def _metrics(self, statement: Affine | None, chance: float) -> tuple[float, float]:
        """Return network MSE and server MSD under an attack with a probability."""
        model = self.model
        byzantine, factor = self.attack.byzantine_moments(model.scenario.num_clients, model.fleet.names)
        stated = () if statement is None else (AttackLaw(statement, chance * byzantine, factor),)
        solver = Solver(replace(model, measured=model.fleet, stated=stated), self.precision)
        metrics = solver.level(self.stepsize).metrics(model)
        return metrics.network_mse, metrics.server_msd
