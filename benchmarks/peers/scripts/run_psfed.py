"""psfed: its strategy and its client, called as Flower's loop calls them, without a network.

Clients are kept from round to round, which is better than what Flower's simulation does with them. As it comes, only
participants learn; "all clients learn" lets the others take their step as well, as PSO-Fed's do.
"""

import logging
import time
from typing import ClassVar

import numpy as np
import torch
from common import LARGE, SHARES, read_job, report
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_to_proto
from flwr.compat.common.recorddict_compat import fitins_to_recorddict, fitres_to_recorddict
from flwr.server.client_manager import SimpleClientManager
from psfed.flower import PSFedAvg, PSFedClient

logging.getLogger("psfed").setLevel(logging.ERROR)
torch.set_num_threads(1)
job = read_job()


class Chosen(SimpleClientManager):
    """Samples whom the job says."""

    chosen: ClassVar[list] = []

    def num_available(self):
        return job.num_clients

    def sample(self, num_clients, min_num_clients=None, criterion=None):
        return self.chosen


class Learner(PSFedClient):
    """One LMS step on what is in ``sample``."""

    sample = None

    def train_local(self, config):
        if self.sample is not None:
            x, y = self.sample
            with torch.no_grad():
                weight = self.model.weight[0]
                weight += job.stepsize * (y - weight @ x) * x
        return 1


def linear(columns, rows=1):
    layer = torch.nn.Linear(columns, rows, bias=False)
    torch.nn.init.zeros_(layer.weight)
    return layer


def strategy_of(fraction, seed, shape):
    start = ndarrays_to_parameters([np.zeros(shape, np.float32)])
    strategy = PSFedAvg(mask_fraction=fraction, mask_seed=seed, initial_parameters=start)
    return strategy, strategy.initialize_parameters(None)


def answer(client, instructions, lie=0.0):
    arrays = parameters_to_ndarrays(instructions.parameters)
    (values,), examples, _ = client.fit(arrays, instructions.config)
    if np.any(lie):
        values = (values + lie[client.current_mask.data]).astype(np.float32)
    return FitRes(Status(Code.OK, ""), ndarrays_to_parameters([values]), examples, {})


def run(all_learn):
    found, updates, started = [], 0, time.process_time()
    for t in job.trials:
        dimension = len(job.target)
        clients = [Learner(linear(dimension)) for _ in range(job.num_clients)]
        strategy, server = strategy_of(job.shared / dimension, t, (1, dimension))
        inputs, outputs = torch.tensor(job.inputs[t], dtype=torch.float32), job.outputs[t]
        manager, models = Chosen(), []
        for n, chosen in enumerate(job.participants[t]):
            models.append(parameters_to_ndarrays(server)[0][0])
            for k in range(job.num_clients) if all_learn else chosen:
                clients[k].sample = inputs[n, k], float(outputs[n, k])
            manager.chosen = [int(k) for k in chosen]
            sent = [
                (None, answer(clients[k], instructions, job.lies[t, n, k]))
                for k, instructions in strategy.configure_fit(n + 1, server, manager)
            ]
            updates += len(sent)
            if all_learn:
                for k in set(range(job.num_clients)) - set(manager.chosen):
                    clients[k].train_local({})
                    updates += 1
            server, _ = strategy.aggregate_fit(n + 1, sent, [])
        found.append(job.steady_msd(models))
    return found, updates / (time.process_time() - started)


def bytes_of(share):
    strategy, server = strategy_of(share, 0, (1000, LARGE // 1000))
    manager = Chosen()
    manager.chosen = [0]
    ((_, instructions),) = strategy.configure_fit(1, server, manager)
    result = answer(Learner(linear(1000, LARGE // 1000)), instructions)
    records = fitins_to_recorddict(instructions, True), fitres_to_recorddict(result, True)
    return [recorddict_to_proto(one).ByteSize() for one in records]


msd, rates = {}, {}
for name, all_learn in {"as it comes": False, "all clients learn": True}.items():
    msd[f"psfed, {name}"], rates[f"psfed, {name}"] = run(all_learn)
report(
    ["psfed", "flwr", "torch", "numpy"],
    msd=msd,
    rates=rates,
    bytes={"psfed": {str(share): bytes_of(share) for share in (*SHARES, 1.0)}},
)
