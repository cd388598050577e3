"""Every fast form equals a plain one: operators their dense matrices, reduced recursions the full ones."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import Attack, Data, Scenario, Selection
from psofed.parts.drifts.random_walk import RandomWalk
from psofed.scenario.changes import attack_from_mapping
from psofed.theory.maps.eliminated import EliminatedRecursion
from psofed.theory.maps.reduced import ReducedRecursion
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import NO_SOURCES, Sources
from psofed.theory.moments.second import pack
from psofed.theory.solve import select
from psofed.theory.solve.windows import Windows

sys.path.insert(0, str(Path(__file__).parent))
from dense_matrices import dense_data_matrices, dense_selection_matrices
from paper_operators import PaperOperators, as_matrix

pytestmark = [pytest.mark.theory, pytest.mark.takes(18)]


def make_attack(**options) -> Attack:
    return attack_from_mapping(options)


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


def reducible() -> list[tuple[Scenario, str]]:
    scenarios = []
    for pattern, coordinated, uplink in itertools.product(
        ("random", "round-robin"), (True, False), ("same", "redrawn")
    ):
        if pattern == "round-robin" and not coordinated:
            continue
        for clients, participants, shared in ((7, 3, 1), (7, 7, 3), (7, 1, 2), (1, 1, 2), (40, 5, 3)):
            scenario = Scenario(
                num_clients=clients,
                dimension=6,
                num_participants=participants,
                num_shared=shared,
                uplink=uplink,
                selection=Selection(pattern=pattern, coordinated=coordinated),
                attack=make_attack(num_byzantine=clients // 2),
            )
            scenarios += [(scenario, theory) for theory in ("exact", "paper")]
    return scenarios


@pytest.mark.thinned(3)
@pytest.mark.parametrize("index", range(len(reducible())))
def test_eliminating_pairs_changes_nothing(index: int) -> None:
    scenario, theory = reducible()[index]
    model = TheoryModel(scenario, theory)
    recursion = model.recursion(0.1, model.branches[0])
    full, _ = recursion.steady_state(Sources())
    reduced, _ = ReducedRecursion(recursion).steady_state(Sources())
    assert reduced.excess == pytest.approx(full.excess, rel=1e-6)
    assert reduced.server == pytest.approx(full.server, rel=1e-6)
    assert select(model).spectral_radius(0.1) == pytest.approx(recursion.spectral_radius(), rel=1e-5)


def test_interpolating_between_clients_changes_nothing() -> None:
    # 200 clients are interpolated, as they have more different input variances than are tabulated.
    scenario = Scenario(
        num_clients=200,
        dimension=5,
        attack=make_attack(num_byzantine=15),
        selection=Selection(coordinated=False),
    )
    model = TheoryModel(scenario)
    recursion = model.recursion(0.1, model.branches[0])
    full, _ = recursion.steady_state(Sources())
    reduced, _ = ReducedRecursion(recursion).steady_state(Sources())
    assert reduced.excess == pytest.approx(full.excess, rel=1e-7)
    assert reduced.server == pytest.approx(full.server, rel=1e-7)


AFFINE = [
    {"kind": "gaussian"},
    {"kind": "colluding-gaussian"},
    {"kind": "constant-bias"},
    {"kind": "sign-flip", "scale": 0.5, "of": "update"},
    {"kind": "sign-flip", "scale": 0.5, "of": "model"},
    {"kind": "scaled-update", "scale": 2.0},
    {"kind": "drop-out"},
    {"kind": "label-poisoning"},
    {"kind": "data-poisoning"},
]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("uplink", ["same", "redrawn"])
@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize("options", AFFINE, ids=lambda o: "-".join(map(str, o.values())))
def test_eliminating_pairs_changes_nothing_under_affine_attacks(
    options, coordinated: bool, uplink: str, byzantine_set: str
) -> None:
    for pattern in ("random", "round-robin") if coordinated else ("random",):
        scenario = Scenario(
            num_clients=9, dimension=4, num_participants=4, num_shared=2, uplink=uplink,
            selection=Selection(pattern=pattern, coordinated=coordinated),
            attack=make_attack(num_byzantine=3, probability=0.5, byzantine_set=byzantine_set, **options),
        )  # fmt: skip
        model = TheoryModel(scenario)
        recursion = model.recursion(0.1, model.branches[0])
        full, _ = recursion.steady_state(Sources())
        reduced, _ = ReducedRecursion(recursion).steady_state(Sources())
        assert reduced.excess == pytest.approx(full.excess, rel=1e-7)
        assert reduced.server == pytest.approx(full.server, rel=1e-7)
        assert select(model).spectral_radius(0.1) == pytest.approx(recursion.spectral_radius(), rel=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("uplink", ["same", "redrawn"])
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize(
    ("options", "theory"), [(options, "exact") for options in AFFINE] + [({"kind": "gaussian"}, "paper")]
)
def test_eliminating_pairs_of_correlated_inputs_changes_no_moment(
    options, theory: str, byzantine_set: str, uplink: str
) -> None:
    exact, drifts = theory == "exact", options["kind"] in ("gaussian", "scaled-update", "drop-out")
    scenario = Scenario(
        num_clients=5,
        dimension=3,
        num_participants=2,
        uplink=uplink,
        data=Data(input_correlation=0.5, target_spread=0.1 if exact else 0.0),
        drift=RandomWalk(variance=1e-4) if exact and drifts else None,
        attack=make_attack(num_byzantine=2, probability=0.4, byzantine_set=byzantine_set, **options),
    )
    model = TheoryModel(scenario, theory, small_stepsize=not exact and uplink == "same")
    recursion = model.recursion(0.05, model.branches[0])
    assert EliminatedRecursion.applies(recursion)
    full, moments = recursion.steady_state(Sources())
    level, state = EliminatedRecursion(recursion).steady_state(Sources())
    assert (level.excess, level.server) == pytest.approx((full.excess, full.server), rel=1e-8)
    np.testing.assert_allclose(pack(state), pack(moments), rtol=1e-6, atol=1e-9)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("uplink", ["same", "redrawn"])
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("options", AFFINE, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize(
    ("clients", "participants", "dimension", "shared"), [(6, 3, 4, 1), (5, 1, 6, 4), (4, 4, 5, 3)]
)
def test_compiled_windows_equal_the_plain_recursion(
    uplink, byzantine_set, options, clients, participants, dimension, shared
) -> None:
    scenario = Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=participants,
        num_shared=shared,
        uplink=uplink,
        selection=Selection(pattern="round-robin", coordinated=False),
        attack=make_attack(num_byzantine=2, byzantine_set=byzantine_set, **options),
    )
    model = TheoryModel(scenario)
    windows, branches = Windows(model).problem, model.offset_branches(3)[-3:]
    masks = np.stack([branch.exchanges[0].row for branch in branches])
    compiled = windows.steady_states(masks, 0.1, Sources())
    for branch, (excess, server) in zip(branches, compiled, strict=True):
        plain, _ = model.recursion(0.1, branch).steady_state(Sources())
        assert plain.excess == pytest.approx(excess, rel=1e-5)
        assert plain.server == pytest.approx(server, rel=1e-5)
    np.testing.assert_allclose(
        windows.curves(masks[:1], 0.1, 40), model.recursion(0.1, branches[0]).curve(40), rtol=1e-10
    )


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


def test_steady_state_is_where_the_learning_curve_ends() -> None:
    for pattern, coordinated in itertools.product(("random", "round-robin"), (True, False)):
        scenario = Scenario(
            num_clients=4,
            dimension=3,
            num_participants=2,
            num_shared=2,
            selection=Selection(pattern=pattern, coordinated=coordinated),
            data=Data(input_variance=0.8),
            attack=make_attack(num_byzantine=1),
        )
        prediction = psofed.predict(scenario)
        curve = prediction.learning_curve(1500)
        assert curve.network_mse[-1] == pytest.approx(prediction.network_mse, rel=1e-6)
        assert curve.server_msd[-1] == pytest.approx(prediction.server_msd, rel=1e-6)
        assert curve.test_mse[-1] == pytest.approx(prediction.test_mse, rel=1e-6)


def test_correlated_steady_state_is_a_fixed_point_of_its_own_recursion() -> None:
    model = TheoryModel(tiny(coordinated=False))
    recursion = model.recursion(0.1, model.branches[0])
    _, state = recursion.steady_state(Sources())
    np.testing.assert_allclose(pack(recursion.step(state)), pack(state), rtol=1e-6, atol=1e-9)
    linear = pack(recursion.step(state, sources=NO_SOURCES))
    assert not np.allclose(linear, pack(state))
