"""Comparison algorithms on cases small enough to work by hand."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from psofed import Algorithm, InvalidValueError, Scenario
from psofed.common.options import option
from psofed.parts.algorithms import CSFed, OnlineFed, QSFed, SignSGD
from psofed.parts.contexts import Message, Received
from psofed.parts.registry import find_part, part_names
from psofed.parts.traffic import Traffic, spend_budget
from psofed.results.traffic import measure_communication
from reference.literal import run_trial

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from few_trials import advance

pytestmark = [pytest.mark.parts, pytest.mark.engine]

NOTHING = np.zeros(0)


def scenario(algorithm: Algorithm) -> Scenario:
    return Scenario(num_clients=10, dimension=5, algorithm=algorithm)


def encode(algorithm: Algorithm, update: np.ndarray, numbers: int, **random: np.ndarray) -> np.ndarray:
    """What a client sends, with μ = 0.1."""
    drawn = {"normals": NOTHING, "uniforms": NOTHING, "client_uniforms": NOTHING, **random}
    out = np.full(numbers, np.nan)
    algorithm.encode(Message(update, 0.1, **drawn), out)
    return out


def apply(
    algorithm: Algorithm, numbers: np.ndarray, dimension: int, participants: int = 1,
    uniforms: np.ndarray = NOTHING,
) -> np.ndarray:  # fmt: skip
    """The change of the model by what was joined, with μ = 0.1."""
    out = np.full(dimension, np.nan)
    algorithm.apply(Received(numbers, participants, 0.1, NOTHING, uniforms), NOTHING, out)
    return out


def test_signs_and_votes_by_hand() -> None:
    updates = np.array([[0.3, -0.2], [0.1, -0.1], [-0.5, 0.0]])
    sent = np.array([encode(SignSGD(signs="deterministic"), update, 2) for update in updates])
    assert sent.tolist() == [[1, -1], [1, -1], [-1, 1]]
    votes = {"majority": [0.1, -0.1], "mean": [0.1 / 3, -0.1 / 3]}
    for vote, expected in votes.items():
        assert np.allclose(apply(SignSGD(vote=vote), sent.mean(axis=0), 2, participants=3), expected)


def test_a_tie_of_signs_moves_nothing() -> None:
    assert apply(SignSGD(), np.zeros(1), 1, participants=2).tolist() == [0.0]


@pytest.mark.parametrize(("gradient", "probability"), [(0.0, 0.5), (1.5, 0.75), (-3.0, 0.0), (7.0, 1.0)])
def test_stochastic_signs_have_the_stated_probability(gradient: float, probability: float) -> None:
    grid = (np.arange(1000) + 0.5) / 1000
    sent = encode(SignSGD(bound=3.0), np.full(1000, 0.1 * gradient), 1000, client_uniforms=grid)
    assert np.mean(sent > 0) == pytest.approx(probability, abs=1e-3)


def test_many_measurements_recover_an_update() -> None:
    rng = np.random.default_rng(0)
    update, phi = rng.standard_normal(3), rng.standard_normal(2000 * 3)
    algorithm, decoded = CSFed(measurements=2000, decoding_steps=20), np.empty(3)
    sent = encode(algorithm, update, 2001, normals=phi)
    assert set(sent[:-1]) == {-1.0, 1.0}
    assert np.isclose(sent[-1], np.linalg.norm(update))
    algorithm.decode(Received(sent, 1, 0.1, phi, NOTHING), decoded)
    assert np.linalg.norm(decoded - update) < 0.02 * np.linalg.norm(update)


def test_a_wide_sketch_without_collisions_is_exact_and_keeps_the_largest() -> None:
    # One row, four columns; entry j hashed to column j, signs alternate.
    uniforms = np.array([0.1, 0.2, 0.3, 0.7, 0.6, 0.2, 0.9, 0.7])
    algorithm = QSFed(rows=1, columns=4, top=2)
    sent = encode(algorithm, np.array([0.5, -2.0, 1.0, 0.1]), 4, uniforms=uniforms)
    assert sent.tolist() == [0.5, 2.0, 1.0, -0.1]
    assert apply(algorithm, sent, 4, uniforms=uniforms).tolist() == [0.0, -2.0, 1.0, 0.0]


def test_fewer_participants_or_fewer_exchanges_cost_the_same() -> None:
    often, seldom = (scenario(OnlineFed(budget=b)) for b in ("fewer-participants", "fewer-exchanges"))

    def exchanges(of: Scenario) -> list[int]:
        return [of.algorithm.traffic(of).exchanges_in(n) for n in range(6)]

    assert exchanges(seldom) == [0, 0, 0, 0, 5, 0]
    assert exchanges(often) == [1, 1, 1, 1, 1, 1]
    assert exchanges(often.replace(num_participants=3)) == [0, 1, 0, 1, 1, 0]
    assert measure_communication(often).bits_up == measure_communication(seldom).bits_up == 320


def test_bits_of_the_compressed_uploads() -> None:
    per_iteration = {part.kind: measure_communication(scenario(part)).bits_up for part in (SignSGD(), CSFed(), QSFed())}
    # Five participants in one of five iterations: D bits; q bits and a number; r·c numbers.
    assert per_iteration == {"signsgd": 5, "cs-fed": 16 + 64, "qs-fed": 5 * 64}


def test_a_sketch_larger_than_the_model_is_sent_less_often() -> None:
    large = measure_communication(scenario(QSFed(rows=5, columns=4)))
    assert large.bits_up == 320
    assert large.bits_down == 80
    assert QSFed(rows=5, columns=4).traffic(scenario(QSFed(rows=5, columns=4))).exchanges_before(40) == 2 * 5


@pytest.mark.parametrize("name", [n for n in part_names("algorithm") if not find_part("algorithm", n).holds_models])
def test_a_redrawn_uplink_is_refused_where_clients_hold_no_model(name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"uplink.*{name}"):
        Scenario(num_clients=10, dimension=5, algorithm=name, uplink="redrawn")


@pytest.fixture(scope="module")
def costing() -> type[Algorithm]:
    """Online-Fed at another price; of this file only."""

    class Costing(OnlineFed):
        bits: int = option(default=320)
        group: int = option(default=5)

        def traffic(self, scenario: Scenario) -> Traffic:
            return spend_budget(scenario, bits_up=self.bits, bits_down=self.bits, group=self.group)

    return Costing


TOO_MANY = r'exchanges of algorithm "costing" must be at most 10 per iteration \(num_clients; .*\); got {}'


@pytest.mark.parametrize(
    ("bits", "group", "words"),
    [
        (1, 5, TOO_MANY.format(320)),
        (22, 5, TOO_MANY.format(15)),
        (320, 1000, TOO_MANY.format(1000)),
        (0, 5, r"traffic\.bits_up or bits_down must be at least 1"),
        (320, 0, r"traffic\.group must be at least 1"),
    ],
)
def test_more_exchanges_than_clients_are_refused(
    costing: Callable[..., Algorithm], bits: int, group: int, words: str
) -> None:
    with pytest.raises(InvalidValueError, match=words):
        scenario(costing(bits=bits, group=group))


def test_a_cheap_exchange_is_made_by_more_clients_than_participate(costing: Callable[..., Algorithm]) -> None:
    """Ten pay half of what five would have."""
    cheap = scenario(costing(bits=32)).replace(iterations=12)
    assert cheap.algorithm.most_participants(cheap) == 10
    found, _ = advance(cheap, 0, 12)
    assert np.allclose(found[:, 1, 0], run_trial(cheap, 0, 0).server_msd, rtol=1e-9)
