"""All of Flower's internals that psofed uses, in one place.

What Flower documents (``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp``) is imported where it is needed. What it
does not document is imported in this package and nowhere else: its HTTP clients of the Fleet API (which nodes speak)
and of the Control API (which submits runs and registers keys), its objects, and its serialisation. These may change
with any minor version, so they are tested against :data:`TESTED_MINORS`; on other versions ``psofed federation
client`` falls back to Flower's own SuperNode.
"""

from psofed.federation.flower.calls import NOT_ACTIVATED, SUPERLINK, Sender, why_refused
from psofed.federation.flower.control import Control
from psofed.federation.flower.errors import (
    BadMessageError,
    ForgottenError,
    NotRunningError,
    StillOnlineError,
    UnknownKeyError,
    UnreachableError,
    WrongAuthorityError,
)
from psofed.federation.flower.fleet import HEARTBEAT, Announcement, FleetConnection
from psofed.federation.flower.gate import NOTED, Gate
from psofed.federation.flower.inline import INLINE_BYTES
from psofed.federation.flower.keys import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_SECONDS,
    TIMESTAMP_HEADER,
    USED_SIGNATURE,
    is_signed,
    is_timely,
    number_of_key,
    public_key_of,
)
from psofed.federation.flower.link import SECRET_HEADER, SECRET_VARIABLE
from psofed.federation.flower.messages import error_reply, identify
from psofed.federation.flower.records import fill, make_array, plain, records_from_bytes, records_to_bytes
from psofed.federation.flower.replies import (
    AnnouncedReply,
    IncompleteReplyError,
    PulledReply,
    ReplyBounds,
    collect_reply,
    pull_replies,
    push_inline,
    withdraw,
)
from psofed.federation.flower.signing import WRONG_TIME
from psofed.federation.flower.trees import CHUNK_BYTES, BadTreeError, most_objects
from psofed.federation.flower.versions import TESTED_MINORS, untested_version

__all__ = [
    "CHUNK_BYTES",
    "HEARTBEAT",
    "INLINE_BYTES",
    "KEY_HEADER",
    "NOTED",
    "NOT_ACTIVATED",
    "SECRET_HEADER",
    "SECRET_VARIABLE",
    "SIGNATURE_HEADER",
    "SIGNATURE_SECONDS",
    "SUPERLINK",
    "TESTED_MINORS",
    "TIMESTAMP_HEADER",
    "USED_SIGNATURE",
    "WRONG_TIME",
    "AnnouncedReply",
    "Announcement",
    "BadMessageError",
    "BadTreeError",
    "Control",
    "FleetConnection",
    "ForgottenError",
    "Gate",
    "IncompleteReplyError",
    "NotRunningError",
    "PulledReply",
    "ReplyBounds",
    "Sender",
    "StillOnlineError",
    "UnknownKeyError",
    "UnreachableError",
    "WrongAuthorityError",
    "collect_reply",
    "error_reply",
    "fill",
    "identify",
    "is_signed",
    "is_timely",
    "make_array",
    "most_objects",
    "number_of_key",
    "plain",
    "public_key_of",
    "pull_replies",
    "push_inline",
    "records_from_bytes",
    "records_to_bytes",
    "untested_version",
    "why_refused",
    "withdraw",
]
