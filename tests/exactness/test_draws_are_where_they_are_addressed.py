"""Every draw is made of the words that its iteration, client and entry say, read from the streams literally.

References share the engine's draws, so they do not tell when one is taken from elsewhere.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psofed import Data, Scenario, draw_fleet
from psofed.engine import server_model_kernel
from psofed.engine.frames import drift, selection
from psofed.engine.frames.drift import draw_direction
from psofed.engine.frames.selection import Selector
from psofed.engine.inputs import make_input_model
from psofed.engine.normals import fill_standard_normal
from psofed.engine.participation import draw_participants
from psofed.engine.streams import Stream, make_stream
from psofed.parts.attacks import Gaussian
from psofed.parts.contexts import Mask
from psofed.parts.registry import find_part, part_names
from reference.shocks import draw_shocks

sys.path.insert(0, str(Path(__file__).parent))
from plain_engine import run_as_python

pytestmark = pytest.mark.engine

LANES = 3


def words_of(stream: Stream, lane: int, first: int, count: int) -> list[int]:
    return [int(word) for word in stream.words(first, count)[:, lane]]


def normals_of(stream: Stream, lane: int, first: int, count: int) -> np.ndarray:
    """The first `count` normals of the words from `first` on, two of each."""
    out = np.empty((count + count % 2, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, first, out)
    return out[:count, lane].astype(np.float64)


def half_uniform(key: Any, gamma: Any, number: int) -> float:
    return (words_of(Stream(np.array([key]), np.array([gamma])), 0, int(number), 1)[0] >> 32) * 2.0**-32


def shuffled(words: list[int], size: int) -> list[int]:
    """What a shuffle of 0 … size − 1 that is broken off after ``len(words)`` swaps brings to the front."""
    numbers = list(range(size))
    for c, word in enumerate(words):
        place = c + ((word >> 32) * (size - c) >> 32)
        numbers[c], numbers[place] = numbers[place], numbers[c]
    return numbers[: len(words)]


@pytest.mark.parametrize("lanes", [LANES, 32])
@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 3), (7, 7), (40, 24), (40, 30)])
def test_participants_are_a_shuffle_by_the_words_of_their_iteration(
    size: int, count: int, lanes: int
) -> None:
    stream, drawn = make_stream(4, "participation", range(lanes)), np.empty((4, count, lanes), np.int32)
    draw_participants(stream.key, stream.gamma, 5, size, drawn)
    for t in range(4):
        for lane in range(lanes):
            expected = shuffled(words_of(stream, lane, (5 + t) * count, count), size)
            assert drawn[t, :, lane].tolist() == expected


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
        assert np.array_equal(
            shocks.common_normals[n], normals_of(stream, 0, (1 << 62) + n * pairs, dimension)
        )
        for k in range(6):
            word = (n * 6 + k) * (1 + pairs)
            comes = (words_of(stream, 0, word, 1)[0] >> 11) * 2.0**-53 < 0.4
            assert shocks.attacking[n, k] == (byzantine[k] and comes)
            assert np.array_equal(shocks.normals[n, k], normals_of(stream, 0, word + 1, dimension))


@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize("kind", part_names("pattern"))
def test_masks_are_chosen_by_the_words_of_iteration_and_client(kind: str, coordinated: bool) -> None:
    pattern, stream = find_part("pattern", kind)(), make_stream(4, "masks", range(LANES))
    clients = np.array([[[0, 1, 2], [3, 3, 4]], [[1, 0, 4], [2, 2, 2]]], np.int32)
    drawn = Selector(pattern, coordinated, stream, 5, 6, 3).draw(9, 2, clients)
    for t, p, lane in np.ndindex(2, 2, LANES):
        client, chosen = 0 if coordinated else int(clients[t, p, lane]), np.zeros(3, np.int64)
        number = 9 + t if coordinated else (9 + t) * 5 + client
        words = words_of(stream, lane, number * 3, 3)
        own = words_of(stream, lane, client, 1)[0]
        uniforms = np.array([(word >> 32) * 2.0**-32 for word in words])
        pattern.select(Mask(9 + t, client, 6, 3, uniforms, (own >> 32) * 2.0**-32), chosen)
        assert drawn[t, p, :, lane].tolist() == chosen.tolist()


@pytest.mark.parametrize("coordinated", [True, False])
def test_a_pattern_is_shown_what_it_is_said_to_know(
    monkeypatch: pytest.MonkeyPatch, coordinated: bool
) -> None:
    monkeypatch.setattr(selection, "half_uniform_at", half_uniform)
    seen = []

    def select(_: Any, mask: Mask, chosen: np.ndarray) -> None:
        seen.append(mask._replace(uniforms=mask.uniforms.tolist()))
        chosen[:] = len(seen), 0

    stream, out = make_stream(4, "masks", range(LANES)), np.zeros((2, 3, 2, LANES), np.int32)
    clients = np.arange(2 * 3 * LANES, dtype=np.int32).reshape(2, 3, LANES) % 7
    scratch = np.empty((2, LANES)), np.empty(2), np.empty(2, int)
    selection._make_frame(lambda _: None, select)(
        0, np.zeros(0), 9, stream, clients, 7, 6, coordinated, *scratch, out
    )
    expected = []
    for t, p, lane in np.ndindex(2, 3, LANES):
        if coordinated and p > 0:
            assert out[t, p, 0, lane] == out[t, 0, 0, lane]
            continue
        client = 0 if coordinated else int(clients[t, p, lane])
        number = 9 + t if coordinated else (9 + t) * 7 + client
        own = stream.key[lane], stream.gamma[lane]
        uniforms = [half_uniform(*own, number * 2 + m) for m in range(2)]
        expected.append(Mask(9 + t, client, 6, 2, uniforms, half_uniform(*own, client)))
        assert out[t, p, :, lane].tolist() == [len(expected), 0]
    assert seen == expected


@pytest.mark.parametrize("dimension", [1, 3, 4])
def test_a_drift_is_shown_what_it_is_said_to_know(monkeypatch: pytest.MonkeyPatch, dimension: int) -> None:
    """The first words are the direction's, those after them the steps', two entries to a word."""
    stream, half = make_stream(4, "drift", range(LANES)), (dimension + 1) // 2

    def normals_at(key: np.uint64, gamma: np.uint64, number: int) -> tuple[float, ...]:
        return tuple(normals_of(Stream(np.array([key]), np.array([gamma])), 0, int(number), 2))

    def move(_: Any, step: Any) -> np.ndarray:
        return 0.5 * step.position + step.normals + 3.0 * step.direction + step.iteration

    monkeypatch.setattr(drift, "normals_at", normals_at)
    direction = draw_direction(stream, dimension)
    position, out = np.zeros((dimension, LANES)), np.empty((4, dimension, LANES))
    frame = drift._make_frame(lambda _: None, move)
    frame(0, np.zeros(0), 0, stream, direction, position, out[:3])
    frame(0, np.zeros(0), 3, stream, direction, position, out[3:])
    for lane in range(LANES):
        unit, stands = normals_of(stream, lane, 0, dimension), np.zeros(dimension)
        assert np.allclose(direction[:, lane], unit / np.linalg.norm(unit), rtol=1e-12)
        for n in range(4):
            normals = normals_of(stream, lane, (n + 1) * half, dimension)
            stands = 0.5 * stands + normals + 3.0 * direction[:, lane] + n
            assert np.allclose(out[n, :, lane], stands, rtol=1e-12)
    assert np.array_equal(position, out[3])


@pytest.mark.parametrize(("normals", "uniforms", "each"), [(3, 2, 2), (4, 1, 0), (0, 3, 1), (2, 0, 3)])
def test_an_algorithm_draws_normals_then_uniforms_then_what_is_each_clients_own(
    normals: int, uniforms: int, each: int
) -> None:
    """No algorithm of psofed's own has all three."""
    stream, pairs = make_stream(4, "algorithm", range(LANES)), (normals + 1) // 2
    words, clients = 40, np.array([[0, 2, 1], [4, 1, 3]], np.int32)
    found = [np.empty((size, LANES)) for size in (normals, uniforms)]
    own = np.empty((2, each, LANES))
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        run_as_python(patch)
        server_model_kernel._draw_shared(9, stream.key, stream.gamma, words, *found)
        server_model_kernel._draw_per_client(
            9, stream.key, stream.gamma, words, pairs + uniforms, clients, own
        )
    for lane in range(LANES):
        drawn = [(word >> 11) * 2.0**-53 for word in words_of(stream, lane, 9 * words, words)]
        assert np.allclose(found[0][:, lane], normals_of(stream, lane, 9 * words, normals), rtol=1e-6)
        assert found[1][:, lane].tolist() == drawn[pairs : pairs + uniforms]
        for p, k in enumerate(clients[:, lane]):
            first = pairs + uniforms + k * each
            assert own[p, :, lane].tolist() == drawn[first : first + each]


def test_inputs_have_the_covariances_that_were_given(small_scenario: Scenario) -> None:
    """C_k C_kᵀ = R_k with C_k lower triangular, also where R_k is singular; references draw with the same C_k."""
    rng = np.random.default_rng(2)
    roots = [rng.normal(size=(4, 4)) for _ in range(5)] + [rng.normal(size=(4, 2)), np.eye(4)[:, :1]]
    covariances = [root @ root.T for root in roots]
    model = make_input_model(draw_fleet(small_scenario.replace(data=Data(covariances=covariances))))
    for factor, covariance in zip(model.factors, covariances, strict=True):
        assert np.allclose(factor @ factor.T, covariance, rtol=1e-9, atol=1e-12)
        assert np.array_equal(factor, np.tril(factor))
