"""The network that is learned, the handwritten digits, and which client holds which of them.

A network is one vector of D numbers, for whoever shares parts of it: 64 pixels, 32 hidden units (ReLU), 10 classes.
Flower sends every array as an object of its own, so one array also is the cheapest way to send it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Learn = Callable[[Vector, NDArray[Any], NDArray[Any], float, int], Vector]
"""From weights, images, labels, stepsize and a number of gradient steps to new weights."""

PIXELS, HIDDEN, CLASSES = 64, 32, 10
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
DIMENSION = sum(int(np.prod(shape)) for shape in SHAPES)


@dataclass(frozen=True)
class Digits:
    """Who holds what: `images` (clients, each, 64) and `labels` (clients, each), and a test set nobody learns from."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def split_digits(seed: int, clients: int = 20, each: int = 40, concentration: float = 0.3) -> Digits:
    """Deal scikit-learn's 1797 digits out, unevenly by label; what is left is the test set.

    Each client draws how common every label is with it from a Dirichlet distribution of this `concentration`, and then
    as many images as every other client: with equal numbers it makes no difference who weighs clients by them.
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng([seed, 1])
    pixels, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))
    dealt, test = order[: clients * each], order[clients * each :]
    stacks = [list(dealt[labels[dealt] == label]) for label in range(CLASSES)]
    hands = []
    for _ in range(clients):
        wish = rng.dirichlet(np.full(CLASSES, concentration))
        hand: list[int] = []
        while len(hand) < each:
            # Labels that have run out are left out; a client whose favourites are gone takes what there is.
            there = np.array([bool(stack) for stack in stacks])
            chance = np.where(there, wish + 1e-9, 0.0)
            hand.append(stacks[rng.choice(CLASSES, p=chance / chance.sum())].pop())
        hands.append(hand)
    held = np.array(hands)
    scaled = (pixels / 16.0).astype(np.float32)
    return Digits(scaled[held], labels[held], scaled[test], labels[test])


def initial_weights(seed: int) -> Vector:
    """Return random weights (He's variances) and zero biases."""
    rng = np.random.default_rng([seed, 2])
    parts = [
        rng.normal(0.0, np.sqrt(2.0 / shape[0]), shape).ravel() if len(shape) == 2 else np.zeros(shape)
        for shape in SHAPES
    ]
    return np.concatenate(parts).astype(np.float32)


def accuracy(weights: Vector, images: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return which fraction of `images` is classified rightly; weights that overflow are right about nothing."""
    with np.errstate(all="ignore"):
        first, first_bias, second, second_bias = _parts(weights.astype(np.float64))
        scores = np.maximum(images @ first + first_bias, 0.0) @ second + second_bias
    return float(np.mean(np.isfinite(scores).all(axis=1) & (scores.argmax(axis=1) == labels)))


def learn_with_torch(
    weights: Vector, images: NDArray[Any], labels: NDArray[Any], stepsize: float, steps: int
) -> Vector:
    """Take gradient steps on the mean cross-entropy of all `images`, in PyTorch."""
    import torch

    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    current = torch.from_numpy(np.array(weights)).requires_grad_()
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(scores_with_torch(current, inputs), targets)
        (gradient,) = torch.autograd.grad(loss, current)
        with torch.no_grad():
            current -= stepsize * gradient
    learned: Vector = current.detach().numpy()
    return learned


def scores_with_torch(weights: Any, images: Any) -> Any:
    """Return the network's scores (images, 10) for tensors."""
    import torch

    first, first_bias, second, second_bias = _parts(weights)
    hidden = torch.relu(torch.addmm(first_bias, images, first))
    return torch.addmm(second_bias, hidden, second)


def learn_with_numpy(
    weights: Vector, images: NDArray[Any], labels: NDArray[Any], stepsize: float, steps: int
) -> Vector:
    """Take the same steps with the gradient written out: without PyTorch, and for any number of clients at once.

    Clients are leading axes: weights (..., D), images (..., each, 64), labels (..., each).
    """
    current = np.array(weights)
    first, first_bias, second, second_bias = _parts(current)
    truth = np.eye(CLASSES, dtype=np.float32)[labels]
    with np.errstate(all="ignore"):  # an attack may make weights overflow; the client then says so
        for _ in range(steps):
            hidden = np.maximum(images @ first + first_bias[..., None, :], 0.0)
            scores = hidden @ second + second_bias[..., None, :]
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
            wrong = (powers / powers.sum(axis=-1, keepdims=True) - truth) / np.float32(labels.shape[-1])
            back = (wrong @ second.mT) * (hidden > 0.0)
            gradient = (images.mT @ back, back.sum(axis=-2), hidden.mT @ wrong, wrong.sum(axis=-2))
            for part, slope in zip((first, first_bias, second, second_bias), gradient, strict=True):
                part -= np.float32(stepsize) * slope
    return current


def _parts(weights: Any) -> list[Any]:
    """Return views of the layers within the vector, or within each of several."""
    parts, start = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(weights[..., start : start + size].reshape((*weights.shape[:-1], *shape)))
        start += size
    return parts
