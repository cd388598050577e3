"""The attackers' frames as plain Python against the plain forms: whatever an attacker is said to know, it is shown."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from psofed.engine.attackers import (
    byzantine_of,
    draw_byzantine,
    first_word,
    group_of,
    make_attackers,
    set_byzantine,
)
from psofed.engine.frames import attack, crafting, poison
from psofed.engine.streams import make_stream
from psofed.parts.contexts import scratch_size
from psofed.parts.plain import corrupt_uploads, poison_sample
from psofed.parts.registry import find_part
from reference.shocks import draw_shocks

sys.path.insert(0, str(Path(__file__).parent))
from plain_frames import CLIENTS, LANES, draw_fleet, normal_at, one_lane, uniform_at

pytestmark = [pytest.mark.engine, pytest.mark.parts]


@pytest.fixture(autouse=True)
def _without_compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def common_normal(key: np.uint64, gamma: np.uint64, n: int, dimension: int, entry: int) -> float:
        return normal_at(key, gamma, (1 << 62) + n * ((dimension + 1) // 2) - 1, entry)

    def attacks_now(key: np.uint64, gamma: np.uint64, word: int, probability: float) -> bool:
        return uniform_at(key, gamma, word) < probability

    for module in (attack, poison):
        monkeypatch.setattr(module, "first_word", first_word.py_func)
        monkeypatch.setattr(module, "attacks_now", attacks_now)
        monkeypatch.setattr(module, "own_normal", normal_at)
        monkeypatch.setattr(module, "group_of", group_of.py_func)
        monkeypatch.setattr(module, "byzantine_of", byzantine_of.py_func)
    monkeypatch.setattr(attack, "common_normal", common_normal)
    with np.errstate(all="ignore"):  # as compiled code does
        yield


def members_seen(known: Any) -> float:
    """A number that depends on who is Byzantine, in this group and in all."""
    return float(11.0 * known.group @ np.arange(1.0, known.group.size + 1) + 13.0 * known.byzantine.sum())


def look_at_all(_: Any, upload: Any) -> float:
    """A number that depends on all that an attacker is shown."""
    found = upload.value + 0.1 * upload.entry + 0.01 * upload.client + 0.001 * upload.iteration
    found += 3.0 * upload.normal + 5.0 * upload.common_normal
    found += members_seen(upload)
    if hasattr(upload, "server"):
        found += 7.0 * upload.server
    for others in ("accomplices", "honest", "accomplice_clients"):
        if hasattr(upload, others):
            # In the order of clients.
            found += sum(number / (place + 2) for place, number in enumerate(getattr(upload, others)))
    return float(found)


def craft_of_all(_: Any, known: Any, out: np.ndarray) -> None:
    """Uploads that depend on all that a conspiracy is shown."""
    assert known.scratch.size >= scratch_size(len(known.honest) + len(known.accomplices), len(known.server))
    known.scratch[:] = np.nan
    assert np.array_equal(out, known.accomplices)
    ranks = np.arange(1.0, len(known.honest) + 1)
    weights = ranks + 0.1 * known.honest_clients
    seen = weights @ known.honest + ranks @ known.honest_shared + 7.0 * known.server + 0.1 * known.entries
    seen += 5.0 * known.common_normals + known.num_clients + 0.1 * known.dimension + 0.01 * known.iteration
    seen += known.memory.sum() + known.accomplices_shared.sum(axis=0)
    seen += members_seen(known) + 17.0 * known.accomplice_clients.sum() + known.client_memory.size
    known.memory[:] += known.honest.sum()
    for a in range(len(out)):
        out[a] = (a + 1.0) * known.accomplices[a] + seen


class Witness:
    """What stands in for an attack in its plain form."""

    def __init__(self, knows: str, memory: int = 0) -> None:
        self.knows, self.memory = knows, memory
        self.corrupt = lambda upload: look_at_all(self, upload)
        self.craft = lambda known, out: craft_of_all(self, known, out)

    def crafts_vectors(self) -> bool:
        return self.knows == "all as vectors"

    def group_memory_size(self, num_clients: int, dimension: int) -> int:
        return self.memory

    def memory_size(self, dimension: int) -> int:
        return 0


FRAMES = {**attack._FRAMES, "all as vectors": crafting.make_crafting_frame}


@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("knows", FRAMES)
def test_an_attacker_is_shown_what_it_is_said_to_know(knows: str, byzantine_set: str) -> None:
    """More than 64 lanes, since bits of so many are looked at together."""
    who = find_part("attack", "gaussian")(num_byzantine=3, probability=0.6, byzantine_set=byzantine_set)
    byzantine, stream = who.byzantine_mask(CLIENTS), make_stream(2, "attack", range(67))
    frame = FRAMES[knows](lambda _: None, craft_of_all if knows == "all as vectors" else look_at_all)
    for size in ((5, 3, 2, 0.0), (4, 4, 1, 0.0), (3, 2, 2, 0.0)):
        dimension = size[1]
        fleet = draw_fleet(size, lanes=67)
        attackers = make_attackers(who, byzantine, stream, np.zeros(0), dimension)
        attackers = attackers._replace(memory=np.arange(67 * 2.0).reshape(67, 2))
        if byzantine_set == "fixed":
            attackers = attackers._replace(everyone=np.arange(CLIENTS))
        else:
            set_byzantine.py_func(draw_byzantine(who, stream, 9, 1, CLIENTS)[0], attackers)
        kept, uploads = attackers.memory.copy(), fleet.uploads()
        frame(0, 9, attackers, fleet.target, fleet.errors, uploads)
        received = fleet.received(uploads)
        for lane in (0, 1, 40, 63, 64, 65, 66):
            shocks = draw_shocks(who, one_lane(stream, lane), byzantine, 10, dimension)
            rows = np.argsort(fleet.clients[:, lane])
            clients = fleet.clients[rows, lane]
            expected = corrupt_uploads(
                Witness(knows, 2), fleet.models[rows, :, lane], shocks.attacking[9, clients],
                server=fleet.server[:, lane], clients=clients, iteration=9, normals=shocks.normals[9, clients],
                common_normals=shocks.common_normals[9], num_clients=CLIENTS, memory=kept[lane],
                group=np.flatnonzero(shocks.byzantine[9]),
                byzantine=np.arange(CLIENTS) if byzantine_set == "fixed" else None,
            )  # fmt: skip
            assert np.allclose(received[rows, :, lane], expected, rtol=1e-12, equal_nan=True)
            if knows == "all as vectors":
                assert np.allclose(attackers.memory[lane], kept[lane])


@pytest.mark.parametrize("knows", attack._GIVEN_FRAMES)
def test_an_attacker_on_large_models_is_shown_the_same(knows: str) -> None:
    fleet, rng = draw_fleet((5, 4, 2, 0.0)), np.random.default_rng(5)
    attacking, normals, common = np.array([0, 1, 0, 1, 1], bool), rng.normal(size=(5, 4)), rng.normal(size=4)
    uploads, server, clients = fleet.models[:, :, 0], fleet.server[:, 0], np.array([1, 2, 4, 5, 6])
    received = uploads.copy()
    frame = attack._GIVEN_FRAMES[knows](lambda _: None, look_at_all)
    group = np.array([1, 2, 3])
    frame(0, np.zeros(0), 9, clients, attacking, group, server, uploads, normals, common, received)
    expected = corrupt_uploads(
        Witness(knows), uploads, attacking, server=server, clients=clients, iteration=9, normals=normals,
        common_normals=common, group=group,
    )  # fmt: skip
    assert np.allclose(received, expected, rtol=1e-12, equal_nan=True)


def test_who_poisons_its_samples_is_shown_what_it_is_said_to_know() -> None:
    def poison_all(_: Any, sample: Any) -> tuple[np.ndarray, float]:
        wrong = sample.inputs + sample.normals * sample.label
        wrong += members_seen(sample)
        return wrong, sample.label + 0.1 * sample.client + 0.01 * sample.iteration

    class Poisoner(NamedTuple):
        poison: Callable

    who = find_part("attack", "label-poisoning")(num_byzantine=3, probability=0.6)
    byzantine, stream = who.byzantine_mask(CLIENTS), make_stream(2, "attack", range(LANES))
    attackers = make_attackers(who, byzantine, stream, np.zeros(0), 3)
    frame, rng = poison._make_frame(lambda _: None, poison_all), np.random.default_rng(3)
    target = np.array([1.0, -2.0, 4.0])
    for k in range(CLIENTS):
        inputs, noise = rng.normal(size=(3, LANES)), rng.normal(size=LANES)
        x, v = inputs.copy(), noise.copy()
        frame(0, 9, k, attackers, target, x, v)
        for lane in range(LANES):
            shocks = draw_shocks(who, one_lane(stream, lane), byzantine, 10, 3)
            wrong, label = inputs[:, lane], target @ inputs[:, lane] + noise[lane]
            if shocks.attacking[9, k]:
                wrong, label = poison_sample(
                    Poisoner(lambda sample: poison_all(None, sample)), wrong, label,
                    normals=shocks.normals[9, k], client=k, iteration=9, group=np.flatnonzero(byzantine),
                )  # fmt: skip
            assert np.allclose(x[:, lane], wrong, rtol=1e-12)
            assert np.allclose(v[lane], label - target @ wrong, rtol=1e-12)
