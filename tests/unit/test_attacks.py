"""Every attack on a small upload, worked by hand: four clients, of whom client 0 attacks, three entries."""

from collections.abc import Callable

import numpy as np
import pytest
from numba import njit

from psofed import Attack, InvalidValueError, Scenario, UnknownFieldError
from psofed.engine.attackers import draw_shocks, make_attackers
from psofed.engine.frames.poison import poison_hook
from psofed.engine.hooks import take_poison
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
    NonFinite,
    ScaledUpdate,
    SignFlip,
)
from psofed.parts.plain import corrupt_uploads, poison_sample
from psofed.scenario.file import with_values

NAN = np.nan
TARGET = np.array([1.0, 2.0, 4.0])
SERVER = np.array([0.5, 2.0, 3.0])
# Client 0 attacks; clients 1, 2 and 3 are honest. Not all share the same entries.
UPLOADS = np.array([[2.0, 2.5, NAN], [1.0, NAN, 3.0], [NAN, 1.0, 5.0], [3.0, 2.0, NAN]])
ATTACKING = np.array([True, False, False, False])
ALWAYS = {"num_byzantine": 1, "probability": 1.0}

BY_HAND = [
    # w' = w_n − 2 (w − w_n): 0.5 − 2·1.5, 2 − 2·0.5
    (SignFlip(scale=2.0, **ALWAYS), [-2.5, 1.0, NAN]),
    # w' = −½ w
    (SignFlip(scale=0.5, of="model", **ALWAYS), [-1.0, -1.25, NAN]),
    # w' = w_n + 3 (w − w_n): 0.5 + 3·1.5, 2 + 3·0.5
    (ScaledUpdate(scale=3.0, **ALWAYS), [5.0, 3.5, NAN]),
    (ConstantBias(bias=-0.25, **ALWAYS), [1.75, 2.25, NAN]),
    # Entry 0: clean 1 and 3, mean 2, deviation √2. Entry 1: clean 1 and 2, mean 1.5, deviation √½.
    (LittleIsEnough(deviations=2**0.5, **ALWAYS), [4.0, 2.5, NAN]),
    # w' = w_n − 2 (mean − w_n): 0.5 − 2·1.5, 2 + 2·0.5
    (InnerProduct(scale=2.0, **ALWAYS), [-2.5, 3.0, NAN]),
    # The lowest clean client that shares entry 0 is client 1, entry 1 client 2.
    (Mimic(**ALWAYS), [1.0, 1.0, NAN]),
    (DropOut(**ALWAYS), [NAN, NAN, NAN]),
    (NonFinite(**ALWAYS), [NAN, np.inf, NAN]),
]


def plainly(
    attack: Attack, normals: np.ndarray | None = None, common: np.ndarray | None = None
) -> np.ndarray:
    return corrupt_uploads(
        attack, UPLOADS, ATTACKING, server=SERVER, clients=np.arange(4), iteration=7,
        normals=np.zeros((4, 3)) if normals is None else normals,
        common_normals=np.zeros(3) if common is None else common,
    )  # fmt: skip


@pytest.mark.parametrize(("attack", "expected"), BY_HAND, ids=lambda value: getattr(value, "kind", ""))
def test_the_attacker_sends_what_was_worked_out_by_hand(attack: Attack, expected: list) -> None:
    received = plainly(attack)
    assert np.allclose(received[0], expected, rtol=1e-14, equal_nan=True)
    assert np.array_equal(received[1:], UPLOADS[1:], equal_nan=True)


@pytest.mark.parametrize(("attack", "expected"), BY_HAND, ids=lambda value: getattr(value, "kind", ""))
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1)])
def test_the_compiled_attacker_sends_the_same_in_any_order_of_participants(
    run_attack: Callable, attack: Attack, expected: list, order: tuple
) -> None:
    rows = list(order)
    received = np.empty_like(UPLOADS)
    received[rows] = run_attack(
        attack, UPLOADS[rows], SERVER, target=TARGET, clients=order, num_clients=4, iteration=7
    )
    assert np.allclose(received[0], expected, rtol=1e-14, equal_nan=True)
    assert np.allclose(received[1:], UPLOADS[1:], rtol=1e-14, equal_nan=True)


@pytest.mark.parametrize("kind", [Gaussian, ColludingGaussian])
def test_noise_is_the_drawn_normal_times_the_deviation(run_attack: Callable, kind: type[Attack]) -> None:
    attack = kind(variance=4.0, **ALWAYS)
    shocks = draw_shocks(attack, make_stream(0, "attack", [0]), ATTACKING, 8, 3)
    normals = shocks.normals[7, 0] if kind is Gaussian else shocks.common_normals[7]
    expected = UPLOADS[0] + 2.0 * normals
    compiled = run_attack(
        attack, UPLOADS, SERVER, target=TARGET, clients=range(4), num_clients=4, iteration=7
    )
    assert np.allclose(compiled[0], expected, equal_nan=True)
    assert np.allclose(
        plainly(attack, shocks.normals[7], shocks.common_normals[7])[0], expected, equal_nan=True
    )


@pytest.mark.parametrize("kind", [LittleIsEnough, InnerProduct, Mimic])
def test_without_clean_uploads_the_omniscient_send_their_own(
    run_attack: Callable, kind: type[Attack]
) -> None:
    attack, everyone = kind(num_byzantine=4, probability=1.0), np.ones(4, bool)
    plain = corrupt_uploads(
        attack, UPLOADS, everyone, server=SERVER, clients=np.arange(4), iteration=0,
        normals=np.zeros((4, 3)), common_normals=np.zeros(3),
    )  # fmt: skip
    assert np.array_equal(plain, UPLOADS, equal_nan=True)
    compiled = run_attack(attack, UPLOADS, SERVER, target=TARGET, clients=range(4), num_clients=4)
    assert np.allclose(compiled, UPLOADS, rtol=1e-14, equal_nan=True)


def test_one_clean_upload_has_no_spread_to_hide_in() -> None:
    uploads, attacking = np.array([[1.0], [3.0]]), np.array([True, False])
    received = corrupt_uploads(
        LittleIsEnough(num_byzantine=1), uploads, attacking, server=np.zeros(1), clients=np.arange(2), iteration=0,
        normals=np.zeros((2, 1)), common_normals=np.zeros(1),
    )  # fmt: skip
    assert received[0, 0] == 3.0


SAMPLES = [
    (LabelPoisoning(scale=2.0, **ALWAYS), [1.0, -1.0], -6.0),
    (DataPoisoning(variance=4.0, **ALWAYS), [2.0, -3.0], 3.0),
]


@pytest.mark.parametrize(("attack", "x", "y"), SAMPLES, ids=lambda value: getattr(value, "kind", ""))
def test_a_poisoned_sample_is_what_was_worked_out_by_hand(attack: Attack, x: list, y: float) -> None:
    clean = np.array([1.0, -1.0])
    inputs, label = poison_sample(attack, clean, 3.0, normals=np.array([0.5, -1.0]), client=0, iteration=0)
    assert np.allclose(inputs, x)
    assert label == y
    assert clean.tolist() == [1.0, -1.0]


@njit
def call_poison(address, token, n, k, attackers, target, inputs, noise):
    take_poison(address)(token, n, k, attackers, target, inputs, noise)


@pytest.mark.parametrize("kind", [LabelPoisoning, DataPoisoning])
def test_the_poison_hook_keeps_the_noise_that_belongs_to_the_sample(kind: type[Attack]) -> None:
    """y' − wᵀx', so that the kernel's error form stays true."""
    attack, stream, byzantine = kind(**ALWAYS), make_stream(3, "attack", [0]), np.array([True, False])
    x, noise = np.array([[0.5], [-1.0], [2.0]]), np.array([0.1])
    normals = draw_shocks(attack, stream, byzantine, 5, 3).normals[4, 0]
    label = float(TARGET @ x[:, 0]) + 0.1
    expected_x, expected_y = poison_sample(attack, x[:, 0], label, normals=normals, client=0, iteration=4)
    hook = poison_hook(attack)
    attackers = make_attackers(attack, byzantine, stream, hook.options)
    call_poison(hook.address, hook.token, 4, 0, attackers, TARGET, x, noise)
    assert np.allclose(x[:, 0], expected_x)
    assert np.allclose(noise[0], expected_y - TARGET @ expected_x)


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


def test_options_of_another_kind_are_refused_by_name() -> None:
    text = "num_clients = 5\ndimension = 2\n[attack]\nnum_byzantine = 1\n"
    with pytest.raises(
        InvalidValueError, match=r'attack.variance = 0.5 .*"sign-flip" does not read it; it reads scale'
    ):
        Scenario.from_toml(f'{text}kind = "sign-flip"\nvariance = 0.5')
    with pytest.raises(InvalidValueError, match=r"attack.deviations"):
        Scenario.from_toml(f"{text}deviations = 1.0")
    with pytest.raises(UnknownFieldError, match=r"attack.loudness .*byzantine_set, variance"):
        Scenario.from_toml(f"{text}loudness = 1.0")
    with pytest.raises(InvalidValueError, match=r"attack.byzantine_set = 'moving'"):
        Gaussian(num_byzantine=1, byzantine_set="moving")
    with pytest.raises(TypeError, match="variance"):
        SignFlip(num_byzantine=1, variance=0.5)


def test_the_base_of_all_attacks_is_no_attack_itself() -> None:
    with pytest.raises(TypeError, match="base of every attack"):
        Attack(num_byzantine=1)


def test_another_kind_starts_from_its_own_options_and_keeps_who_attacks_and_when() -> None:
    attack = Gaussian(num_byzantine=1, probability=0.7, variance=2.0)
    scenario = Scenario(num_clients=5, dimension=2, attack=attack)
    changed = with_values(scenario, {"attack.kind": "constant-bias"}).attack
    assert changed == ConstantBias(num_byzantine=1, probability=0.7, bias=0.5)
    both = with_values(scenario, {"attack.kind": "constant-bias", "attack.bias": 3}).attack
    assert both == ConstantBias(num_byzantine=1, probability=0.7, bias=3.0)
