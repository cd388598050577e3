"""PSO-Fed on Flower, for real: partial sharing of any model by real clients over a real network.

A Flower user imports two names, :class:`PSOFed` for the ServerApp and :func:`partial_sharing` for the
ClientApp. Someone with machines uses ``psofed federation …``. Needs ``pip install 'psofed[federation]'``.
Nothing of Flower is imported outside this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psofed.federation.client.online import online_regression
    from psofed.federation.client.sharing import partial_sharing
    from psofed.federation.protocol.column_names import ColumnNames
    from psofed.federation.protocol.masks import DerivedMasks, MaskSource, Sharing, SuppliedMasks
    from psofed.federation.protocol.models import arrays_of, load_into
    from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
    from psofed.federation.server.participants import DerivedParticipants, ParticipantSource
    from psofed.federation.server.step import Combination
    from psofed.federation.server.strategy import PSOFed
    from psofed.federation.server.suspects import plan_defence

_HOME = {
    "ColumnNames": "protocol.column_names",
    "Combination": "server.step",
    "DerivedMasks": "protocol.masks",
    "DerivedParticipants": "server.participants",
    "MaskSource": "protocol.masks",
    "PSOFed": "server.strategy",
    "ReplyLimits": "protocol.run_options",
    "RoundPlan": "protocol.run_options",
    "ParticipantSource": "server.participants",
    "Sharing": "protocol.masks",
    "SuppliedMasks": "protocol.masks",
    "arrays_of": "protocol.models",
    "load_into": "protocol.models",
    "online_regression": "client.online",
    "partial_sharing": "client.sharing",
    "plan_defence": "server.suspects",
}

__all__ = [
    "ColumnNames",
    "Combination",
    "DerivedMasks",
    "DerivedParticipants",
    "MaskSource",
    "PSOFed",
    "ParticipantSource",
    "ReplyLimits",
    "RoundPlan",
    "Sharing",
    "SuppliedMasks",
    "arrays_of",
    "load_into",
    "online_regression",
    "partial_sharing",
    "plan_defence",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'psofed.federation' has no attribute {name!r}")
    require_flower()
    return getattr(import_module(f"psofed.federation.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def require_flower() -> None:
    """Raise a clear error if Flower is not installed."""
    from importlib.util import find_spec

    from psofed.common.errors import PsofedError

    if find_spec("flwr") is None:
        raise PsofedError("the federation needs Flower; install it with: pip install 'psofed[federation]'")
