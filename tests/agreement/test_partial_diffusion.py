"""PSO-Fed with all clients and one mask, without an attack, is partial-diffusion LMS on a complete graph.

After Arablouei, Werner, Huang, Doğançay, "Distributed least mean-square estimation with partial diffusion", IEEE Trans.
Signal Processing 62(2), 2014: adapt ψ_k = w_k + μ x_k (y_k − w_kᵀx_k), then combine w_k = S Σ_l a_lk ψ_l + (I − S) ψ_k.
With uniform weights a = 1/K the covariance of all errors obeys P ← E[B (A P Aᵀ + …) Bᵀ], B = (11ᵀ/K) ⊗ S + I ⊗ (I − S).
"""

import itertools

import numpy as np
import pytest

from psofed import Data, Scenario, draw_fleet, predict

pytestmark = pytest.mark.theory


def partial_diffusion_mse(scenario: Scenario) -> float:
    fleet, mu = draw_fleet(scenario), scenario.common_stepsize
    clients, size = scenario.num_clients, scenario.dimension
    total = clients * size
    step = np.eye(total)
    for k, covariance in enumerate(fleet.covariances()):
        step[k * size : (k + 1) * size, k * size : (k + 1) * size] -= mu * covariance
    combiners = []
    for chosen in itertools.combinations(range(size), scenario.num_shared):
        mask = np.diag(np.isin(np.arange(size), chosen) * 1.0)
        everyone = np.full((clients, clients), 1.0 / clients)
        combiners.append(np.kron(everyone, mask) + np.kron(np.eye(clients), np.eye(size) - mask))

    def move(state: np.ndarray, noise: float) -> np.ndarray:
        after = step @ state @ step.T
        for k, covariance in enumerate(fleet.covariances()):
            own = slice(k * size, (k + 1) * size)
            seen = covariance @ state[own, own]
            after[own, own] += mu**2 * (seen @ covariance + covariance * np.trace(seen))
            after[own, own] += noise * mu**2 * fleet.noise_variance[k] * covariance
        return np.mean([b @ after @ b.T for b in combiners], axis=0)

    zero = np.zeros((total, total))
    columns = [move(unit.reshape(total, total), 0.0).ravel() for unit in np.eye(total**2)]
    steady = np.linalg.solve(np.eye(total**2) - np.array(columns).T, move(zero, 1.0).ravel())
    state = steady.reshape(clients, size, clients, size)
    excess = [np.trace(r @ state[k, :, k, :]) for k, r in enumerate(fleet.covariances())]
    return float(np.mean(excess) + fleet.noise_variance.mean())


@pytest.mark.parametrize("shared", [1, 2, 3])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_with_all_clients_and_one_mask_it_is_partial_diffusion_lms(shared: int, correlation: float) -> None:
    data = Data(input_variance=(0.4, 1.1, 0.7), input_correlation=correlation)
    scenario = Scenario(num_clients=3, dimension=3, num_participants=3, num_shared=shared, stepsize=0.15, data=data)
    assert predict(scenario).network_mse == pytest.approx(partial_diffusion_mse(scenario), rel=1e-9)
