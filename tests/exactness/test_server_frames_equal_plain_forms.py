"""The server's frames as plain Python against the plain forms: rules, pre-aggregations and defences."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psofed import Aggregation, PreAggregation
from psofed.engine.bodies import Frame
from psofed.engine.frames import aggregation, defence, pre_aggregation
from psofed.engine.hooks import Uploads, Watching
from psofed.engine.momentum import make_memories, take_in
from psofed.engine.server_steps import move_by_mean
from psofed.engine.streams import Stream, make_stream
from psofed.parts.contexts import scratch_size
from psofed.parts.defences import Cusum
from psofed.parts.plain import LARGEST, combine_uploads, mix_uploads
from psofed.parts.pre_aggregations import Bucketing
from psofed.parts.registry import find_part, part_names
from psofed.parts.traffic import Momentum
from psofed.parts.watching import Watch, WatchPlan

sys.path.insert(0, str(Path(__file__).parent))
from plain_frames import CLIENTS, LANES, Fleet, draw_fleet, forget, frame_of, uniform_at

pytestmark = [pytest.mark.engine, pytest.mark.parts]

# How many participants, entries of the model, entries shared, and which share of the numbers is not usable.
SIZES = [
    (5, 4, 2, 0.0), (5, 4, 2, 0.4), (4, 3, 3, 0.0), (4, 3, 3, 0.4), (1, 3, 2, 0.3), (3, 2, 1, 0.0), (2, 4, 2, 1.0),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _as_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pre_aggregation, "unit_uniform_at", uniform_at)
    with np.errstate(all="ignore"):
        yield


def run_rule(rule: Aggregation, frame: Frame, fleet: Fleet, own_step: np.ndarray) -> np.ndarray:
    participants, shared, _ = fleet.entries.shape
    memory, errors = aggregation.make_memory(participants, shared, len(fleet.target)), fleet.errors.copy()
    forget(memory.numbers, memory.flags, memory.entry_of, memory.counts)
    options = np.array([float(rule.fewest_numbers())])
    frame(0, fleet.target, fleet.uploads(), options, -own_step, memory, errors)
    assert (memory.row_of == -1).all(), "as the next call expects it"
    return fleet.target[:, None] - errors


@pytest.mark.parametrize("kind", part_names("aggregation"))
def test_a_rules_frame_does_what_the_plain_rule_does_within_its_memory(kind: str) -> None:
    rule = find_part("aggregation", kind)()
    frame = frame_of(rule, "combine", aggregation._frame_of(type(rule)))
    for size in SIZES:
        fleet = draw_fleet(size)
        own_step = np.random.default_rng(1).normal(size=fleet.server.shape)
        following = run_rule(rule, frame, fleet, own_step)
        for lane in range(LANES):
            expected = combine_uploads(
                rule, fleet.models[:, :, lane], fleet.server[:, lane], own_step[:, lane]
            )
            assert np.allclose(following[:, lane], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("writes", [True, False])
def test_a_rule_over_vectors_has_the_room_that_it_is_promised_and_may_spoil_it(writes: bool) -> None:
    def mean_change(rule: Aggregation, updates: Any, change: np.ndarray | None = None) -> np.ndarray | None:
        assert updates.changes.size > 0, "it is not asked where nothing was sent"
        assert updates.scratch.size >= scratch_size(*updates.changes.shape)
        updates.scratch[:] = np.nan
        mean = updates.changes.mean(axis=0) + 0.5 * updates.own_step + 0.25 * updates.server
        if change is None:
            return mean
        assert (change == 0.0).all()
        change[:] = mean
        return None

    make = aggregation._frame_that_writes if writes else aggregation._frame_that_returns
    rule = find_part("aggregation", "krum")()
    for size in SIZES:
        fleet = draw_fleet(size)
        own_step = np.random.default_rng(1).normal(size=fleet.server.shape)
        following = run_rule(rule, frame_of(rule, mean_change, make), fleet, own_step)
        usable = np.abs(fleet.models) <= 1e150
        moves = np.where(usable, fleet.models - fleet.server, 0.0)
        answered = usable.any(axis=1).sum(axis=0)
        expected = moves.sum(axis=0) / np.maximum(answered, 1) + 0.5 * own_step + 0.25 * fleet.server
        expected *= usable.any(axis=0) * answered / len(fleet.models)
        assert np.allclose(following, fleet.server + expected, rtol=1e-12)


# --- pre-aggregations --------------------------------------------------------------------------------------------


def run_mix(pre: PreAggregation, frame: Frame, fleet: Fleet, stream: Stream) -> np.ndarray:
    participants, shared, _ = fleet.entries.shape
    dimension = len(fleet.target)
    entries = min(dimension, participants * shared)
    memory = pre_aggregation.make_mix_memory(pre, participants, entries, dimension, LANES)
    forget(memory.numbers, memory.flags, memory.entry_of, *memory.mixed)
    frame(0, 11, CLIENTS, fleet.target, fleet.uploads(), np.zeros(0), stream, memory, fleet.errors)
    assert (memory.row_of == -1).all()
    assert (memory.mixed.clients == np.arange(len(memory.mixed.clients))[:, None]).all()
    return fleet.received(memory.mixed)


@pytest.mark.parametrize("kind", part_names("pre_aggregation"))
def test_the_frame_of_a_pre_aggregation_does_what_the_plain_one_does_within_its_memory(kind: str) -> None:
    pre, stream = find_part("pre_aggregation", kind)(), make_stream(4, "pre_aggregation", range(LANES))
    frame = frame_of(pre, "weigh", pre_aggregation._make_frame)
    for size in SIZES:
        fleet = draw_fleet(size)
        mixed = run_mix(pre, frame, fleet, stream)
        words = stream.words(11 * CLIENTS, CLIENTS) >> np.uint64(11)
        for lane in range(LANES):
            uniforms = words[fleet.clients[:, lane], lane] * 2.0**-53
            expected = mix_uploads(pre, fleet.models[:, :, lane], fleet.server[:, lane], uniforms=uniforms)
            assert np.allclose(mixed[:, :, lane], expected, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_a_pre_aggregation_has_the_room_that_it_is_promised_and_may_spoil_it() -> None:
    def take_all(pre: PreAggregation, updates: Any, weights: np.ndarray) -> None:
        assert updates.changes.size > 0, "it is not asked where nothing was sent"
        assert updates.scratch.size >= scratch_size(*updates.changes.shape)
        updates.scratch[:] = np.nan
        assert (weights == 0.0).all()
        weights[:] = 2.0

    pre, stream = find_part("pre_aggregation", "nnm")(), make_stream(4, "pre_aggregation", range(LANES))
    for size in SIZES:
        fleet = draw_fleet(size)
        mixed = run_mix(pre, frame_of(pre, take_all, pre_aggregation._make_frame), fleet, stream)
        usable = np.abs(fleet.models) <= 1e150
        total = np.where(usable, fleet.models - fleet.server, 0.0).sum(axis=0)
        expected = np.where(usable.any(axis=0), fleet.server + 2.0 * total, np.nan)
        assert np.allclose(mixed, np.broadcast_to(expected, mixed.shape), rtol=1e-12, equal_nan=True)


WATCHED = {
    "by the others": (Cusum(return_after=2), True),
    "by the server": (Cusum(return_after=2, reference="server"), True),
    "for ever": (Cusum(return_after=0), True),
    "estimated": (Cusum(return_after=3), False),
    "estimated by the server": (Cusum(return_after=3, reference="server"), False),
}


def watch_nobody_yet(
    chart: Cusum, plan: WatchPlan, size: tuple[int, int, int, float], lanes: int = LANES
) -> Watching:
    participants, dimension, shared, _ = size
    return defence.make_watching(
        chart, plan, clients=CLIENTS, participants=participants, numbers=shared, dimension=dimension, lanes=lanes
    )  # fmt: skip


@pytest.mark.parametrize("name", WATCHED)
def test_the_frame_of_a_defence_does_what_the_plain_watch_does_within_its_memory(name: str) -> None:
    chart, known = WATCHED[name]
    variance = np.random.default_rng(7).uniform(0.5, 2.0, size=(6, CLIENTS)) if known else np.zeros((0, 0))
    plan, frame = WatchPlan(4.0, variance, 1.3), frame_of(chart, "suspicion", defence._make_frame)
    for size in ((5, 4, 2, 0.3), (4, 3, 3, 0.1), (1, 3, 2, 0.3), (6, 4, 1, 0.0)):
        watching = watch_nobody_yet(chart, plan, size)
        watches, log_levels = [Watch(chart, plan, CLIENTS) for _ in range(LANES)], np.zeros(LANES)
        for n in range(12):
            forget(watching.numbers, watching.entry_of)
            fleet = draw_fleet(size, seed=n)
            fleet.models[:] += 3.0 * (fleet.clients[:, None] == n % 2)
            uploads = fleet.uploads()
            frame(0, n, fleet.errors, uploads, np.zeros(0), watching)
            assert (watching.row_of == -1).all(), "as the next call expects it"
            for lane, watch in enumerate(watches):
                clients = fleet.clients[:, lane]
                out = watch.judge(fleet.models[:, :, lane], fleet.server[:, lane], clients, n)
                silenced = np.where(out[:, None], np.nan, fleet.uploads().sent[:, :, lane])
                assert np.array_equal(uploads.sent[:, :, lane], silenced, equal_nan=True)
                log_levels[lane] += math.log(watch._level) if known else 0.0
        for lane, watch in enumerate(watches):
            for field in ("left", "first", "since", "exclusions"):
                assert np.array_equal(getattr(watching, field)[:, lane], getattr(watch, field))
            assert np.array_equal(watching.finished[:, lane], watch._finished)
            assert np.allclose(watching.memory[:, lane], watch._memory, rtol=1e-9, atol=1e-12)
            assert np.allclose(watching.level[lane], watch._level)
            assert np.allclose(watching.relative[:, lane], watch._relative)
        assert np.allclose(watching.log_levels, log_levels)
        assert watching.exclusions.any() or size[0] == 1


def test_a_peak_of_suspicion_counts_once_it_has_fallen_to_half_of_it() -> None:
    """There the next one begins. Bins are 2 % wide, from 0.01; the last holds all above, none holds what is below."""
    series = [0.5, 2.0, 1.5, 1.01, 3.0, 1.5, 0.5, 0.009, 0.002, 1e30, 0.0, 0.01, 0.0, 7.0, 3.6]
    chart, plan = Cusum(), WatchPlan(math.inf, np.ones((1, CLIENTS)))
    watching = watch_nobody_yet(chart, plan, (1, 1, 1, 0.0), lanes=2)
    frame = frame_of(chart, lambda _, evidence, memory: series[evidence.iteration], defence._make_frame)
    for n in range(len(series)):
        uploads = Uploads(
            np.array([[4, 5]], np.int32),
            np.zeros((1, 1, 2), np.int32),
            np.zeros((1, 1, 2)),
            np.ones(2, np.int64),
        )
        frame(0, n, np.zeros((1, 2)), uploads, np.zeros(0), watching)
    peaks = [3.0, 1.5, 0.5, 1e30, 0.01]
    bins = [min(int(math.log(peak / 0.01) / math.log(1.02)), 1399) for peak in peaks]
    expected = np.bincount(bins, minlength=1400)
    assert np.array_equal(watching.peaks, np.repeat(expected[:, None], 2, axis=1))
    assert watching.peak[[4, 5], [0, 1]].tolist() == [7.0, 7.0]
    assert watching.peak.sum() == 14.0


# --- the largest number ------------------------------------------------------------------------------------------

ABOVE = np.nextafter(LARGEST, np.inf)
# Errors are these with the other sign, exactly, since target and server are zero.
EXTREMES = Fleet(
    np.zeros(1), np.zeros((1, 1)), np.arange(4, dtype=np.int32)[:, None], np.zeros((4, 1, 1), np.int32),
    np.array([LARGEST, ABOVE, -LARGEST, 1.0])[:, None, None],
)  # fmt: skip
ARRIVED = [LARGEST, -LARGEST, 1.0]


@pytest.mark.parametrize("agreed", [LARGEST, -LARGEST, ABOVE])
@pytest.mark.parametrize("over", ["entries", "vectors, written", "vectors, returned"])
def test_the_largest_number_counts_as_sent_and_may_be_agreed_on_and_none_above(
    over: str, agreed: float
) -> None:
    seen = []

    def combine(rule: Any, given: Any, change: np.ndarray | None = None) -> Any:
        seen.extend(given.values if over == "entries" else given.changes[:, 0])
        if change is not None:
            change[:] = agreed
        return agreed if over == "entries" else np.array([agreed])

    frames = {
        "entries": aggregation._make_frame_over_entries,
        "vectors, written": aggregation._frame_that_writes,
        "vectors, returned": aggregation._frame_that_returns,
    }
    rule = find_part("aggregation", "median")(quorum=1)
    following = run_rule(rule, frame_of(rule, combine, frames[over]), EXTREMES, np.zeros((1, 1)))
    assert seen == ARRIVED
    assert following[0, 0] == (0.75 * agreed if abs(agreed) <= LARGEST else 0.0)


def test_the_largest_number_is_mixed_and_none_above() -> None:
    """Also where it is all that was sent."""
    seen = []

    def look(pre: Any, updates: Any, weights: np.ndarray) -> None:
        seen.append((updates.shared[:, 0].tolist(), updates.changes[:, 0].tolist()))

    memory = pre_aggregation.make_mix_memory(Bucketing(size=1), 4, 1, 1, 1)
    frame, stream = pre_aggregation._make_frame(lambda _: None, look), make_stream(4, "pre_aggregation", [0])
    alone = Uploads(*(array[:1] for array in EXTREMES.uploads()[:3]), np.ones(1, np.int64))
    for uploads in (EXTREMES.uploads(), alone):
        frame(0, 0, 4, np.zeros(1), uploads, np.zeros(0), stream, memory, np.zeros((1, 1)))
    assert seen == [([True, False, True, True], [LARGEST, 0.0, -LARGEST, 1.0]), ([True], [LARGEST])]


def test_the_largest_number_is_watched_as_sent_and_none_above() -> None:
    chart, plan = Cusum(), WatchPlan(4.0, np.ones((1, CLIENTS)))
    watching, watch = watch_nobody_yet(chart, plan, (4, 1, 1, 0.0), lanes=1), Watch(chart, plan, CLIENTS)
    frame = frame_of(chart, "suspicion", defence._make_frame)
    frame(0, 0, np.zeros((1, 1)), EXTREMES.uploads(), np.zeros(0), watching)
    watch.judge(EXTREMES.models[:, :, 0], np.zeros(1), np.arange(4), 0)
    assert np.array_equal(watching.left[:, 0], watch.left)
    assert np.allclose(watching.memory[:, 0], watch._memory, rtol=1e-9)


def test_the_largest_number_moves_means_and_memories_and_none_above() -> None:
    server = np.zeros((1, 1))
    move_by_mean.py_func(EXTREMES.uploads(), server, np.empty((1, 1)))
    assert server[0, 0] == -0.25
    memories = make_memories(Momentum(keep=0.5, take=2.0, absent=0.75), CLIENTS, 1, 1)
    memories.values[:] = 8.0
    take_in.py_func(memories, EXTREMES.clients, EXTREMES.models)
    assert memories.values[:, 0, 0].tolist() == [2 * LARGEST, 6.0, -2 * LARGEST, 6.0, 6.0, 6.0, 6.0]
    assert (memories.place == -1).all()
