"""Where attack and aggregation enter a kernel: on uploads on their way into the model, and on clients' data."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK, POISON
from psofed.engine.streams import Stream, WordArray
from psofed.parts.registry import load_part
from psofed.scenario import Scenario


class ServerSide(NamedTuple):
    """Attack on uploads and aggregation as kernels take them (see :mod:`psofed.engine.hooks`).

    Without an attack on uploads the `attack` hook is one that is never called.
    """

    has_attack: bool
    attack: Any
    attack_key: WordArray
    attack_gamma: WordArray
    attack_options: FloatArray
    is_byzantine: NDArray[np.bool_]
    aggregate: Any
    aggregate_options: FloatArray


class DataSide(NamedTuple):
    """Attack on the clients' data; it takes stream, options and set from the :class:`ServerSide`."""

    has_poison: bool
    poison: Any


def make_server_side(
    scenario: Scenario, stream: Stream, root_stream: Stream | None = None, *, poisons: bool = False
) -> ServerSide:
    """Load the scenario's attack and aggregation rule.

    Parameters
    ----------
    scenario : Scenario
        What is simulated.
    stream : Stream
        The attack's randomness.
    root_stream : Stream, optional
        Randomness of the server's own root data, for the rule that has some.
    poisons : bool
        Whether the calling kernel also calls the hook of :func:`make_data_side`.
    """
    attack = scenario.attack
    part = None if attack is None else load_part("attacks", attack.kind)
    if attack is not None and hasattr(part, "poison") and not poisons:
        raise NotCoveredError(
            f'algorithm "{scenario.algorithm}" does not cover attack.kind = "{attack.kind}"'
        )
    rule = load_part("aggregations", scenario.aggregation)
    byzantine = np.arange(scenario.num_clients) < scenario.num_byzantine
    return ServerSide(
        has_attack=hasattr(part, "attack"),
        attack=getattr(part, "attack", _no_attack).load(),
        attack_key=stream.key,
        attack_gamma=stream.gamma,
        attack_options=np.zeros(0) if attack is None or part is None else part.options(attack, scenario),
        is_byzantine=np.repeat(byzantine[:, None], stream.key.size, axis=1),
        aggregate=rule.aggregate.load(),
        aggregate_options=rule.options(scenario, root_stream),
    )


def make_data_side(scenario: Scenario) -> DataSide:
    """Load what the scenario's attack does to clients' data, if anything."""
    part = None if scenario.attack is None else load_part("attacks", scenario.attack.kind)
    return DataSide(hasattr(part, "poison"), getattr(part, "poison", _no_poison).load())


@hook(ATTACK)
def _no_attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    pass


@hook(POISON)
def _no_poison(n, k, key, gamma, is_byzantine, options, target, inputs, noise):
    pass
