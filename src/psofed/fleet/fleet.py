"""Fleets: statistics of each client's stream, drawn once from the scenario."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.per_client import draw_per_client
from psofed.common.types import FloatArray
from psofed.parts.base import Attack
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario


@dataclass(frozen=True, eq=False)
class Fleet:
    """Statistics of every client's stream y = (w + d_k)ᵀx + ν, x ~ N(0, R_k), ν ~ N(0, σ_νk²).

    Attributes
    ----------
    target : array (D,)
        w, the vector to be learned; for streams that are not linear the best weights there are (see
        :func:`psofed.fleet.measured.measure_features`).
    input_variance : array (K,)
        ς_k², the mean of the diagonal of R_k.
    noise_variance : array (K,)
        σ_νk².
    correlation : float
        ρ of R_k = ς_k² ρ^|i−j|; 0 for white inputs.
    explicit_covariances : array (K, d, d) or None
        R_k where they were given.
    num_inputs : int or None
        d where it is not D.
    names : tuple of str
        The clients' names, where they have some.
    target_offsets : array (K, D) or None
        d_k: how far each client's own target lies from w; None if all have the same.
    fourth_moments : array (K, D², D²) or None
        E[xxᵀ ⊗ xxᵀ] of each client, the matrix of A → E[xxᵀ A xxᵀ], where it was measured; None for Gaussian inputs.
    weighted_noise : array (K, D, D) or None
        E[ν² xxᵀ] of each client where it was measured; None for noise independent of the inputs.
    test_noise_variance : float
        Variance of the noise in the server's test set, the clients' average.
    """

    target: FloatArray
    input_variance: FloatArray
    noise_variance: FloatArray
    correlation: float
    explicit_covariances: FloatArray | None
    num_inputs: int | None = None
    target_offsets: FloatArray | None = None
    fourth_moments: FloatArray | None = None
    weighted_noise: FloatArray | None = None
    names: tuple[str, ...] = ()

    @property
    def input_dimension(self) -> int:
        """d, the entries of x: D unless the model makes features of x."""
        return self.target.size if self.num_inputs is None else self.num_inputs

    @property
    def is_white(self) -> bool:
        """Whether R_k = ς_k² I for every client."""
        gaussian = self.fourth_moments is None
        return self.explicit_covariances is None and self.correlation == 0.0 and gaussian

    @property
    def test_noise_variance(self) -> float:
        """Variance of the noise in the server's test set, the clients' average."""
        return float(self.noise_variance.mean())

    def byzantine_mask(self, attack: Attack | None) -> NDArray[np.bool_]:
        """Return which clients are Byzantine where the set is fixed, shape (K,)."""
        if attack is None:
            return np.zeros(self.num_clients, np.bool_)
        return attack.byzantine_mask(self.num_clients, self.names)

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.noise_variance)

    def covariances(self) -> FloatArray:
        """Return all R_k, shape (K, d, d).

        Examples
        --------
        >>> from psofed import Data, Scenario
        >>> data = Data(input_variance=2.0, input_correlation=0.5)
        >>> draw_fleet(Scenario(num_clients=5, dimension=2, data=data)).covariances()[0]
        array([[2., 1.],
               [1., 2.]])
        """
        if self.explicit_covariances is not None:
            return self.explicit_covariances
        entries = np.arange(self.input_dimension)
        shape = self.correlation ** np.abs(entries[:, None] - entries[None, :])
        return np.asarray(self.input_variance[:, None, None] * shape)


def draw_fleet(scenario: Scenario | str | Path) -> Fleet:
    """Draw the fleet of a scenario; the same scenario always has the same fleet. That of your own data is measured.

    The uniform draws depend on ``data.fleet_seed`` alone, and those of a smaller fleet are the first of
    a larger one.

    Notes
    -----
    As in the paper, w = (1, …, 1)/√D.

    Examples
    --------
    >>> from psofed import Scenario
    >>> fleet = draw_fleet(Scenario(num_clients=50, dimension=4))
    >>> fleet.target.tolist(), fleet.input_variance.shape
    ([0.5, 0.5, 0.5, 0.5], (50,))
    """
    scenario = as_scenario(scenario)
    if scenario.data.rows is not None:
        from psofed.fleet.measured import table_samples

        return table_samples(scenario)[0]
    fleet = draw_inputs(scenario)
    if scenario.is_linear:
        return fleet
    from psofed.fleet.measured import measure_features

    return replace(fleet, target=_read_only(measure_features(scenario).target))


def draw_inputs(scenario: Scenario) -> Fleet:
    """Draw the fleet's variances, with the paper's target for any kind of stream."""
    data, clients = scenario.data, scenario.num_clients
    input_seed, noise_seed, target_seed = np.random.SeedSequence(data.fleet_seed).spawn(3)
    explicit = None if data.covariances is None else _read_only(np.array(data.covariances))
    if explicit is None:
        input_variance = draw_per_client(data.input_variance, clients, input_seed)
    else:
        input_variance = np.trace(explicit, axis1=1, axis2=2) / scenario.input_dimension
    return Fleet(
        target=_read_only(np.full(scenario.dimension, 1.0 / math.sqrt(scenario.dimension))),
        input_variance=_read_only(input_variance),
        noise_variance=_read_only(draw_per_client(data.noise_variance, clients, noise_seed)),
        correlation=data.correlation,
        explicit_covariances=explicit,
        num_inputs=scenario.input_dimension,
        target_offsets=_draw_offsets(data.target_spread, (clients, scenario.dimension), target_seed),
    )


def _draw_offsets(spread: float, shape: tuple[int, int], seed: np.random.SeedSequence) -> FloatArray | None:
    """Draw d_k ~ N(0, spread · I); a larger fleet starts with the offsets of a smaller one."""
    if spread == 0.0:
        return None
    offsets: FloatArray = _read_only(math.sqrt(spread) * np.random.default_rng(seed).standard_normal(shape))
    return offsets


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
