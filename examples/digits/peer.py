"""psfed 0.1.2, the package of the paper's first author, with its own strategy and client: a natural ablation.

Like PSO-Fed it exchanges some entries per round and its clients keep the others; but what a client uploads are the
entries that it has just downloaded, where PSO-Fed uploads those of the next round's mask. Its strategy is of Flower's
older kind (``flwr.server.strategy``), so the rounds are run here, through Flower's own protocol buffers, in whose bytes
it is counted. Needs ``pip install psfed==0.1.2`` and PyTorch.
"""

from typing import Any

import numpy as np
import torch
from federations import Method, Run, corrupt_whole, note, note_own
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import fit_ins_from_proto, fit_ins_to_proto, fit_res_from_proto, fit_res_to_proto
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from network import Digits, Vector, initial_weights, learn_with_torch
from psfed.flower import PSFedAvg, PSFedClient
from rehearsal import Rehearsal

from psofed.parts.base import Attack


class Weights(torch.nn.Module):
    """The network as psfed wants it: a module whose parameters are the vector."""

    def __init__(self, start: Vector) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.from_numpy(np.array(start)))


class Client(PSFedClient):  # type: ignore[misc]
    """psfed's client, with our training."""

    def __init__(self, start: Vector, images: Any, labels: Any, method: Method) -> None:
        super().__init__(Weights(start))
        self.data, self.method = (images, labels), method

    @property
    def own(self) -> Vector:
        """The client's model."""
        weights: Vector = self.model.weights.detach().numpy()
        return weights

    def train_local(self, config: dict[str, Any]) -> int:
        """Learn from the client's digits."""
        learned = learn_with_torch(self.own, *self.data, self.method.stepsize, self.method.steps)
        with torch.no_grad():
            self.model.weights.copy_(torch.from_numpy(learned))
        return len(self.data[1])


class Proxy(ClientProxy):  # type: ignore[misc]
    """A client as Flower's older server sees it, behind protocol buffers."""

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name)
        self.client = client
        self.carried = 0

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Let the client learn, and count the bytes of question and answer."""
        question = fit_ins_to_proto(ins)
        arrived = fit_ins_from_proto(question)
        arrays, examples, metrics = self.client.fit(
            parameters_to_ndarrays(arrived.parameters), arrived.config
        )
        status = Status(Code.OK, "")
        answer = fit_res_to_proto(FitRes(status, ndarrays_to_parameters(arrays), examples, metrics))
        self.carried += question.ByteSize() + answer.ByteSize()
        return fit_res_from_proto(answer)

    def get_properties(self, ins: Any, timeout: Any, group_id: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError

    get_parameters = evaluate = reconnect = get_properties


def run_psfed(
    method: Method, attack: Attack | None, seed: int, digits: Digits, rounds: int, look_every: int
) -> tuple[Run, Vector]:
    """Run psfed's federation; every client is given the first weights for nothing, as psfed expects."""
    start = initial_weights(seed)
    clients = [
        Client(start, images, labels, method)
        for images, labels in zip(digits.images, digits.labels, strict=True)
    ]
    manager = SimpleClientManager()
    for k, client in enumerate(clients):
        manager.register(Proxy(str(1 + k), client))
    parameters = ndarrays_to_parameters([start])
    strategy = PSFedAvg(mask_fraction=method.shared, mask_seed=seed, initial_parameters=parameters)
    strategy.initialize_parameters(manager)
    rehearsal = None if attack is None else Rehearsal(attack, seed)
    run = Run()
    note(run, 0, start, 0, digits)
    for number in range(1, rounds + 1):
        asked = strategy.configure_fit(number, parameters, manager)
        answers = {proxy.cid: (proxy, proxy.fit(ins, None, None)) for proxy, ins in asked}
        if rehearsal is not None:
            (model,) = parameters_to_ndarrays(parameters)
            sent = {name: parameters_to_ndarrays(res.parameters)[0] for name, (_, res) in answers.items()}
            entries = strategy.current_mask.indices
            for name, values in corrupt_whole(rehearsal, number, model, sent, entries).items():
                answers[name][1].parameters = ndarrays_to_parameters([values])
        joined, _ = strategy.aggregate_fit(number, list(answers.values()), [])
        parameters = parameters if joined is None else joined
        if number % look_every == 0:
            carried = sum(proxy.carried for proxy in manager.all().values())
            note(run, number, parameters_to_ndarrays(parameters)[0], carried, digits)
    note_own(run, {1 + k: client.own for k, client in enumerate(clients)}, attack, digits)
    return run, parameters_to_ndarrays(parameters)[0]
