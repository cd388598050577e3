"""Every attack on a small upload, worked by hand: four clients, of whom client 0 attacks, three entries."""

from collections.abc import Callable

import numpy as np
import pytest

from psofed import Attack, InvalidValueError, NotCoveredError, Scenario, simulate
from psofed.engine.streams import make_stream
from psofed.parts.attacks import (
    ColludingGaussian,
    ConstantBias,
    DataPoisoning,
    DropOut,
    Gaussian,
    InnerProduct,
    LabelPoisoning,
    LittleIsEnough,
    Mimic,
    MinMax,
    MinSum,
    NonFinite,
    ScaledUpdate,
    SignFlip,
)
from psofed.parts.contexts import Sample
from psofed.parts.plain import corrupt_uploads
from psofed.scenario.changes import with_values
from reference.shocks import draw_shocks
from reference.sides import attack_once

pytestmark = [pytest.mark.parts, pytest.mark.engine]

NAN = np.nan
TARGET = np.array([1.0, 2.0, 4.0])
SERVER = np.array([0.5, 2.0, 3.0])
# Client 0 attacks; clients 1, 2 and 3 are honest. Not all share the same entries.
UPLOADS = np.array([[2.0, 2.5, NAN], [1.0, NAN, 3.0], [NAN, 1.0, 5.0], [3.0, 2.0, NAN]])
ATTACKING = np.array([True, False, False, False])
ALWAYS = {"num_byzantine": 1, "probability": 1.0}

# The root of ‖m + γp − u‖² = 11¼ for the third clean update of MinMax below.
SLOPE = 1.5 * 1.75**0.5 + (1 / 3) ** 1.5 - 2 / 3 * (4 / 3) ** 0.5
FARTHEST = ((SLOPE**2 + 41 / 12 * (11.25 - 101 / 36)) ** 0.5 - SLOPE) / (41 / 12)

BY_HAND = [
    # w' = w_n − 2 (w − w_n): 0.5 − 2·1.5, 2 − 2·0.5
    (SignFlip(scale=2.0, of="update", **ALWAYS), [-2.5, 1.0, NAN]),
    # w' = −½ w
    (SignFlip(scale=0.5, **ALWAYS), [-1.0, -1.25, NAN]),
    # w' = w_n + 3 (w − w_n): 0.5 + 3·1.5, 2 + 3·0.5
    (ScaledUpdate(scale=3.0, **ALWAYS), [5.0, 3.5, NAN]),
    (ConstantBias(bias=-0.25, **ALWAYS), [1.75, 2.25, NAN]),
    # Entry 0: clean 1 and 3, mean 2, deviation √2. Entry 1: clean 1 and 2, mean 1.5, deviation √½.
    (LittleIsEnough(deviations=2**0.5, statistics="honest", **ALWAYS), [4.0, 2.5, NAN]),
    # In either entry n = 3 and a = 1: s' = 2 − 1, z = Φ⁻¹(½) = 0. And alone it has no deviation to go by.
    (LittleIsEnough(statistics="honest", **ALWAYS), [2.0, 1.5, NAN]),
    (LittleIsEnough(deviations=9.0, **ALWAYS), [2.0, 2.5, NAN]),
    # Clean updates (½, 0, 0), (0, −1, 2), (2½, 0, 0) have the mean (1, −⅓, ⅔) and the deviations √1.75, √⅓, √(4/3);
    # between the last two lie 6¼ + 1 + 4. The third, (−1½, −⅓, ⅔) from the mean, is the first that gets too far away.
    (MinMax(**ALWAYS), [1.5 - FARTHEST * 1.75**0.5, 5 / 3 - FARTHEST * (1 / 3) ** 0.5, NAN]),
    # Sums of squared distances: 5¼ + 4, 5¼ + 11¼, 4 + 11¼; from the mean 6.83333. ‖p‖² = 3.41667.
    (MinSum(**ALWAYS), [1.5 - (29 / 3 / 10.25 * 1.75) ** 0.5, 5 / 3 - (29 / 3 / 10.25 / 3) ** 0.5, NAN]),
    # w' = w_n − 2 (mean − w_n): 0.5 − 2·1.5, 2 + 2·0.5
    (InnerProduct(scale=2.0, **ALWAYS), [-2.5, 3.0, NAN]),
    # Updates vary most in entries 0 and 2, against each other; there client 3 stands out, who shares entries 0 and 1.
    (Mimic(**ALWAYS), [3.0, 2.0, NAN]),
    (DropOut(**ALWAYS), [NAN, NAN, NAN]),
    (NonFinite(**ALWAYS), [NAN, np.inf, NAN]),
]


def plainly(attack: Attack, uploads: np.ndarray = UPLOADS, attackers: int = 1, **known: object) -> np.ndarray:
    """What the server receives of clients 0, 1, … if the first `attackers` attack; there is no noise unless given."""
    known = {"server": np.zeros(uploads.shape[1]), "iteration": 0, "normals": np.zeros(uploads.shape), **known}
    who = np.arange(len(uploads))
    known.setdefault("common_normals", np.zeros(uploads.shape[1]))
    return corrupt_uploads(attack, uploads, who < attackers, clients=who, **known)


@pytest.mark.parametrize(("attack", "expected"), BY_HAND, ids=lambda value: getattr(value, "kind", ""))
def test_the_attacker_sends_what_was_worked_out_by_hand(attack: Attack, expected: list) -> None:
    received = plainly(attack, server=SERVER)
    assert np.allclose(received[0], expected, rtol=1e-14, equal_nan=True)
    assert np.array_equal(received[1:], UPLOADS[1:], equal_nan=True)


@pytest.mark.parametrize(("attack", "expected"), BY_HAND, ids=lambda value: getattr(value, "kind", ""))
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1)])
def test_the_compiled_attacker_sends_the_same_in_any_order_of_participants(
    run_attack: Callable, attack: Attack, expected: list, order: tuple
) -> None:
    rows = list(order)
    received = np.empty_like(UPLOADS)
    received[rows] = run_attack(attack, UPLOADS[rows], SERVER, target=TARGET, clients=order, num_clients=4, iteration=7)
    assert np.allclose(received[0], expected, rtol=1e-14, equal_nan=True)
    assert np.allclose(received[1:], UPLOADS[1:], rtol=1e-14, equal_nan=True)


@pytest.mark.parametrize("kind", [Gaussian, ColludingGaussian])
def test_noise_is_the_drawn_normal_times_the_deviation(run_attack: Callable, kind: type[Attack]) -> None:
    attack = kind(variance=4.0, **ALWAYS)
    shocks = draw_shocks(attack, make_stream(0, "attack", [0]), ATTACKING, 8, 3)
    normals = shocks.normals[7, 0] if kind is Gaussian else shocks.common_normals[7]
    expected = UPLOADS[0] + 2.0 * normals
    compiled = run_attack(attack, UPLOADS, SERVER, target=TARGET, clients=range(4), num_clients=4, iteration=7)
    assert np.allclose(compiled[0], expected, equal_nan=True)
    plain = plainly(attack, normals=shocks.normals[7], common_normals=shocks.common_normals[7])
    assert np.allclose(plain[0], expected, equal_nan=True)


@pytest.mark.parametrize("kind", [LittleIsEnough, InnerProduct, Mimic, MinMax, MinSum])
def test_without_clean_uploads_the_omniscient_send_their_own(run_attack: Callable, kind: type[Attack]) -> None:
    attack = kind(num_byzantine=4, probability=1.0)
    assert np.array_equal(plainly(attack, attackers=4, server=SERVER), UPLOADS, equal_nan=True)
    compiled = run_attack(attack, UPLOADS, SERVER, target=TARGET, clients=range(4), num_clients=4)
    assert np.allclose(compiled, UPLOADS, rtol=1e-14, equal_nan=True)


def test_an_attack_comes_with_probability_one_fifth_unless_told() -> None:
    attack = Gaussian(num_byzantine=3)
    assert (attack.probability, attack.byzantine_set) == (0.2, "fixed")
    assert [Gaussian(num_byzantine=3, probability=p).probability for p in (0, 1)] == [0.0, 1.0]
    for wrong in (-0.01, 1.01):
        with pytest.raises(InvalidValueError, match=r"attack\.probability"):
            Gaussian(num_byzantine=3, probability=wrong)


def test_of_two_who_stand_out_alike_the_first_is_copied() -> None:
    received = plainly(Mimic(**ALWAYS), np.array([[0.0, 0.0], [1.1, 0.3], [-1.1, -0.3]]))
    assert received[0].tolist() == [1.1, 0.3]


SAMPLES = [
    (LabelPoisoning(scale=2.0, **ALWAYS), [1.0, -1.0], -6.0),
    (DataPoisoning(variance=4.0, **ALWAYS), [2.0, -3.0], 3.0),
]


@pytest.mark.parametrize(("attack", "x", "y"), SAMPLES, ids=lambda value: getattr(value, "kind", ""))
def test_a_poisoned_sample_is_what_was_worked_out_by_hand(attack: Attack, x: list, y: float) -> None:
    clean = np.array([1.0, -1.0])
    inputs, label = attack.poison(Sample(clean, 3.0, np.array([0.5, -1.0]), client=0, iteration=0))
    assert np.allclose(inputs, x)
    assert label == y
    assert clean.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("kind", [LabelPoisoning, DataPoisoning])
def test_the_poison_hook_keeps_the_noise_that_belongs_to_the_sample(kind: type[Attack]) -> None:
    """y' − wᵀx', so that the kernel's error form stays true."""
    attack, stream, byzantine = kind(**ALWAYS), make_stream(3, "attack", [0]), np.array([True, False])
    x, noise = np.array([[[0.5], [-1.0], [2.0]]]), np.array([[0.1]])
    normals = draw_shocks(attack, stream, byzantine, 5, 3).normals[4, 0]
    label = float(TARGET @ x[0, :, 0]) + 0.1
    expected_x, expected_y = attack.poison(Sample(x[0, :, 0], label, normals, client=0, iteration=4))
    attack_once(attack, byzantine, stream, TARGET, 4, sample=x, residual=noise)
    assert np.allclose(x[0, :, 0], expected_x)
    assert np.allclose(noise[0, 0], expected_y - TARGET @ expected_x)


def test_a_redrawn_set_has_the_right_size_and_reaches_everyone_alike() -> None:
    attack = Gaussian(num_byzantine=3, probability=1.0, byzantine_set="redrawn")
    attacking = draw_shocks(attack, make_stream(5, "attack", [0]), np.zeros(10, bool), 4000, 2).attacking
    assert (attacking.sum(axis=1) == 3).all()
    assert np.abs(attacking.mean(axis=0) - 0.3).max() < 4.5 * (0.3 * 0.7 / 4000) ** 0.5
    together = (attacking[:, 0] & attacking[:, 1]).mean()
    byzantine, pair = attack.byzantine_moments(10)
    assert np.allclose(byzantine, 0.3)
    assert np.isclose(pair * 0.09, 3 * 2 / 90)
    assert abs(together - 3 * 2 / 90) < 4.5 * (0.0667 * 0.9333 / 4000) ** 0.5


def test_another_kind_starts_from_its_own_options_and_keeps_who_attacks_and_when() -> None:
    attack = Gaussian(num_byzantine=1, probability=0.7, variance=2.0)
    scenario = Scenario(num_clients=5, dimension=2, attack=attack)
    changed = with_values(scenario, {"attack.kind": "constant-bias"}).attack
    assert changed == ConstantBias(num_byzantine=1, probability=0.7, bias=0.5)
    both = with_values(scenario, {"attack.kind": "constant-bias", "attack.bias": 3}).attack
    assert both == ConstantBias(num_byzantine=1, probability=0.7, bias=3.0)


@pytest.mark.parametrize(("n", "attackers", "z"), [(6, 1, -0.25), (30, 6, 0.21), (50, 24, 1.43), (3, 1, 0.0)])
def test_a_little_is_enough_goes_as_far_as_the_paper_derives_from_the_numbers(n: int, attackers: int, z: float) -> None:
    uploads = np.random.default_rng(0).normal(size=(n, 1))
    received = plainly(LittleIsEnough(num_byzantine=attackers, statistics="honest"), uploads, attackers)
    honest = uploads[attackers:]
    assert np.allclose(received[:attackers], received[0, 0])
    assert abs((received[0, 0] - honest.mean()) / honest.std(ddof=1) - z) < 0.005


@pytest.mark.parametrize("kind", [MinMax, MinSum])
def test_how_far_min_max_and_min_sum_go_is_what_the_papers_search_finds(kind: type[Attack]) -> None:
    rng = np.random.default_rng(3)
    for size in ((4, 1), (7, 3), (12, 6)):
        honest = rng.normal(size=size) + 0.5
        received = plainly(kind(num_byzantine=1), np.vstack([np.zeros(size[1]), honest]))[0]
        mean, away = honest.mean(axis=0), honest.std(axis=0, ddof=1)
        squares = ((honest[:, None] - honest[None]) ** 2).sum(axis=2)

        def allowed(gamma: float) -> bool:
            own = ((mean - gamma * away - honest) ** 2).sum(axis=1)  # noqa: B023
            if kind is MinMax:
                return own.max() <= squares.max()  # noqa: B023
            return own.sum() <= squares.sum(axis=1).max()  # noqa: B023

        gamma, step, best = 10.0, 10.0, 0.0
        while step > 1e-9:  # their Algorithm 1
            if allowed(gamma):
                best, gamma = gamma, gamma + step / 2
            else:
                gamma -= step / 2
            step /= 2
        assert np.allclose(received, mean - best * away, atol=1e-6)


def test_mimic_settles_on_one_victim_that_stands_out() -> None:
    """Client 5 of 8 alone has an update that always points the same way."""
    rng, attack = np.random.default_rng(0), Mimic(num_byzantine=2, warm_up=20, probability=1.0)
    memory, copied = np.zeros(attack.group_memory_size(8, 3)), []
    for n in range(60):
        uploads = rng.normal(size=(8, 3)) * 0.1
        uploads[5] += (0.5, -0.5, 0.0) if n < 20 else (-9.0, 9.0, 9.0)
        received = plainly(attack, uploads, 2, iteration=n, num_clients=8, memory=memory)
        copied.append(int(np.flatnonzero((uploads == received[0]).all(axis=1))[0]))
    assert set(copied[5:]) == {5}
    # Once it is chosen nothing more is learned.
    before = memory.copy()
    plainly(attack, uploads, 2, iteration=60, num_clients=8, memory=memory)
    assert np.array_equal(memory, before)


def test_an_attack_that_would_keep_too_much_is_refused_by_name() -> None:
    scenario = Scenario(num_clients=5, dimension=5000, iterations=1, attack=Mimic(num_byzantine=1))
    with pytest.raises(NotCoveredError, match=r'"mimic" with 5 clients and 5000 entries keeps 25,040,001 values'):
        simulate(scenario, trials=1)
