"""What must hold for every scenario, whatever its numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psofed
from psofed import Data, Scenario, Selection
from psofed.parts.attacks import Gaussian
from psofed.theory.iteration import NO_SOURCES, Sources
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver
from psofed.theory.stability import mean_square_stepsize_bound

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from paper_operators import PaperOperators

pytestmark = pytest.mark.theory


@st.composite
def scenarios(draw, patterns=("random", "round-robin"), scattered=True, max_clients=5):
    clients = draw(st.integers(1, max_clients))
    dimension = draw(st.integers(1, 4))
    pattern = draw(st.sampled_from(patterns))
    coordinated = draw(st.booleans()) if scattered or pattern == "random" else True
    correlation = draw(st.sampled_from((0.0, 0.0, 0.6)))
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=draw(st.integers(1, clients)),
        num_shared=draw(st.integers(1, dimension)),
        stepsize=draw(st.floats(0.01, 0.15)),
        uplink=draw(st.sampled_from(("same", "redrawn"))),
        selection=Selection(pattern=pattern, coordinated=coordinated),
        data=Data(input_variance=draw(st.floats(0.3, 1.0)), input_correlation=correlation),
        attack=Gaussian(num_byzantine=draw(st.integers(0, clients)), probability=draw(st.floats(0, 1))),
    )


@given(scenarios(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_transposed_operator_is_the_adjoint(scenario: Scenario, seed: int) -> None:
    transition = PaperOperators.of(scenario).transition(scenario.stepsize)
    shape = PaperOperators.of(scenario).reader.shape
    x, y = np.random.default_rng(seed).standard_normal((2, *shape))
    assert np.isclose((transition.mv(x) * y).sum(), (x * transition.rmv(y)).sum(), atol=1e-9)


@given(scenarios(scattered=False))
@settings(max_examples=40, deadline=None)
def test_a_steady_state_is_a_fixed_point_of_its_own_recursion(scenario: Scenario) -> None:
    recursion = next(Solver(TheoryModel(scenario)).recursions(scenario.stepsize))
    _, state = recursion.steady_state(Sources())
    after, sets = state, recursion.iteration.sets
    for n in range(recursion.period):
        after = recursion.step(after, n)
    np.testing.assert_allclose(after.pack(sets), state.pack(sets), rtol=1e-5, atol=1e-8)
    assert not np.allclose(recursion.step(state, 0, NO_SOURCES).pack(sets), recursion.step(state, 0).pack(sets))


@given(scenarios(scattered=False))
@settings(max_examples=30, deadline=None)
def test_the_papers_bound_is_safe_and_the_terms_add_up(scenario: Scenario) -> None:
    prediction = psofed.predict(scenario)
    bound = mean_square_stepsize_bound(psofed.draw_fleet(scenario))
    assert prediction.max_stepsize >= bound * (1 - 1e-6)
    if scenario.stepsize < bound:
        assert prediction.is_stable
        assert prediction.spectral_radius < 1
        terms = prediction.terms
        assert terms.data >= 0
        assert terms.attack >= 0
        assert np.isclose(prediction.network_mse, terms.data + terms.attack + terms.noise)


@given(scenarios(patterns=("random",)))
@settings(max_examples=25, deadline=None)
def test_attack_enters_in_proportion_to_its_strength(scenario: Scenario) -> None:
    if scenario.num_byzantine == 0:
        return
    weak = scenario.replace(attack=Gaussian(num_byzantine=scenario.num_byzantine, probability=0.2, variance=0.5))
    strong = scenario.replace(attack=Gaussian(num_byzantine=scenario.num_byzantine, probability=0.4, variance=1.0))
    one, four = psofed.predict(weak).terms, psofed.predict(strong).terms
    assert np.isclose(four.attack, 4 * one.attack, rtol=1e-6)
    assert np.isclose(four.data, one.data, rtol=1e-9)


@given(scenarios(scattered=False))
@settings(max_examples=15, deadline=None)
def test_an_attack_that_never_happens_is_no_attack(scenario: Scenario) -> None:
    idle = scenario.replace(attack=Gaussian(num_byzantine=scenario.num_byzantine, probability=0.0))
    none = scenario.replace(attack=None)
    assert psofed.predict(idle).network_mse == psofed.predict(none).network_mse
    assert psofed.predict(idle).terms.attack == 0.0
