"""PSO-Fed as a Flower strategy: the federation's server, with Flower's Grid as its hub.

A frame is one value of bytes in a message. Flower delivers each message at most once and knows which nodes are online,
so a node's connection never changes. Flower has read a reply before the hub sees it, so its own limits on sizes apply.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.logs import log
from psofed.common.scheduler import scheduler
from psofed.federation.flower.in_process import InProcessGrid
from psofed.federation.flower.models import arrays_of, frame_of, numpy_of, wrap_frame
from psofed.federation.protocol import messages
from psofed.federation.protocol.layout import Arrays
from psofed.federation.protocol.messages import Announcement, NodeReply, RunDescription
from psofed.federation.server.checks import mean_of
from psofed.federation.server.loop import Server
from psofed.federation.transport.hub import NodePresence

_LOOK_EVERY = 0.5  # seconds, between two questions to Flower which nodes are online
_PULL_EVERY = 0.05  # seconds, and a tenth of it more for each node that is waited for


class PSOFed(Server, Strategy):
    """Partial sharing of any model's parameters, resilient to model poisoning, in a Flower ServerApp.

    It has the parameters of :class:`psofed.federation.server.loop.Server`. ClientApps must use the mod
    :func:`psofed.federation.flower.sharing.partial_sharing`.

    Examples
    --------
    >>> strategy = PSOFed(num_shared=0.1, num_participants=5, seed=1)
    >>> strategy.sharing.pattern
    'random'

    In a ServerApp: ``strategy.start(grid, initial_arrays=model.state_dict(), num_rounds=100)``.
    """

    def start(
        self,
        grid: Grid,
        initial_arrays: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds up to `num_rounds`, each for at most `timeout` seconds, and return Flower's result.

        With ``num_rounds=0`` it runs until Flower ends the run. The result has the metrics of the latest 1,000 rounds,
        those of ClientApps averaged over clients. See :meth:`psofed.federation.server.loop.Server.run`.

        Parameters
        ----------
        initial_arrays : ArrayRecord or model
            Anything that :func:`psofed.federation.flower.models.arrays_of` takes.
        train_config : ConfigRecord, optional
            Passed on to the training functions: texts, numbers and flags.
        evaluate_fn : callable, optional
            Given a round and the model, returns metrics or None.
        """
        if evaluate_config is not None:
            raise NotCoveredError(
                "evaluate_config: PSOFed does not evaluate on clients; let training report metrics, or use evaluate_fn"
            )
        if self.settings:
            raise NotCoveredError("settings: Flower's nodes get no description of the run; use train_config")
        result = Result()

        def evaluate(round_number: int, arrays: Arrays) -> MetricRecord | None:
            metrics = evaluate_fn(round_number, arrays_of(arrays)) if evaluate_fn else None
            if metrics is not None:
                result.evaluate_metrics_serverapp[round_number] = metrics
            return metrics

        initial = numpy_of(arrays_of(initial_arrays))
        if not self.resume:
            evaluate(0, initial)
        state = self.run(GridHub(grid), initial, num_rounds, timeout, config=_plain(train_config), evaluate=evaluate)
        for entry in state.history:
            averages = MetricRecord({**mean_of(list(entry["metrics"].values()))})
            result.train_metrics_clientapp[entry["round"]] = averages
        result.arrays = arrays_of(state.layout.restore(state.model, state.kept))
        return result

    def summary(self) -> None:
        """Log the settings."""
        log.info("PSO-Fed: %s", ", ".join(f"{name} {value}" for name, value in self._fixed().items()))

    def configure_train(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the server's loop asks clients itself."""
        raise NotCoveredError(
            "PSOFed runs its own rounds (start), so it cannot be wrapped in another strategy; for private uploads use "
            "partial_sharing(privacy=…)"
        )

    configure_evaluate: Any = configure_train
    aggregate_train: Any = configure_train
    aggregate_evaluate: Any = configure_train


def _plain(config: ConfigRecord | None) -> dict[str, str | int | float | bool]:
    plain: dict[str, str | int | float | bool] = {}
    for name, value in (config or {}).items():
        if not isinstance(value, str | int | float | bool):
            raise InvalidValueError(f"train_config[{name!r}]", value, "a text, a number or a flag")
        plain[name] = value
    return plain


class GridHub:
    """A hub whose nodes run ClientApps with :func:`psofed.federation.flower.sharing.partial_sharing`.

    A node is called by its number, ``str(node_id)``. A failure that Flower reports is turned into the node's reply.

    Parameters
    ----------
    grid : Grid
        As a ServerApp gets it.
    """

    is_connected = True

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._session = ""
        self._nodes: tuple[str, ...] = ()
        self._looked = -math.inf
        self._revoked: frozenset[str] = frozenset()
        # By node: the id of the message that is open, and its frame.
        self._open: dict[str, tuple[str, bytes]] = {}
        self._failed: list[tuple[str, bytes]] = []

    def present(self) -> dict[str, NodePresence]:
        """Return the nodes that Flower takes for online, all of them ready for the run."""
        now = scheduler().monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._nodes, self._looked = tuple(str(node) for node in self.grid.get_node_ids()), now
        body = Announcement(self._session).to_bytes()
        return {name: NodePresence("", body) for name in self._nodes if name not in self._revoked}

    def send(self, node: str, frame: bytes) -> None:
        """Send an instruction; an earlier one of the same node is forgotten."""
        make = self.grid.create_message if isinstance(self.grid, InProcessGrid) else Message
        message = make(wrap_frame(frame), dst_node_id=int(node), message_type=MessageType.TRAIN)
        ids = list(self.grid.push_messages([message]))
        if ids and ids[0]:
            self._open[node] = ids[0], frame
        else:
            self._failed.append((node, _failure(frame, "Flower did not accept the message")))

    def receive(self, seconds: float) -> Sequence[tuple[str, bytes]]:
        """Return the replies that have arrived; without any, after a short pause."""
        arrived, self._failed = self._failed, []
        # One at a time: a reply that Flower cannot read must not take others with it.
        arrived += [(node, reply) for node in list(self._open) if (reply := self._pull(node)) is not None]
        if not arrived:
            scheduler().sleep(min(seconds, _PULL_EVERY * (1.0 + 0.1 * len(self._open))))
        return [(node, frame) for node, frame in arrived if node not in self._revoked]

    def _pull(self, node: str) -> bytes | None:
        message_id, instruction = self._open[node]
        try:
            replies = list(self.grid.pull_messages([message_id]))
            reply = _reply_frame(replies[0], instruction) if replies else None
        except Exception as error:
            self.grid.get_node_ids()  # raises, too, if it is the connection that is lost
            reply = _failure(instruction, f"its reply cannot be read: {type(error).__name__}: {error}")
        if reply is not None:
            del self._open[node]
        return reply

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        """Take note of the run; Flower retains neither run nor model."""
        if run is not None:
            self._session = RunDescription.from_bytes(run).session if run else ""

    def revoke(self, names: Collection[str]) -> None:
        """Ignore these nodes; Flower itself still lets them in."""
        self._revoked = frozenset(names)

    def close(self) -> None:
        """Do nothing: the grid is Flower's."""


def _reply_frame(reply: Message, instruction: bytes) -> bytes:
    if reply.has_error():
        return _failure(instruction, reply.error.reason or f"Flower's error {reply.error.code}")
    frame = frame_of(reply.content)
    if frame is None:
        return _failure(instruction, "its ClientApp does not use the mod partial_sharing()")
    return frame


def _failure(instruction: bytes, reason: str) -> bytes:
    """Return the reply of a node that could not work on an instruction."""
    return messages.encode_reply(NodeReply.failure(messages.decode_instruction(instruction), reason))
