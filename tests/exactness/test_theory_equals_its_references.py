"""Every fast form equals a plain one: operators their dense matrices, reduced recursions the full ones."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import Data, Scenario, Selection
from reference.attacks import make_attack

sys.path.insert(0, str(Path(__file__).parent))
from dense_matrices import dense_data_matrices, dense_selection_matrices
from paper_operators import PaperOperators, as_matrix

pytestmark = [pytest.mark.theory, pytest.mark.takes(18)]


MEASURED = Data(covariances=[[[0.9, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.7]], [[1.0, 0.0], [0.0, 0.2]]])


def tiny(coordinated: bool, shared: int = 1) -> Scenario:
    return Scenario(
        num_clients=3,
        dimension=2,
        num_participants=2,
        num_shared=shared,
        selection=Selection(coordinated=coordinated),
        data=MEASURED,
        attack=make_attack(num_byzantine=1),
    )


@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize("shared", [1, 2])
def test_operators_equal_the_dense_block_kronecker_matrices(coordinated: bool, shared: int) -> None:
    scenario = tiny(coordinated, shared)
    operators = PaperOperators.of(scenario)
    fast = (operators.download, operators.upload, operators.injection, operators.covariance, operators.fourth)
    dense = (*dense_selection_matrices(scenario), *dense_data_matrices(scenario))
    for operator, matrix in zip(fast, dense, strict=True):
        np.testing.assert_allclose(as_matrix(operator, 3, 2), matrix, atol=1e-14)


@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize("small_stepsize", [True, False])
def test_the_papers_prediction_equals_the_dense_solution(coordinated: bool, small_stepsize: bool) -> None:
    scenario, mu = tiny(coordinated), 0.15
    operators = PaperOperators.of(scenario)
    q_a, q_b, _ = dense_selection_matrices(scenario)
    kappa, fourth = dense_data_matrices(scenario)
    f = q_b @ (np.eye(len(q_a)) - mu * kappa + (0 if small_stepsize else mu**2) * fourth) @ q_a
    source = mu**2 * operators.data_source.ravel() + operators.attack_source.ravel()
    mse = np.linalg.solve(np.eye(len(f)) - f, source) @ operators.reader.ravel() / 3 + operators.noise
    prediction = psofed.predict(scenario, theory="paper", small_stepsize=small_stepsize)
    assert prediction.network_mse == pytest.approx(mse, rel=1e-8)
    assert prediction.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(f)).max(), rel=1e-6)


def test_white_inputs_given_as_covariances_are_predicted_alike() -> None:
    for pattern, coordinated in itertools.product(("random", "round-robin"), (True, False)):
        white = Scenario(
            num_clients=3,
            dimension=2,
            num_participants=2,
            selection=Selection(pattern=pattern, coordinated=coordinated),
            data=Data(input_variance=(0.3, 0.6, 1.0)),
            attack=make_attack(num_byzantine=1),
        )
        matrices = [(variance * np.eye(2)).tolist() for variance in (0.3, 0.6, 1.0)]
        full = white.replace(data=Data(covariances=matrices))
        one, other = psofed.predict(white), psofed.predict(full)
        assert other.network_mse == pytest.approx(one.network_mse, rel=1e-7)
        assert other.server_msd == pytest.approx(one.server_msd, rel=1e-7)
        assert other.max_stepsize == pytest.approx(one.max_stepsize, rel=1e-4)
