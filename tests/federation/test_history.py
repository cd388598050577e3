"""The history of a long run: bounded in memory, whole on disk, summarised in one pass."""

import json

import numpy as np
import pytest

from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.server.checkpoint import RECENT_ROUNDS, CheckpointStore, ServerState

pytestmark = pytest.mark.federation


def begin(session="first"):
    arrays = {"0": np.zeros(2)}
    state = ServerState.begin(arrays, ModelLayout.of(arrays), {})
    state.session = session
    return state


def record(number, participants=("north",), **more):
    """Return a round in which all participants were accepted and have read one sample."""
    errors = {"squared-errors": [float(number)], "last-round": number}
    return {
        "round": number,
        "participants": list(participants),
        "accepted": list(participants),
        "values_down": 2,
        "values_up": 1,
        "bytes_up": 8,
        "examples": 1,
        "examples_by_node": dict.fromkeys(participants, 1),
        "remarks": {},
        "reasons": {},
        "seconds": 0.5,
        "metrics": dict.fromkeys(participants, errors),
        **more,
    }


def run_rounds(store, state, last):
    for number in range(state.round_number + 1, last + 1):
        state.round_number = number
        state.add_round({"round": number, "epoch": state.epoch})
        store.save(state)


def rounds_of(store, state):
    return [entry["round"] for entry in store.history.entries(state)]


@pytest.fixture(autouse=True)
def short_files(monkeypatch):
    monkeypatch.setattr("psofed.federation.server.checkpoint.ROUNDS_PER_FILE", 10)


def open_store(path):
    return CheckpointStore(path / "c.npz")


def test_files_have_one_line_per_round_and_the_whole_history_is_read_back(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 25)
    assert [path.name[-15:] for path in sorted(store.history.paths())] == [f"st-00000{n}.jsonl" for n in range(3)]
    lines = min(store.history.paths()).read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines if line] == list(range(1, 11))
    assert rounds_of(store, state) == list(range(1, 26))
    again = open_store(tmp_path)
    loaded = again.load()
    assert loaded.history == state.history
    run_rounds(again, loaded, 31)
    assert rounds_of(again, loaded) == list(range(1, 32))


def test_a_rollback_keeps_the_files_of_earlier_rounds_and_replaces_later_ones(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 45)
    before = {path: path.read_bytes() for path in sorted(store.history.paths())[:3]}
    state = open_store(tmp_path).rollback(38)
    store = open_store(tmp_path)
    state = store.load()
    assert rounds_of(store, state) == list(range(1, 39))
    run_rounds(store, state, 52)
    assert [entry["epoch"] for entry in store.history.entries(state)] == [0] * 38 + [1] * 14
    assert before.items() <= {path: path.read_bytes() for path in store.history.paths()}.items()
    again = open_store(tmp_path)
    assert rounds_of(again, again.load(30)) == list(range(1, 31)), "an earlier checkpoint of an earlier epoch"


def test_a_store_that_is_used_for_another_session_keeps_its_history_whole(tmp_path):
    store = open_store(tmp_path)
    run_rounds(store, begin(), 14)
    state = begin("second")
    run_rounds(store, state, 3)
    assert rounds_of(store, state) == [1, 2, 3]
    assert len(store.history.paths()) == 1


def test_memory_keeps_the_latest_rounds_and_fewer_of_a_large_federation():
    state = begin()
    for number in range(1, 1500):
        state.add_round(record(number))
    assert [state.history[0]["round"], len(state.history)] == [1500 - RECENT_ROUNDS, RECENT_ROUNDS]
    names = [f"node-{k}" for k in range(500)]
    for number in range(1500, 1600):
        state.add_round(record(number, names))
    assert len(state.history) == 40
