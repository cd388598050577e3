"""Messages that carry their content, and the SuperLink's short cuts, which answer as Flower does and keep nothing."""

import asyncio
import base64
import datetime
import warnings

import calls
import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from psofed.federation.flower import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    AnnouncedReply,
    BadTreeError,
    identify,
    pull_replies,
)
from psofed.federation.flower.inline import read_inline, write_inline
from psofed.federation.flower.lean import LeanLink
from psofed.federation.protocol.packing import offers_inline, pack, unpack

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TASK_TOKEN_HEADER, TaskType
    from flwr.supercore.fab import Fab
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.superlink.main import create_app

pytestmark = pytest.mark.federation

RECORDS = RecordDict({"settings": ConfigRecord({"round": 3, "name": "a"})})


def question(node_id, run_id=5):
    """Return an instruction of the server with packed content."""
    identify(run=run_id, node=1)
    return Message(pack(RECORDS), node_id, "train", ttl=60.0, group_id="3")


def test_a_message_arrives_as_it_was_sent_and_no_other_way():
    sent = question(7)
    proto, tree = write_inline(sent)
    arrived = read_inline(type(proto).FromString(proto.SerializeToString()), tree)
    assert unpack(arrived.content) == RECORDS
    assert arrived.metadata.message_id == sent.metadata.message_id == tree.object_id
    proto.metadata.ttl += 1.0
    with pytest.raises(BadTreeError, match="does not match its id"):
        read_inline(proto, tree)


def test_a_node_offers_to_read_content_and_older_servers_read_its_offer_as_before():
    assert offers_inline(pack(RECORDS, offer_inline=True))
    assert not offers_inline(pack(RECORDS))
    assert not offers_inline(RECORDS)
    assert unpack(pack(RECORDS, offer_inline=True)) == RECORDS


class Listing:
    """A Grid whose SuperLink lists given messages, and remembers which of them were deleted."""

    def __init__(self, *requests):
        self._runtime_client = self
        self.requests, self.deleted = requests, []

    def PullMessages(self, request):  # noqa: N802 - as in Flower
        return PullAppMessagesResponse(
            messages_list=[sent.messages_list[0] for sent in self.requests],
            message_object_trees=[sent.message_object_trees[0] for sent in self.requests],
        )

    def ConfirmMessageReceived(self, request):  # noqa: N802 - as in Flower
        self.deleted.append(request.message_object_id)


@pytest.mark.parametrize("name", [name for name in calls.INLINE_FORGERIES if name != "no content"])
def test_a_bad_reply_costs_its_sender_only(name):
    """Past the front door, beside a good reply, one of objects, a second answer and messages that answer nothing."""
    forged = calls.inline_reply(7, to="first")
    calls.INLINE_FORGERIES[name](forged)
    grid = Listing(
        calls.inline_reply(9, to="never asked"),
        forged,
        calls.inline_reply(8, to="second"),
        calls.inline_reply(8, b"again", to="second"),
        calls.inline_reply(7, b"in another's name", to="third"),
        calls.reply(9, to="third"),
        calls.reply(1, to="never asked", root="injected"),
    )
    asked = {calls.object_id(name): node for name, node in (("first", 7), ("second", 8), ("third", 9))}
    pulled = pull_replies(grid, asked)
    first, second, third = (pulled.get(message_id) for message_id in asked)
    assert second.content["psofed.packed"]["records"] == b"records"
    assert isinstance(third, AnnouncedReply)
    assert isinstance(first, BadTreeError) or (first is None and name == "an answer to another message")
    assert grid.deleted == [calls.object_id("injected")]


def post(app, path, body, headers):
    """Return an ASGI application's answer."""

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://link") as client:
            return await client.post(path, content=body, headers=headers)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def superlink():
    """Flower's application with a run and a node, both ways, on one state."""
    app = create_app()
    state = app.state.linkstate_factory.state()
    key = ec.generate_private_key(ec.SECP384R1())
    public = public_key_to_bytes(key.public_key())
    state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public, 0, name="a")
    fab = Fab(calls.object_id("app"), b"app", {})
    run_id = state.create_run(
        "psofed/app", "1.0.0", fab.hash_str, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
    )
    (task,) = state.get_tasks(task_ids=[state.get_run_info(run_ids=[run_id])[0].primary_task_id])
    token = state.claim_task(task.task_id)
    state.activate_task(task.task_id)
    return Superlink(app, state, key, public, run_id, token)


class Superlink:
    """One SuperLink, to be asked through Flower's application or past its middleware."""

    def __init__(self, app, state, key, public, run_id, token):
        self.app, self.state, self.key, self.public, self.run_id, self.token = (
            app,
            state,
            key,
            public,
            run_id,
            token,
        )
        self.lean = LeanLink(app)

    def headers(self):
        signed = datetime.datetime.now(datetime.UTC).isoformat()
        signature = base64.b64encode(sign_message(self.key, signed.encode())).decode()
        return {
            "content-type": PROTOBUF_MEDIA_TYPE,
            KEY_HEADER: base64.b64encode(self.public).decode(),
            SIGNATURE_HEADER: signature,
            TIMESTAMP_HEADER: signed,
            TASK_TOKEN_HEADER: self.token,
        }

    def ask(self, path, request):
        answer = post(self.lean, path, request.SerializeToString(), self.headers())
        assert answer.status_code == 200, answer.text
        return self.answer_types()[path].FromString(answer.content)

    @staticmethod
    def answer_types():
        from flwr.proto import fleet_pb2, runtime_pb2

        return {
            "/v1/fleet/activate-node": fleet_pb2.ActivateNodeResponse,
            "/v1/fleet/pull-messages": fleet_pb2.PullMessagesResponse,
            "/v1/fleet/push-messages": fleet_pb2.PushMessagesResponse,
            "/v1/runtime/push-messages": runtime_pb2.PushAppMessagesResponse,
            "/v1/runtime/pull-messages": runtime_pb2.PullAppMessagesResponse,
        }


def test_short_cuts_refuse_what_flower_refuses_with_the_same_words(superlink):
    """The contract with Flower's version: callers, bodies and errors of every hot call."""
    good = superlink.headers()
    heads = {
        "nobody": {"content-type": PROTOBUF_MEDIA_TYPE},
        "known": good,
        "wrong signature": {**good, SIGNATURE_HEADER: base64.b64encode(b"x").decode()},
        "old": {**good, TIMESTAMP_HEADER: "2020-01-01T00:00:00+00:00"},
        "wrong token": {**good, TASK_TOKEN_HEADER: "x"},
        "another type": {**good, "content-type": "text/plain"},
    }
    bodies = [b"", b"\xff", PullMessagesRequest(node=Node(node_id=99)).SerializeToString()]
    assert len(superlink.lean._routes) == 12
    statuses = set()
    for path in superlink.lean._routes:
        for who, headers in heads.items():
            for body in bodies:
                expected = post(superlink.app, path, body, headers)
                given = post(superlink.lean, path, body, headers)
                assert (given.status_code, given.content) == (expected.status_code, expected.content), (
                    path,
                    who,
                )
                statuses.add(given.status_code)
    assert {400, 401, 500} <= statuses


def test_nothing_is_left_behind_of_messages_that_carry_their_content(superlink):
    state = superlink.state
    activate = ActivateNodeRequest(public_key=superlink.public, heartbeat_interval=30.0)
    node_id = superlink.ask("/v1/fleet/activate-node", activate).node_id
    before = len(state._object_push_sessions), len(state.object_store)
    for _ in range(5):
        asked, tree = write_inline(question(node_id, superlink.run_id))
        pushed = superlink.ask(
            "/v1/runtime/push-messages",
            PushAppMessagesRequest(messages_list=[asked], message_object_trees=[tree]),
        )
        assert pushed.message_ids == [tree.object_id]
        assert not pushed.objects_to_push
        handed = superlink.ask("/v1/fleet/pull-messages", PullMessagesRequest(node=Node(node_id=node_id)))
        arrived = read_inline(handed.messages_list[0], handed.message_object_trees[0])
        identify(run=superlink.run_id, node=node_id)
        reply, reply_tree = write_inline(Message(pack(RECORDS), reply_to=arrived))
        answer = PushMessagesRequest(
            node=Node(node_id=node_id), messages_list=[reply], message_object_trees=[reply_tree]
        )
        for _ in range(2):  # a reply that is sent twice is one
            assert not superlink.ask("/v1/fleet/push-messages", answer).objects_to_push
        pulled = superlink.ask(
            "/v1/runtime/pull-messages", PullAppMessagesRequest(message_ids=[tree.object_id])
        )
        assert unpack(read_inline(pulled.messages_list[0], pulled.message_object_trees[0]).content) == RECORDS
    assert (len(state._object_push_sessions), len(state.object_store)) == before
    assert not state.message_ins_store
    assert not state.message_res_store
