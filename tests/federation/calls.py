"""Fleet calls as a node writes them, and a grammar of calls that are nearly so."""

import hashlib
from dataclasses import dataclass

from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict
from flwr.proto.run_pb2 import GetRunRequest
from hypothesis import strategies as st

from psofed.federation.flower.inline import INLINE_BYTES, inline_id

SESSION = "01234567-89ab-cdef-0123-456789abcdef"
KEY = b"-----BEGIN PUBLIC KEY-----"


def object_id(text):
    """Return an object id, the same for the same text."""
    return hashlib.sha256(str(text).encode()).hexdigest()


def tree(root, *children):
    """Return an object tree; children are ids or trees."""
    made = [child if isinstance(child, ObjectTree) else ObjectTree(object_id=child) for child in children]
    return ObjectTree(object_id=root, children=made)


def question(node_id, name="question", run_id=5):
    """Return the SuperLink's answer that hands a node a message of this name."""
    about = Metadata(
        run_id=run_id,
        message_id=object_id(name),
        src_node_id=1,
        dst_node_id=node_id,
        group_id="3",
        ttl=60.0,
        message_type="train",
        created_at=1.8e9,
    )
    return PullMessagesResponse(
        messages_list=[Message(metadata=about, content=RecordDict())],
        message_object_trees=[tree(object_id(name), object_id(f"records of {name}"))],
    )


def reply(node_id, *, to="question", root="reply", run_id=5, objects=None, **changes):
    """Return a node's reply as it pushes it; `changes` are the metadata's."""
    parts = [tree(object_id("records"), object_id("record"))] if objects is None else objects
    about = {
        "run_id": run_id,
        "message_id": object_id(root),
        "src_node_id": node_id,
        "dst_node_id": 1,
        "reply_to_message_id": object_id(to),
        "group_id": "3",
        "ttl": 60.0,
        "message_type": "train",
        "created_at": 1.8e9,
    }
    return PushMessagesRequest(
        node=Node(node_id=node_id),
        messages_list=[Message(metadata=Metadata(**(about | changes)), content=RecordDict())],
        message_object_trees=[tree(object_id(root), *parts)],
        clientapp_runtime_list=[0.25],
    )


def inline_reply(node_id, data=b"records", **changes):
    """Return a node's reply that carries its content, `data`."""
    request = reply(node_id, objects=(), **changes)
    record = request.messages_list[0].content.items.add(key="psofed.packed").config_record
    record.items.add(key="records").value.bytes = data
    return with_own_id(request)


def with_own_id(request):
    """Give a message that carries its content the id that it must have."""
    (message,), (announced,) = request.messages_list, request.message_object_trees
    message.metadata.message_id = announced.object_id = inline_id(message)
    return request


def push_object(node_id, content, session=SESSION):
    """Return the request that sends one object."""
    return PushObjectRequest(
        node=Node(node_id=node_id),
        run_id=5,
        object_id=hashlib.sha256(content).hexdigest(),
        object_content=content,
        session_id=session,
    )


@dataclass(frozen=True)
class Call:
    """A call's name and its request."""

    name: str
    request: object

    @property
    def body(self):
        return self.request.SerializeToString(deterministic=True)


def honest_calls(node_id, key=KEY):
    """Return a strategy of all calls that node `node_id` may make."""
    node = Node(node_id=node_id)
    runs = st.integers(0, 2**64 - 1)
    ids = st.integers(0, 5).map(object_id)
    intervals = st.floats(10.0, 30.0)
    trees = st.recursive(
        st.just(()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=12
    ).filter(lambda shape: _depth(shape) <= 5)
    return st.one_of(
        intervals.map(
            lambda s: Call("activate-node", ActivateNodeRequest(public_key=key, heartbeat_interval=s))
        ),
        st.just(Call("deactivate-node", DeactivateNodeRequest(node_id=node_id))),
        intervals.map(
            lambda s: Call("send-node-heartbeat", SendNodeHeartbeatRequest(node=node, heartbeat_interval=s))
        ),
        st.just(Call("pull-messages", PullMessagesRequest(node=node))),
        runs.map(lambda run: Call("get-run", GetRunRequest(node=node, run_id=run))),
        ids.map(lambda i: Call("get-fab", GetFabRequest(node=node, hash_str=i, run_id=5))),
        st.binary(max_size=50).map(lambda data: Call("push-object", push_object(node_id, data))),
        ids.map(lambda i: Call("pull-object", PullObjectRequest(node=node, run_id=5, object_id=i))),
        ids.map(
            lambda i: Call(
                "confirm-message-received",
                ConfirmMessageReceivedRequest(node=node, run_id=5, message_object_id=i),
            )
        ),
        st.builds(
            lambda run, shape: Call("push-messages", _with_tree(reply(node_id, run_id=run), shape)),
            runs,
            trees,
        ),
        st.builds(
            lambda run, data: Call("push-messages", inline_reply(node_id, data, run_id=run)),
            runs,
            st.binary(max_size=50),
        ),
    )


def _depth(shape):
    return 1 + max(map(_depth, shape), default=0)


def _with_tree(request, shape):
    counter = iter(range(1000))

    def grow(shape):
        return tree(object_id(next(counter)), *map(grow, shape))

    made = grow(shape)
    made.object_id = request.messages_list[0].metadata.message_id
    request.message_object_trees[0].CopyFrom(made)
    return request


def _set(path, value):
    """Return a change that sets one field of a request."""

    def change(request):
        *parents, last = path.split(".")
        place = request
        for parent in parents:
            place = place[int(parent)] if parent.isdigit() else getattr(place, parent)
        setattr(place, last, value)

    return change


def _change(function):
    return lambda request: (function(request), None)[1]


ABOUT = "messages_list.0.metadata."
FORGERIES = {
    # In somebody else's name, to somebody else, or unasked.
    "another node's request": _set("node.node_id", 8),
    "another node's message": _set(ABOUT + "src_node_id", 8),
    "the server's message": _set(ABOUT + "src_node_id", 1),
    "an instruction to a node": _set(ABOUT + "dst_node_id", 8),
    "a message that answers none": _set(ABOUT + "reply_to_message_id", ""),
    "an answer to no id": _set(ABOUT + "reply_to_message_id", "all of them"),
    "a message to nobody": _set(ABOUT + "dst_node_id", 0),
    # More than one, or none.
    "two messages": _change(lambda r: r.messages_list.add().CopyFrom(r.messages_list[0])),
    "no message": _change(lambda r: r.ClearField("messages_list")),
    "two trees": _change(lambda r: r.message_object_trees.add().CopyFrom(r.message_object_trees[0])),
    "no tree": _change(lambda r: r.ClearField("message_object_trees")),
    "two runtimes": _change(lambda r: r.clientapp_runtime_list.append(1.0)),
    "no node": _change(lambda r: r.ClearField("node")),
    # Trees that no message has.
    "a repeated id": _change(lambda r: r.message_object_trees[0].children.add(object_id=object_id("record"))),
    "the root among its children": _change(
        lambda r: r.message_object_trees[0].children.add(object_id=r.message_object_trees[0].object_id)
    ),
    "a tree of another message": _set("message_object_trees.0.object_id", object_id("other")),
    "an id in capitals": _set("message_object_trees.0.children.0.object_id", object_id("records").upper()),
    "no id": _set("message_object_trees.0.children.0.object_id", ""),
    "a wide tree": _change(
        lambda r: r.message_object_trees[0].children.extend(
            ObjectTree(object_id=object_id(i)) for i in range(40)
        )
    ),
    "a deep tree": _change(lambda r: _deepen(r.message_object_trees[0], 8)),
    # Values out of bounds.
    "content outside the objects": _change(lambda r: r.messages_list[0].content.items.add(key="arrays")),
    "content and error": _change(lambda r: r.messages_list[0].error.SetInParent()),
    "neither content nor error": _change(lambda r: r.messages_list[0].ClearField("content")),
    "a date that is none": _set(ABOUT + "created_at", float("nan")),
    "a lifetime without end": _set(ABOUT + "ttl", float("inf")),
    "no lifetime": _set(ABOUT + "ttl", 0.0),
    "a runtime that is none": _change(lambda r: r.clientapp_runtime_list.__setitem__(0, float("nan"))),
    "a group of a thousand letters": _set(ABOUT + "group_id", "g" * 1000),
    "no type": _set(ABOUT + "message_type", ""),
}
"""Changes to an honest reply of node 7 that must each be refused, by what they make of it."""


CONTENT = "messages_list.0.content.items.0."
VALUE = CONTENT + "config_record.items.0.value."
INLINE_FORGERIES = {
    # Content and id do not match.
    "another id": _change(
        lambda r: (
            _set(ABOUT + "message_id", object_id("other"))(r),
            _set("message_object_trees.0.object_id", object_id("other"))(r),
        )
    ),
    "other content": _set(VALUE + "bytes", b"other records"),
    "less content": _set(VALUE + "bytes", b"record"),
    "another date": _set(ABOUT + "created_at", 1.9e9),
    "an answer to another message": _set(ABOUT + "reply_to_message_id", object_id("other")),
    "no content": _change(lambda r: r.messages_list[0].content.Clear()),
    # Content and objects, or an error, both.
    "objects besides": _change(lambda r: r.message_object_trees[0].children.add(object_id=object_id("x"))),
    "an error besides": _change(lambda r: r.messages_list[0].error.SetInParent()),
    # Content of another form, with the id that it must have.
    "two records": _change(
        lambda r: with_own_id(_changed(r, lambda m: m.content.items.add().CopyFrom(m.content.items[0])))
    ),
    "two values": _change(
        lambda r: with_own_id(
            _changed(r, lambda m: m.content.items[0].config_record.items.add(key="n").value.SetInParent())
        )
    ),
    "an empty record": _change(
        lambda r: with_own_id(_changed(r, lambda m: m.content.items[0].config_record.Clear()))
    ),
    "an array": _change(
        lambda r: with_own_id(_changed(r, lambda m: m.content.items[0].array_record.items.add(key="a")))
    ),
    "a text": _change(lambda r: (_set(VALUE + "string", "records")(r), with_own_id(r))),
    "nested lists": _change(
        lambda r: with_own_id(
            _changed(
                r,
                lambda m: m.content.items[0].config_record.items[0].value.bytes_list.vals.extend([b"x"] * 9),
            )
        )
    ),
    "too much": _change(lambda r: (_set(VALUE + "bytes", bytes(INLINE_BYTES + 512))(r), with_own_id(r))),
    "a long name": _change(lambda r: (_set(CONTENT + "key", "n" * 2 * INLINE_BYTES)(r), with_own_id(r))),
}
"""Changes to an honest reply of node 7 that carries its content, each of which must be refused."""


def _changed(request, change):
    change(request.messages_list[0])
    return request


def _deepen(place, levels):
    for level in range(levels):
        place = place.children.add(object_id=object_id(f"level {level}"))
