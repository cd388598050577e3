"""Every draw is made of the words that its iteration, client and entry say, read from the streams literally.

References share the engine's draws, so they do not tell when one is taken from elsewhere.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from psofed import Data, Scenario, Selection, draw_fleet
from psofed.engine import draws
from psofed.engine.draws import draw_direction, draw_participants
from psofed.engine.learning import InputModel
from psofed.engine.normals import fill_standard_normal
from psofed.engine.streams import Stream, make_stream
from psofed.parts.attacks import Gaussian
from psofed.parts.contexts import Mask
from psofed.parts.registry import find_part, part_names
from reference.shocks import draw_shocks

pytestmark = pytest.mark.engine

LANES = 3


def words_of(stream: Stream, lane: int, first: int, count: int) -> list[int]:
    return [int(word) for word in stream.words(first, count)[:, lane]]


def normals_of(stream: Stream, lane: int, first: int, count: int) -> np.ndarray:
    """The first `count` normals of the words from `first` on, two of each."""
    out = np.empty((count + count % 2, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, first, out)
    return out[:count, lane].astype(np.float64)


def half_uniform(stream: np.ndarray, lane: int, number: int) -> float:
    return (words_of(Stream(*stream), lane, int(number), 1)[0] >> 32) * 2.0**-32


def shuffled(words: list[int], size: int) -> list[int]:
    """What a shuffle of 0 … size − 1 that is broken off after ``len(words)`` swaps brings to the front."""
    numbers = list(range(size))
    for c, word in enumerate(words):
        place = c + ((word >> 32) * (size - c) >> 32)
        numbers[c], numbers[place] = numbers[place], numbers[c]
    return numbers[: len(words)]


@pytest.mark.parametrize("lanes", [LANES, 32])
@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 3), (7, 7), (40, 24), (40, 30)])
def test_participants_are_a_shuffle_by_the_words_of_their_iteration(size: int, count: int, lanes: int) -> None:
    stream = make_stream(4, "participation", range(lanes))
    drawn = draw_participants(stream, 5, 4, size, count)
    for t in range(4):
        for lane in range(lanes):
            expected = shuffled(words_of(stream, lane, (5 + t) * count, count), size)
            assert drawn[t, lane].tolist() == expected


@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("dimension", [1, 3, 4])
def test_attacks_are_by_the_words_of_iteration_client_and_entry(dimension: int, byzantine_set: str) -> None:
    """One word for whether it attacks, and one for the normals of two entries; those of all are far away."""
    attack = Gaussian(num_byzantine=3, probability=0.4, byzantine_set=byzantine_set)
    stream, byzantine, pairs = make_stream(4, "attack", [7]), np.arange(6) < 3, (dimension + 1) // 2
    shocks = draw_shocks(attack, stream, byzantine, 30, dimension)
    for n in range(30):
        if byzantine_set == "redrawn":
            chosen = shuffled(words_of(stream, 0, (1 << 63) + n * 3, 3), 6)
            byzantine = np.isin(np.arange(6), chosen)
        assert np.array_equal(shocks.common_normals[n], normals_of(stream, 0, (1 << 62) + n * pairs, dimension))
        for k in range(6):
            word = (n * 6 + k) * (1 + pairs)
            comes = (words_of(stream, 0, word, 1)[0] >> 11) * 2.0**-53 < 0.4
            assert shocks.attacking[n, k] == (byzantine[k] and comes)
            assert np.array_equal(shocks.normals[n, k], normals_of(stream, 0, word + 1, dimension))


@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize("kind", part_names("pattern"))
def test_masks_are_chosen_by_the_words_of_iteration_and_client(kind: str, coordinated: bool) -> None:
    pattern, stream = find_part("pattern", kind)(), make_stream(4, "masks", range(LANES))
    clients = np.array([[[0, 3], [1, 3], [2, 4]], [[1, 2], [0, 2], [4, 2]]], np.int32)
    selection = Selection(pattern=pattern, coordinated=coordinated)
    scenario = Scenario(num_clients=5, dimension=6, num_shared=3, selection=selection)
    drawn = draws.draw_masks(scenario, np.array(stream), 9, 2, clients)
    assert drawn.shape == (2, LANES, 1 if coordinated else 2, 3)
    for t, p, lane in np.ndindex(2, drawn.shape[2], LANES):
        client, chosen = 0 if coordinated else int(clients[t, lane, p]), np.zeros(3, np.int64)
        number = 9 + t if coordinated else (9 + t) * 5 + client
        words = words_of(stream, lane, number * 3, 3)
        own = words_of(stream, lane, client, 1)[0]
        uniforms = np.array([(word >> 32) * 2.0**-32 for word in words])
        pattern.select(Mask(9 + t, client, 6, 3, uniforms, (own >> 32) * 2.0**-32), chosen)
        assert drawn[t, lane, p].tolist() == chosen.tolist()


@pytest.mark.parametrize("coordinated", [True, False])
def test_a_pattern_is_shown_what_it_is_said_to_know(monkeypatch: pytest.MonkeyPatch, coordinated: bool) -> None:
    monkeypatch.setattr(draws, "half_uniform_at", half_uniform)
    seen = []

    def select(_options: Any, _memory: Any, mask: Mask, chosen: np.ndarray) -> None:
        seen.append(mask._replace(uniforms=mask.uniforms.tolist()))
        chosen[:] = len(seen), 0

    stream = np.array(make_stream(4, "masks", range(LANES)))
    out = np.zeros((2, LANES, 1 if coordinated else 3, 2), np.int32)
    clients = np.arange(2 * 3 * LANES, dtype=np.int32).reshape(2, LANES, 3) % 7
    known = {"dimension": 6, "num_clients": 7, "coordinated": coordinated, "options": None}
    scratch = {"uniforms": np.empty(2), "chosen": np.zeros(2, np.int64)}
    table = SimpleNamespace(stream=stream, clients=clients, entries=out, **scratch, **known)
    draws._draw_masks(select, 9, 0, 0, table)
    expected = []
    for t, lane, p in np.ndindex(out.shape[:3]):
        client = 0 if coordinated else int(clients[t, lane, p])
        number = 9 + t if coordinated else (9 + t) * 7 + client
        uniforms = [half_uniform(stream, lane, number * 2 + m) for m in range(2)]
        expected.append(Mask(9 + t, client, 6, 2, uniforms, half_uniform(stream, lane, client)))
        assert out[t, lane, p].tolist() == [len(expected), 0]
    assert seen == expected


@pytest.mark.parametrize("dimension", [1, 3, 4])
def test_a_drift_is_shown_what_it_is_said_to_know(monkeypatch: pytest.MonkeyPatch, dimension: int) -> None:
    """The first words are the direction's, those after them the steps', two entries to a word."""
    stream, half = make_stream(4, "drift", range(LANES)), (dimension + 1) // 2

    def normals_at(words: np.ndarray, lane: int, number: int) -> tuple[float, ...]:
        return tuple(normals_of(Stream(*words), lane, int(number), 2))

    def move(_options: Any, _memory: Any, step: Any) -> np.ndarray:
        return 0.5 * step.position + step.normals + 3.0 * step.direction + step.iteration

    monkeypatch.setattr(draws, "normals_at", normals_at)
    direction = draw_direction(stream, dimension)
    position, out = np.zeros((dimension, LANES)), np.empty((4, dimension, LANES))
    known = {"stream": np.array(stream), "direction": direction, "position": position, "options": None}
    for first, moves in ((0, out[:3]), (3, out[3:])):
        draws._draw_moves(move, first, 0, 0, SimpleNamespace(moves=moves, **known))
    for lane in range(LANES):
        unit, stands = normals_of(stream, lane, 0, dimension), np.zeros(dimension)
        assert np.allclose(direction[:, lane], unit / np.linalg.norm(unit), rtol=1e-12)
        for n in range(4):
            normals = normals_of(stream, lane, (n + 1) * half, dimension)
            stands = 0.5 * stands + normals + 3.0 * direction[:, lane] + n
            assert np.allclose(out[n, :, lane], stands, rtol=1e-12)
    assert np.array_equal(position, out[3])


def test_inputs_have_the_covariances_that_were_given(small_scenario: Scenario) -> None:
    """C_k C_kᵀ = R_k with C_k lower triangular, also where R_k is singular; references draw with the same C_k."""
    rng = np.random.default_rng(2)
    roots = [rng.normal(size=(4, 4)) for _ in range(5)] + [rng.normal(size=(4, 2)), np.eye(4)[:, :1]]
    covariances = [root @ root.T for root in roots]
    model = InputModel(draw_fleet(small_scenario.replace(data=Data(covariances=covariances))))
    for factor, covariance in zip(model.factors, covariances, strict=True):
        assert np.allclose(factor @ factor.T, covariance, rtol=1e-9, atol=1e-12)
        assert np.array_equal(factor, np.tril(factor))
