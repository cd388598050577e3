"""Flower's own strategies on models of all entries, called as its loop calls them, without a network."""

import logging

import numpy as np
from common import LARGE, rate_of_shared_model, read_job, report, run_shared_model
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, Krum, MultiKrum
from flwr.supercore.task_identity import TaskIdentity

logging.getLogger("flwr").setLevel(logging.ERROR)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as its runtime does

job = read_job()
f, participants = job.tolerated, job.participants.shape[-1]
strategies = {
    "FedAvg": FedAvg(),
    "FedMedian": FedMedian(),
    "FedTrimmedAvg": FedTrimmedAvg(beta=f / participants),
    "Krum": Krum(num_malicious_nodes=f),
    "MultiKrum": MultiKrum(num_malicious_nodes=f, num_nodes_to_select=participants - f),
}


def reply(model):
    records = {"arrays": ArrayRecord({"w": Array(model)}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), dst_node_id=1, message_type="train")


def joined_by(strategy):
    return lambda sent: strategy.aggregate_train(1, [reply(row) for row in sent])[0]["w"].numpy()


msd, rates = {}, {}
for name, strategy in strategies.items():
    seconds = []
    msd[f"Flower, {name}"] = run_shared_model(job, joined_by(strategy), seconds)
    rates[f"Flower, {name}"] = rate_of_shared_model(job, seconds[0])

model = np.random.default_rng(0).standard_normal((1000, LARGE // 1000)).astype(np.float32)
down = RecordDict({"arrays": ArrayRecord([model]), "config": ConfigRecord({"server-round": 1})})
up = RecordDict({"arrays": ArrayRecord([model]), "metrics": MetricRecord({"num-examples": 1})})
sizes = [recorddict_to_proto(records).ByteSize() for records in (down, up)]
report(["flwr", "numpy"], msd=msd, rates=rates, bytes={"Flower, FedAvg": {"1.0": sizes}})
