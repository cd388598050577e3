"""FL4Health's sparse exchange: its exchanger and strategy, called as Flower's loop calls them, without a network."""

import logging
import time
import warnings

import numpy as np
import torch
from common import LARGE, SHARES, read_job, report

warnings.simplefilter("ignore")
from fl4health.parameter_exchange import parameter_selection_criteria as criteria
from fl4health.parameter_exchange.sparse_coo_parameter_exchanger import SparseCooParameterExchanger
from fl4health.strategies.fedavg_sparse_coo_tensor import FedAvgSparseCooTensor
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.recorddict_compat import fitins_to_recorddict, fitres_to_recorddict
from flwr.common.serde import recorddict_to_proto

logging.getLogger("flwr").setLevel(logging.ERROR)
torch.set_num_threads(1)
job = read_job()
SCORES = {
    "largest change": criteria.largest_magnitude_change_scores,
    "largest weight": criteria.largest_final_magnitude_scores,
}


def result_of(packed):
    return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(packed), 1, {})


def run(score):
    found, updates, started = [], 0, time.process_time()
    dimension = len(job.target)
    for t in job.trials:
        exchanger = SparseCooParameterExchanger(job.shared / dimension, score)
        strategy = FedAvgSparseCooTensor(fit_metrics_aggregation_fn=lambda metrics: {})
        client, before = (torch.nn.Linear(dimension, 1, bias=False) for _ in range(2))
        server, models = None, []
        inputs = torch.tensor(job.inputs[t], dtype=torch.float32)
        view = torch.nn.Linear(dimension, 1, bias=False)
        torch.nn.init.zeros_(view.weight)
        for n, chosen in enumerate(job.participants[t]):
            models.append(view.weight.detach().numpy()[0].copy())
            sent = []
            for k in chosen:
                # A client takes the server's model as it is pulled; what is not in it becomes zero.
                client.load_state_dict(view.state_dict())
                before.load_state_dict(view.state_dict())
                x, y = inputs[n, k], float(job.outputs[t, n, k])
                with torch.no_grad():
                    weight = client.weight[0]
                    weight += job.stepsize * (y - weight @ x) * x
                packed = exchanger.push_parameters(client, before)
                if np.any(job.lies[t, n, k]):
                    places = packed[1][:, 1]
                    packed[0] = (packed[0] + job.lies[t, n, k][places]).astype(np.float32)
                sent.append((None, result_of(packed)))
                updates += 1
            server, _ = strategy.aggregate_fit(n + 1, sent, [])
            exchanger.pull_parameters(parameters_to_ndarrays(server), view)
        found.append(job.steady_msd(models))
    return found, updates / (time.process_time() - started)


def bytes_of(share):
    exchanger = SparseCooParameterExchanger(share, criteria.largest_final_magnitude_scores)
    strategy = FedAvgSparseCooTensor(fit_metrics_aggregation_fn=lambda metrics: {})
    torch.manual_seed(0)
    model = torch.nn.Linear(1000, LARGE // 1000, bias=False)
    # All choose the same entries, which is cheapest: what the server sends back are the entries of any of them.
    sent = [(None, result_of(exchanger.push_parameters(model, None)))] * 5
    server, _ = strategy.aggregate_fit(1, sent, [])
    records = fitins_to_recorddict(FitIns(server, {}), True), fitres_to_recorddict(sent[0][1], True)
    return [recorddict_to_proto(one).ByteSize() for one in records]


msd, rates = {}, {}
for name, score in SCORES.items():
    msd[f"FL4Health, {name}"], rates[f"FL4Health, {name}"] = run(score)
report(
    ["fl4health", "flwr", "torch", "numpy"],
    msd=msd,
    rates=rates,
    bytes={"FL4Health, same entries": {str(share): bytes_of(share) for share in (*SHARES, 1.0)}},
)
