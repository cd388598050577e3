"""Every attack on a small upload, worked by hand: participants 0 and 3 of 4 clients, three entries."""

import numpy as np
import pytest
from numba import njit

from psofed import Attack, InvalidValueError, Scenario, UnknownFieldError
from psofed.engine.streams import make_stream
from psofed.parts.attacks._shared import count_byzantine, draw_shocks
from psofed.parts.registry import load_part
from psofed.scenario.file import with_values

NAN = np.nan
TARGET = np.array([1.0, 2.0, 4.0])
SERVER = np.array([0.5, 2.0, 3.0])
# Client 0 attacks; clients 1, 2 and 3 are honest. Not all share the same entries.
UPLOADS = np.array([[2.0, 2.5, NAN], [1.0, NAN, 3.0], [NAN, 1.0, 5.0], [3.0, 2.0, NAN]])


@njit
def call(hook, n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    hook(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent)


def run_attack(attack: Attack, order: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    """The compiled hook on UPLOADS, as models; the participants stand in the given order."""
    part = load_part("attacks", attack.kind)
    stream = make_stream(0, "attack", [0])
    uploads = UPLOADS[list(order)]
    entries = np.stack([np.flatnonzero(~np.isnan(row)) for row in uploads]).astype(np.int32)[:, :, None]
    sent = np.stack(
        [TARGET[row] - upload[row] for row, upload in zip(entries[:, :, 0], uploads, strict=True)]
    )
    sent = np.ascontiguousarray(sent[:, :, None])
    scenario = Scenario(num_clients=4, dimension=3, num_participants=4, num_shared=2, attack=attack)
    is_byzantine = np.array([[True], [False], [False], [False]])
    uploaders = np.array(order, np.int32)[:, None]
    server = (TARGET - SERVER)[:, None].copy()
    call(
        part.attack.load(), 7, stream.key, stream.gamma, uploaders, entries, is_byzantine,
        part.options(attack, scenario), TARGET, server, sent,
    )  # fmt: skip
    received = np.full((4, 3), NAN)
    for row, (client, entry) in enumerate(zip(order, entries[:, :, 0], strict=True)):
        received[client, entry] = TARGET[entry] - sent[row, :, 0]
    return received


BY_HAND = {
    # w' = w_n − 2 (w − w_n): 0.5 − 2·1.5, 2 − 2·0.5
    ("sign-flip", "scale", 2.0): [-2.5, 1.0, NAN],
    # w' = w_n + 3 (w − w_n): 0.5 + 3·1.5, 2 + 3·0.5
    ("scaled-update", "scale", 3.0): [5.0, 3.5, NAN],
    ("constant-bias", "bias", -0.25): [1.75, 2.25, NAN],
    # Entry 0: clean 1 and 3, mean 2, deviation √2. Entry 1: clean 1 and 2, mean 1.5, deviation √½.
    ("little-is-enough", "deviations", 2**0.5): [4.0, 2.5, NAN],
    # w' = w_n − 2 (mean − w_n): 0.5 − 2·1.5, 2 + 2·0.5
    ("inner-product", "scale", 2.0): [-2.5, 3.0, NAN],
    # The lowest clean client that shares entry 0 is client 1, entry 1 client 2.
    ("mimic", None, None): [1.0, 1.0, NAN],
    ("drop-out", None, None): [NAN, NAN, NAN],
    ("non-finite", None, None): [NAN, np.inf, NAN],
}


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: case[0])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1)])
def test_the_attacker_sends_what_was_worked_out_by_hand(case: tuple, order: tuple) -> None:
    kind, option, value = case
    attack = Attack(num_byzantine=1, kind=kind, probability=1.0, **({option: value} if option else {}))
    received = run_attack(attack, order)
    assert np.allclose(received[0], BY_HAND[case], rtol=1e-14, equal_nan=True)
    assert np.allclose(received[1:], UPLOADS[1:], rtol=1e-14, equal_nan=True)


def test_a_flipped_model_points_the_other_way() -> None:
    received = run_attack(Attack(num_byzantine=1, kind="sign-flip", probability=1.0, of="model", scale=0.5))
    assert np.allclose(received[0], [-1.0, -1.25, NAN], equal_nan=True)


@pytest.mark.parametrize("kind", ["gaussian", "colluding-gaussian"])
def test_noise_is_the_drawn_normal_times_the_deviation(kind: str) -> None:
    attack = Attack(num_byzantine=1, kind=kind, probability=1.0, variance=4.0)
    stream = make_stream(0, "attack", [0])
    scenario = Scenario(num_clients=4, dimension=3, num_participants=4, iterations=8, attack=attack)
    shocks = draw_shocks(stream.key, stream.gamma, scenario)
    normals = shocks.own[7, 0] if kind == "gaussian" else shocks.common[7]
    assert np.allclose(run_attack(attack)[0], UPLOADS[0] + 2.0 * normals, equal_nan=True)


def test_without_clean_uploads_the_omniscient_send_their_own() -> None:
    part = load_part("attacks", "little-is-enough")
    attack, everyone, nothing = (
        Attack(num_byzantine=4, kind="little-is-enough"),
        np.ones(4, bool),
        np.zeros((4, 3)),
    )
    assert np.array_equal(
        part.corrupt(attack, UPLOADS, everyone, SERVER, nothing, nothing[0]), UPLOADS, equal_nan=True
    )


@pytest.mark.parametrize(
    ("kind", "options", "x", "y"),
    [
        ("label-poisoning", {"scale": 2.0}, [1.0, -1.0], -6.0),
        ("data-poisoning", {"variance": 4.0}, [2.0, -3.0], 3.0),
    ],
)
def test_a_poisoned_sample_is_what_was_worked_out_by_hand(
    kind: str, options: dict, x: list, y: float
) -> None:
    attack = Attack(num_byzantine=1, kind=kind, **options)
    sample = load_part("attacks", kind).poison_sample(
        attack, np.array([1.0, -1.0]), 3.0, np.array([0.5, -1.0])
    )
    assert np.allclose(sample[0], x)
    assert sample[1] == y


@njit
def call_poison(hook, n, k, key, gamma, is_byzantine, options, target, inputs, noise):
    hook(n, k, key, gamma, is_byzantine, options, target, inputs, noise)


@pytest.mark.parametrize("kind", ["label-poisoning", "data-poisoning"])
def test_the_poison_hook_keeps_the_noise_that_belongs_to_the_sample(kind: str) -> None:
    """y' − wᵀx', so that the kernel's error form stays true."""
    attack = Attack(num_byzantine=1, kind=kind, probability=1.0)
    scenario = Scenario(num_clients=2, dimension=3, num_participants=1, iterations=5, attack=attack)
    part, stream = load_part("attacks", kind), make_stream(3, "attack", [0])
    x, noise = np.array([[0.5], [-1.0], [2.0]]), np.array([0.1])
    own = draw_shocks(stream.key, stream.gamma, scenario).own[4, 0]
    expected_x, expected_y = part.poison_sample(attack, x[:, 0].copy(), TARGET @ x[:, 0] + 0.1, own)
    is_byzantine = np.array([[True], [False]])
    options = part.options(attack, scenario)
    call_poison(part.poison.load(), 4, 0, stream.key, stream.gamma, is_byzantine, options, TARGET, x, noise)
    assert np.allclose(x[:, 0], expected_x)
    assert np.allclose(noise[0], expected_y - TARGET @ expected_x)


def test_a_redrawn_set_has_the_right_size_and_reaches_everyone_alike() -> None:
    attack = Attack(num_byzantine=3, probability=1.0, byzantine_set="redrawn")
    scenario = Scenario(num_clients=10, dimension=2, iterations=4000, attack=attack)
    stream = make_stream(5, "attack", [0])
    attacking = draw_shocks(stream.key, stream.gamma, scenario).attacking
    assert (attacking.sum(axis=1) == 3).all()
    assert np.abs(attacking.mean(axis=0) - 0.3).max() < 4.5 * (0.3 * 0.7 / 4000) ** 0.5
    together = (attacking[:, 0] & attacking[:, 1]).mean()
    byzantine, pair = count_byzantine(attack, 10)
    assert np.allclose(byzantine, 0.3)
    assert np.isclose(pair * 0.09, 3 * 2 / 90)
    assert abs(together - 3 * 2 / 90) < 4.5 * (0.0667 * 0.9333 / 4000) ** 0.5


def test_options_of_another_kind_are_refused_by_name() -> None:
    with pytest.raises(
        InvalidValueError, match=r'attack.variance = 0.5 .*"sign-flip" does not read it; it reads scale'
    ):
        Attack(num_byzantine=1, kind="sign-flip", variance=0.5)
    with pytest.raises(InvalidValueError, match=r"attack.deviations"):
        Scenario.from_toml("num_clients = 5\ndimension = 2\n[attack]\nnum_byzantine = 1\ndeviations = 1.0")
    with pytest.raises(UnknownFieldError, match=r"attack.strength .*byzantine_set, variance"):
        Attack(num_byzantine=1, strength=2)
    with pytest.raises(InvalidValueError, match=r"attack.byzantine_set = 'moving'"):
        Attack(num_byzantine=1, byzantine_set="moving")


def test_another_kind_starts_from_its_own_options() -> None:
    scenario = Scenario(num_clients=5, dimension=2, attack=Attack(num_byzantine=1, variance=2.0))
    changed = with_values(scenario, {"attack.kind": "constant-bias"}).attack
    assert changed == Attack(num_byzantine=1, kind="constant-bias", bias=0.5)
    both = with_values(scenario, {"attack.kind": "constant-bias", "attack.bias": 3}).attack
    assert both is not None
    assert both.bias == 3.0
