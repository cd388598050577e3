"""PSO-Fed written literally, client by client, under any attack and any aggregation rule.

Attack and rule are the parts themselves, run as plain Python (:mod:`psofed.parts.plain`), on models and not on errors.
Slow; the fast engine is tested against it on the same draws.
"""

from typing import Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.samples import draw_clean_samples
from psofed.engine.streams import make_stream
from psofed.fleet import draw_fleet
from psofed.parts.base import Learner
from psofed.parts.contexts import Observation, Residual
from psofed.parts.plain import combine_uploads
from psofed.parts.watching import Watch, WatchPlan
from psofed.scenario import Scenario
from reference.draws import ReferenceRun, draw_trial
from reference.network import LiteralGroups, LiteralNetwork
from reference.server_model import mix_literally, run_server_model_reference


def run_trial(scenario: Scenario, seed: int, trial: int, plan: WatchPlan | None = None) -> ReferenceRun:
    """Run one trial literally; `plan` is what a defence needs to know, and without it nobody is watched."""
    if scenario.data.rows is not None:
        raise NotCoveredError("the reference recursions run on drawn streams, not on your own data")
    if not scenario.algorithm.holds_models:
        return run_server_model_reference(scenario, seed, trial, plan)
    return run_literally(scenario, seed, trial, plan)


def run_literally(scenario: Scenario, seed: int, trial: int, plan: WatchPlan | None = None) -> ReferenceRun:
    """Run one trial from zero models, on the draws of the fast engine.

    Examples
    --------
    >>> run_literally(Scenario(num_clients=5, dimension=2, iterations=3), seed=0, trial=0).models.shape
    (4, 6, 2)
    """
    draws = draw_trial(scenario, seed, trial)
    network = LiteralNetwork(scenario, seed, trial)
    groups = LiteralGroups(scenario, seed, trial, scenario.dimension)
    iterations, clients, dimension = draws.inputs.shape
    start = draw_fleet(scenario).target
    root = _draw_root(scenario, seed, trial, start)
    watch = None if plan is None or scenario.defence is None else Watch(scenario.defence, plan, clients)
    stays_behind = watch is not None and not scenario.defence.excluded_download  # type: ignore[union-attr]
    learners = [_Client(scenario.learner, k, mu, dimension) for k, mu in enumerate(scenario.draw_stepsizes())]
    models = np.zeros((iterations + 1, clients + 1, dimension))
    errors = np.empty((iterations, clients))
    server_msd, test_mse = np.empty(iterations), np.empty(iterations)
    rule_memory = np.zeros(scenario.aggregation.memory_size(scenario.num_clients, scenario.dimension))
    for n in range(iterations):
        server, local = models[n, 0], models[n, 1:].copy()
        target = start + draws.moves[n]
        test_outputs = draws.test_inputs @ target + draws.test_noise
        server_msd[n] = np.sum((server - target) ** 2)
        test_mse[n] = np.mean((test_outputs - draws.test_inputs @ server) ** 2)
        participants = network.draw_participants(n, draws.participants[n], "participation")
        participants = participants[network.reached(n, participants)]
        for k in range(clients):
            if k in participants and not (stays_behind and watch is not None and watch.is_out[k]):
                shared = np.where(draws.download_masks[n, k], server, np.nan)
                received = network.transmit("down", n, k, shared, local[k])
                local[k] = np.where(np.isnan(received), local[k], received)
            x = draws.inputs[n, k]
            y = target @ x + draws.noise[n, k]
            errors[n, k] = (y - local[k] @ x) ** 2
            x, y = groups.poison(n, k, x, y)
            if network.learns(n, k):
                local[k] = learners[k].step(local[k], x, y, n)
        groups.remember(n, local)
        source = "uplink" if scenario.uplink == "redrawn" else "participation"
        uploaders = network.draw_participants(n, draws.uploaders[n], source)
        uploads = np.where(draws.upload_masks[n, uploaders], local[uploaders], np.nan)
        there = network.reached(n, uploaders)
        uploads[~there] = np.nan
        own_step = None
        if root is not None:
            inputs, outputs = root
            own_step = scenario.mean_stepsize * inputs.T @ (outputs - inputs @ server) / len(outputs)
        uploads[there] = groups.corrupt(n, uploaders[there], uploads[there], server)
        for p, k in enumerate(uploaders):
            uploads[p] = network.transmit("up", n, int(k), uploads[p], server)
        arrivals = network.pass_time(n, uploaders, uploads, server)
        if watch is not None:
            arrivals.uploads[watch.judge(arrivals.uploads, server, arrivals.clients, n)] = np.nan
        uploads = mix_literally(
            scenario, seed, trial, n, arrivals.clients, network.weigh_by_delay(arrivals, server), server
        )
        senders = arrivals.clients if scenario.pre_aggregation is None else None
        models[n + 1, 0] = combine_uploads(
            scenario.aggregation, uploads, server, own_step, rule_memory, senders, scenario.num_clients
        )
        models[n + 1, 1:] = local
    return ReferenceRun(models, errors.mean(axis=1), server_msd, test_mse, watch, groups.mean_over_honest(errors))


class _Client:
    """A client that learns: its learner and its memory."""

    def __init__(self, learner: Learner, number: int, stepsize: float, dimension: int) -> None:
        self._learner, self._number, self._stepsize = learner, number, float(stepsize)
        self._memory = np.array(learner.initial_memory(dimension), np.float64)

    def step(self, model: FloatArray, x: FloatArray, y: float, n: int) -> FloatArray:
        """Return the model after a step on a sample."""
        error, mu = float(y - model @ x), self._stepsize
        if self._learner.defines("gain"):
            gain = self._learner.gain(Residual(error, float(x @ x), mu, self._number, n))
            return np.asarray(self._learner.keep(mu) * model + gain * x)
        change = np.zeros(model.size)
        self._learner.learn(Observation(x, error, model.copy(), mu, self._number, n), self._memory, change)
        return model + change


def _draw_root(scenario: Scenario, seed: int, trial: int, target: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    rule: Any = scenario.aggregation
    if not rule.has_root_data:
        return None
    stream, count = make_stream(seed, "root", [trial]), rule.root_size
    rows = draw_clean_samples(scenario, draw_fleet(scenario), stream, count)[:, :, 0]
    return rows[:, :-1], rows[:, :-1] @ target + rows[:, -1]
