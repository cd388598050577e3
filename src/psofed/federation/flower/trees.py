"""Object trees: which objects a message consists of, checked before anything is built from them.

Flower announces a message as a tree of object ids (SHA-256 of each object's content) and sends the objects one by one.
It expands repeated ids as if the tree were a graph, so that 20 kB can become a million nodes, and it copies a chunk
into an array as often as the array's description says. Here both are bounded before any memory is used.

Objects are shared by all messages that contain them, and the SuperLink keeps the children that whoever came first has
announced. So a node could give children to an object that others send as well, say an empty record. A message is
therefore put together from the objects themselves, whose ids prove their content; the announced tree is not followed.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from flwr.app import Message

MAX_OBJECTS = 32
"""Objects in a message of psofed besides an array's chunks: seven as Flower sends it, three if packed."""

MAX_DEPTH = 6  # a message, its records, an array record, its arrays and their chunks are five
CHUNK_BYTES = 5 << 20  # Flower cuts arrays into chunks of this size
_OBJECT_ID = re.compile(r"[0-9a-f]{64}")


class BadTreeError(ValueError):
    """An object tree, or objects, that no honest sender makes."""


def is_object_id(text: str) -> bool:
    """Whether `text` is an object id as Flower writes it.

    Examples
    --------
    >>> is_object_id("0a" * 32), is_object_id("0A" * 32), is_object_id("0x")
    (True, False, False)
    """
    return _OBJECT_ID.fullmatch(text) is not None


def most_objects(model_bytes: int) -> int:
    """Return how many objects a message about a model of `model_bytes` bytes may have.

    Examples
    --------
    >>> most_objects(40), most_objects(1 << 30)
    (33, 237)
    """
    return MAX_OBJECTS + 1 + model_bytes // CHUNK_BYTES


def list_objects(tree: Any, most: int) -> list[str]:
    """Return the ids in an ``ObjectTree``, children before parents.

    Raises
    ------
    BadTreeError
        If the tree has more than `most` objects, is deeper than :data:`MAX_DEPTH`, repeats an id or holds something
        that is not one.
    """
    found: list[str] = []
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise BadTreeError(f"an object tree deeper than {MAX_DEPTH}")
        if len(found) + len(stack) + len(node.children) + 1 > most:
            raise BadTreeError(f"an object tree of more than {most} objects")
        if not is_object_id(node.object_id):
            raise BadTreeError("an object id that is not a SHA-256 in lower case")
        found.append(node.object_id)
        stack.extend((child, depth + 1) for child in node.children)
    if len(set(found)) != len(found):
        raise BadTreeError("an object tree that repeats an id")
    return found[::-1]


def collect_message(root: str, pull: Callable[[str], bytes], most_objects: int, most_bytes: int) -> Message:
    """Pull the object `root` and all objects that it is made of, and build the message from them.

    Raises
    ------
    BadTreeError
        If there are more than `most_objects` objects, one of them is named twice, they are together, or the arrays
        built from them would be, larger than `most_bytes`; or if they do not make up a message.
    """
    from flwr.supercore.inflatable.inflatable_object import get_object_id
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    contents: dict[str, bytes] = {}
    named, left = {root}, [root]
    size = 0
    while left:
        object_id = left.pop()
        content = pull(object_id)
        size += len(content)
        if size > most_bytes:
            raise BadTreeError(f"a message of more than {most_bytes} bytes")
        if get_object_id(content) != object_id:
            raise BadTreeError("an object that does not match its id")
        contents[object_id] = content
        children = _children(content)
        if len(named) + len(children) > most_objects:
            raise BadTreeError(f"a message of more than {most_objects} objects")
        if not named.isdisjoint(children) or len(set(children)) != len(children):
            raise BadTreeError("a message that repeats an object")
        named.update(children)
        left.extend(children)
    try:
        if sum(_array_bytes(content, contents) for content in contents.values()) > most_bytes:
            raise BadTreeError(f"arrays of more than {most_bytes} bytes")
        message = inflate_object_from_contents(root, contents)
    except BadTreeError:
        raise
    except Exception as error:
        # Flower's readers raise whatever they stumble over: KeyError for a missing child, DecodeError, TypeError, ….
        raise BadTreeError(f"objects that do not make up a message ({type(error).__name__})") from None
    if not isinstance(message, Message):
        raise BadTreeError(f"a {type(message).__name__} instead of a message")
    message.metadata.__dict__["_message_id"] = root
    return message


def _children(content: bytes) -> list[str]:
    """Return the ids of the objects that an object is made of."""
    from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content

    try:
        _, children, _ = get_object_head_values_from_object_content(content)
    except ValueError:
        raise BadTreeError("an object without a head") from None
    if not all(map(is_object_id, children)):
        raise BadTreeError("an object id that is not a SHA-256 in lower case")
    return children


def _array_bytes(content: bytes, contents: dict[str, bytes]) -> int:
    """Return how long the array described by an object becomes; 0 for an object that describes none."""
    from flwr.supercore.inflatable.inflatable_object import (
        _get_object_body,
        get_object_head_values_from_object_content,
    )

    kind, children, _ = get_object_head_values_from_object_content(content)
    if kind != "Array":
        return 0
    return sum(
        len(contents[children[place]]) for place in json.loads(_get_object_body(content))["arraychunk_ids"]
    )
