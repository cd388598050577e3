"""A run of an algorithm whose clients hold no model: draws participants chunk by chunk and calls the kernel."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import redrawn_clients
from psofed.engine.bodies import HookHolder
from psofed.engine.frames.exchange import exchange_hooks
from psofed.engine.frames.stream import make_inputs
from psofed.engine.inputs import make_input_model
from psofed.engine.momentum import make_memories
from psofed.engine.network import MessageSizes, Network
from psofed.engine.server_model_kernel import ExchangeHooks, ExchangeLayout, Momenta, advance
from psofed.engine.server_side import ServerSide, attack_streams
from psofed.engine.streams import make_stream
from psofed.engine.test_set import draw_test_set

if TYPE_CHECKING:
    from psofed.engine.hooks import Watching
    from psofed.fleet import Fleet
    from psofed.parts.watching import WatchPlan
    from psofed.scenario import Scenario

# About how many bytes of participants are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000


class ServerModelRun(HookHolder):
    """Several trials in lock step.

    Attributes
    ----------
    server : array (D, lanes)
        Error w − w_n.
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        seed: int,
        trials: range,
        plan: "WatchPlan | None" = None,
    ) -> None:
        algorithm = scenario.algorithm
        exchange, self._traffic = algorithm.exchange(scenario), algorithm.traffic(scenario)
        self._scenario = scenario
        lanes = len(trials)
        self._streams = {
            source: make_stream(seed, source, trials)
            for source in ("data", "participation", "attack", "test", "algorithm", "root", "pre_aggregation")
        }
        self._test_set = draw_test_set(scenario, fleet, self._streams["test"])
        self._inputs = make_input_model(fleet)
        self._over_time = make_inputs(scenario, lanes)
        self._stepsizes = scenario.draw_stepsizes()
        # Largest number of clients that exchange in an iteration; where fewer do, they are the first of those drawn.
        self._most = algorithm.most_participants(scenario)
        # Root data are of the model's entries, so a rule that has some can only join models.
        root = self._streams["root"] if exchange.sends_model else None
        self._server_side = ServerSide(
            scenario, fleet, attack_streams(scenario, seed, trials), self._streams["pre_aggregation"], root,
            max(exchange.numbers, scenario.dimension), plan,
        )  # fmt: skip
        self._exchange = ExchangeHooks(*exchange_hooks(algorithm))
        self._hooks = (*self._exchange, self._over_time.hook)
        self._layout = ExchangeLayout(
            exchange.words_per_iteration(scenario.num_clients), exchange.normals, exchange.uniforms,
            exchange.client_uniforms, exchange.fresh, algorithm.decodes(), exchange.decode_joined,
            exchange.sends_model, exchange.numbers,
        )  # fmt: skip
        self._memory = np.zeros((exchange.memory, lanes))
        clients, read = scenario.num_clients, exchange.numbers
        if algorithm.decodes() and not exchange.decode_joined:
            read = scenario.dimension
        self._momenta = Momenta(
            make_memories(exchange.client_momentum, clients, scenario.dimension, lanes),
            make_memories(exchange.server_momentum, clients, read, lanes),
        )
        self.server: FloatArray = np.repeat(fleet.target[:, None], lanes, axis=1)
        # What attacks and aggregation rules take for the model before the exchange.
        self._network = Network(
            scenario, seed, trials,
            MessageSizes(self._most, exchange.numbers, scenario.dimension, exchange.numbers),
        )  # fmt: skip
        self._base = fleet.target.copy() if exchange.sends_model else np.zeros(exchange.numbers)
        self._target = fleet.target.copy()
        drawn = self._most + redrawn_clients(scenario.attacks)
        self.chunk: int = int(np.clip(_CHUNK_BYTES // (4 * drawn * lanes), 1, 512))

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, lanes); empty unless a channel is private."""
        return self._network.upload_counts

    @property
    def watching(self) -> "Watching | None":
        """Memory of the defence; None without one."""
        return self._server_side.watching

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, lane]``."""
        scenario, stream = self._scenario, self._streams["participation"]
        exchanges = np.array(
            [self._traffic.exchanges_in(n) for n in range(first, first + len(metrics))], np.int64
        )
        drawn = self._network.draw(first, len(metrics), stream, None, exchanges)
        advance(
            first,
            self._streams["data"],
            self._over_time,
            self._inputs,
            self._stepsizes,
            scenario.mean_stepsize,
            drawn.participants,
            exchanges,
            drawn.network,
            self._server_side.attack_in(first, len(metrics)),
            self._server_side.groups,
            self._server_side.defence,
            self._server_side.rule,
            self._streams["algorithm"],
            self._layout,
            self._exchange,
            self._memory,
            self._momenta,
            self._test_set,
            self._base,
            self._target,
            self.server,
            metrics,
        )
        self._server_side.check()
        self._network.check()
        self.check()
