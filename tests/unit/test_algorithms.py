"""Comparison algorithms on cases small enough to work by hand."""

import numpy as np
import pytest

from psofed import Attack, InvalidValueError, Scenario, simulate
from psofed.parts.algorithms import cs_fed, online_fed, qs_fed, signsgd
from psofed.results.traffic import measure_communication

NOTHING, NO_CUBE = np.zeros((0, 1)), np.zeros((2, 0, 1))


def scenario(algorithm: str, **options: object) -> Scenario:
    return Scenario(num_clients=10, dimension=5, algorithm=algorithm, algorithm_options=options)


def test_signs_and_votes_by_hand() -> None:
    updates = np.array([[0.3, -0.2], [0.1, -0.1], [-0.5, 0.0]])[..., None]
    sent = np.empty((3, 2, 1))
    signsgd.encode(updates, NOTHING, NOTHING, np.zeros((3, 0, 1)), np.array([0.1, 3.0, 0.0]), sent)
    assert sent[..., 0].tolist() == [[1, -1], [1, -1], [-1, 1]]
    change = np.empty((2, 1))
    for vote, expected in ((0, [0.1, -0.1]), (1, [0.1 / 3, -0.1 / 3]), (2, [0.1, -0.1])):
        options = np.array([0.1, 3.0, vote])
        signsgd.apply(sent.mean(axis=0), 3, NOTHING, NOTHING, options, NOTHING, change)
        assert np.allclose(change[:, 0], expected)


def test_a_tie_of_signs_moves_nothing() -> None:
    change = np.empty((1, 1))
    signsgd.apply(np.zeros((1, 1)), 2, NOTHING, NOTHING, np.array([0.1, 3.0, 0.0]), NOTHING, change)
    assert change[0, 0] == 0.0


@pytest.mark.parametrize(("gradient", "probability"), [(0.0, 0.5), (1.5, 0.75), (-3.0, 0.0), (7.0, 1.0)])
def test_stochastic_signs_have_the_stated_probability(gradient: float, probability: float) -> None:
    grid = ((np.arange(1000) + 0.5) / 1000).reshape(1, 1000, 1)
    sent = np.empty((1, 1000, 1))
    updates = np.full((1, 1000, 1), 0.1 * gradient)
    signsgd.encode(updates, NOTHING, NOTHING, grid, np.array([0.1, 3.0, 0.0]), sent)
    assert np.mean(sent > 0) == pytest.approx(probability, abs=1e-3)


def test_many_measurements_recover_an_update() -> None:
    rng = np.random.default_rng(0)
    update = rng.standard_normal((1, 3, 1))
    phi = rng.standard_normal((2000 * 3, 1))
    options = np.array([0.1, 2000, 20])
    sent, decoded = np.empty((1, 2001, 1)), np.empty((1, 3, 1))
    cs_fed.encode(update, phi, NOTHING, NO_CUBE, options, sent)
    cs_fed.decode(sent, phi, NOTHING, options, decoded)
    assert np.linalg.norm(decoded - update) < 0.02 * np.linalg.norm(update)


def test_a_wide_sketch_without_collisions_is_exact_and_keeps_the_largest() -> None:
    # One row, four columns; entry j hashed to column j, signs alternate.
    uniforms = np.array([0.1, 0.2, 0.3, 0.7, 0.6, 0.2, 0.9, 0.7])[:, None]
    update = np.array([0.5, -2.0, 1.0, 0.1]).reshape(1, 4, 1)
    options = np.array([1, 4, 2, 0.0, 0.0])
    sent, change = np.empty((1, 4, 1)), np.empty((4, 1))
    qs_fed.encode(update, NOTHING, uniforms, NO_CUBE, options, sent)
    assert sent[0, :, 0].tolist() == [0.5, 2.0, 1.0, -0.1]
    qs_fed.apply(sent[0], 1, NOTHING, uniforms, options, np.zeros((8, 1)), change)
    assert change[:, 0].tolist() == [0.0, -2.0, 1.0, 0.0]


def test_error_feedback_brings_what_top_k_left_out() -> None:
    uniforms = np.array([0.1, 0.2, 0.7, 0.2])[:, None]
    options = np.array([1, 2, 1, 0.0, 1.0])
    memory, change = np.zeros((4, 1)), np.empty((2, 1))
    qs_fed.apply(np.array([[3.0], [2.0]]), 1, NOTHING, uniforms, options, memory, change)
    assert change[:, 0].tolist() == [3.0, 0.0]
    qs_fed.apply(np.array([[0.0], [0.0]]), 1, NOTHING, uniforms, options, memory, change)
    assert change[:, 0].tolist() == [0.0, 2.0]


def test_fewer_participants_or_fewer_exchanges_cost_the_same() -> None:
    often, seldom = (scenario("online-fed", budget=b) for b in ("fewer-participants", "fewer-exchanges"))
    assert [online_fed.traffic(seldom).exchanges_in(n) for n in range(6)] == [0, 0, 0, 0, 5, 0]
    assert [online_fed.traffic(often).exchanges_in(n) for n in range(6)] == [1, 1, 1, 1, 1, 1]
    odd = often.replace(num_participants=3)
    assert [online_fed.traffic(odd).exchanges_in(n) for n in range(6)] == [0, 1, 0, 1, 1, 0]
    assert measure_communication(often).bits_up == measure_communication(seldom).bits_up == 320


def test_bits_of_the_compressed_uploads() -> None:
    per_iteration = {
        name: measure_communication(scenario(name)).bits_up for name in ("signsgd", "cs-fed", "qs-fed")
    }
    # Five participants in one of five iterations: D bits; q bits and a number; r·c numbers.
    assert per_iteration == {"signsgd": 5, "cs-fed": 16 + 64, "qs-fed": 5 * 64}


def test_a_sketch_larger_than_the_model_is_sent_less_often() -> None:
    large = measure_communication(scenario("qs-fed", rows=5, columns=4))
    assert large.bits_up == 320
    assert large.bits_down == 80
    assert large.traffic.exchanges_before(40) == 2 * 5


@pytest.mark.parametrize("name", ["online-fed", "signsgd", "cs-fed", "qs-fed"])
def test_a_redrawn_uplink_is_refused_where_clients_hold_no_model(name: str) -> None:
    with pytest.raises(InvalidValueError, match="uplink"):
        scenario(name).replace(uplink="redrawn")


@pytest.mark.parametrize("changes", [{"momentum": 0.9}, {"error_feedback": True}])
def test_memory_of_sketches_needs_fixed_hashes(changes: dict) -> None:
    with pytest.raises(InvalidValueError, match="fixed"):
        scenario("qs-fed", **changes)
    assert scenario("qs-fed", hashes="fixed", **changes)


def test_options_of_another_algorithm_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="algorithm_options"):
        scenario("qs-fed", rows=7).replace(algorithm="cs-fed")


def test_masks_play_no_part_in_algorithms_that_send_everything() -> None:
    from psofed import Selection

    first = scenario("online-fed").replace(iterations=50, attack=Attack(num_byzantine=3))
    second = first.replace(selection=Selection(pattern="round-robin", coordinated=False))
    results = [simulate(s, trials=2).steady_state["server_msd"] for s in (first, second)]
    assert np.array_equal(*results)
