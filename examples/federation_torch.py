"""PSO-Fed with PyTorch: the convolution is shared by name, a tenth in each round; each client keeps a head of its own.

Runs in some seconds on a Grid within this process. Needs ``pip install -e '.[flower,torch]'``.
"""

import numpy as np
import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from psofed.federation import PSOFed, Sharing, arrays_of, load_into, partial_sharing
from psofed.federation.flower.in_process import InProcessGrid

CLIENTS, ROUNDS = 3, 40


def make_model() -> nn.Module:
    """Return a small network with batch normalisation."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(1, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2)
    )


def make_data(client: int, count: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Return slow and fast waves in noise, louder at some clients than at others."""
    rng = np.random.default_rng(client)
    labels = rng.integers(0, 2, count)
    time = np.arange(32)
    waves = np.sin(np.where(labels, 1.5, 0.4)[:, None] * time + rng.uniform(0, 6, (count, 1)))
    signals = (1 + client) * waves + 0.5 * rng.standard_normal((count, 32))
    return torch.tensor(signals[:, None], dtype=torch.float32), torch.tensor(labels)


def make_app(client: int) -> ClientApp:
    """Return the ClientApp of a client."""
    app = ClientApp()
    signals, labels = make_data(client)

    @app.train(mods=[partial_sharing()])
    def train(message: Message, context: Context) -> Message:
        model = load_into(make_model(), message.content["arrays"]).train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(3):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(signals), labels)
            loss.backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": len(labels), "loss": float(loss.detach())})
        return Message(RecordDict({"arrays": arrays_of(model), "metrics": metrics}), reply_to=message)

    return app


def main() -> float:
    """Train, and return the clients' mean loss in the last round."""
    grid = InProcessGrid({1 + client: make_app(client) for client in range(CLIENTS)})
    # Layer 0 is the convolution, 1 the batch normalisation, 5 the head: only 0 and the weights of 1 are shared.
    strategy = PSOFed(Sharing(0.1, include=("0.*", "1.weight", "1.bias")), seed=1)
    result = strategy.start(grid, make_model(), num_rounds=ROUNDS)
    first, last = (result.train_metrics_clientapp[n]["loss"] for n in (1, ROUNDS))
    print(f"{strategy.state.layout.dimension} shared numbers; mean loss {first:.3f} in round 1, {last:.3f} in {ROUNDS}")
    return float(last)


if __name__ == "__main__":
    main()
