"""Names and formulas of terms and metrics, defined once.

With E‖w̃‖² of the server and the excess (1/K) Σ_k tr(R_k E[w̃_k w̃_kᵀ]) of the clients,

    network MSE = excess + (1/K) Σ_k σ_νk²,    server MSD = E‖w̃‖²,    test MSE = ς_test² E‖w̃‖² + σ_ν,test².

The honest clients' MSE is the mean over clients that are not Byzantine, with weights h_k (``model.honest``) in the
place of 1/K.

The network MSE is the sum of :class:`Terms`. ``excess`` and ``server`` come from a theory, the variances from the
model.
"""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel

Value = TypeVar("Value", float, FloatArray)

# What users may minimise, and the metric it stands for
METRICS = {"network": "network_mse", "test": "test_mse", "msd": "server_msd", "honest": "honest_mse"}


@dataclass(frozen=True)
class Level:
    """Excess network MSE (without the clients' own noise), server MSD, and the honest clients' excess.

    The last is NaN where the theory did not tell honest clients apart (:attr:`.TheoryModel.tells_honest`).
    """

    excess: float
    server: float
    honest: float = 0.0

    def __post_init__(self) -> None:
        # Plain floats, so that nothing printed or written as JSON shows NumPy's types
        for name in ("excess", "server", "honest"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def metrics(self, model: "TheoryModel") -> "Metrics[float]":
        """Return the metrics at this level."""
        return metrics_of(model, self.excess, self.server, self.honest)

    def __add__(self, other: "Level") -> "Level":
        return Level(self.excess + other.excess, self.server + other.server, self.honest + other.honest)


NOTHING = Level(0.0, 0.0)


@dataclass(frozen=True)
class Terms:
    """Terms that add up to the steady-state network MSE (SSMSE).

    All but `attack` are those of the same fleet without the attack.

    Attributes
    ----------
    data : float
        E_φ: the clients' observation noise, absorbed by the models.
    attack : float
        E_ω: what the attack adds to all that; negative where it helps.
    noise : float
        E_Θ: the irreducible observation noise, the mean of σ_νk².
    drift : float
        The lag behind a target that walks; 0 if it does not move.
    targets : float
        The price of sharing one model among clients with their own targets; 0 if they have none.
    """

    data: float
    attack: float
    noise: float
    drift: float = 0.0
    targets: float = 0.0

    @property
    def total(self) -> float:
        """The network MSE."""
        return float(sum(getattr(self, name) for name in TERMS))


TERMS = tuple(field.name for field in fields(Terms))


class Metrics(NamedTuple, Generic[Value]):
    """The metrics, numbers or arrays."""

    network_mse: Value
    server_msd: Value
    test_mse: Value
    honest_mse: Value


class PredictedLevel(float):
    """A predicted error: a number to calculate with, and `mean` and `decibels` as a simulated one has them.

    Examples
    --------
    >>> level = PredictedLevel(0.01)
    >>> level.mean, level.decibels, level + 1.0
    (0.01, -20.0, 1.01)
    """

    __slots__ = ()

    @property
    def mean(self) -> float:
        """The number itself."""
        return float(self)

    @property
    def decibels(self) -> float:
        """The same in dB."""
        return to_decibels(float(self))


def metrics_of(model: "TheoryModel", excess: Value, server: Value, honest: Value) -> Metrics[Value]:
    """Return the metrics from excess network MSE, server MSD and the honest clients' excess.

    The test MSE is NaN where test inputs become features, whose covariance is not the identity, and with your own data,
    where the server is tested on the clients' next samples. The honest clients' MSE is NaN if all are Byzantine.
    """
    fleet, data = model.fleet, model.scenario.data
    variance = data.test_input_variance if model.scenario.is_linear and data.rows is None else math.nan
    honest_noise = float(model.honest @ fleet.noise_variance) if model.honest.any() else math.nan
    return Metrics(
        excess + float(fleet.noise_variance.mean()),
        server,
        variance * server + fleet.test_noise_variance,
        honest + honest_noise,
    )


@dataclass(frozen=True)
class SteadyState:
    """Levels of the steady state by source, and the standard error of the average over offsets.

    Attributes
    ----------
    data : Level
        Due to the clients' observation noise, without the attack: E_φ, and its part of the server's MSD.
    attack : Level
        What the attack adds to the same fleet without it: E_ω, and its part of the server's MSD. All products of the
        attack's effect with noise, walk and targets count here. Negative if the attack does good.
    drift : Level
        Due to the target's random walk, without the attack: the lag behind it.
    targets : Level
        Due to clients with their own targets, without the attack.
    sampling_error : Level
        Standard error of the total where offsets were sampled, else zero.
    """

    data: Level
    attack: Level
    drift: Level = NOTHING
    targets: Level = NOTHING
    sampling_error: Level = NOTHING

    @property
    def total(self) -> Level:
        """All sources together."""
        return self.data + self.attack + self.drift + self.targets

    @classmethod
    def of(cls, levels: FloatArray, error: FloatArray | None = None) -> "SteadyState":
        """Name the rows of levels (4, 3): those due to data, attack, drift and targets."""
        data, attack, drift, targets = (Level(*level) for level in levels)
        return cls(data, attack, drift, targets, NOTHING if error is None else Level(*error))

    def terms(self, model: "TheoryModel") -> Terms:
        """Return the terms of the network MSE."""
        noise = float(model.fleet.noise_variance.mean())
        return Terms(self.data.excess, self.attack.excess, noise, self.drift.excess, self.targets.excess)
