"""The worst additive attack of a given power: known values, and simulations of the attacks it returns."""

import numpy as np
import pytest
from typer.testing import CliRunner

from psofed import Data, NotCoveredError, PsofedError, Scenario, predict, simulate
from psofed.attacks import Gaussian, SignFlip
from psofed.cli import app
from psofed.parts.affine import Affine

pytestmark = [pytest.mark.theory, pytest.mark.simulation, pytest.mark.takes(20)]

# Network MSE in dB of the steps, from another implementation
KNOWN = {
    (0.0, 1): [-16.53, -15.88, -15.88, -15.74, -15.23, -12.15, -14.58, -10.69],
    (0.0, 5): [-16.99, -11.35, -11.35, -10.68, -8.72, -8.72, 1.75, 1.75],
    (0.5, 1): [-16.27, -15.62, -15.62, -15.48, -14.98, -11.90],
    (0.5, 5): [-16.77, -10.67, -9.71, -8.98, -6.88, -6.88],
}


def fleet(correlation: float, shared: int, **changes) -> Scenario:
    attack = Gaussian(num_byzantine=15, probability=0.2, variance=0.5)
    values = {"num_clients": 50, "dimension": 5, "data": Data(input_correlation=correlation), "attack": attack}
    return Scenario(num_shared=shared, **values | changes)


@pytest.mark.parametrize(("correlation", "shared"), KNOWN)
def test_the_breakdown_has_the_known_values(correlation: float, shared: int) -> None:
    worst = predict(fleet(correlation, shared)).worst_attack()
    levels = [10 * np.log10(step.network_mse) for step in worst.steps]
    known = KNOWN[correlation, shared]
    assert levels[: len(known)] == pytest.approx(known, abs=0.006)
    mean_squares = [step.server_msd for step in worst.steps[:6]]
    # White inputs have no worst direction: the second and third differ by rounding alone.
    assert np.all(np.diff(mean_squares) >= -1e-12 * mean_squares[-1])


@pytest.mark.parametrize("name", ["+ collusion", "+ power on sent entries", "constant bias"])
def test_the_attacks_it_returns_do_what_is_predicted(name: str) -> None:
    attack = Gaussian(num_byzantine=4, probability=0.3, variance=0.2)
    scenario = fleet(0.0, 2, num_clients=12, num_participants=4, stepsize=0.1, iterations=3000, attack=attack)
    (step,) = (step for step in predict(scenario).worst_attack().steps if step.name == name)
    result = simulate(scenario.replace(attack=step.attack), trials=96, seed=2, tail=2000)
    for metric in ("network_mse", "server_msd"):
        estimate = getattr(result, metric)
        assert abs(estimate.mean - getattr(step, metric)) < 4 * estimate.standard_error, metric


def test_collusion_multiplies_the_attacks_term_by_the_known_factor() -> None:
    """With one mask for all: 1 + (|B| − 1) p_a (P − 1)/(K − 1)."""
    clean, isotropic, _, colluding, *_ = predict(fleet(0.0, 2)).worst_attack().steps
    factor = (colluding.network_mse - clean.network_mse) / (isotropic.network_mse - clean.network_mse)
    assert factor == pytest.approx(1 + 14 * 0.2 * 4 / 49, rel=1e-8)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("common", [False, True])
def test_noise_with_a_covariance_is_the_sum_of_its_directions(common: bool, correlation: float, monkeypatch) -> None:
    attack = Gaussian(num_byzantine=2, probability=0.5)
    data = Data(input_correlation=correlation)
    scenario = Scenario(num_clients=6, dimension=3, num_participants=3, data=data, attack=attack)

    def term(covariance: np.ndarray) -> float:
        stated = Affine(common_variance=covariance) if common else Affine(variance=covariance)
        monkeypatch.setattr(Gaussian, "affine", lambda self: stated)
        return predict(scenario).terms.attack

    first, second = np.diag([1.0, 0.5, 0.0]), np.array([[0.5, 0.2, 0.1], [0.2, 0.4, 0.0], [0.1, 0.0, 0.3]])
    assert term(first + second) == pytest.approx(term(first) + term(second), rel=1e-7)
    white = term(0.3 * np.eye(3))
    assert term(0.6 * np.eye(3)) == pytest.approx(2 * white, rel=1e-7)


def test_the_worst_attack_needs_byzantine_clients_a_power_and_a_stable_stepsize() -> None:
    scenario = fleet(0.0, 2)
    with pytest.raises(PsofedError, match="who is Byzantine"):
        predict(scenario.replace(attack=None)).worst_attack()
    with pytest.raises(PsofedError, match="power"):
        predict(scenario.replace(attack=SignFlip(num_byzantine=3, scale=0.5, of="update"))).worst_attack()
    with pytest.raises(NotCoveredError, match="unstable"):
        predict(scenario.replace(stepsize=2.0)).worst_attack()
    with pytest.raises(NotCoveredError, match="paper"):
        predict(scenario, theory="paper").worst_attack()


def test_the_command_prints_the_breakdown(tmp_path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(fleet(0.0, 2).to_toml(), encoding="utf-8")
    printed = CliRunner().invoke(app, ["predict", str(file), "--worst"]).stdout
    assert "At worst, an additive attack of power 0.5 per entry" in printed
    assert "+ power on sent entries" in printed
