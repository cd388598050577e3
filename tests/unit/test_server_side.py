"""The memory that the server's parts are given is as large as the largest case needs: compiled code would not tell."""

import numpy as np
import pytest

from psofed import NotCoveredError, Scenario, Selection, draw_fleet
from psofed.engine import momentum
from psofed.engine.server_side import ServerSide
from psofed.engine.streams import make_stream
from psofed.parts import plain
from psofed.parts.attacks import InnerProduct, Mimic
from psofed.parts.contexts import scratch_size
from psofed.parts.defences import Cusum
from psofed.parts.pre_aggregations import Bucketing
from psofed.parts.traffic import Momentum
from psofed.parts.watching import WatchPlan

pytestmark = pytest.mark.engine

LANES = 2
BASE = Scenario(
    num_clients=6, dimension=5, num_participants=3, num_shared=2, aggregation="median",
    pre_aggregation=Bucketing(size=2), attack=InnerProduct(num_byzantine=2, scale=6.0),
    defence=Cusum(threshold=5.0),
)  # fmt: skip
# Participants at most, uploads that are joined, numbers in each, entries that all of them can share together.
SIZES = {
    "one mask for all": ({}, (3, 3, 2, 2)),
    "masks of their own": ({"selection": Selection(coordinated=False)}, (3, 3, 2, 5)),
    "few with masks of their own": (
        {"selection": Selection(coordinated=False), "num_participants": 2},
        (2, 2, 2, 4),
    ),
    "models are sent": ({"algorithm": "online-fed"}, (3, 3, 5, 5)),
    "memories of all": ({"algorithm": "rosdhb", "attack": None}, (3, 6, 5, 5)),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_memory_is_large_enough_for_all_uploads(name: str) -> None:
    changes, (most, joined, numbers, together) = SIZES[name]
    scenario = BASE.replace(**changes)
    streams = [make_stream(0, source, range(LANES)) for source in ("attack", "pre_aggregation", "root")]
    side = ServerSide(
        scenario, draw_fleet(scenario), streams[:1], *streams[1:], numbers, WatchPlan(5.0, np.ones((4, 6)))
    )
    met, memory = min(5, joined * numbers), side.rule.memory
    assert memory.numbers.size >= (joined + 3) * met + scratch_size(joined, met)
    assert memory.flags.size >= joined * met
    assert memory.entry_of.size >= met
    assert memory.counts.size >= max(met, joined)
    assert (memory.row_of == -1).all()
    assert memory.row_of.size == 5

    mixing = side.rule.mixing
    assert mixing.memory.after.tolist() == [-(-p // 2) for p in range(joined + 1)]
    assert mixing.memory.mixed.sent.shape == (mixing.memory.after[-1], together, LANES)
    assert mixing.memory.mixed.entries.shape == (mixing.memory.after[-1], together, LANES)
    assert mixing.memory.mixed.clients.shape == (mixing.memory.after[-1], LANES)
    needed = (
        joined * together
        + together
        + joined
        + mixing.memory.after[-1] * joined
        + scratch_size(joined, together)
    )
    assert mixing.memory.numbers.size >= needed
    assert mixing.memory.flags.size >= joined * together
    assert mixing.memory.row_of.tolist() == [-1] * 5
    assert mixing.num_clients == 6

    seen = min(5, most * numbers)
    assert side.watching.numbers.size >= most * numbers + 4 * most + numbers + most * seen
    assert side.watching.entry_of.size >= seen
    assert side.watching.left.shape == (6, LANES)

    if scenario.attack is None:
        assert not side.attack.on_uploads


def test_there_is_next_to_no_memory_for_what_there_is_not() -> None:
    scenario = BASE.replace(pre_aggregation=None, defence=None, attack=None)
    streams = [make_stream(0, source, range(LANES)) for source in ("attack", "pre_aggregation", "root")]
    side = ServerSide(scenario, draw_fleet(scenario), streams[:1], *streams[1:], 2, None)
    assert (side.defence, side.watching) == (None, None)
    assert not side.rule.mixing.is_on
    assert side.rule.mixing.memory.after.sum() == 0
    assert side.rule.mixing.memory.numbers.size == 0


def test_as_much_may_be_kept_as_is_said_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    each, mimic = Momentum(keep=0.9, take=0.1, absent=1.0), Mimic(num_byzantine=1)
    kept = mimic.group_memory_size(4, 3)
    monkeypatch.setattr(momentum, "MOST_MEMORY", 4 * 3)
    monkeypatch.setattr(plain, "MOST_MEMORY", kept)
    assert momentum.make_memories(each, 4, 3, LANES).values.shape == (4, 3, LANES)
    plain.check_memory(mimic, 4, 3)
    monkeypatch.setattr(momentum, "MOST_MEMORY", 4 * 3 - 1)
    monkeypatch.setattr(plain, "MOST_MEMORY", kept - 1)
    with pytest.raises(
        NotCoveredError, match="needs 12 values of memory for 4 clients and 3 entries; the limit is 11"
    ):
        momentum.make_memories(each, 4, 3, LANES)
    with pytest.raises(NotCoveredError, match=f"with 4 clients and 3 entries keeps {kept} values per trial"):
        plain.check_memory(mimic, 4, 3)
