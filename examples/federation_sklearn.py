"""PSO-Fed with scikit-learn: a classifier that three hospitals train together, sharing a tenth of it in each round.

Runs in seconds on a Grid within this process; as ServerApp and ClientApp the same code runs on real machines.
Needs ``pip install -e '.[flower,sklearn]'``.
"""

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from psofed.federation import PSOFed, arrays_of, load_into, partial_sharing
from psofed.federation.flower.in_process import InProcessGrid

HOSPITALS = 3
x, y = load_breast_cancer(return_X_y=True)
x = StandardScaler().fit_transform(x)
order = np.random.default_rng(0).permutation(len(y))
test, *parts = np.array_split(order, HOSPITALS + 1)


def make_model() -> SGDClassifier:
    """Return a model with all its arrays in place, as PSO-Fed needs it."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, random_state=0)
    model.classes_ = np.array([0, 1])
    model.coef_, model.intercept_ = np.zeros((1, x.shape[1])), np.zeros(1)
    return model


def make_app(rows: np.ndarray) -> ClientApp:
    """Return the ClientApp of a hospital with these rows."""
    app = ClientApp()

    @app.train(mods=[partial_sharing()])
    def train(message: Message, context: Context) -> Message:
        model = load_into(make_model(), message.content["arrays"])
        model.partial_fit(x[rows], y[rows])
        metrics = MetricRecord({"num-examples": len(rows), "accuracy": model.score(x[rows], y[rows])})
        return Message(RecordDict({"arrays": arrays_of(model), "metrics": metrics}), reply_to=message)

    return app


def main() -> float:
    """Train, and return the accuracy on rows that nobody has seen."""
    grid = InProcessGrid({node: make_app(rows) for node, rows in enumerate(parts, start=1)})
    strategy = PSOFed(num_shared=0.1, seed=1)
    result = strategy.start(grid, make_model(), num_rounds=60)
    model = load_into(make_model(), result.arrays)
    accuracy = float(model.score(x[test], y[test]))
    print(f"accuracy {accuracy:.3f} on {len(test)} unseen rows, after 60 rounds of {x.shape[1] + 1} numbers")
    return accuracy


if __name__ == "__main__":
    main()
