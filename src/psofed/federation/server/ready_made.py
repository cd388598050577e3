"""The server of a run of the ready-made nodes: online regression, as ``psofed federation run`` starts it."""

from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.federation.protocol.layout import Arrays
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.loop import Server
from psofed.federation.server.step import Combination, with_threshold
from psofed.federation.transport.hub import Hub
from psofed.fleet import draw_fleet
from psofed.scenario import Scenario


def run_ready_made(settings: RunSettings, hub: Hub, **options: Any) -> Server:
    """Run the rounds of a run from a model of zeros, and return its server.

    `options` are those arguments of :class:`Server` that the settings do not give.
    """
    scenario, defence = settings.scenario, settings.scenario.defence
    if defence is not None and defence.threshold is None:
        defence = with_threshold(defence, scenario)
    server = Server(
        Sharing(scenario.num_shared, scenario.selection.pattern, scenario.selection.coordinated),
        num_participants=scenario.num_participants,
        aggregation=Combination(scenario.aggregation, scenario.pre_aggregation),
        defence=defence,
        rounds=settings.plan,
        limits=settings.limits,
        seed=settings.seed,
        resume=settings.resume,
        columns=settings.columns,
        settings=settings.replace(resume=False).to_mapping(),
        **options,
    )

    def evaluate(_round: int, arrays: Arrays) -> dict[str, float]:
        return evaluate_model(scenario, arrays["0"], settings.seed)

    initial = {"0": np.zeros(scenario.dimension, dtype=settings.dtype)}
    server.run(hub, initial, settings.num_rounds, settings.deadline, evaluate=evaluate if settings.synthetic else None)
    return server


def evaluate_model(scenario: Scenario, model: FloatArray, seed: int) -> dict[str, float]:
    """Return the server's MSD ‖w_n − w‖² and its test MSE, which only synthetic data allow to know.

    Examples
    --------
    >>> scenario = Scenario(num_clients=5, dimension=4)
    >>> round(evaluate_model(scenario, np.zeros(4), seed=0)["server-msd"], 12)
    1.0
    """
    fleet = draw_fleet(scenario)
    generator = np.random.default_rng((seed, scenario.num_clients, 0, 1))  # longer than any client's seed
    count, data = scenario.data.test_instances, scenario.data
    inputs = np.sqrt(data.test_input_variance) * generator.standard_normal((count, scenario.dimension))
    noise = np.sqrt(fleet.test_noise_variance) * generator.standard_normal(count)
    return {
        "server-msd": float(np.sum(np.square(model - fleet.target))),
        "test-mse": float(np.mean(np.square(inputs @ (fleet.target - model) + noise))),
    }
