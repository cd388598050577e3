"""Which calls the front door passes on: the rule by itself, on generated calls."""

import hashlib

import calls
import flwr.app
import pytest
from calls import FORGERIES, INLINE_FORGERIES, KEY, SESSION, honest_calls
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from hypothesis import assume, given
from hypothesis import strategies as st

from psofed.federation.flower import NOT_ACTIVATED, Gate, Sender, identify, why_refused
from psofed.federation.flower.calls import activated_id
from psofed.federation.flower.trees import BadTreeError, collect_message, list_objects

pytestmark = pytest.mark.federation

ME = Sender(KEY, 7)
NAMES = ("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages")
NAMES += ("get-run", "get-fab", "push-object", "pull-object", "confirm-message-received")


@given(call=honest_calls(7))
def test_every_call_of_an_honest_node_passes(call):
    assert why_refused(call.name, call.body, ME) is None


@given(call=honest_calls(7))
def test_no_call_passes_in_another_nodes_name(call):
    assert why_refused(call.name, call.body, Sender(b"another key", 8)) is not None


@given(call=honest_calls(7))
def test_a_node_without_an_id_can_only_come_and_go(call):
    refused = why_refused(call.name, call.body, Sender(KEY, None))
    assert refused == (None if call.name in ("activate-node", "deactivate-node") else NOT_ACTIVATED)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_reply_is_refused(name):
    request = calls.reply(7)
    assert why_refused("push-messages", request.SerializeToString(), ME) is None
    FORGERIES[name](request)
    refused = why_refused("push-messages", request.SerializeToString(), ME)
    assert refused.startswith("push-messages: ")
    assert "\n" not in refused


@pytest.mark.parametrize("name", INLINE_FORGERIES)
def test_a_forged_reply_that_carries_its_content_is_refused(name):
    request = calls.inline_reply(7)
    assert why_refused("push-messages", request.SerializeToString(), ME) is None
    INLINE_FORGERIES[name](request)
    body = request.SerializeToString()
    if name == "no content":  # it is then an announcement, which names no object
        assert refusal(gate_with_a_question(), "push-messages", request) is not None
        return
    refused = why_refused("push-messages", body, ME)
    assert refused.startswith("push-messages: ")
    assert len(refused) < 200


@given(data=st.binary(min_size=1, max_size=40), cut=st.integers(1, 30))
def test_a_reply_that_carries_its_content_is_refused_if_it_is_cut_short(data, cut):
    whole = calls.inline_reply(7, data)
    body = whole.SerializeToString()[:-cut]
    if why_refused("push-messages", body, ME) is None:  # what was cut off is not part of the message
        assert type(whole).FromString(body).messages_list[0] == whole.messages_list[0]


def test_content_comes_only_in_answer_to_content():
    """Only then the SuperLink keeps neither session nor object of it; the answer counts once, as any other."""
    gate = gate_with_a_question("question")
    assert "came without" in refusal(gate, "push-messages", calls.inline_reply(7))
    question = calls.question(7)
    question.messages_list[0].content.items.add(key="psofed.packed")
    question.message_object_trees[0].ClearField("children")
    gate.note("pull-messages", KEY, b"", question.SerializeToString())
    taken = [refusal(gate, "push-messages", calls.inline_reply(7)) is None for _ in range(5)]
    assert taken == [True] * 3 + [False] * 2
    assert "answered" in refusal(gate, "push-messages", calls.inline_reply(7, b"another"))


@given(
    names=st.lists(st.sampled_from(sorted(FORGERIES)), min_size=2, max_size=4, unique=True),
)
def test_two_forgeries_do_not_cancel_out(names):
    request = calls.reply(7)
    for name in names:
        try:
            FORGERIES[name](request)
        except IndexError:
            return  # what it would change is gone
    if request.messages_list and request.messages_list[0].HasField("error"):
        assume("neither content nor error" not in names)  # together they make the report of an error
    assert why_refused("push-messages", request.SerializeToString(), ME) is not None


@given(
    call=honest_calls(7),
    added=st.one_of(
        st.binary(min_size=1, max_size=20),
        st.sampled_from([bytes.fromhex("0a020807"), bytes.fromhex("0a00"), bytes.fromhex("f80701")]),
    ),
    first=st.booleans(),
)
def test_a_body_with_anything_added_is_refused_or_is_another_honest_call(call, added, first):
    """Unknown fields, repeated fields and trailing bytes: what passes is what protobuf itself would write."""
    body = added + call.body if first else call.body + added
    if why_refused(call.name, body, ME) is None:
        read = type(call.request).FromString(body)
        read.DiscardUnknownFields()
        assert read.SerializeToString(deterministic=True) == body


@given(call=honest_calls(7), data=st.data())
def test_no_changed_byte_crashes_the_rule_or_changes_the_sender(call, data):
    body = bytearray(call.body)
    if body:
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    if why_refused(call.name, bytes(body), ME) is None:
        read = type(call.request).FromString(bytes(body))
        if call.name == "push-messages":
            assert read.messages_list[0].metadata.src_node_id == read.node.node_id == 7
            assert read.messages_list[0].metadata.dst_node_id == 1
        elif call.name == "activate-node":
            assert read.public_key == KEY
        elif call.name != "deactivate-node":
            assert read.node.node_id == 7


@given(name=st.one_of(st.sampled_from(NAMES), st.text(max_size=20)), body=st.binary(max_size=200))
def test_no_body_crashes_the_rule(name, body):
    refused = why_refused(name, body, ME)
    assert refused is None or refused == NOT_ACTIVATED or refused.startswith(f"{name}: ")


@pytest.mark.parametrize(
    "body",
    [
        "0a0208870080",  # cut short
        "0a03088700",  # a padded number
        "0a0208070a020807",  # the node twice
        "0a02080710011001",  # unknown fields
        "0a0410010807",  # fields in another order
        "0a021007",  # another field than the id
        "0a0a0907000000000000000000",  # another type
    ],
)
def test_one_way_of_writing_a_body_is_read(body):
    node = Node(node_id=7)
    assert why_refused("pull-messages", PullMessagesRequest(node=node).SerializeToString(), ME) is None
    assert why_refused("pull-messages", bytes.fromhex(body), ME) is not None


@pytest.mark.parametrize("seconds", [0.0, 9.9, 30.1, 1800.0, float("inf"), float("nan"), -10.0])
def test_a_node_cannot_choose_to_be_online_for_an_hour(seconds):
    beat = SendNodeHeartbeatRequest(node=Node(node_id=7), heartbeat_interval=seconds)
    begin = ActivateNodeRequest(public_key=KEY, heartbeat_interval=seconds)
    assert "heartbeat interval" in why_refused("send-node-heartbeat", beat.SerializeToString(), ME)
    assert "heartbeat interval" in why_refused("activate-node", begin.SerializeToString(), ME)


def test_a_node_cannot_activate_another_key_or_deactivate_another_node():
    other = ActivateNodeRequest(public_key=b"another", heartbeat_interval=10.0)
    assert "public key" in why_refused("activate-node", other.SerializeToString(), ME)
    leave = DeactivateNodeRequest(node_id=8).SerializeToString()
    assert "node id" in why_refused("deactivate-node", leave, ME)


@pytest.mark.parametrize("answer", [b"", b"\xff", b"\x08\x01"])
def test_an_answer_without_a_nodes_id_teaches_nothing(answer):
    with pytest.raises(ValueError, match=r"activate-node|cannot have the id"):
        activated_id(answer)


def test_a_tree_that_would_grow_as_a_graph_is_refused_at_its_first_repeated_id():
    """Flower expands it: with fan-out f, 20 kB become f³ nodes."""
    leaf = [calls.tree(calls.object_id(i)) for i in range(3)]
    middle = [calls.tree(calls.object_id(f"m{i}"), *leaf) for i in range(3)]
    with pytest.raises(BadTreeError, match="repeats an id"):
        list_objects(calls.tree(calls.object_id("root"), *middle), 100)
    assert len(list_objects(calls.tree(calls.object_id("root"), *leaf), 4)) == 4
    with pytest.raises(BadTreeError, match="more than 3 objects"):
        list_objects(calls.tree(calls.object_id("root"), *leaf), 3)


def gate_with_a_question(*names):
    """Return a gate at which node 7 is known and was handed messages of these names."""
    gate = Gate()
    gate.note("activate-node", KEY, b"", ActivateNodeResponse(node_id=7).SerializeToString())
    for name in names:
        gate.note("pull-messages", KEY, b"", calls.question(7, name).SerializeToString())
    return gate


def refusal(gate, name, request):
    return gate.why_refused(name, request.SerializeToString(deterministic=True), KEY)


@given(call=honest_calls(7))
def test_the_gate_refuses_whatever_the_rule_refuses_and_all_that_was_not_handed_out(call):
    gate = gate_with_a_question()
    free = ("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages")
    assert (gate.why_refused(call.name, call.body, KEY) is None) == (call.name in free)
    assert gate.why_refused(call.name, call.body, b"another key") is not None


def test_a_node_fetches_confirms_and_answers_what_it_was_handed():
    node = Node(node_id=7)
    gate = gate_with_a_question("question")
    part, message = calls.object_id("records of question"), calls.object_id("question")
    assert refusal(gate, "pull-object", PullObjectRequest(node=node, run_id=5, object_id=part)) is None
    assert refusal(gate, "get-run", GetRunRequest(node=node, run_id=5)) is None
    confirm = ConfirmMessageReceivedRequest(node=node, run_id=5, message_object_id=message)
    assert refusal(gate, "confirm-message-received", confirm) is None
    assert refusal(gate, "push-messages", calls.reply(7)) is None
    wanted = PushMessagesResponse(session_id=SESSION, objects_to_push=[calls.object_id("x")])
    gate.note("push-messages", KEY, b"", wanted.SerializeToString())
    sent = PushObjectRequest(node=node, run_id=5, object_id=calls.object_id("x"), session_id=SESSION)
    assert refusal(gate, "push-object", sent) is None
    gate.note(
        "push-object", KEY, sent.SerializeToString(), PushObjectResponse(stored=True).SerializeToString()
    )
    assert "not asked" in refusal(gate, "push-object", sent)


def test_a_node_can_neither_fetch_nor_delete_nor_answer_anothers_message():
    """Deleting its own reply's objects, too, was a way to make the server ask again and again."""
    node = Node(node_id=7)
    gate = gate_with_a_question("question")
    other = calls.object_id("another's")
    assert "not sent" in refusal(gate, "pull-object", PullObjectRequest(node=node, run_id=5, object_id=other))
    for message in (other, calls.object_id("reply")):
        confirm = ConfirmMessageReceivedRequest(node=node, run_id=5, message_object_id=message)
        assert "not sent" in refusal(gate, "confirm-message-received", confirm)
    assert "not sent" in refusal(gate, "push-messages", calls.reply(7, to="another's"))
    assert "not sent" in refusal(gate, "push-messages", calls.reply(7, run_id=6))
    assert "no message" in refusal(gate, "get-run", GetRunRequest(node=node, run_id=6))


def test_a_message_is_answered_once_and_that_answer_repeated_a_few_times():
    """Each push opens a session in the SuperLink and keeps its objects, both until the run ends."""
    gate = gate_with_a_question("question")
    taken = [refusal(gate, "push-messages", calls.reply(7)) is None for _ in range(20)]
    assert taken == [True] * 3 + [False] * 17
    gate = gate_with_a_question("question")
    taken = [refusal(gate, "push-messages", calls.reply(7, root=f"reply {k}")) is None for k in range(20)]
    assert taken == [True] + [False] * 19
    grown = calls.reply(7, root="reply 0", objects=[calls.object_id("one more")])
    assert "answered" in refusal(gate, "push-messages", grown)


def test_an_object_of_the_server_keeps_its_children():
    """The SuperLink keeps one entry for an object in all messages: the first node to announce it names its children."""
    gate = gate_with_a_question("question")
    sent = calls.object_id("records of question")  # a leaf
    forged = calls.reply(7, objects=[calls.tree(sent, calls.object_id("never sent"))])
    assert "other children" in refusal(gate, "push-messages", forged)
    assert refusal(gate, "push-messages", calls.reply(7, objects=[sent])) is None


def test_a_message_is_put_together_from_its_objects_whatever_was_announced_about_them():
    """Two nodes send the same record; the first gives it a child that never comes, and that the SuperLink believes."""
    identify(run=5, node=1)
    message = flwr.app.Message(
        flwr.app.RecordDict(
            {"config": flwr.app.ConfigRecord({"rate": 1}), "empty": flwr.app.ConfigRecord({})}
        ),
        dst_node_id=7,
        message_type="train",
    )
    objects = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    shared = flwr.app.ConfigRecord({}).object_id
    store = InMemoryObjectStore()
    never = calls.object_id("never sent")
    store.preregister(5, calls.tree(calls.object_id("forged"), calls.tree(shared, never)))
    store.preregister(5, get_object_tree(message))
    for key, content in objects.items():
        store.put(key, content)
    believed = list_objects(store.get_object_tree(message.object_id), 100)
    assert never in believed
    built = collect_message(message.object_id, objects.__getitem__, 4, 10_000)
    assert built.content == message.content
    with pytest.raises(BadTreeError, match="more than 3 objects"):
        collect_message(message.object_id, objects.__getitem__, 3, 10_000)
    with pytest.raises(BadTreeError, match="without a head"):
        collect_message(hashlib.sha256(b"x").hexdigest(), lambda key: b"x", 3, 10)


def test_the_gate_forgets_old_messages():
    gate = gate_with_a_question(*(f"question {k}" for k in range(100)))
    assert "not sent" in refusal(gate, "push-messages", calls.reply(7, to="question 0"))
    assert refusal(gate, "push-messages", calls.reply(7, to="question 99")) is None
    assert len(gate._records[KEY].messages) < 20


@pytest.mark.parametrize("call", ["activate-node", "pull-messages", "push-messages", "push-object"])
@given(answer=st.binary(max_size=60))
def test_no_answer_crashes_the_gate(call, answer):
    gate_with_a_question("question").note(call, KEY, b"", answer)


def test_a_node_that_leaves_a_message_unanswered_asks_once_without_being_held():
    gate = Gate()
    gate.note("activate-node", KEY, b"", ActivateNodeResponse(node_id=7).SerializeToString())
    assert not gate.may_pass(KEY)
    gate.note("pull-messages", KEY, b"", calls.question(7, "a").SerializeToString())
    assert [gate.may_pass(KEY), gate.may_pass(KEY)] == [True, False]
    gate.note("pull-messages", KEY, b"", calls.question(7, "b").SerializeToString())
    gate.note("push-messages", KEY, b"", PushMessagesResponse().SerializeToString())
    assert not gate.may_pass(KEY)


def test_a_node_that_was_rung_for_and_handed_nothing_asks_a_few_times_without_being_held():
    gate, nothing = gate_with_a_question(), PullMessagesResponse().SerializeToString()
    gate.note("pull-messages", KEY, b"", nothing)
    assert not gate.may_pass(KEY)
    gate.note("pull-messages", KEY, b"", nothing, rung=True)
    assert [gate.may_pass(KEY) for _ in range(9)] == [True] * 8 + [False]
    gate.note("pull-messages", KEY, b"", nothing, rung=True)
    gate.note("pull-messages", KEY, b"", calls.question(7, "a").SerializeToString())
    assert [gate.may_pass(KEY), gate.may_pass(KEY)] == [True, False]
