"""The server with nodes in this process: rounds, bad replies, lost state, checkpoints."""

import json
import logging
import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodes import Adder, change_reply, fast_time, make_hub, make_node, perturbing, run, spoil

from psofed.aggregations import RememberedClipping
from psofed.attacks import Gaussian
from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.federation.client.gateway import Rehearsal
from psofed.federation.protocol.frames import REPLY, decode_frame
from psofed.federation.protocol.layout import ColumnNames
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.messages import RunDescription, decode_instruction
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.clients import KINDS
from psofed.federation.server.loop import Server
from psofed.federation.server.step import WITHOUT_MEMORY, Combination, ServerStep, aggregate
from psofed.federation.transport.in_process import InProcessHub
from psofed.parts import Aggregation

pytestmark = [pytest.mark.federation, pytest.mark.takes(30)]

NAMES = ["11", "12", "13"]


def raising(node, frame):
    nothing = {"clients": [], "statuses": [], "examples": [], "metrics": []}
    yield node, change_reply(frame, lambda v: v[:0], error="broken", **nothing) if node == "11" else frame


def silent(node, frame):
    if node != "11":
        yield node, frame


def nonsense(node, frame):
    yield node, b"\x80\x04nonsense" if node == "11" else frame


BAD = {
    "nan": spoil(lambda values: np.full_like(values, np.nan)),
    "infinite": spoil(lambda values: np.full_like(values, np.inf)),
    "wrong-length": spoil(lambda values: values[:1]),
    "wrong-dtype": spoil(lambda values: values.astype(np.float32), dtype="float32"),
    "wrong-columns": spoil(digest="another layout"),
    "inflated-examples": spoil(examples=[10**9]),
    "stale-round": spoil(round=99),
    "malformed": nonsense,
    "error": raising,
    "no-reply": silent,
}


def test_every_kind_of_bad_reply_is_tried():
    assert set(BAD) == set(KINDS)


@pytest.mark.parametrize("kind", BAD)
def test_only_the_bad_reply_is_dropped_and_it_is_counted(kind):
    limits = ReplyLimits(ban_after=0, rest_rounds=0)
    server = run(make_hub(tamper=BAD[kind]), limits=limits)
    assert {name: dict(counts) for name, counts in server.strikes.counts.items()} == {"11": {kind: 3}}
    assert [record["accepted"] for record in server.state.history] == [["12", "13"]] * 3
    # What the others sent is averaged over the others alone.
    np.testing.assert_array_equal(server.state.model, run(make_hub(NAMES[1:])).state.model)


@pytest.mark.parametrize(
    "fields",
    [
        {"session": "another"},
        {"statuses": ["king"]},
        {"clients": ["somebody"]},
        {"metrics": [{"k" * 101: 1.0}]},
        {"metrics": [{f"k{i}": 1.0 for i in range(101)}]},
        {"metrics": [{f"k{i}": [0.5] * 1000 for i in range(5)}]},
        {"remarks": "all well"},
        {"examples": [2**70]},
    ],
    ids=str,
)
def test_a_reply_that_makes_no_sense_harms_its_node_alone(fields):
    server = run(make_hub(tamper=spoil(**fields)), rounds=1)
    assert set(server.strikes.counts) == {"11"}
    assert server.strikes.count("11") == 1
    assert server.state.history[0]["accepted"] == NAMES[1:]


FIELDS = ("session", "round", "clients", "statuses", "examples", "metrics", "remarks", "digest", "error", "dtype")
ODD = (
    None, True, -1, 2**70, 1e308, float("nan"), "", "x", "O", [], [None], [True], [-1], [2**70], ["left"], ["", ""],
    ["learned"] * 3, {"a": 1}, [{}] * 3, [[[]]], [{"": 1}], [{"\0array": 1}], [{"mse": True}],
    [{"mse": [float("inf")]}],
)  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_a_header_holds_it_harms_no_other_node(field):
    for value in ODD:
        server = run(make_hub(tamper=spoil(**{field: value})), rounds=1)
        assert set(server.strikes.counts) <= {"11"}, value
        assert set(server.state.history[0]["accepted"]) >= set(NAMES[1:]), value
        assert np.isfinite(server.state.model).all(), value
        json.dumps(server.state.history, allow_nan=False)


def test_the_largest_errors_that_a_node_can_claim_end_no_run():
    largest = {"squared-errors": [sys.float_info.max] * 3, "last-round": 2, "mse": sys.float_info.max}
    server = run(make_hub(tamper=spoil(metrics=[largest], examples=[-(10**18)])), rounds=2)
    assert [entry["examples"] for entry in server.state.history] == [4, 4]


def test_a_client_cannot_ask_for_the_full_model_for_ever():
    """A client that was given the full model at first contact cannot have lost its state."""
    server = run(make_hub(tamper=spoil(lambda v: v[:0], statuses=["lost"])), limits=ReplyLimits())
    assert server.strikes.counts == {"11": {"malformed": 3}}
    assert server.strikes.banned == {"11"}


def test_what_a_client_says_cannot_do_anything_to_a_terminal():
    tamper = spoil(lambda v: v[:0], statuses=["failed"], remarks=["\x1b[2J" + "x" * 10_000])
    reason = run(make_hub(tamper=tamper), rounds=1).state.history[0]["reasons"]["11"]
    assert reason.isprintable()
    assert len(reason) <= 200


def another_question(node, frame):
    yield node, change_reply(frame, sequence=7) if node == "11" else frame


def as_another_node(node, frame):
    """What 11 sends arrives under the name of 12, whose own reply follows."""
    yield "12" if node == "11" else node, frame


def twice(node, frame):
    yield from [(node, frame)] * 2


@pytest.mark.parametrize(
    ("tamper", "accepted", "counts"),
    [
        (another_question, ["12", "13"], {"11": {"no-reply": 1}}),
        (as_another_node, ["12", "13"], {"11": {"no-reply": 1}}),
        (twice, NAMES, {}),
    ],
)
def test_what_answers_no_question_of_the_round_is_ignored_and_nobody_is_blamed(tamper, accepted, counts):
    server = run(make_hub(tamper=tamper), rounds=1)
    assert server.strikes.counts == counts
    assert server.strikes.count("11") == server.strikes.count("12") == 0
    assert server.state.history[0]["accepted"] == accepted


def test_a_reply_of_an_earlier_round_counts_nowhere():
    old = []

    def delayed(node, frame):
        old.append((node, frame))
        yield from old[-4:-3] if node == "11" else [(node, frame)]

    server = run(make_hub(tamper=delayed), rounds=3, limits=ReplyLimits(rest_rounds=0))
    assert server.strikes.counts == {"11": {"no-reply": 3}}


def test_with_every_reply_bad_the_model_stays_as_it_was():
    def all_nan(node, frame):
        yield node, change_reply(frame, lambda values: values * np.nan)

    initial = np.arange(6.0)
    server = run(make_hub(tamper=all_nan), 4, initial={"0": initial})
    np.testing.assert_array_equal(server.state.model, initial)


def test_in_months_a_few_bad_replies_ban_nobody(monkeypatch):
    monkeypatch.setattr("psofed.federation.server.clients._STRIKE_ROUNDS", 4)

    def in_rounds(*rounds):
        def tamper(node, frame):
            bad = decode_frame(frame, REPLY).header["round"] in rounds
            yield from BAD["nan"](node, frame) if bad else [(node, frame)]

        return tamper

    rare = run(make_hub(tamper=in_rounds(1, 6, 11)), rounds=12, limits=ReplyLimits(ban_after=2))
    assert rare.strikes.banned == set()
    often = run(make_hub(tamper=in_rounds(1, 2)), rounds=7, limits=ReplyLimits(ban_after=2))
    accepted = [entry["round"] for entry in often.state.history if "11" in entry["accepted"]]
    assert accepted == [5, 6, 7]  # tried again once the first bad reply is old


def test_a_node_is_banned_after_the_settable_number_and_readmitted_by_a_larger_one(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "psofed.federation")
    checkpoint = tmp_path / "checkpoint.npz"
    hub = make_hub(tamper=BAD["nan"])
    server = run(hub, rounds=5, limits=ReplyLimits(ban_after=2), checkpoint=checkpoint)
    assert server.strikes.banned == {"11"}
    assert caplog.messages.count("round 2: banned after 2 bad replies: 11") == 1
    hub.tamper = None
    again = run(hub, rounds=6, limits=ReplyLimits(ban_after=3), checkpoint=checkpoint, resume=True)
    assert "11" in again.state.history[-1]["accepted"]
    asked = ["11" in record["participants"] for record in server.state.history]
    assert asked == [True, True, False, False, False]


def test_with_all_nodes_banned_the_run_ends_with_a_clear_error():
    with pytest.raises(PsofedError, match="1 banned"):
        run(make_hub(["11"], BAD["nan"]), rounds=5, limits=ReplyLimits(ban_after=2))


def test_a_silent_node_rests_for_some_rounds():
    hub = make_hub()
    hub.silent = {"12"}
    server = run(hub, rounds=5, limits=ReplyLimits(rest_rounds=2))
    asked = ["12" in record["participants"] for record in server.state.history]
    assert asked == [True, False, False, True, False]
    assert server.strikes.banned == set()


headers = st.dictionaries(
    st.sampled_from(["session", "round", "clients", "statuses", "examples", "metrics", "dtype"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children),
        max_leaves=5,
    ),
)


@settings(max_examples=30, deadline=None)
@given(fields=headers, body=st.binary(max_size=64), raw=st.booleans())
def test_no_reply_crashes_a_round(fields, body, raw):
    def tamper(node, frame):
        if node != "11":
            yield node, frame
        else:
            yield node, body if raw else change_reply(frame, None, **fields)[: len(frame)] + body

    assert np.isfinite(run(make_hub(tamper=tamper), rounds=2).state.model).all()


def test_a_revoked_node_is_neither_asked_nor_heard():
    hub, asked = make_hub(), []

    def on_round(state):
        asked.append(state.history[-1]["participants"])
        hub.revoke(["12"] if state.round_number == 1 else ["12", "11"])

    run(hub, rounds=3, on_round=on_round)
    assert asked == [NAMES, ["11", "13"], ["13"]]


def test_a_node_that_cannot_take_part_is_named_and_not_asked(caplog):
    def refuse(_run):
        raise PsofedError("readings.csv: no such file")

    hub = make_hub()
    hub.nodes["12"]._prepare = refuse
    server = run(hub, rounds=2)
    assert [entry["participants"] for entry in server.state.history] == [["11", "13"]] * 2
    assert caplog.messages.count("12 cannot take part: readings.csv: no such file") == 1


# --- the client's state ---------------------------------------------------------------------------------


def forget(hub, node, **options):
    """Restart a node: it loses what it held in memory."""
    hub.nodes[node] = make_node(node, **options)


def test_a_client_that_lost_its_state_is_given_the_full_model_once():
    hub, kinds = make_hub(), []

    def on_round(state):
        sent = {node: decode_instruction(frame).tasks[0].kind for node, frame in hub.sent[-3:]}
        kinds.append(sent)
        if state.round_number == 2:
            forget(hub, "12")

    server = run(hub, rounds=5, on_round=on_round)
    assert [kind["12"] for kind in kinds] == ["full", "part", "part", "full", "part"]
    assert [kind["11"] for kind in kinds] == ["full", "part", "part", "part", "part"]
    assert [record["lost_state"] for record in server.state.history] == [[], [], ["12"], [], []]
    assert server.strikes.counts == {}


def test_state_on_disk_survives_a_restart_of_the_node(tmp_path):
    hub = make_hub(folder=tmp_path)

    def restart(state):
        for node in NAMES:
            forget(hub, node, folder=tmp_path)

    server = run(hub, rounds=5, on_round=restart)
    assert all(record["lost_state"] == [] for record in server.state.history)
    np.testing.assert_array_equal(server.state.model, run(make_hub(), rounds=5).state.model)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.npz"))


@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "empty", "another file"])
def test_a_damaged_client_state_is_set_aside_and_the_client_starts_again(tmp_path, caplog, damage):
    def restart(state):
        if state.round_number == 2:
            (path,) = tmp_path.glob("11-*.npz")
            data = path.read_bytes()
            half = len(data) // 2
            flipped = data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
            kinds = {"flipped bit": flipped, "cut short": data[:-40], "empty": b"", "another file": b"{}"}
            path.write_bytes(kinds[damage])
            forget(hub, "11", folder=tmp_path)

    hub = make_hub(folder=tmp_path)
    server = run(hub, rounds=5, on_round=restart)
    assert server.strikes.counts == {}
    assert [record["lost_state"] for record in server.state.history] == [[], [], ["11"], [], []]
    assert len(list(tmp_path.glob("11-*.npz.damaged"))) == 1
    assert sum("this node's state was damaged" in line for line in caplog.messages) == 1


def test_the_state_is_committed_only_on_success():
    hub, before = make_hub(["11"], training=Adder(fail_in=[2])), {}

    def on_round(state):
        memory = hub.nodes["11"].store.held.clients[""]
        before[state.round_number] = memory.round_number, memory.model, memory.records["touched"]

    server = run(hub, rounds=3, on_round=on_round)
    assert [before[n][0] for n in (1, 2, 3)] == [1, 1, 3]
    np.testing.assert_array_equal(before[1][1], before[2][1])
    assert before[2][2] == {"round": 1}  # what the training itself keeps is undone as well
    assert server.strikes.counts == {"11": {"error": 1}}


def test_training_that_diverges_is_an_error_and_not_an_upload():
    hub = InProcessHub({"11": make_node("11", Adder(np.nan)), "12": make_node("12")})
    assert run(hub, rounds=1).strikes.counts == {"11": {"error": 1}}


def test_an_old_instruction_is_not_obeyed():
    """Somebody who can replay what the server once sent can neither turn back nor move a client."""
    hub = make_hub(["11"])
    server = run(hub, rounds=4)
    node = hub.nodes["11"]
    held = node.store.held
    for _, frame in hub.sent[:3]:
        assert decode_frame(node.answer(frame), REPLY).header["error"].startswith("asked for round")
    last = decode_frame(node.answer(hub.sent[3][1]), REPLY)
    assert last.header["statuses"] == ["learned"], "the newest is answered from memory"
    assert node.store.held is held
    node.begin(RunDescription("another run", {}).to_bytes())
    assert node.answer(hub.sent[3][1]) is None, "of another run"
    assert make_hub(["12"]).nodes["12"].answer(hub.sent[3][1]) is None, "for another node"
    assert server.state.round_number == 4


# --- models, attacks, checkpoints -----------------------------------------------------------------------


def test_any_arrays_are_shared_and_restored():
    model = {
        "weight": np.zeros((3, 4), np.float32),
        "bias": np.zeros(3, np.float32),
        "count": np.array(5),
        "empty": np.zeros((0, 2), np.float32),
    }
    state = run(make_hub(), 6, Sharing(0.5, pattern="round-robin", coordinated=False), model).state
    arrays = state.layout.restore(state.model, state.kept)
    assert state.layout.dimension == 15
    assert {name: (a.shape, a.dtype) for name, a in arrays.items()} == {
        name: (a.shape, a.dtype) for name, a in model.items()
    }
    assert arrays["count"] == 5  # not shared: the server keeps its own
    assert (arrays["weight"] > 0).all()


def test_sharing_everything_is_averaging_whole_models():
    hub = InProcessHub({str(k): make_node(str(k), Adder(step)) for k, step in ((1, 1.0), (2, 2.0), (3, 6.0))})
    np.testing.assert_allclose(run(hub, 4, 1.0).state.model, np.full(6, 12.0))


def test_an_attack_poisons_the_upload_but_not_the_node_itself():
    poison = perturbing(lambda round_number, client, count: np.full(count, 100.0))
    hub = InProcessHub({"11": make_node("11", corruption=poison), "12": make_node("12")})
    assert sorted(run(hub, rounds=1).state.model)[-2:] == [51.0, 51.0]
    assert hub.nodes["11"].store.held.clients[""].model.max() == 1.0


def test_the_gaussian_attack_comes_as_often_and_as_strong_as_told():
    uploads = []

    def watch(node, frame):
        uploads.append(np.frombuffer(decode_frame(frame, REPLY).body))
        yield node, frame

    attack = Rehearsal(Gaussian(num_byzantine=1, probability=0.25, variance=4.0), seed=3)
    hub = make_hub(["11"], watch, training=Adder(0.0), corruption=attack)
    run(hub, 200, 0.5, {"0": np.zeros(400)})
    attacked = [upload for upload in uploads if np.abs(upload).max() > 20 or upload.std() > 1.5]
    # The server's model drifts with the attacks, so only their share and fresh strength are looked at.
    assert 0 < len(attacked) < 200
    fresh = uploads[next(i for i, upload in enumerate(uploads) if upload.any())]
    assert 3.0 < fresh.var() < 5.2


class KilledError(Exception):
    """The server dies."""


def test_a_resumed_run_equals_one_that_was_never_interrupted(tmp_path):
    options = {"num_participants": 2, "seed": 4, "num_shared": Sharing(2, coordinated=False)}

    def hub():
        return InProcessHub({name: make_node(name, Adder(int(name) / 10)) for name in NAMES})

    def die(state):
        if state.round_number == 4:
            raise KilledError

    nodes = hub()
    with pytest.raises(KilledError):
        run(nodes, rounds=9, on_round=die, checkpoint=tmp_path / "c.npz", **options)
    server = run(nodes, rounds=9, resume=True, checkpoint=tmp_path / "c.npz", **options)
    np.testing.assert_array_equal(server.state.model, run(hub(), rounds=9, **options).state.model)


def test_a_round_that_was_cut_short_is_repeated_without_learning_twice(tmp_path, monkeypatch):
    """The server dies when the clients have learned but it has not averaged: nothing is lost or doubled."""
    hub, join = make_hub(), Server._join

    def dying(self, state, n, *arguments):
        if n == 3:
            raise KilledError
        return join(self, state, n, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Server, "_join", dying)
        with pytest.raises(KilledError):
            run(hub, 6, checkpoint=tmp_path / "c.npz")
    server = run(hub, 6, checkpoint=tmp_path / "c.npz", resume=True)
    np.testing.assert_array_equal(server.state.model, run(make_hub(), 6).state.model)


def test_a_full_disk_pauses_the_run_which_continues_by_itself(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "psofed.federation")
    saves, save = [], CheckpointStore.save

    def full(self, state):
        saves.append(state.round_number)
        if 3 <= len(saves) <= 8:
            raise PsofedError("checkpoint.npz: cannot be written (No space left on device)")
        save(self, state)

    monkeypatch.setattr(CheckpointStore, "save", full)
    server = run(make_hub(), 4, checkpoint=tmp_path / "c.npz")
    assert saves == [1, 2, *[3] * 7, 4]
    assert [line for line in caplog.messages if "disk" not in line.split(":")[0]] == [
        "round 3: paused, trying again: checkpoint.npz: cannot be written (No space left on device)",
        "round 3: continuing",
    ]
    np.testing.assert_array_equal(server.state.model, run(make_hub(), 4).state.model)


def test_a_checkpoint_is_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    run(make_hub(["11"]), rounds=2, checkpoint=path)
    whole = path.read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("psofed.common.disk.os.fsync", full_disk)
    with pytest.raises(PsofedError, match="No space"):
        CheckpointStore(path).save(CheckpointStore(path).load())
    assert path.read_bytes() == whole
    assert CheckpointStore(path).load().round_number == 2
    history = CheckpointStore(path).history.paths()
    assert sorted(tmp_path.iterdir()) == sorted([*history, path, tmp_path / "cs"])
    assert sorted(entry.name for entry in (tmp_path / "cs").iterdir()) == ["00000001.npz", "00000002.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 nonsense", b"\x93NUMPY"])
def test_a_damaged_checkpoint_is_a_clear_error(tmp_path, damage):
    path = tmp_path / "c.npz"
    path.write_bytes(damage)
    with pytest.raises(PsofedError, match=r"c\.npz"):
        CheckpointStore(path).load()


def test_a_resumed_run_must_keep_its_settings_and_columns(tmp_path):
    named = ColumnNames(tuple("abcdef"), "y")
    options = {"checkpoint": tmp_path / "c.npz"}
    hub = make_hub(["11"])
    run(hub, rounds=1, columns=named, **options)
    with pytest.raises(PsofedError, match="seed = 0"):
        run(hub, rounds=2, columns=named, resume=True, seed=1, **options)
    with pytest.raises(PsofedError, match=r"a, b, c, d, e, f → y; got columns without names"):
        run(hub, rounds=2, resume=True, **options)
    assert run(hub, rounds=2, columns=named, resume=True, **options).state.round_number == 2


@pytest.mark.parametrize("options", [{"num_shared": 0}, {"num_shared": 2.0}, {"seed": -1}, {"resume": True}])
def test_bad_options_are_named(options):
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        Server(**options)
    with pytest.raises(InvalidValueError, match="pattern"):
        Sharing(0.1, pattern="x")


def test_checkpoints_are_kept_and_the_way_back_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr("psofed.federation.server.checkpoint.KEEP", 3)
    path, hub, models = tmp_path / "c.npz", make_hub(), {}
    server = run(
        hub, rounds=35, checkpoint=path, on_round=lambda state: models.update({state.round_number: state.model.copy()})
    )
    store = CheckpointStore(path)
    assert store.rounds() == [10, 20, 30, 33, 34, 35]
    with pytest.raises(PsofedError, match=r"--to-round 15: .*10, 20, 30, 33, 34, 35"):
        store.rollback(15)
    store.rollback(20)
    assert store.rounds() == [10, 20]
    again = run(hub, rounds=24, checkpoint=path, resume=True)
    assert [record["round"] for record in again.state.history] == list(range(1, 25))
    kinds = {decode_instruction(frame).tasks[0].kind for _, frame in hub.sent[-12:-9]}
    assert kinds == {"full"}  # what the clients learned after round 20 is forgotten
    assert again.state.session == server.state.session
    np.testing.assert_array_equal(store.load(20).model, models[20])
    assert [record["round"] for record in store.rollback(10).history] == list(range(1, 11))  # of epoch 0
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in tmp_path.rglob("*.npz"))


def _killed(source, target):
    raise KeyboardInterrupt


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_round_killed_before_its_checkpoint_is_the_newest_is_not_offered(tmp_path, monkeypatch, completed):
    path, hub = tmp_path / "c.npz", make_hub()
    if completed:
        run(hub, rounds=completed, checkpoint=path)
    monkeypatch.setattr("psofed.federation.server.checkpoint.replace_by_link", _killed)
    with pytest.raises(KeyboardInterrupt):
        run(hub, rounds=completed + 1, checkpoint=path, resume=completed > 0)
    store = CheckpointStore(path)
    assert store._file(completed + 1).exists()
    assert store.rounds() == list(range(1, completed + 1))
    with pytest.raises(PsofedError, match=rf"--to-round {completed + 1}: must be a round with a checkpoint"):
        store.rollback(completed + 1)


def test_a_session_that_replaces_another_is_not_offered_before_its_first_round_is_complete(tmp_path, monkeypatch):
    path, hub = tmp_path / "c.npz", make_hub()
    older = run(hub, rounds=3, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr("psofed.federation.server.checkpoint.replace_by_link", _killed)
        with pytest.raises(KeyboardInterrupt):
            run(hub, rounds=1, checkpoint=CheckpointStore(path, replaces=True))  # as `run --force` does
    store = CheckpointStore(path)
    assert store.session() == older.state.session
    assert store.rounds() == [2, 3]  # round 1 is the new session's, which is incomplete
    assert store.rollback(2).session == older.state.session
    with pytest.raises(PsofedError, match=r"c\.npz holds round 2 of an earlier run: continue it with"):
        run(hub, rounds=1, checkpoint=path)
    newer = run(hub, rounds=1, checkpoint=CheckpointStore(path, replaces=True))
    assert (store.session(), store.rounds()) == (newer.state.session, [1])


def test_a_history_that_was_cut_short_is_no_obstacle(tmp_path):
    path, hub = tmp_path / "c.npz", make_hub()
    run(hub, rounds=3, checkpoint=path)
    (history,) = CheckpointStore(path).history.paths()
    with history.open("ab") as file:
        file.write(b'\n{"round": 4, "partic')
    server = run(hub, rounds=5, checkpoint=path, resume=True)
    assert [record["round"] for record in server.state.history] == [1, 2, 3, 4, 5]
    entries = CheckpointStore(path).history.entries(server.state)
    assert [record["round"] for record in entries] == [1, 2, 3, 4, 5]


def test_the_order_of_the_replies_does_not_change_a_bit():
    """Sums depend on their order in the last bits, so uploads are joined by name and not by arrival."""
    rng, shared = np.random.default_rng(0), np.arange(6)
    uploads = {f"node-{k}": (shared, rng.standard_normal(6) * 10.0**k) for k in range(5)}
    models = set()
    for order in (list(uploads), list(reversed(uploads)), sorted(uploads, key=hash)):
        arrived = {name: uploads[name] for name in order}
        step = ServerStep(Combination("mean"))
        models.add(step.take(1, np.zeros(6), arrived).model.tobytes())
    assert len(models) == 1


@pytest.mark.parametrize("value", [1e300, np.nan])
def test_a_poisoned_checkpoint_is_not_continued(tmp_path, value):
    path, hub = tmp_path / "checkpoint.npz", make_hub()
    run(hub, rounds=3, checkpoint=path)
    store = CheckpointStore(path)
    state = store.load()
    state.model[0] = value
    store.save(state)
    with pytest.raises(PsofedError, match=r"rollback --to-round N` .*\(there are 1, 2, 3\)"):
        run(hub, rounds=5, checkpoint=path, resume=True)
    store.rollback(2)
    assert np.isfinite(run(hub, rounds=5, checkpoint=path, resume=True).state.model).all()


@pytest.mark.parametrize("damage", [lambda p: os.truncate(p, 99), lambda p: os.truncate(p, 0), os.unlink])
def test_a_damaged_checkpoint_is_said_with_the_way_back(tmp_path, damage):
    path, hub = tmp_path / "checkpoint.npz", make_hub()
    run(hub, rounds=3, checkpoint=path)
    path.unlink()
    path.write_bytes((tmp_path / "checkpoints" / "00000003.npz").read_bytes())
    damage(path)
    with pytest.raises(PsofedError, match=r"checkpoint\.npz.* --to-round N` .*\(there are 1, 2, 3\)"):
        run(hub, rounds=5, checkpoint=path, resume=True)
    CheckpointStore(path).rollback(3)
    assert run(hub, rounds=5, checkpoint=path, resume=True).state.round_number == 5


# --- layers by name, full synchronisation, time ---------------------------------------------------------


def test_layers_are_shared_by_name():
    model = {"encoder.weight": np.zeros(4), "encoder.norm.mean": np.zeros(2), "head.weight": np.zeros(3)}

    def train(request):
        result = Adder()(request)
        head = np.asarray(request.kept.get("head.weight", np.zeros(3))) + 1.0
        result.__dict__["kept"] = {**request.kept, "head.weight": head}
        return result

    hub = make_hub(training=train)
    state = run(hub, 3, Sharing(1.0, include=("encoder.*",), exclude=("*.norm.*",)), model).state
    arrays = state.layout.restore(state.model, state.kept)
    assert state.layout.dimension == 4
    assert (arrays["encoder.weight"] == 3.0).all()
    assert not arrays["head.weight"].any()  # the server's own is as it was
    assert (hub.nodes["11"].store.held.clients[""].kept["head.weight"] == 3.0).all()
    with pytest.raises(InvalidValueError, match=r"decoder\.\*"):
        run(hub, 3, Sharing(0.1, include=("decoder.*",)), model)
    with pytest.raises(InvalidValueError, match="include"):
        Sharing(0.1, include="encoder.*")


@pytest.mark.parametrize(("interval", "takes", "begun"), [(5.0, 0.0, 5.0), (5.0, 7.0, 7.0), (0.0, 0.5, 0.5)])
def test_rounds_begin_at_their_interval_or_when_the_last_has_ended(interval, takes, begun):
    ended = []
    with fast_time() as clock:

        def on_round(_state):
            clock.now += takes
            ended.append(clock.now)

        server = Server(2, rounds=RoundPlan(interval=interval), on_round=on_round)
        server.run(make_hub(), {"0": np.zeros(6)}, 4)
    assert ended == pytest.approx([1000.0 + takes + begun * n for n in range(4)])


@pytest.mark.parametrize("where", ["between rounds", "waiting for nodes", "waiting for replies", "full disk"])
def test_a_run_that_is_stopped_ends_soon_wherever_it_is(where, tmp_path, monkeypatch):
    with fast_time() as clock:
        hub = make_hub([] if where == "waiting for nodes" else NAMES)
        if where == "waiting for replies":
            hub.silent = set(NAMES)
        if where == "full disk":
            monkeypatch.setattr(CheckpointStore, "save", lambda *_: (_ for _ in ()).throw(PsofedError("full")))
        server = Server(
            2,
            rounds=RoundPlan(interval=3600.0 if where == "between rounds" else 0.0),
            limits=ReplyLimits(patience=0.0),
            checkpoint=tmp_path / "c.npz",
            attend=lambda: clock.now > 1010.0,
        )
        server.run(hub, {"0": np.zeros(6)}, 0, deadline=3600.0)
        assert server.was_stopped
        assert clock.now < 1012.0


def adders():
    """Return a hub whose nodes add the number that is their name."""
    return InProcessHub({name: make_node(name, Adder(float(name))) for name in NAMES})


# --- rules with memory ----------------------------------------------------------------------------------


def test_a_rule_with_memory_remembers_absent_clients_and_restarts(tmp_path):
    """Node k adds k; two of three take part in a round; all three count once they were heard from."""

    class Remembering(Aggregation):
        """The mean over all clients ever heard from of half their last update and half their update before it."""

        over = "vectors"

        def memory_size(self, num_clients, dimension):
            return num_clients * dimension

        def combine(self, updates, memory, out):
            memories = memory.reshape((updates.num_clients, -1))
            for p, k in enumerate(updates.clients):
                for j, i in enumerate(updates.entries):
                    if updates.shared[p, j]:
                        memories[k, i] = 0.5 * memories[k, i] + 0.5 * updates.changes[p, j]
            for j, i in enumerate(updates.entries):
                out[j] = np.mean(memories[:, i])

    given = {"aggregation": Combination(Remembering()), "num_participants": 2, "seed": 3, "num_shared": 6}

    server = run(adders(), 7, **given)
    model, memory, known = 0.0, dict.fromkeys(NAMES, 0.0), {}
    own = dict.fromkeys(NAMES, 0.0)
    for entry in server.state.history:
        for name in entry["accepted"]:
            known.setdefault(name)
            own[name] = model + float(name)
            memory[name] = 0.5 * memory[name] + 0.5 * (own[name] - model)
        model += np.mean([memory[name] for name in known])
    np.testing.assert_allclose(server.state.model, model)
    nodes, path = adders(), tmp_path / "c.npz"
    run(nodes, 4, checkpoint=path, **given)
    again = run(nodes, 7, checkpoint=path, resume=True, **given)
    np.testing.assert_array_equal(again.state.model, server.state.model)
    assert sorted(again.state.memory.names) == NAMES


def test_the_default_rule_resumes_with_the_same_bits(tmp_path):
    """Whatever it remembers is in the checkpoint; every node that was heard from has its D numbers."""
    given = {"aggregation": None, "num_participants": 2, "seed": 3, "num_shared": 2}

    whole, nodes, path = run(adders(), 9, **given), adders(), tmp_path / "c.npz"
    assert whole.step.rule == RememberedClipping()
    run(nodes, 4, checkpoint=path, **given)
    again = run(nodes, 9, checkpoint=path, resume=True, **given)
    np.testing.assert_array_equal(again.state.model, whole.state.model)
    np.testing.assert_array_equal(again.state.memory.values, whole.state.memory.values)
    assert whole.state.memory.values.size == 6 * len(NAMES)


def test_a_memory_beyond_its_limit_is_given_up_with_a_warning(monkeypatch, caplog):
    monkeypatch.setattr("psofed.federation.server.step.MOST_REMEMBERED", 12)
    step, shared = ServerStep(Combination()), np.arange(6)
    uploads = {name: (shared, np.full(6, 4.0)) for name in "ab"}
    first = step.take(1, np.zeros(6), uploads).model
    assert step.memory.values.size == 12
    uploads["c"] = uploads["a"]
    for n in (2, 3):
        model = step.take(n, first, uploads).model
        np.testing.assert_array_equal(model, aggregate(first, list(uploads.values()), rule=WITHOUT_MEMORY))
    assert step.memory.values.size == 0
    (warning,) = caplog.messages
    assert '"remembered-clipping" would remember 18 numbers (3 nodes, 6 parameters)' in warning
    assert '"centred-clipping" is used from now on' in warning


def test_a_rule_that_remembers_nodes_is_refused_after_mixing():
    with pytest.raises(NotCoveredError, match=r'"remembered-clipping" remembers each client.*remove one'):
        Combination("remembered-clipping", pre_aggregation="nnm")
    assert Combination(pre_aggregation="nnm").rule == WITHOUT_MEMORY
