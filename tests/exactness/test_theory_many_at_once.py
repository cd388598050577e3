"""What makes predictions fast changes no number: lumped fleets, many stepsizes in one call, measured moments."""

import subprocess
import sys

import numpy as np
import pytest

import psofed
from psofed import Data, Fleet, Scenario, Selection, draw_fleet
from psofed.theory import model, solve
from psofed.theory.groups import gauss_rule, group_clients
from psofed.theory.iteration import Sources
from psofed.theory.model import TheoryModel
from psofed.theory.prediction import predict_roughly
from psofed.theory.solve import Solver
from psofed.theory.stability import contraction_bound
from reference.attacks import make_attack

pytestmark = [pytest.mark.theory, pytest.mark.takes(28)]


ATTACKS = [
    {"kind": "gaussian"},
    {"kind": "constant-bias"},
    {"kind": "scaled-update", "scale": 2.0},
    {"kind": "data-poisoning"},
]


def fleet_of(options, coordinated: bool, pattern: str = "random", **changes) -> Scenario:
    values = {
        "num_clients": 70, "dimension": 4, "num_shared": 2, "stepsize": 0.1,
        "selection": Selection(pattern=pattern, coordinated=coordinated),
        "attack": make_attack(num_byzantine=20, **options),
    } | changes  # fmt: skip
    return Scenario(**values)


WHITE, CORRELATED = {}, {"dimension": 2, "num_shared": 1, "data": Data(input_correlation=0.6)}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("pattern", "coordinated", "inputs"),
    [
        ("random", True, WHITE),
        ("random", False, WHITE),
        ("round-robin", True, WHITE),
        ("random", True, CORRELATED),
        ("random", False, CORRELATED),
    ],
)
@pytest.mark.parametrize("options", ATTACKS, ids=lambda o: o["kind"])
def test_lumping_clients_changes_nothing(
    options, pattern: str, coordinated: bool, inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = fleet_of(options, coordinated, pattern, **inputs)
    lumped = psofed.predict(scenario)
    assert group_clients(lumped.model, 0.1).size < (35 if inputs else 45)
    curve = lumped.learning_curve(30 if inputs else 60)
    monkeypatch.setattr(model, "_FEW_CLIENTS", 10**9)
    monkeypatch.setattr(solve, "_LARGE", 10**9)  # all clients are solved for to ten digits, too
    plain = psofed.predict(scenario)
    assert group_clients(plain.model, 0.1).size == 70
    assert lumped.network_mse == pytest.approx(plain.network_mse, rel=1e-9)
    assert lumped.server_msd == pytest.approx(plain.server_msd, rel=1e-9)
    if not inputs:
        assert lumped.spectral_radius == pytest.approx(plain.spectral_radius, rel=1e-6)
    np.testing.assert_allclose(curve.network_mse, plain.learning_curve(curve.network_mse.size).network_mse, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "pattern", "coordinated", "clients"),
    [
        ("gaussian", "random", True, 80),
        ("gaussian", "round-robin", True, 80),
        (None, "random", False, 80),
        ("sign-flip", "random", True, 160),
    ],
)
def test_clients_near_their_own_limit_are_kept_where_the_others_are_lumped(
    kind: str | None, pattern: str, coordinated: bool, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lumped or not, the same stepsizes are stable, and all steady states the same."""
    scenario = Scenario(
        num_clients=clients, dimension=2, num_shared=1,
        selection=Selection(pattern=pattern, coordinated=coordinated), data=Data(input_correlation=0.9),
        attack=None if kind is None else make_attack(kind=kind, num_byzantine=20),
    )  # fmt: skip
    bound = contraction_bound(draw_fleet(scenario))
    stepsizes = bound * np.array([0.99, 1.04, 1.08])
    lumped = [psofed.predict(scenario.replace(stepsize=mu)) for mu in stepsizes]
    assert max(group_clients(lumped[0].model, mu).size for mu in stepsizes) < clients / 2
    # The widest input alone diverges at the bound, and at 1.5 times the bound all within a factor of 1.5 of it.
    fleet, groups = lumped[0].model.fleet, group_clients(lumped[0].model, 1.5 * bound)
    variance, least = np.trace(groups.covariance, axis1=1, axis2=2) / 2, fleet.input_variance.max() / 1.5
    diverging = fleet.input_variance[fleet.input_variance > least]
    assert diverging.size > 20
    np.testing.assert_allclose(np.sort(variance[variance > least]), np.sort(diverging), rtol=1e-12)
    stable, levels = [p.is_stable for p in lumped], [p.network_mse for p in lumped]
    assert set(stable) == {True, False}
    monkeypatch.setattr(model, "_FEW_CLIENTS", 10**9)
    monkeypatch.setattr(solve, "_LARGE", 10**9)
    plain = [psofed.predict(scenario.replace(stepsize=mu)) for mu in stepsizes]
    assert [p.is_stable for p in plain] == stable
    assert [p.network_mse for p in plain] == pytest.approx(levels, rel=1e-7)


@pytest.mark.parametrize("law", ["uniform", "exponential", "two clusters"])
def test_a_large_fleet_is_lumped_by_sums_over_its_clients(law: str) -> None:
    rng = np.random.default_rng(1)
    clients = 110_000  # more than are lumped by vectors of all clients, unless the variances lie in clusters
    variance = 0.1 + (rng.exponential(0.3, clients) if law == "exponential" else rng.uniform(0.1, 1.0, clients))
    if law == "two clusters":
        variance = np.where(variance < 0.6, 0.2 + variance / 20, variance)
    noise = variance * rng.uniform(0.01, 0.03, clients)
    node, copies, (carried,) = gauss_rule(variance, noise[None], 32)
    assert node.size == 32
    for pole in (-variance.min(), -variance.max()):
        expected, shared = (noise / (variance - pole)).sum(), 1.0 / (node - pole)
        assert (copies * carried) @ shared == pytest.approx(expected, rel=1e-9)
        assert copies @ shared == pytest.approx((1.0 / (variance - pole)).sum(), rel=1e-9)


def test_many_stepsizes_at_once_are_what_each_is_alone() -> None:
    scenario = fleet_of({"kind": "sign-flip", "of": "update"}, True)
    first = psofed.predict(scenario)
    for mu in (0.02, 0.1, 0.3, 0.9):
        other, alone = first.at(mu), psofed.predict(scenario.replace(stepsize=mu))
        assert other.is_stable == alone.is_stable == (mu < 0.25)
        assert other.metrics == pytest.approx(alone.metrics, rel=1e-12)
        assert other.terms.attack == pytest.approx(alone.terms.attack, rel=1e-12)
    assert first.at(0.9).to_json()["network_mse"] is None
    with pytest.raises(psofed.InvalidValueError, match="stepsize"):
        first.at(0.0)


@pytest.mark.parametrize("coordinated", [True, False])
def test_predicting_random_masks_needs_nothing_compiled(coordinated: bool) -> None:
    code = (
        "import sys, psofed\n"
        "from psofed import Scenario, Selection\n"
        f"selection = Selection(coordinated={coordinated})\n"
        "attack = psofed.attacks.Gaussian(num_byzantine=3)\n"
        "scenario = Scenario(num_clients=20, dimension=3, attack=attack, selection=selection)\n"
        "prediction = psofed.predict(scenario)\n"
        "prediction.to_json(), prediction.learning_curve(5), prediction.at(0.1).network_mse\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_fourth_moments_of_gaussian_inputs_given_as_measured_change_nothing() -> None:
    data = Data(covariances=[[[0.9, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.7]]])
    attack = make_attack(num_byzantine=1)
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, data=data, attack=attack)
    fleet = draw_fleet(scenario)
    r = fleet.covariances()
    pairs = ("kij,kab->kijab", "kia,kjb->kijab", "kib,kja->kijab")
    fourth = sum(np.einsum(path, r, r) for path in pairs).reshape(2, 4, 4)
    weighted = fleet.noise_variance[:, None, None] * r
    given = Fleet(fleet.target, fleet.input_variance, fleet.noise_variance, 0.0, r, 2, None, fourth, weighted)
    plain, measured = (Solver(TheoryModel(scenario, measured=f)).steady_state(0.15).total for f in (None, given))
    assert measured.excess == pytest.approx(plain.excess, rel=1e-8)
    assert measured.server == pytest.approx(plain.server, rel=1e-8)


def test_measured_moments_are_exact_for_samples_drawn_from_a_table() -> None:
    """One client that shares all is plain LMS: with finitely many samples its second moments are a linear recursion."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((40, 2)) ** 3 / 2
    noise = 0.1 * np.abs(x[:, 0]) * rng.standard_normal(40)
    squares = (x[:, :, None] * x[:, None, :]).reshape(40, 4)
    fourth, weighted = ((squares.T @ squares / 40)[None], ((x * noise[:, None]).T @ (x * noise[:, None]) / 40)[None])
    r = (x.T @ x / 40)[None]
    fleet = Fleet(
        np.ones(2), np.trace(r, axis1=1, axis2=2) / 2, np.array([np.mean(noise**2)]), 0.0, r, 2, None, fourth, weighted
    )
    scenario = Scenario(num_clients=1, dimension=2, num_participants=1, num_shared=2)
    mu = 0.05
    steps = [np.eye(2) - mu * np.outer(row, row) for row in x]
    step = np.mean([np.kron(s, s) for s in steps], axis=0)
    p = np.linalg.solve(np.eye(4) - step, mu**2 * weighted[0].ravel()).reshape(2, 2)
    solver = Solver(TheoryModel(scenario, measured=fleet))
    total = solver.steady_state(mu).total
    assert total.server == pytest.approx(np.trace(p), rel=1e-8)
    assert total.excess == pytest.approx(np.trace(r[0] @ p), rel=1e-8)
    gaussian = Solver(
        TheoryModel(scenario, measured=Fleet(fleet.target, fleet.input_variance, fleet.noise_variance, 0.0, r))
    )
    assert abs(gaussian.steady_state(mu).total.server / total.server - 1) > 0.2


def test_terms_add_up_under_every_affine_attack() -> None:
    for options in ATTACKS:
        scenario = fleet_of(options, True, num_clients=12, attack=make_attack(num_byzantine=4, **options))
        scenario = scenario.replace(data=Data(target_spread=0.05))
        prediction = psofed.predict(scenario)
        terms, clean = prediction.terms, psofed.predict(scenario.replace(attack=None)).terms
        recursion = next(prediction.solver.recursions(0.1))
        total = recursion.steady_state(Sources())[0][0, 0] + terms.noise
        assert prediction.network_mse == pytest.approx(total, rel=1e-7)
        assert (terms.data, terms.targets) == pytest.approx((clean.data, clean.targets), rel=1e-9)
        assert clean.attack == 0.0


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("options", ATTACKS, ids=lambda o: o["kind"])
def test_a_rough_prediction_has_four_digits(options, correlation: float) -> None:
    scenario = fleet_of(options, True, data=Data(input_correlation=correlation), stepsize=0.05)
    rough, precise = predict_roughly(scenario), psofed.predict(scenario)
    assert tuple(rough.metrics) == pytest.approx(tuple(precise.metrics), rel=1e-4)
    assert rough.is_stable == precise.is_stable
    if options["kind"] == "gaussian":
        assert rough.worst_network_mse() == pytest.approx(precise.worst_network_mse(), rel=1e-4)
