"""The history of a long run: bounded in memory, whole on disk, summarised in one pass."""

import gzip
import json

import numpy as np
import pytest
from flwr.app import ArrayRecord

from psofed.federation.deploy.summary import MOST_POINTS, RunSummary
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.history import RECENT_ROUNDS
from psofed.federation.server.sessions import new_session

pytestmark = pytest.mark.federation


def begin(session="first"):
    arrays = ArrayRecord([np.zeros(2)])
    state = new_session(arrays, ModelLayout.of(arrays, ("*",), ()), {})
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


def open_store(path):
    return CheckpointStore(path / "c.npz", rounds_per_file=10)


def test_complete_files_are_compressed_and_the_whole_history_is_read_back(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 25)
    assert [path.name[-15:] for path in store.history.paths()] == [
        "000000.jsonl.gz",
        "000001.jsonl.gz",
        "-0-000002.jsonl",
    ]
    assert rounds_of(store, state) == list(range(1, 26))
    again = open_store(tmp_path)
    loaded = again.load()
    assert loaded.history == state.history
    run_rounds(again, loaded, 31)
    assert rounds_of(again, loaded) == list(range(1, 32))


def test_a_rollback_keeps_the_files_of_earlier_rounds_and_rewrites_its_own(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 45)
    before = {path: path.read_bytes() for path in store.history.paths()[:3]}
    state = open_store(tmp_path).rollback(38)
    store = open_store(tmp_path)
    state = store.load()
    assert rounds_of(store, state) == list(range(1, 39))
    run_rounds(store, state, 52)
    assert [entry["epoch"] for entry in store.history.entries(state)] == [0] * 38 + [1] * 14
    assert before.items() <= {path: path.read_bytes() for path in store.history.paths()}.items()
    again = open_store(tmp_path)
    assert rounds_of(again, again.load(30)) == list(range(1, 31)), "an earlier checkpoint of an earlier epoch"


def test_a_single_file_of_an_older_version_is_read_on(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 9)
    (path,) = store.history.paths()
    path.rename(tmp_path / "c.history-first-0.jsonl")
    store = open_store(tmp_path)
    state = store.load()
    run_rounds(store, state, 23)
    assert rounds_of(store, state) == list(range(1, 24))


def test_memory_keeps_the_latest_rounds_and_fewer_of_a_large_federation():
    state = begin()
    for number in range(1, 1500):
        state.add_round(record(number))
    assert [state.history[0]["round"], len(state.history)] == [1500 - RECENT_ROUNDS, RECENT_ROUNDS]
    names = [f"node-{k}" for k in range(500)]
    for number in range(1500, 1600):
        state.add_round(record(number, names))
    assert len(state.history) == 40


def test_a_compressed_file_has_one_line_per_round(tmp_path):
    store, state = open_store(tmp_path), begin()
    run_rounds(store, state, 11)
    lines = gzip.decompress(store.history.paths()[0].read_bytes()).decode().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, 11))


def test_a_summary_has_every_round_of_a_short_run():
    summary = RunSummary(3)
    late = {"squared-errors": [4.0, 9.0, 16.0], "last-round": 3}
    for entry in (record(1), record(2), record(3, ("north", "south"))):
        if entry["round"] == 3:
            entry["metrics"] = {"north": entry["metrics"]["north"], "south": late}
        summary.add(entry)
    curve = summary.learning_curve()
    assert curve["round"] == [1, 2, 3]
    assert curve["network_mse"] == [(1 + 4) / 2, (2 + 9) / 2, (3 + 16) / 2]
    assert curve["clients_reporting"] == [2, 2, 2]
    assert curve["server_msd"] == [None] * 3
    assert summary.nodes["south"]["rounds"] == 1


def test_a_node_cannot_report_on_a_round_twice_nor_on_the_future():
    summary = RunSummary(2)
    greedy = {"squared-errors": [1e308] * 3, "last-round": 4}
    summary.add(record(1))
    summary.add(record(2, metrics={"north": greedy}))
    assert summary.learning_curve()["network_mse"] == [1.0, 1e308]


def test_a_long_run_is_averaged():
    rounds = 2 * MOST_POINTS + 1
    summary = RunSummary(rounds)
    for number in range(1, rounds + 1):
        summary.add(record(number))
    curve = summary.learning_curve()
    assert summary.width == 3
    assert len(curve["round"]) == -(-rounds // 3)
    assert curve["network_mse"][0] == 2.0
    assert curve["round"][-1] == rounds
    assert sum(curve["values_up"]) == rounds
