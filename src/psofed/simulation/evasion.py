"""Evasion: errors on inputs that an attacker moves by at most ε.

A linear model errs by e = y − wᵀx. Moving x by δ changes that by −wᵀδ, so at worst |e| becomes |e| + ε‖w‖, in the norm
dual to that of δ: the 2-norm for the 2-norm, the sum of magnitudes for the largest. For Gaussian inputs e is
N(0, s²) given w, and the mean square over inputs is known without drawing any:

    E[(|e| + ε‖w‖)² | w] = s² + 2 √(2/π) s ε‖w‖ + ε²‖w‖²
"""

import math
from typing import Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.fleet import Fleet
from psofed.scenario import Evasion, Scenario

# In how many iterations of the tail models are looked at; they change slowly.
INSTANTS = 64


def check_evasion(scenario: Scenario) -> None:
    """Refuse scenarios without a closed form, by name."""
    if scenario.evasion is None:
        return
    if not scenario.is_linear:
        raise NotCoveredError("[evasion] needs a linear model on a linear stream, y = wᵀx + ν")
    if not scenario.data.stream.is_independent and scenario.data.stream.input_correlation() is None:
        raise NotCoveredError(
            "[evasion] needs the covariance of the inputs, which "
            f'data.stream.kind = "{scenario.data.stream.kind}" does not state (input_correlation)'
        )
    if scenario.data.rows is not None:
        raise NotCoveredError("[evasion] needs Gaussian streams and cannot use your own data")
    if scenario.drift is not None:
        raise NotCoveredError("[evasion] cannot be combined with [drift]")


def instants(tail: int) -> int:
    """Return the iterations after which models are evaluated."""
    return max(1, tail // INSTANTS)


def worst_mean_square(evasion: Evasion, models: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the mean square error on inputs moved in the worst direction.

    Parameters
    ----------
    evasion : Evasion
        How far inputs may be moved.
    models : array (…, D, lanes)
        w.
    variance : array (…, lanes)
        s², the mean square error of each on inputs that are not moved.

    Examples
    --------
    >>> worst_mean_square(Evasion(epsilon=0.5), np.array([[3.0], [4.0]]), np.zeros(1))
    array([6.25])
    >>> worst_mean_square(Evasion(epsilon=0.5, norm="inf"), np.array([[3.0], [-4.0]]), np.zeros(1))
    array([12.25])
    """
    lengths = np.sqrt((models**2).sum(axis=-2)) if evasion.norm == "2" else np.abs(models).sum(axis=-2)
    reach = evasion.epsilon * lengths
    worst: FloatArray = variance + 2 * math.sqrt(2 / math.pi) * np.sqrt(variance) * reach + reach**2
    return worst


def measure(scenario: Scenario, fleet: Fleet, run: Any, count: int) -> FloatArray:
    """Return the current mean square error of server and clients on moved inputs, shape (2, trials)."""
    evasion = scenario.evasion
    assert evasion is not None
    server = run.server[:, :count]
    with np.errstate(over="ignore", invalid="ignore"):
        own = scenario.data.test_input_variance * (server**2).sum(axis=0) + fleet.test_noise_variance
        at_server = worst_mean_square(evasion, fleet.target[:, None] - server, own)
        errors = run.clients[:, :, :count] if scenario.algorithm.holds_models else server[None]
        models = fleet.target[:, None] - errors
        if fleet.target_offsets is not None:
            errors = errors + fleet.target_offsets[:, :, None]
        if fleet.is_white:
            squares = fleet.input_variance[:, None] * (errors**2).sum(axis=1)
        else:
            covariances = fleet.covariances()
            errors = np.broadcast_to(errors, (len(covariances), *errors.shape[1:]))
            squares = np.einsum("kil,kij,kjl->kl", errors, covariances, errors)
        at_clients = worst_mean_square(evasion, models, squares + fleet.noise_variance[:, None]).mean(axis=0)
    return np.stack([at_server, at_clients])
