"""PSO-Fed written literally, client by client, under any attack and any aggregation rule.

:mod:`psofed.reference.block_form` is the paper's block form, which holds for attacks that add something and for the
mean. Here attack and rule are the parts' own literal forms (``corrupt``, ``poison_sample``, ``combine``), on models
and not on errors. Slow; the fast engine is tested against it on the same draws.
"""

from typing import Any

import numpy as np

from psofed.engine.streams import make_stream
from psofed.fleet import draw_fleet
from psofed.parts.aggregations.fltrust import make_root_data
from psofed.parts.attacks._shared import draw_shocks
from psofed.parts.options import make_options
from psofed.parts.registry import load_part
from psofed.reference.block_form import ReferenceRun
from psofed.reference.draws import draw_trial
from psofed.scenario import Scenario


def run_literally(scenario: Scenario, seed: int, trial: int) -> ReferenceRun:
    """Run one trial, from models that are zero, on the draws that the fast engine makes for it.

    Examples
    --------
    >>> run_literally(Scenario(num_clients=5, dimension=2, iterations=3), seed=0, trial=0).models.shape
    (4, 6, 2)
    """
    draws = draw_trial(scenario, seed, trial)
    iterations, clients, dimension = draws.inputs.shape
    start = draw_fleet(scenario).target
    attack_stream, root_stream = (make_stream(seed, source, [trial]) for source in ("attack", "root"))
    shocks = draw_shocks(attack_stream.key, attack_stream.gamma, scenario)
    attack = scenario.attack
    attack_part: Any = None if attack is None else load_part("attacks", attack.kind)
    rule = load_part("aggregations", scenario.aggregation)
    options = make_options("aggregations", scenario.aggregation, scenario.aggregation_options, "")
    root = make_root_data(scenario, root_stream) if scenario.aggregation == "fltrust" else None

    models = np.zeros((iterations + 1, clients + 1, dimension))
    network_mse, server_msd, test_mse = np.zeros(iterations), np.empty(iterations), np.empty(iterations)
    for n in range(iterations):
        server, local = models[n, 0], models[n, 1:].copy()
        target = start + draws.moves[n]
        test_outputs = draws.test_inputs @ target + draws.test_noise
        server_msd[n] = np.sum((server - target) ** 2)
        test_mse[n] = np.mean((test_outputs - draws.test_inputs @ server) ** 2)
        for k in range(clients):
            if draws.participants[n, k]:
                local[k] = np.where(draws.download_masks[n, k], server, local[k])
            x = draws.inputs[n, k]
            y = target @ x + draws.noise[n, k]
            network_mse[n] += (y - local[k] @ x) ** 2 / clients
            if shocks.attacking[n, k] and hasattr(attack_part, "poison_sample"):
                x, y = attack_part.poison_sample(attack, x, y, shocks.own[n, k])
            local[k] = local[k] + scenario.stepsize * x * (y - local[k] @ x)
        uploaders = np.flatnonzero(draws.uploaders[n])
        uploads = np.where(draws.upload_masks[n, uploaders], local[uploaders], np.nan)
        if hasattr(attack_part, "corrupt"):
            own, common = shocks.own[n, uploaders], shocks.common[n]
            uploads = attack_part.corrupt(
                attack, uploads, shocks.attacking[n, uploaders], server, own, common
            )
        models[n + 1, 0] = rule.combine(uploads, server, options, root)
        models[n + 1, 1:] = local
    return ReferenceRun(models, network_mse, server_msd, test_mse)
