"""What happens to uploads on their way into the model: the attack on them and the rule that joins them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.data import FloatArray
from psofed.registry import load_part
from psofed.scenario import Scenario
from psofed.streams import Stream, WordArray


class ServerSide(NamedTuple):
    """Attack and aggregation as kernels take them (see :mod:`psofed.hooks`).

    Without an attack the `attack` hook is some hook that is never called.
    """

    has_attack: bool
    attack: Any
    attack_key: WordArray
    attack_gamma: WordArray
    attack_options: FloatArray
    is_byzantine: NDArray[np.bool_]
    aggregate: Any
    aggregate_options: FloatArray


def make_server_side(scenario: Scenario, stream: Stream) -> ServerSide:
    """Load the scenario's attack and aggregation rule."""
    attack = scenario.attack
    attack_part = load_part("attacks", "gaussian" if attack is None else attack.kind)
    rule = load_part("aggregations", scenario.aggregation)
    return ServerSide(
        has_attack=attack is not None,
        attack=attack_part.attack.load(),
        attack_key=stream.key,
        attack_gamma=stream.gamma,
        attack_options=np.zeros(0) if attack is None else attack_part.options(attack, scenario),
        is_byzantine=np.arange(scenario.num_clients) < scenario.num_byzantine,
        aggregate=rule.aggregate.load(),
        aggregate_options=rule.options(scenario),
    )
