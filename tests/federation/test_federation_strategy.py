"""The strategy on a Grid within this process: rounds, bad replies, lost state, checkpoints."""

import json
import logging
import os
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed.attacks import Gaussian
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.federation import Combination, PSOFed, Sharing
from psofed.federation.client.attacks import perturbing, rehearse
from psofed.federation.client.state import memory_of
from psofed.federation.deploy.report import latest_errors
from psofed.federation.flower import BadTreeError
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.adoption import Descriptions, adopt_columns
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.checks import KINDS
from psofed.federation.testing import InProcessGrid

pytestmark = [pytest.mark.federation, pytest.mark.takes(30)]

NODES = (11, 12, 13)
NAMED = [str(node) for node in NODES]

numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats())
names = st.sampled_from(["format", "session", "round", "status", "values", "num-examples", "other"])
any_content = st.dictionaries(
    st.sampled_from(["arrays", "psofed", "metrics", "config"]),
    st.one_of(
        st.builds(
            lambda name, data: ArrayRecord({name: Array("float64", (2,), "numpy.ndarray", data)}),
            names,
            st.binary(max_size=200),
        ),
        st.dictionaries(names, st.one_of(numbers, st.text(max_size=9)), max_size=9).map(ConfigRecord),
        st.dictionaries(names, numbers, max_size=3).map(MetricRecord),
    ),
).map(RecordDict)


def spoil(values=None, settings=None, metrics=None, key="values"):
    """Return a tamperer that changes what node 11 replies."""

    def tamper(reply):
        if reply.metadata.src_node_id == 11 and reply.has_content():
            content = reply.content
            record = content["arrays"]["values"].numpy()
            content["arrays"] = ArrayRecord({key: Array(record if values is None else values(record))})
            content["psofed"] = ConfigRecord({**content["psofed"], **(settings or {})})
            if metrics:
                content["psofed"]["metrics"] = [json.dumps(metrics)]
        yield reply

    return tamper


def twice(reply):
    yield reply
    if reply.metadata.src_node_id == 11:
        yield reply


def unasked(reply):
    if reply.metadata.src_node_id == 11:
        reply.metadata.__dict__["_reply_to_message_id"] = "0" * 64
    yield reply


def from_another_node(reply):
    if reply.metadata.src_node_id == 11:
        reply.metadata.__dict__["_src_node_id"] = 99
    yield reply


def failing(reply):
    if reply.metadata.src_node_id == 11:
        failed = Message(Error(code=2, reason="boom"), reply_to=reply)
        failed.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        failed.metadata.__dict__["_src_node_id"] = 1  # as Flower's own error replies, not the dead node
        yield failed
    else:
        yield reply


def silent(reply):
    if reply.metadata.src_node_id != 11:
        yield reply


BAD = {
    "nan": spoil(lambda v: v * np.nan),
    "infinite": spoil(lambda v: v + np.inf),
    "wrong-length": spoil(lambda v: v[:-1]),
    "wrong-dtype": spoil(lambda v: v.astype(np.float32)),
    "wrong-columns": spoil(settings={"digest": "0" * 16}),
    "wrong-key": spoil(key="weights"),
    "out-of-bound": spoil(lambda v: v + 1e6),
    "implausible": spoil(lambda v: v + 1e300),
    "inflated-examples": spoil(settings={"examples": [10**9]}),
    "stale-round": spoil(settings={"round": 0}),
    "foreign-session": spoil(settings={"session": "other"}),
    "malformed": spoil(settings={"format": 7}),
    "error": failing,
    "no-reply": silent,
}


def run(grid, rounds=3, timeout=0.05, plan=None, **options):
    limits = ReplyLimits(max_magnitude=1e3, max_examples=1000, bench_after=0, rest_rounds=0)
    options = {"num_shared": 2, "limits": limits, "aggregation": "mean"} | options
    strategy = PSOFed(rounds=plan, **options)
    result = strategy.start(grid, np.zeros(6), num_rounds=rounds, timeout=timeout)
    return strategy, result


WIND, TURNED = ColumnNames(tuple("abcdef"), "y"), ColumnNames(tuple("fedcba"), "y")


@pytest.mark.parametrize(
    ("run_columns", "client", "reason"),
    [
        (WIND, WIND, ""),
        ("adopt", WIND, ""),
        ("adopt", None, ""),
        (WIND, TURNED, "the run's have another order: a, b, c, d, e, f → y"),
        (WIND, ColumnNames(tuple("abcdex"), "y"), "this client lacks f"),
        (WIND, ColumnNames(tuple("abcdef"), "z"), "this client predicts z"),
        (WIND, None, "this client's columns have no names; the run's columns are a, b"),
        (None, WIND, "this client's columns have names (a, b"),
    ],
)
def test_a_clients_columns_are_those_of_the_run(make_app, run_columns, client, reason):
    grid = InProcessGrid({node: make_app(columns=client) for node in NODES})
    strategy, _ = run(grid, rounds=1, columns=run_columns)
    assert strategy.state.layout.columns == (client if run_columns == "adopt" else run_columns)
    (record,) = strategy.state.history
    assert len(record["accepted"]) == (0 if reason else 3)
    assert all(reason in text for text in record["reasons"].values())


def test_the_names_that_most_nodes_have_are_adopted_whatever_one_of_them_says(make_app):
    columns = {11: ColumnNames(tuple("ghijkl"), "y"), 12: TURNED, 13: WIND}
    strategy, _ = run(
        InProcessGrid({node: make_app(columns=names) for node, names in columns.items()}), columns="adopt"
    )
    assert strategy.state.layout.columns == TURNED


def test_neither_the_first_to_name_its_columns_nor_its_units_decide_for_the_others(monkeypatch):
    """Two of three nodes have no data at first, and one that means harm has."""
    monkeypatch.setattr("psofed.federation.server.adoption._ASK_EVERY", 0.0)
    ours, theirs = ColumnNames(("wind",), "output"), ColumnNames(("lie",), "output")
    asked = [
        Descriptions({"a": (theirs, ""), "b": (None, "no line yet"), "c": (None, "no line yet")}, {}),
        Descriptions({"a": (theirs, ""), "b": (ours, ""), "c": (ours, "")}, {}),
    ]
    answers = iter(asked)
    assert adopt_columns(lambda: next(answers), 1, seconds=60.0) == ours
    assert adopt_columns(lambda: asked[0], 1, seconds=0.0) == theirs  # nobody else has any
    units = replace(ours, units=("furlong", "kW"))
    assert (
        adopt_columns(lambda: Descriptions({"a": (units, ""), "b": (ours, ""), "c": (ours, "")}, {}), 1, 9.0)
        == ours
    )


def test_every_kind_of_bad_reply_is_tried():
    assert {*BAD, "doubtful"} == set(KINDS)


@pytest.mark.parametrize("kind", BAD)
def test_only_the_bad_reply_is_dropped_and_it_is_counted(make_app, kind):
    grid = InProcessGrid({node: make_app() for node in NODES}, tamper=BAD[kind])
    options = {"limits": ReplyLimits(bench_after=0)} if kind == "implausible" else {}
    strategy, result = run(grid, **options)
    counts = {node: dict(c) for node, c in strategy.conduct.counts.items()}
    assert counts == {"11": {kind: 3}}
    accepted = [record["accepted"] for record in strategy.state.history]
    assert accepted == [["12", "13"]] * 3
    # What the others sent is averaged over the others alone.
    undisturbed = InProcessGrid({node: make_app() for node in NODES[1:]})
    _, expected = run(undisturbed)
    np.testing.assert_array_equal(
        result.arrays.to_numpy_ndarrays()[0], expected.arrays.to_numpy_ndarrays()[0]
    )


HEAVY_METRICS = {
    "a long name": {"k" * 101: 1.0},
    "many names": {f"k{i}": 1.0 for i in range(101)},
    "many numbers": {f"k{i}": [0.5] * 1000 for i in range(5)},
}


@pytest.mark.parametrize("metrics", HEAVY_METRICS.values(), ids=HEAVY_METRICS)
def test_metrics_that_would_fill_the_disk_are_dropped(make_app, metrics):
    grid = InProcessGrid({node: make_app() for node in NODES}, tamper=spoil(metrics=metrics))
    strategy, _ = run(grid, rounds=1)
    assert strategy.conduct.counts == {"11": {"malformed": 1}}


def test_the_largest_errors_and_examples_that_a_node_can_claim_end_no_run(make_app):
    """Python's sum of the largest float's thirds overflows; samples count only if they were learned from."""
    largest = {"squared-errors": [sys.float_info.max] * 3, "last-round": 2, "mse": sys.float_info.max}
    tamper = spoil(metrics=largest, settings={"statuses": ["left"], "examples": [-(10**18)]})
    strategy, _ = run(InProcessGrid({node: make_app() for node in NODES}, tamper=tamper), rounds=2)
    assert latest_errors(strategy.state)["11"] == sys.float_info.max
    assert [entry["examples"] for entry in strategy.state.history] == [4, 4]


def test_a_client_cannot_ask_for_the_full_model_for_ever(make_app):
    """A client that was given the full model at first contact cannot have lost its state."""
    grid = InProcessGrid({node: make_app() for node in NODES}, tamper=spoil(settings={"statuses": ["lost"]}))
    strategy, _ = run(grid, limits=ReplyLimits())
    assert strategy.conduct.counts == {"11": {"malformed": 3}}
    assert strategy.conduct.benched == {"11"}


def test_what_a_client_says_cannot_do_anything_to_a_terminal(make_app):
    tamper = spoil(settings={"session": "\x1b[2J" + "x" * 10_000})
    strategy, _ = run(InProcessGrid({node: make_app() for node in NODES}, tamper=tamper), rounds=1)
    reason = strategy.state.history[0]["reasons"]["11"]
    assert reason.isprintable()
    assert len(reason) <= 200


@pytest.mark.parametrize(
    ("tamper", "accepted", "counts"),
    [
        (unasked, ["12", "13"], {"11": {"no-reply": 1}}),
        (from_another_node, ["12", "13"], {"11": {"no-reply": 1}}),
        (twice, ["11", "12", "13"], {}),
    ],
)
def test_what_answers_no_message_of_the_round_is_ignored_and_nobody_is_blamed(
    make_app, tamper, accepted, counts
):
    strategy, _ = run(InProcessGrid({node: make_app() for node in NODES}, tamper=tamper), rounds=1)
    assert strategy.conduct.counts == counts
    assert strategy.conduct.strikes("11") == 0
    assert strategy.state.history[0]["accepted"] == accepted


@pytest.mark.parametrize("tamper", [unasked, from_another_node, twice])
def test_a_strategy_that_is_given_replies_by_hand_ignores_them_too(make_app, tamper):
    strategy = PSOFed(num_shared=2)
    grid = InProcessGrid({node: make_app() for node in NODES})
    strategy.start(grid, np.zeros(6), num_rounds=1)
    asked = list(strategy.configure_train(2, ArrayRecord([np.zeros(6)]), ConfigRecord(), grid))
    replies = [changed for r in grid.send_and_receive(asked) for changed in tamper(r)]
    strategy.aggregate_train(2, replies)
    assert strategy.conduct.strikes("11") == 0
    assert strategy.state.history[-1]["accepted"] == (NAMED if tamper is twice else NAMED[1:])


def test_with_every_reply_bad_the_model_stays_as_it_was(make_app):
    def all_nan(reply):
        reply.content["arrays"] = ArrayRecord({"values": Array(np.full(2, np.nan))})
        yield reply

    initial = np.arange(6.0)
    strategy = PSOFed(num_shared=2, limits=ReplyLimits(bench_after=0))
    grid = InProcessGrid({node: make_app() for node in NODES}, tamper=all_nan)
    result = strategy.start(grid, initial, num_rounds=4)
    (model,) = result.arrays.to_numpy_ndarrays()
    np.testing.assert_array_equal(model, initial)


def test_in_months_a_few_bad_replies_bench_nobody(make_app, monkeypatch):
    monkeypatch.setattr("psofed.federation.server.checks._STRIKE_ROUNDS", 4)

    def in_rounds(*rounds):
        def tamper(reply):
            yield from BAD["nan"](reply) if reply.content["psofed"]["round"] in rounds else [reply]

        return tamper

    rare = InProcessGrid({node: make_app() for node in NODES}, tamper=in_rounds(1, 6, 11))
    assert run(rare, rounds=12, limits=ReplyLimits(bench_after=2))[0].conduct.benched == set()
    often = InProcessGrid({node: make_app() for node in NODES}, tamper=in_rounds(1, 2))
    strategy, _ = run(often, rounds=7, limits=ReplyLimits(bench_after=2))
    accepted = [entry["round"] for entry in strategy.state.history if "11" in entry["accepted"]]
    assert accepted == [5, 6, 7]  # tried again once the first bad reply is old


def test_a_node_is_benched_after_the_settable_number_and_readmitted_by_a_larger_one(
    make_app, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, "psofed.federation")
    checkpoint = tmp_path / "checkpoint.npz"
    grid = InProcessGrid({node: make_app() for node in NODES}, tamper=BAD["nan"])
    strategy, _ = run(grid, rounds=5, limits=ReplyLimits(bench_after=2), checkpoint=checkpoint)
    assert strategy.conduct.benched == {"11"}
    assert caplog.messages.count("round 2: no longer asked after 2 bad replies: 11") == 1
    grid.tamper = None
    again, _ = run(grid, rounds=6, limits=ReplyLimits(bench_after=3), checkpoint=checkpoint, resume=True)
    assert "11" in again.state.history[-1]["accepted"]
    assert ["11" in record["participants"] for record in strategy.state.history] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_with_all_nodes_benched_the_run_ends_with_a_clear_error(make_app):
    grid = InProcessGrid({11: make_app()}, tamper=BAD["nan"])
    with pytest.raises(PsofedError, match="1 benched"):
        run(grid, rounds=5, limits=ReplyLimits(bench_after=2), plan=RoundPlan(wait_for_nodes=0.0))


def test_a_silent_node_rests_for_some_rounds(make_app):
    grid = InProcessGrid({node: make_app() for node in NODES})
    grid.silent = {12}
    strategy, _ = run(grid, rounds=5, limits=ReplyLimits(rest_rounds=2))
    assert ["12" in record["participants"] for record in strategy.state.history] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert strategy.conduct.benched == set()


@pytest.mark.parametrize(("error", "kind"), [(BadTreeError, "malformed"), (ValueError, "no-reply")])
def test_an_unreadable_reply_harms_nobody_else(make_app, error, kind):
    """Its node is blamed only if its own objects were at fault."""

    class Broken(InProcessGrid):
        def pull_messages(self, message_ids):
            replies = super().pull_messages(message_ids)
            if any(reply.metadata.src_node_id == 11 for reply in replies):
                raise error("objects that fit no message")
            return replies

    strategy, _ = run(Broken({node: make_app() for node in NODES}), rounds=2)
    assert strategy.conduct.counts == {"11": {kind: 2}}
    assert strategy.state.history[-1]["accepted"] == ["12", "13"]


def test_a_reply_that_never_becomes_whole_costs_no_more_than_the_deadline(make_app):
    """Flower asks three minutes for the rest of a reply that was announced and not sent."""
    release, longest = threading.Event(), 120.0

    class Stuck(InProcessGrid):
        is_immediate = False

        def pull_messages(self, message_ids):
            pulled = list(super().pull_messages(message_ids))
            if any(message.metadata.src_node_id == NODES[0] for message in pulled):
                release.wait(longest)
            return pulled

    grid = Stuck({node: make_app() for node in NODES})
    started = time.monotonic()
    strategy = PSOFed(num_shared=3)
    strategy.start(grid, np.zeros(5), num_rounds=1, timeout=2.0)
    took = time.monotonic() - started
    release.set()
    assert took < longest
    assert strategy.conduct.counts == {str(NODES[0]): {"no-reply": 1}}
    assert len(strategy.state.history[0]["accepted"]) == len(NODES) - 1


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_reply_crashes_a_round(data):
    def tamper(reply):
        if reply.metadata.src_node_id == 11:
            reply.content = data.draw(any_content)
        yield reply

    from flwr.clientapp import ClientApp

    from psofed.federation import partial_sharing

    app = ClientApp()

    @app.train(mods=[partial_sharing()])
    def train(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    grid = InProcessGrid(dict.fromkeys(NODES, app), tamper=tamper)
    strategy = PSOFed(num_shared=2)
    result = strategy.start(grid, np.zeros(6), num_rounds=2)
    assert np.isfinite(result.arrays.to_numpy_ndarrays()[0]).all()


# --- the client's state ---------------------------------------------------------------------------------


def test_a_client_that_lost_its_state_is_given_the_full_model_once(make_app):
    grid = InProcessGrid({node: make_app() for node in NODES})
    kinds = []

    def on_round(state):
        kinds.append({m.metadata.dst_node_id: m.content["psofed"]["kinds"][0] for m in grid.sent[-3:]})
        if state.round_number == 2:
            grid.forget(12)

    strategy, _ = run(grid, rounds=5, on_round=on_round)
    assert [kind[12] for kind in kinds] == ["full", "part", "part", "full", "part"]
    assert [kind[11] for kind in kinds] == ["full", "part", "part", "part", "part"]
    assert [record["lost_state"] for record in strategy.state.history] == [[], [], ["12"], [], []]
    assert strategy.conduct.counts == {}


def test_state_on_disk_survives_a_restart_of_the_node(make_app, tmp_path):
    grid = InProcessGrid({node: make_app(state_directory=tmp_path) for node in NODES})
    strategy, result = run(grid, rounds=5, on_round=lambda state: [grid.forget(node) for node in NODES])
    assert all(record["lost_state"] == [] for record in strategy.state.history)
    _, expected = run(InProcessGrid({node: make_app() for node in NODES}), rounds=5)
    np.testing.assert_array_equal(
        result.arrays.to_numpy_ndarrays()[0], expected.arrays.to_numpy_ndarrays()[0]
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.npz"))


@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "empty", "another file"])
def test_a_damaged_client_state_is_set_aside_and_the_client_starts_again(make_app, tmp_path, caplog, damage):
    def restart(state):
        if state.round_number == 2:
            (path,) = tmp_path.glob("11-*.npz")
            data = path.read_bytes()
            half = len(data) // 2
            flipped = data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
            kinds = {"flipped bit": flipped, "cut short": data[:-40], "empty": b"", "another file": b"{}"}
            path.write_bytes(kinds[damage])
            grid.forget(11)

    grid = InProcessGrid({node: make_app(state_directory=tmp_path) for node in NODES})
    strategy, _ = run(grid, rounds=5, on_round=restart)
    assert strategy.conduct.counts == {}
    assert [record["lost_state"] for record in strategy.state.history] == [[], [], ["11"], [], []]
    assert len(list(tmp_path.glob("11-*.npz.damaged"))) == 1
    told = [
        record.message for record in caplog.records if "this client's state was damaged" in record.message
    ]
    assert len(told) == 1


def test_the_state_is_committed_only_on_success(make_app):
    grid = InProcessGrid({11: make_app(fail_in=[2])})
    before = {}

    def on_round(state):
        own = memory_of(grid.contexts[11]).of("").state
        before[state.round_number] = (
            own.round_number,
            own.model.copy(),
            dict(memory_of(grid.contexts[11]).of("").records["touched"]),
        )

    strategy, _ = run(grid, rounds=3, on_round=on_round)
    assert [before[n][0] for n in (1, 2, 3)] == [1, 1, 3]
    np.testing.assert_array_equal(before[1][1], before[2][1])
    assert before[2][2] == {"round": 1}  # what the function itself put into the state is undone as well
    assert strategy.conduct.counts == {"11": {"error": 1}}


def test_training_that_diverges_is_an_error_and_not_an_upload(make_app):
    strategy, _ = run(InProcessGrid({11: make_app(step=np.nan), 12: make_app()}), rounds=1)
    assert strategy.conduct.counts == {"11": {"error": 1}}


def test_evaluation_overwrites_nothing(make_app):
    app = make_app()
    from psofed.federation import partial_sharing

    seen = []

    @app.evaluate(mods=[partial_sharing()])
    def evaluate(message, context):
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        seen.append(weights)
        return Message(
            RecordDict({"metrics": MetricRecord({"loss": float(weights.sum())})}), reply_to=message
        )

    grid = InProcessGrid({11: app})
    _, result = run(grid, rounds=4, plan=RoundPlan(evaluate_every=2))
    own = memory_of(grid.contexts[11]).of("").state
    np.testing.assert_array_equal(seen[-1], own.model)
    assert result.evaluate_metrics_clientapp[4]["loss"] == own.model.sum()
    assert len(seen) == 2


def test_without_evaluation_the_same_model_comes_out(make_app):
    def with_evaluation(every):
        app = make_app()
        from psofed.federation import partial_sharing

        @app.evaluate(mods=[partial_sharing()])
        def evaluate(message, context):
            return Message(RecordDict({"metrics": MetricRecord({"loss": 0.0})}), reply_to=message)

        return run(InProcessGrid({11: app}), rounds=4, plan=RoundPlan(evaluate_every=every))[
            1
        ].arrays.to_numpy_ndarrays()[0]

    np.testing.assert_array_equal(with_evaluation(0), with_evaluation(1))


# --- models, attacks, checkpoints -----------------------------------------------------------------------


def test_any_list_of_arrays_is_shared_and_restored(make_app):
    model = {
        "weight": np.zeros((3, 4), np.float32),
        "bias": np.zeros(3, np.float32),
        "count": np.array(5),
        "empty": np.zeros((0, 2), np.float32),
    }
    strategy = PSOFed(Sharing(0.5, pattern="round-robin", coordinated=False))
    result = strategy.start(InProcessGrid({node: make_app() for node in NODES}), model, num_rounds=6)
    assert strategy.state.layout.dimension == 15
    assert {name: (a.shape, a.dtype) for name, a in result.arrays.items()} == {
        "weight": ((3, 4), "float32"),
        "bias": ((3,), "float32"),
        "count": ((), "int64"),
        "empty": ((0, 2), "float32"),
    }
    assert result.arrays["count"].numpy() == 5  # not shared: the server keeps its own
    assert (result.arrays["weight"].numpy() > 0).all()


def test_sharing_everything_is_averaging_whole_models(make_app):
    grid = InProcessGrid({11: make_app(1.0), 12: make_app(2.0), 13: make_app(6.0)})
    _, result = run(grid, rounds=4, num_shared=1.0)
    np.testing.assert_allclose(result.arrays.to_numpy_ndarrays()[0], np.full(6, 12.0))


def test_weighing_by_examples_is_possible(make_app):
    def examples(reply):
        count = {11: 1, 12: 3}[reply.metadata.src_node_id]
        reply.content["psofed"]["examples"] = [count]
        yield reply

    grid = InProcessGrid({11: make_app(1.0), 12: make_app(5.0)}, tamper=examples)
    _, result = run(grid, rounds=1, num_shared=6, aggregation=Combination(weighted=True))
    np.testing.assert_allclose(result.arrays.to_numpy_ndarrays()[0], np.full(6, 4.0))


def test_an_attack_poisons_the_upload_but_not_the_node_itself(make_app):
    def poison(round_number, node, count):
        return np.full(count, 100.0)

    grid = InProcessGrid({11: make_app(mods=[perturbing(poison)]), 12: make_app()})
    _, result = run(grid, rounds=1)
    (model,) = result.arrays.to_numpy_ndarrays()
    assert sorted(model)[-2:] == [51.0, 51.0]
    assert memory_of(grid.contexts[11]).of("").state.model.max() == 1.0


def test_the_gaussian_attack_comes_as_often_and_as_strong_as_told(make_app):
    uploads = []

    def watch(reply):
        uploads.append(reply.content["arrays"]["values"].numpy().copy())
        yield reply

    attack = rehearse(Gaussian(num_byzantine=1, probability=0.25, variance=4.0), seed=3)
    grid = InProcessGrid({11: make_app(step=0.0, mods=[attack])}, tamper=watch)
    PSOFed(num_shared=0.5).start(grid, np.zeros(400), num_rounds=200)
    attacked = [upload for upload in uploads if np.abs(upload).max() > 20 or upload.std() > 1.5]
    # The server's model drifts with the attacks, so only their share and fresh strength are looked at.
    assert 0 < len(attacked) < 200
    fresh = uploads[next(i for i, upload in enumerate(uploads) if upload.any())]
    assert 3.0 < fresh.var() < 5.2


def test_a_resumed_run_equals_one_that_was_never_interrupted(make_app, tmp_path):
    options = {"checkpoint": tmp_path / "c.npz", "num_participants": 2, "seed": 4}
    options["num_shared"] = Sharing(2, coordinated=False)
    grid = InProcessGrid({node: make_app(node / 10) for node in NODES})

    class KilledError(Exception):
        pass

    def die(state):
        if state.round_number == 4:
            raise KilledError

    with pytest.raises(KilledError):
        run(grid, rounds=9, on_round=die, **options)
    _, result = run(grid, rounds=9, resume=True, **options)
    options["checkpoint"] = tmp_path / "other.npz"
    _, expected = run(InProcessGrid({node: make_app(node / 10) for node in NODES}), rounds=9, **options)
    np.testing.assert_array_equal(
        result.arrays.to_numpy_ndarrays()[0], expected.arrays.to_numpy_ndarrays()[0]
    )


def test_a_round_that_was_cut_short_is_repeated_without_learning_twice(make_app, tmp_path):
    """The server dies when the clients have learned but it has not averaged: nothing is lost or doubled."""
    options = {"checkpoint": tmp_path / "c.npz", "seed": 4}
    grid = InProcessGrid({node: make_app() for node in NODES})

    class KilledError(Exception):
        pass

    class Dying(PSOFed):
        def aggregate_train(self, server_round, replies):
            if server_round == 3:
                raise KilledError
            return super().aggregate_train(server_round, replies)

    with pytest.raises(KilledError):
        Dying(num_shared=2, aggregation="mean", **options).start(grid, np.zeros(6), num_rounds=6)
    _, result = run(grid, rounds=6, resume=True, **options)
    _, expected = run(InProcessGrid({node: make_app() for node in NODES}), rounds=6, seed=4)
    np.testing.assert_array_equal(
        result.arrays.to_numpy_ndarrays()[0], expected.arrays.to_numpy_ndarrays()[0]
    )


def test_a_checkpoint_is_whole_or_absent(make_app, tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    run(InProcessGrid({11: make_app()}), rounds=2, checkpoint=path)
    whole = path.read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("psofed.common.disk.os.fsync", full_disk)
    with pytest.raises(PsofedError, match="No space"):
        run(InProcessGrid({11: make_app()}), rounds=3, checkpoint=path, resume=True)
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


def test_a_resumed_run_must_keep_its_settings(make_app, tmp_path):
    options = {"checkpoint": tmp_path / "c.npz"}
    run(InProcessGrid({11: make_app()}), rounds=1, **options)
    with pytest.raises(PsofedError, match="seed = 0"):
        run(InProcessGrid({11: make_app()}), rounds=2, resume=True, seed=1, **options)


def test_flowers_own_loop_drives_the_strategy_too(make_app):
    from flwr.serverapp.strategy import Strategy

    strategy = PSOFed(num_shared=2)
    grid = InProcessGrid({node: make_app() for node in NODES})
    result = Strategy.start(strategy, grid, ArrayRecord([np.zeros(6)]), num_rounds=3)
    _, expected = run(InProcessGrid({node: make_app() for node in NODES}))
    np.testing.assert_array_equal(
        result.arrays.to_numpy_ndarrays()[0], expected.arrays.to_numpy_ndarrays()[0]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"num_shared": 0},
        {"num_shared": 2.0},
        {"seed": -1},
        {"resume": True},
    ],
)
def test_bad_options_are_named(options):
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        PSOFed(**options)
    with pytest.raises(InvalidValueError, match="pattern"):
        Sharing(0.1, pattern="x")


# --- the guard against crude lies, and the way back -----------------------------------------------------


def byzantine(values, since=1):
    """Return a tamperer by which node 11 lies from a round on."""

    def tamper(reply):
        if reply.metadata.src_node_id == 11 and int(reply.metadata.group_id) >= since:
            sent = reply.content["arrays"]["values"].numpy()
            reply.content["arrays"] = ArrayRecord({"values": Array(values(sent))})
        yield reply

    return tamper


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("since", [1, 15])
def test_one_byzantine_node_does_not_take_over_the_model(make_app, nodes, since):
    everybody = [11 + k for k in range(nodes)]
    grid = InProcessGrid(
        {node: make_app(0.1) for node in everybody}, tamper=byzantine(lambda v: np.full_like(v, 1e300), since)
    )
    strategy, result = run(grid, rounds=25, limits=ReplyLimits())
    assert strategy.conduct.counts == {"11": {"implausible": 3}}
    assert strategy.conduct.benched == {"11"}
    assert np.abs(result.arrays.to_numpy_ndarrays()[0]).max() < 3.0
    assert "away from the model" in strategy.state.history[since - 1]["reasons"]["11"]


def test_a_byzantine_node_alone_is_held_to_what_can_be_computed_with_and_then_to_its_own_past(make_app):
    grid = InProcessGrid({11: make_app(0.1)}, tamper=byzantine(lambda v: np.full_like(v, 1e300)))
    strategy, _ = run(grid, rounds=1, limits=ReplyLimits())
    assert strategy.conduct.counts == {"11": {"implausible": 1}}
    grid = InProcessGrid({11: make_app(0.1)}, tamper=byzantine(lambda v: np.full_like(v, 1e6), since=30))
    strategy, _ = run(grid, rounds=30, limits=ReplyLimits())
    assert strategy.conduct.counts == {"11": {"doubtful": 1}}


def test_of_two_nodes_the_one_that_hardly_moves_does_not_get_the_other_benched(make_app):
    grid = InProcessGrid({11: make_app(1e-12), 12: make_app(0.1)})
    strategy, _ = run(grid, rounds=8, num_shared=6, limits=ReplyLimits())
    assert set(strategy.conduct.counts) == {"12"}
    assert set(strategy.conduct.counts["12"]) == {"doubtful"}
    assert strategy.conduct.benched == set()


def test_a_byzantine_node_that_stays_below_the_bound_escalates_slowly(make_app):
    """Five times the model's size in every round: with nothing but rms(w) as a bound it would grow each round."""
    grid = InProcessGrid(
        {node: make_app(0.1) for node in NODES},
        tamper=byzantine(lambda v: np.full_like(v, 9 * max(1e-3, np.abs(v).max())), since=25),
    )
    _, result = run(grid, rounds=60, num_shared=6, limits=ReplyLimits(bench_after=0))
    assert np.abs(result.arrays.to_numpy_ndarrays()[0]).max() < 1e4


def test_honest_clients_are_never_implausible(make_app):
    """A newcomer from zero, one that was away for long, and clients that learn at very different speeds."""
    grid = InProcessGrid({11: make_app(0.01), 12: make_app(1.0), 13: make_app(0.3)})
    everybody = dict(grid.apps)

    def come_and_go(state):
        grid.apps = {n: a for n, a in everybody.items() if n != 12 or not 10 < state.round_number < 60}

    strategy, _ = run(
        grid,
        rounds=80,
        plan=RoundPlan(newcomers="zeros"),
        limits=ReplyLimits(),
        on_round=come_and_go,
        num_participants=2,
    )
    assert strategy.conduct.counts == {}


def test_checkpoints_are_kept_and_the_way_back_is_open(make_app, tmp_path):
    path = tmp_path / "c.npz"
    grid = InProcessGrid({node: make_app(0.1) for node in NODES})
    models = {}
    strategy, _ = run(
        grid,
        rounds=35,
        checkpoint=CheckpointStore(path, keep=3),
        on_round=lambda state: models.update({state.round_number: state.model.copy()}),
    )
    store = CheckpointStore(path, keep=3)
    assert store.rounds() == [10, 20, 30, 33, 34, 35]
    with pytest.raises(PsofedError, match=r"--to-round 15: .*10, 20, 30, 33, 34, 35"):
        store.rollback(15)
    store.rollback(20)
    assert store.rounds() == [10, 20]
    again, _ = run(grid, rounds=24, checkpoint=CheckpointStore(path, keep=3), resume=True)
    assert [record["round"] for record in again.state.history] == list(range(1, 25))
    kinds = {m.metadata.dst_node_id: m.content["psofed"]["kinds"][0] for m in grid.sent[-12:-9]}
    assert set(kinds.values()) == {"full"}  # what the clients learned after round 20 is forgotten
    assert again.state.session == strategy.state.session
    np.testing.assert_array_equal(store.load(20).model, models[20])
    assert [record["round"] for record in store.rollback(10).history] == list(range(1, 11))  # of epoch 0
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in tmp_path.rglob("*.npz"))


def _killed(source, target):
    raise KeyboardInterrupt


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_round_killed_before_its_checkpoint_is_the_newest_is_not_offered(
    make_app, tmp_path, monkeypatch, completed
):
    path = tmp_path / "c.npz"
    grid = InProcessGrid({node: make_app() for node in NODES})
    if completed:
        run(grid, rounds=completed, checkpoint=path)

    monkeypatch.setattr("psofed.federation.server.checkpoint.replace_by_link", _killed)
    with pytest.raises(KeyboardInterrupt):
        run(grid, rounds=completed + 1, checkpoint=path, resume=completed > 0)
    store = CheckpointStore(path)
    assert store._file(completed + 1).exists()
    assert store.rounds() == list(range(1, completed + 1))
    with pytest.raises(PsofedError, match=rf"--to-round {completed + 1}: must be a round with a checkpoint"):
        store.rollback(completed + 1)


def test_a_session_that_replaces_another_is_not_offered_before_its_first_round_is_complete(
    make_app, tmp_path, monkeypatch
):
    path = tmp_path / "c.npz"
    grid = InProcessGrid({node: make_app() for node in NODES})
    older, _ = run(grid, rounds=3, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr("psofed.federation.server.checkpoint.replace_by_link", _killed)
        with pytest.raises(KeyboardInterrupt):
            run(grid, rounds=1, checkpoint=CheckpointStore(path, replaces=True))  # as `run --force` does
    store = CheckpointStore(path)
    assert store.session() == older.state.session
    assert store.rounds() == [2, 3]  # round 1 is the new session's, which is incomplete
    assert store.rollback(2).session == older.state.session
    with pytest.raises(
        PsofedError, match=r"c\.npz holds round 2 of an earlier run: continue it with resume=True"
    ):
        run(grid, rounds=1, checkpoint=path)
    newer, _ = run(grid, rounds=1, checkpoint=CheckpointStore(path, replaces=True))
    assert (store.session(), store.rounds()) == (newer.state.session, [1])


def test_a_history_that_was_cut_short_is_no_obstacle(make_app, tmp_path):
    path = tmp_path / "c.npz"
    grid = InProcessGrid({node: make_app() for node in NODES})
    run(grid, rounds=3, checkpoint=path)
    (history,) = CheckpointStore(path).history.paths()
    with history.open("ab") as file:
        file.write(b'{"round": 4, "partic')
    strategy, _ = run(grid, rounds=5, checkpoint=path, resume=True)
    assert [record["round"] for record in strategy.state.history] == [1, 2, 3, 4, 5]
    assert len(history.read_text().splitlines()) == 5


def test_the_order_of_the_replies_does_not_change_a_bit():
    """Sums depend on their order in the last bits, so uploads are joined by name and not by arrival."""
    from psofed.federation.server.plausibility import Plausibility
    from psofed.federation.server.step import ServerStep

    rng = np.random.default_rng(0)
    shared = np.arange(6)
    uploads = {f"node-{k}": (shared, rng.standard_normal(6) * 10.0**k) for k in range(5)}
    examples = dict.fromkeys(uploads, 1)
    models = set()
    for order in (list(uploads), list(reversed(uploads)), sorted(uploads, key=hash)):
        step = ServerStep(Combination("mean"), plausibility=Plausibility(None))
        arrived = {name: uploads[name] for name in order}
        models.add(step.take(1, np.zeros(6), arrived, examples).model.tobytes())
    assert len(models) == 1


# --- layers by name, and full synchronisation -----------------------------------------------------------


def test_layers_are_shared_by_name(make_app):
    model = {"encoder.weight": np.zeros(4), "encoder.norm.mean": np.zeros(2), "head.weight": np.zeros(3)}
    strategy = PSOFed(Sharing(1.0, include=("encoder.*",), exclude=("*.norm.*",)))
    grid = InProcessGrid({node: make_app() for node in NODES})
    result = strategy.start(grid, model, num_rounds=3)
    assert strategy.state.layout.dimension == 4
    assert (result.arrays["encoder.weight"].numpy() == 3.0).all()
    assert not result.arrays["head.weight"].numpy().any()  # the server's own is as it was
    own = memory_of(grid.contexts[11]).of("").state
    assert (own.kept["head.weight"].numpy() == 3.0).all()  # and the client's continues
    with pytest.raises(InvalidValueError, match=r"decoder\.\*"):
        PSOFed(Sharing(0.1, include=("decoder.*",))).start(grid, model)
    with pytest.raises(InvalidValueError, match="include"):
        Sharing(0.1, include="encoder.*")


def test_a_full_synchronisation_makes_all_models_one(make_app):
    grid = InProcessGrid({node: make_app(node / 100) for node in NODES})
    gaps = []

    def on_round(state):
        own = [memory_of(grid.contexts[node]).of("").state.model for node in NODES]
        gaps.append(max(np.ptp([model - node / 100 for model, node in zip(own, NODES, strict=True)], axis=0)))

    run(grid, rounds=6, num_shared=1, plan=RoundPlan(sync_every=3), on_round=on_round)
    assert gaps[2] == pytest.approx(
        0.0, abs=1e-12
    )  # each has the server's model and its own step of this round
    assert gaps[5] == pytest.approx(0.0, abs=1e-12)
    assert min(gaps[1], gaps[4]) > 0.005


@pytest.mark.parametrize("value", [1e300, np.nan])
def test_a_poisoned_checkpoint_is_not_gone_on_with(make_app, tmp_path, value):
    path = tmp_path / "checkpoint.npz"
    grid = InProcessGrid({node: make_app() for node in NODES})
    run(grid, rounds=3, checkpoint=path)
    store = CheckpointStore(path)
    state = store.load()
    state.model[0] = value
    store.save(state)
    with pytest.raises(PsofedError, match=r"rollback --to-round N` .*\(there are 1, 2, 3\)"):
        run(grid, rounds=5, checkpoint=path, resume=True)
    store.rollback(2)
    strategy, _ = run(grid, rounds=5, checkpoint=path, resume=True)
    assert np.isfinite(strategy.state.model).all()


@pytest.mark.parametrize("damage", [lambda p: os.truncate(p, 99), lambda p: os.truncate(p, 0), os.unlink])
def test_a_damaged_checkpoint_is_said_with_the_way_back(make_app, tmp_path, damage):
    path = tmp_path / "checkpoint.npz"
    grid = InProcessGrid({node: make_app() for node in NODES})
    run(grid, rounds=3, checkpoint=path)
    path.unlink()
    path.write_bytes((tmp_path / "checkpoints" / "00000003.npz").read_bytes())
    damage(path)
    with pytest.raises(PsofedError, match=r"checkpoint\.npz.* --to-round N` .*\(there are 1, 2, 3\)"):
        run(grid, rounds=5, checkpoint=path, resume=True)
    CheckpointStore(path).rollback(3)
    strategy, _ = run(grid, rounds=5, checkpoint=path, resume=True)
    assert strategy.state.round_number == 5


@pytest.mark.parametrize(("step", "counts"), [(800.0, {"doubtful": 16}), (8000.0, {"implausible": 3})])
def test_an_early_lie_is_left_out_and_blamed_only_if_no_honest_reply_can_be_that_far_off(
    make_app, step, counts
):
    grid = InProcessGrid({node: make_app(step=step if node == 11 else 1.0) for node in NODES})
    strategy, _ = run(grid, rounds=16, num_shared=5, limits=ReplyLimits())
    assert strategy.conduct.counts == {"11": counts}
    assert strategy.conduct.benched == ({"11"} if "implausible" in counts else set())
    assert np.abs(strategy.state.model).max() <= 16  # as without it: one a round


def test_of_two_replies_neither_is_doubted(make_app):
    grid = InProcessGrid({11: make_app(step=300.0), 12: make_app()})
    strategy, _ = run(grid, rounds=1, num_shared=5)
    assert strategy.conduct.counts == {}


def test_without_the_guard_the_mean_is_taken_over(make_app):
    grid = InProcessGrid(
        {node: make_app(0.1) for node in NODES}, tamper=byzantine(lambda v: np.full_like(v, 1e100))
    )
    strategy, result = run(grid, rounds=3, limits=ReplyLimits(max_deviation=0))
    assert strategy.conduct.counts == {}
    assert np.abs(result.arrays.to_numpy_ndarrays()[0]).max() > 1e99


class Clock:
    """A clock for the strategy, on which waiting takes no time."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(("interval", "takes", "begun"), [(5.0, 0.0, 5.0), (5.0, 7.0, 7.0), (0.0, 0.5, 0.5)])
def test_rounds_begin_at_their_interval_or_when_the_last_has_ended(
    make_app, monkeypatch, interval, takes, begun
):
    clock, ended = Clock(), []

    def on_round(_state):
        clock.now += takes
        ended.append(clock.now)

    monkeypatch.setattr("psofed.federation.server.strategy.scheduler", lambda: clock)
    run(
        InProcessGrid({node: make_app() for node in NODES}),
        rounds=4,
        plan=RoundPlan(interval=interval),
        on_round=on_round,
    )
    assert ended == pytest.approx([100.0 + takes + begun * n for n in range(4)])


def test_a_run_that_is_stopped_between_two_rounds_ends_soon(make_app, monkeypatch):
    """Flower tells a ServerApp so when it next asks for something."""
    clock = Clock()

    class Stopped(InProcessGrid):
        def get_node_ids(self):
            if clock.now > 110.0:
                raise RuntimeError("the run is stopped")
            return super().get_node_ids()

    monkeypatch.setattr("psofed.federation.server.strategy.scheduler", lambda: clock)
    with pytest.raises(RuntimeError, match="stopped"):
        run(Stopped({node: make_app() for node in NODES}), rounds=4, plan=RoundPlan(interval=3600.0))
    assert clock.now < 115.0


def test_a_run_that_flower_takes_no_messages_of_ends_and_burns_no_rounds(make_app):
    """Flower answers so when the run is over, as after a jump of the clock; the nodes are not to blame."""

    class Over(InProcessGrid):
        def push_messages(self, messages):
            return ["" for _ in messages]

    strategy = PSOFed(num_shared=2)
    with pytest.raises(PsofedError, match="none of the round's messages"):
        strategy.start(Over({node: make_app() for node in NODES}), np.zeros(6), num_rounds=3)
    assert strategy.state.history == []
    assert strategy.conduct.counts == {}
