"""Messages: whatever arrives is read or refused, and nothing crashes the server."""

import contextlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psofed.federation.protocol.answers import (
    DESCRIBED,
    LEARNED,
    NodeReply,
    Reply,
    encode_reply,
)
from psofed.federation.protocol.bounds import MAX_ROUND
from psofed.federation.protocol.column_names import MAX_COLUMNS, MAX_NAME, ColumnNames
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.masks import DerivedMasks
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.protocol.wire import (
    EVALUATE,
    FULL,
    MAX_CLIENTS,
    PART,
    START,
    SYNC,
    BadReplyError,
    ClientTask,
    Instruction,
    clean_text,
    client_number,
    decode_instruction,
    encode_instruction,
)
from psofed.federation.server.checks import KINDS, check_replies
from psofed.federation.server.replies import Expectation, read_reply

pytestmark = pytest.mark.federation

F4 = np.dtype(np.float32)
SESSION = "s"


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


LAYOUT = ModelLayout(("w",), ((9,),), ("float32",))
LIMITS = ReplyLimits(max_magnitude=10.0, max_examples=100)


def reply_of(values, session=SESSION, round_number=3, columns=None, roster=None, **changes):
    part = Reply(**{"status": LEARNED, "values": values, "num_examples": 5, **changes})
    return encode_reply(
        NodeReply(session=session, round_number=round_number, columns=columns, roster=roster, replies=(part,))
    )


def judge(content):
    """Return the replies that a message holds; what is wrong with any of them is raised."""
    answer = read_reply(content, Expectation(SESSION, 3, 4, LAYOUT, LIMITS))
    for error in {**answer.refused, **check_replies(answer.replies, LIMITS)}.values():
        raise error
    return answer


def with_array(array):
    content = reply_of(np.zeros(4, F4))
    content["arrays"] = ArrayRecord({"values": array})
    return content


def changed(content, **settings):
    content["psofed"] = ConfigRecord({**content["psofed"], **settings})
    return content


GOOD = np.array([1, 2, 3, 4], F4)
BAD = {
    "nan": reply_of(np.array([1, np.nan, 3, 4], F4)),
    "infinite": reply_of(np.array([1, np.inf, 3, 4], F4)),
    "wrong-length": reply_of(np.zeros(5, F4)),
    "wrong-dtype": reply_of(np.zeros(4)),
    "out-of-bound": reply_of(np.array([1, 11, 3, 4], F4)),
    "inflated-examples": reply_of(GOOD, num_examples=10**9),
    "stale-round": reply_of(GOOD, round_number=2),
    "foreign-session": reply_of(GOOD, session="t"),
    "malformed": RecordDict(),
}
PETABYTE = b"(999999999999999,), }"
MORE_BAD = {
    "negative examples": ("inflated-examples", reply_of(GOOD, num_examples=-1)),
    "a matrix": ("wrong-length", with_array(Array(np.zeros((2, 2), F4)))),
    "big-endian": ("wrong-dtype", with_array(Array(np.zeros(4, ">f4")))),
    "integers": ("wrong-dtype", with_array(Array(np.zeros(4, np.int32)))),
    "truncated": ("wrong-length", with_array(Array("float32", (4,), "numpy.ndarray", npy(GOOD)[:-1]))),
    "a claimed petabyte": (
        "wrong-length",
        with_array(
            Array("float32", (4,), "numpy.ndarray", npy(GOOD).replace(b"(4,), }" + b" " * 14, PETABYTE))
        ),
    ),
    "no bytes": ("malformed", with_array(Array("float32", (4,), "numpy.ndarray", b""))),
    "a zip": ("malformed", with_array(Array("float32", (4,), "numpy.ndarray", b"PK\x03\x04" + bytes(100)))),
    "two arrays": (
        "wrong-key",
        RecordDict(
            {**reply_of(GOOD), "arrays": ArrayRecord({"values": Array(GOOD), "more": Array(GOOD)})},
        ),
    ),
    "another key": ("wrong-key", RecordDict({**reply_of(GOOD), "arrays": ArrayRecord({"0": Array(GOOD)})})),
    "arrays that are metrics": (
        "malformed",
        RecordDict({**reply_of(GOOD), "arrays": MetricRecord({"a": 1})}),
    ),
    "no metrics": ("malformed", changed(reply_of(GOOD), metrics=1)),
    "metrics that are no mapping": ("malformed", changed(reply_of(GOOD), metrics=["[1]"])),
    "metrics that are words": ("malformed", changed(reply_of(GOOD), metrics=['{"mse": "low"}'])),
    "metrics that are deep": ("malformed", changed(reply_of(GOOD), metrics=["[" * 100_000])),
    "metrics beyond 64 bits": ("malformed", changed(reply_of(GOOD), metrics=['{"a": 1%s}' % ("0" * 30)])),
    "metrics for another client": ("malformed", changed(reply_of(GOOD), metrics=["{}", "{}"])),
    "examples that are too many": ("malformed", changed(reply_of(GOOD), examples=[1, 2])),
    "examples that are a number": ("malformed", changed(reply_of(GOOD), examples=1)),
    "endless metrics": ("malformed", reply_of(GOOD, metrics={"x": [0.0] * 10_000})),
    "a client twice": ("malformed", changed(reply_of(GOOD), clients=["", ""])),
    "a client with an escape": ("malformed", changed(reply_of(GOOD), clients=["\x1b[2J"])),
    "a roster with a nameless client": ("malformed", reply_of(GOOD, roster=["", "a"])),
    "a roster beyond any use": (
        "malformed",
        reply_of(GOOD, roster=[f"c{k}" for k in range(MAX_CLIENTS + 1)]),
    ),
    "another format": ("malformed", changed(reply_of(GOOD), format=99)),
}


def test_a_good_reply_comes_through():
    (reply,) = judge(reply_of(GOOD, metrics={"mse": 0.5})).replies
    assert (reply.values == GOOD).all()
    assert (reply.num_examples, reply.metrics) == (5, {"mse": 0.5})


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_named_by_its_kind(kind):
    with pytest.raises(BadReplyError) as caught:
        judge(BAD[kind])
    assert caught.value.kind == kind


@pytest.mark.parametrize("case", MORE_BAD)
def test_stranger_replies_are_named_too(case):
    kind, content = MORE_BAD[case]
    with pytest.raises(BadReplyError) as caught:
        judge(content)
    assert caught.value.kind == kind


def columns_text(features, target="y", **more):
    return json.dumps({"features": features, "target": target, **more})


@pytest.mark.parametrize(
    "text",
    [
        columns_text([f"x{i}" for i in range(10**6)]),
        columns_text([f"x{i}" for i in range(MAX_COLUMNS + 1)]),
        columns_text(["x" * 2**20]),
        columns_text(["x" * (MAX_NAME + 1)]),
        columns_text([f"{i:0{MAX_NAME}d}" for i in range(6000)]),  # each in order, all together too long
        columns_text([1, 2]),
        columns_text([["x"]]),
        columns_text("ab"),
        columns_text(["x", None]),
        columns_text(["x", "x"]),
        columns_text(["x", "y"]),
        columns_text([]),
        columns_text(["", "x"]),
        columns_text([" x"]),
        columns_text(["x\x1b[2J"]),
        columns_text(["x\n"]),
        columns_text(["x"], target=7),
        columns_text(["x"], units=["m"]),
        columns_text(["x"], units=["m", 3]),
        columns_text(["x"], units="mm"),
        "[" * 100_000,
        "[]",
        "{}",
        "null",
        "",
    ],
    ids=range(25),
)
def test_names_of_columns_from_a_stranger_are_bounded_and_refused(text):
    content = reply_of(GOOD, status=DESCRIBED)
    content["psofed"]["columns"] = text
    with pytest.raises(BadReplyError, match="malformed") as refused:
        judge(content)
    assert len(str(refused.value)) < 300
    arrays = '{"arrays":[["0",[4],"float32"]],"private":[],"columns":%s}' % (text or '""')
    with pytest.raises(ValueError, match="not a layout"):
        ModelLayout.from_text(arrays)


def test_names_of_columns_survive_the_wire_and_change_the_digest():
    bare = ModelLayout.of(ArrayRecord([np.zeros(2)]))
    layouts = [bare]
    for columns in (
        ColumnNames(("wind", "größe, °"), "y"),
        ColumnNames(("größe, °", "wind"), "y"),
        ColumnNames(("wind", "größe, °"), "z"),
        ColumnNames(("wind", "größe, °"), "y", ("m/s", "", "kW")),
    ):
        layouts.append(replace(bare, columns=columns))
        assert ModelLayout.from_text(layouts[-1].to_text()) == layouts[-1]
        described = judge(reply_of(None, status=DESCRIBED, columns=columns))
        assert described.columns == columns
    assert len({layout.digest for layout in layouts}) == len(layouts)
    assert "columns" not in bare.to_text()  # a run without names speaks as before


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=9), st.binary(max_size=9), st.booleans()
)
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats())
keys = st.one_of(
    st.sampled_from(
        [
            "format",
            "session",
            "round",
            "clients",
            "statuses",
            "examples",
            "metrics",
            "roster",
            "values",
            "kinds",
            "layout",
            "seed",
            "columns",
        ]
    ),
    st.text(max_size=5),
)
arrays = st.builds(
    Array,
    st.sampled_from(["float32", "float64", "object", ""]),
    st.lists(st.integers(-3, 2**40), max_size=3).map(tuple),
    st.sampled_from(["numpy.ndarray", "other"]),
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda head, tail: head + tail, st.just(npy(GOOD)[:80]), st.binary(max_size=80)),
        st.builds(
            lambda body, at, byte: body[:at] + bytes([byte]) + body[at + 1 :],
            st.just(npy(GOOD)),
            st.integers(0, len(npy(GOOD)) - 1),
            st.integers(0, 255),
        ),
    ),
)
records = st.one_of(
    st.dictionaries(keys, arrays, max_size=3).map(ArrayRecord),
    st.dictionaries(
        keys,
        st.one_of(
            scalars, st.lists(st.integers(0, 5), max_size=3), st.lists(st.text(max_size=3), max_size=3)
        ),
        max_size=12,
    ).map(ConfigRecord),
    st.dictionaries(keys, st.one_of(numbers, st.lists(st.floats(), max_size=3)), max_size=3).map(
        MetricRecord
    ),
)
contents = st.dictionaries(
    st.one_of(st.sampled_from(["arrays", "psofed", "metrics", "config"]), st.text(max_size=4)),
    records,
    max_size=4,
).map(RecordDict)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine it is
@given(content=contents, patch=st.booleans())
def test_no_reply_crashes_the_decoder(content, patch):
    """Anything at all, or anything at all laid over a good reply, is read or refused with a known kind."""
    if patch:
        content = RecordDict({**reply_of(GOOD), **content})
    try:
        reply = judge(content)
    except BadReplyError as error:
        kind = error.kind
    else:
        kind = "malformed"
        for values in (part.values for part in reply.replies):
            assert values is None or (np.isfinite(values).all() and values.shape == (4,))
    assert kind in KINDS


@given(content=contents)
def test_no_instruction_crashes_the_client_with_anything_but_a_value_error(content):
    with contextlib.suppress(ValueError):
        decode_instruction(content)


KINDS_SENT = (PART, START, FULL, SYNC, EVALUATE)


@given(
    kinds=st.lists(st.sampled_from(KINDS_SENT), min_size=1, max_size=6),
    num_shared=st.integers(1, 9),
    coordinated=st.booleans(),
    n=st.integers(1, MAX_ROUND),
)
def test_an_instruction_survives_the_wire(kinds, num_shared, coordinated, n):
    """Whatever its clients are asked; what all of them get is sent once."""
    model, common = np.arange(9, dtype=F4), np.arange(num_shared, dtype=F4)

    def values(k, kind):
        if kind in (FULL, SYNC):
            return model
        if kind == EVALUATE:
            return None
        return common if coordinated else np.full(num_shared, k, F4)

    sent = Instruction(
        session=SESSION, round_number=n, node=2**64 - 1, digest=LAYOUT.digest, layout=LAYOUT, roster="r",
        refused=("x",), masks=DerivedMasks(seed=1, dimension=9, num_shared=num_shared, coordinated=coordinated),
        tasks=tuple(ClientTask(f"c{k}", kind, n - 1, values(k, kind)) for k, kind in enumerate(kinds)),
    )  # fmt: skip
    content = encode_instruction(sent)
    got = decode_instruction(content)
    for name in ("session", "round_number", "node", "masks", "layout", "digest", "roster", "refused"):
        assert getattr(got, name) == getattr(sent, name)
    for before, after in zip(sent.tasks, got.tasks, strict=True):
        assert (before.client, before.kind, before.expected) == (after.client, after.kind, after.expected)
        np.testing.assert_array_equal(before.values, after.values)
    parts = sum(kind in (PART, START) for kind in kinds)
    blocks = (min(parts, 1) if coordinated else parts) * num_shared
    whole = 9 if {FULL, SYNC} & set(kinds) else 0
    there = content.get("arrays")
    assert (0 if there is None else there["values"].shape[0]) == blocks + whole


def test_numbers_of_clients_are_those_of_their_nodes_or_follow_from_them():
    assert client_number(7, "") == 7
    numbers = {client_number(node, name) for node in (7, 8) for name in ("a", "b", "größe")}
    assert len(numbers) == 6
    assert all(0 <= number < 2**64 for number in numbers)


@pytest.mark.parametrize("num_shared", [1, 10, 500, 999, 1000])
def test_no_share_costs_more_than_the_whole(num_shared):
    layout = ModelLayout(("w",), ((1000,),), ("float32",))

    def size(shared, kind):
        count = 1000 if kind == FULL else shared
        masks = DerivedMasks(seed=2**62, dimension=1000, num_shared=shared)
        content = encode_instruction(
            Instruction(
                session="a" * 32, round_number=10**6, node=2**64 - 1, masks=masks, digest=layout.digest,
                layout=layout, tasks=(ClientTask("", kind, 10**6, np.zeros(count, F4)),),
            )
        )  # fmt: skip
        return len(content["arrays"]["values"].data) + len(content["psofed"].deflate())

    assert size(num_shared, PART) <= size(1000, FULL)


@pytest.mark.parametrize("length", [199, 200, 201, 1000])
def test_what_a_client_says_is_cut_to_two_hundred_characters(length):
    assert clean_text("x" * length) == "x" * min(length, 200)
    assert BadReplyError("error", "x" * length).detail == "x" * min(length, 200)
