"""The paper's block form, written literally, to test the fast engine against.

With w_e = col{w_n, w_{1,n}, …, w_{K,n}} of (K + 1)·D entries (eq10):

    w_{e,n+1} = 𝓑_{n+1} (𝓐_n w_{e,n} + μ 𝐗_n ε_{e,n}) + 𝓒_{n+1} 𝐁 𝐓_n δ_{e,n+1}
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import draw_fleet
from psofed.parts.affine import Affine
from psofed.scenario import Scenario
from reference.draws import Draws, ReferenceRun


def run_reference(scenario: Scenario, draws: Draws) -> ReferenceRun:
    """Run the recursion on given draws from zero models: LMS with one stepsize, additive attacks, the mean."""
    perturbations = _perturbations(scenario, draws)
    iterations, clients, dimension = draws.inputs.shape
    fixed = draw_fleet(scenario).target
    models = np.zeros((iterations + 1, clients + 1, dimension))
    network_mse, server_msd, test_mse = (np.empty(iterations) for _ in range(3))
    for n in range(iterations):
        state = models[n].ravel()
        target = fixed + draws.moves[n]
        test_outputs = draws.test_inputs @ target + draws.test_noise
        a = download_matrix(draws.participants[n], draws.download_masks[n])
        b = upload_matrix(draws.uploaders[n], draws.upload_masks[n])
        c = perturbation_matrix(draws.uploaders[n], draws.upload_masks[n])
        x = input_matrix(draws.inputs[n])
        outputs = x.T @ np.tile(target, clients + 1) + np.concatenate([[0.0], draws.noise[n]])
        errors = outputs - x.T @ a @ state
        delta = np.concatenate([np.zeros(dimension), perturbations[n].ravel()])
        following = b @ (a @ state + scenario.common_stepsize * x @ errors) + c @ delta
        network_mse[n] = errors @ errors / clients
        server_msd[n] = np.sum((models[n, 0] - target) ** 2)
        test_mse[n] = np.mean((test_outputs - draws.test_inputs @ models[n, 0]) ** 2)
        models[n + 1] = following.reshape(clients + 1, dimension)
    return ReferenceRun(models, network_mse, server_msd, test_mse)


def _perturbations(scenario: Scenario, draws: Draws) -> FloatArray:
    """Return β_k τ_{k,n} δ_{k,n+1}, shape (N, K, D), as the attack states it."""
    shocks = draws.shocks
    if scenario.attack is None:
        return np.zeros_like(shocks.normals)
    statement = scenario.attack.affine()
    assert isinstance(statement, Affine)
    delta = statement.offset + statement.variance**0.5 * shocks.normals
    delta = delta + statement.common_variance**0.5 * shocks.common_normals[:, None]
    return np.asarray(shocks.attacking[:, :, None] * delta)


def download_matrix(participants: FloatArray, masks: FloatArray) -> FloatArray:
    """Return 𝓐_n (eq9): participant k takes entries S_{k,n} from the server.

    Parameters
    ----------
    participants : array (K,)
        a_{k,n}.
    masks : array (K, D)
        Diagonals of S_{k,n}.
    """
    clients, dimension = masks.shape
    matrix = np.eye((clients + 1) * dimension)
    for k in range(clients):
        shared = np.diag(participants[k] * masks[k].astype(np.float64))
        rows = _block(k + 1, dimension)
        matrix[rows, _block(0, dimension)] = shared
        matrix[rows, rows] = np.eye(dimension) - shared
    return matrix


def upload_matrix(uploaders: FloatArray, masks: FloatArray) -> FloatArray:
    """Return 𝓑_{n+1} (eq11): the server averages entries S_{k,n+1} of those who upload."""
    _, dimension = masks.shape
    matrix = perturbation_matrix(uploaders, masks) + np.eye((len(masks) + 1) * dimension)
    server = _block(0, dimension)
    for k in range(len(masks)):
        matrix[server, server] -= matrix[server, _block(k + 1, dimension)]
    return matrix


def perturbation_matrix(uploaders: FloatArray, masks: FloatArray) -> FloatArray:
    """Return 𝓒_{n+1}: the server's row of 𝓑_{n+1} without its own block, zero elsewhere."""
    clients, dimension = masks.shape
    matrix = np.zeros(((clients + 1) * dimension,) * 2)
    for k in range(clients):
        weight = uploaders[k] / uploaders.sum()
        matrix[_block(0, dimension), _block(k + 1, dimension)] = weight * np.diag(masks[k].astype(np.float64))
    return matrix


def input_matrix(inputs: FloatArray) -> FloatArray:
    """Return 𝐗_n = bdiag{0, x_{1,n}, …, x_{K,n}}, shape ((K + 1)·D, K + 1)."""
    clients, dimension = inputs.shape
    matrix = np.zeros(((clients + 1) * dimension, clients + 1))
    for k in range(clients):
        matrix[_block(k + 1, dimension), k + 1] = inputs[k]
    return matrix


def _block(index: int, dimension: int) -> slice:
    return slice(index * dimension, (index + 1) * dimension)
