"""Small nodes within this process, and time that passes without waiting."""

from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from psofed.common.scheduler import Scheduler, use_scheduler
from psofed.federation.client.gateway import Gateway, TrainingResult
from psofed.federation.client.node import Node
from psofed.federation.client.sources import Position, Samples
from psofed.federation.protocol.frames import REPLY, decode_frame, encode_frame
from psofed.federation.protocol.masks import DerivedMasks
from psofed.federation.protocol.names import client_number, node_number
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server import loop
from psofed.federation.server.loop import Server
from psofed.federation.transport.in_process import InProcessHub


class FastTime(Scheduler):
    """Sleeping takes no time but moves the clock."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@contextmanager
def fast_time():
    time = FastTime()
    with use_scheduler(time):
        yield time


@dataclass(frozen=True)
class ArraySource:
    """Samples that are there from the beginning."""

    inputs: np.ndarray
    targets: np.ndarray

    def read(self, start: Position, limit: int) -> Samples:
        end = min(start.samples + limit, len(self.targets))
        return Samples(self.inputs[start.samples : end], self.targets[start.samples : end], Position(end))


@contextmanager
def supplied_draws(masks, participants):
    """Use these masks, by (round, client number), and participants, by round, instead of derived ones."""

    def indices(self, round_number, client):
        return np.sort(np.asarray(masks[round_number, client], np.int64))

    def draw(seed, round_number, clients, count):
        return tuple(sorted(set(participants[round_number]) & set(clients)))

    with patch.object(DerivedMasks, "indices", indices), patch.object(loop, "draw_participants", draw):
        yield


def perturbing(perturbation):
    """Return a corruption that adds to the upload what `perturbation` says, given round, client number and M."""

    def corruption(instruction, task, values, server):
        client = client_number(node_number(instruction.node), task.client)
        delta = perturbation(instruction.round_number, client, values.size)
        return values if delta is None else (values + delta).astype(values.dtype)

    return corruption


class Adder:
    """A training that adds a constant to every entry, and may fail in some rounds."""

    def __init__(self, step=1.0, fail_in=(), metrics=None):
        self.step, self.fail_in, self.metrics = step, fail_in, metrics or {}
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        if request.round_number in self.fail_in:
            raise RuntimeError("training failed")
        model = request.model + np.asarray(self.step, request.model.dtype)
        return TrainingResult(model, request.kept, {"touched": {"round": request.round_number}}, 2, self.metrics)


def make_node(name, training=None, folder=None, **gateway):
    """Return a node whose training adds 1, unless another is given."""
    made = Gateway(training or Adder(), **gateway)
    return Node(name, lambda run: made, folder)


class FaultyHub(InProcessHub):
    """A hub that remembers what it sent, has silent nodes, and delivers what `tamper` makes of a reply."""

    def __init__(self, nodes, tamper=None):
        super().__init__(nodes)
        self.tamper, self.silent, self.sent = tamper, set(), []

    def send(self, node, frame):
        self.sent.append((node, frame))
        if node in self.silent:
            return
        before = len(self._arrived)
        super().send(node, frame)
        if self.tamper is not None:
            replies = self._arrived[before:]
            self._arrived[before:] = [arrived for reply in replies for arrived in self.tamper(*reply)]


def make_hub(names=("11", "12", "13"), tamper=None, **node):
    """Return a hub with nodes of these names."""
    return FaultyHub({name: make_node(name, **node) for name in names}, tamper)


def change_reply(frame, values=None, sequence=None, **fields):
    """Return a reply with other header fields and, given a function of them, other values."""
    answered, header, body = decode_frame(frame, REPLY)
    sent = np.frombuffer(body, header.get("dtype", "float64"))
    changed = sent if values is None else np.asarray(values(sent))
    return encode_frame(REPLY, answered if sequence is None else sequence, {**header, **fields}, [changed])


def spoil(values=None, who="11", **fields):
    """Return a tamperer that changes what one node replies."""

    def tamper(node, frame):
        yield node, change_reply(frame, values, **fields) if node == who else frame

    return tamper


def run(hub, rounds=3, num_shared=2, initial=None, plan=None, deadline=60.0, **options):
    """Run a small federation in time that passes by itself, and return its server."""
    given = {"aggregation": "mean", "limits": ReplyLimits(ban_after=0), **options}
    server = Server(num_shared, rounds=plan or RoundPlan(), **given)
    with fast_time():
        server.run(hub, {"0": np.zeros(6)} if initial is None else initial, rounds, deadline)
    return server
