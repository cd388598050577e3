"""A federation without messages, for many seeds.

Flower's messages cost milliseconds for each client and round, whatever is in them: many times what a small network's
training does. Here the clients' models are rows of an array; what the server does is psofed's own code: its masks
(:class:`DerivedMasks`) and its step (:class:`ServerStep`). Flower's FedAvg, FedMedian and MultiKrum are that step with
all entries shared. ``study.py check`` compares with the real strategies.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from network import Digits, Vector, accuracy, initial_weights, learn_with_numpy

import psofed
from psofed.federation.protocol.corruption import draw_attack, draw_normals
from psofed.federation.protocol.masks import Sharing
from psofed.federation.server.step import Combination, Outcome, ServerStep, Upload
from psofed.parts.base import Attack
from psofed.parts.plain import corrupt_uploads
from psofed.scenario.accepted import as_part

BYZANTINE = 4
FLOWERS_RULES = {"fedavg": "mean", "fedmedian": "median", "multi-krum": "multi-krum"}
_EVERYBODY = 2**64 - 1  # whose normal numbers all attackers have in common

Join = Callable[[int, Vector, Mapping[str, Upload]], Vector]
"""Given round, the server's model and the uploads, returns the next model."""


@dataclass(frozen=True)
class Method:
    """How clients and server exchange models.

    Attributes
    ----------
    kind : str
        ``psofed``, ``fedavg``, ``fedmedian``, ``multi-krum`` or ``psfed``.
    shared : float
        M/D, for psofed and psfed.
    rule : str
        psofed's aggregation rule.
    stepsize, steps
        Of the clients' gradient descent, and how many steps they take in a round.
    """

    kind: str
    shared: float = 1.0
    rule: str = "mean"
    stepsize: float = 0.3
    steps: int = 5

    @property
    def name(self) -> str:
        """Its name in tables."""
        share = f" {100 * self.shared:g} %" if self.kind in ("psofed", "psfed") else ""
        return self.kind + share + (f" + {self.rule}" if self.rule != "mean" else "")


@dataclass
class Run:
    """Result of a run: lists have an entry for each look at the server's model.

    Attributes
    ----------
    rounds, accuracy, bytes : list
        When, how accurate the server's model was on the test set, and how many bytes had gone both ways by then.
    own_accuracy : float
        Mean accuracy of the honest clients' own models on the whole test set, after the last round.
    """

    rounds: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    own_accuracy: float = 0.0

    def note(self, number: int, weights: Vector, carried: int, digits: Digits) -> None:
        """Write down how good the server's model is by now."""
        self.rounds.append(number)
        self.accuracy.append(round(accuracy(weights, digits.test_images, digits.test_labels), 4))
        self.bytes.append(carried)

    def note_own(self, own: Mapping[int, Vector], attack: Attack | None, digits: Digits) -> None:
        """Write down how good the honest clients' own models are."""
        byzantine = set() if attack is None else {int(client) for client in attack.clients}
        test = digits.test_images, digits.test_labels
        scores = [accuracy(weights, *test) for k, weights in own.items() if k not in byzantine]
        self.own_accuracy = round(float(np.mean(scores)), 4)


def run_directly(
    method: Method,
    attack: Attack | None,
    seed: int,
    digits: Digits,
    *,
    rounds: int,
    look_every: int,
    join: Join | None = None,
) -> tuple[Run, Vector]:
    """Run one federation; return its result, without bytes, and the server's last model.

    `join` replaces psofed's step by another, which gets uploads that are corrupted already.
    """
    server = initial_weights(seed)
    step = make_step(method, attack, seed)
    masks = Sharing(method.shared, seed=seed).derived(server.size)
    models = np.repeat(server[None], len(digits.images), axis=0)
    names = [str(1 + k) for k in range(len(models))]
    run = Run()
    run.note(0, server, 0, digits)
    for number in range(1, rounds + 1):
        down = masks.indices(number, 0)
        # psfed uploads what it has just downloaded, PSO-Fed the entries of the next mask.
        up = down if method.kind == "psfed" else masks.indices(number + 1, 0)
        models[:, down] = server[down]
        models = learn_with_numpy(models, digits.images, digits.labels, method.stepsize, method.steps)
        uploads = {name: (up, models[k][up]) for k, name in enumerate(names)}
        if join is None:
            server = step.take(number, server, uploads).model
        else:
            server = join(number, server, step.corrupt(number, server, uploads))
        if number % look_every == 0:
            run.note(number, server, 0, digits)
    run.note_own({1 + k: model for k, model in enumerate(models)}, attack, digits)
    return run, server


class AttackedStep(ServerStep):
    """psofed's step, after an omniscient attacker has corrupted the uploads of the Byzantine clients."""

    def __init__(self, combination: Combination, attack: Attack | None, seed: int) -> None:
        super().__init__(combination, seed=seed)
        self.attack = attack

    def take(self, round_number: int, model: Vector, uploads: Mapping[str, Upload]) -> Outcome:
        """Corrupt, then join."""
        return super().take(round_number, model, self.corrupt(round_number, model, uploads))

    def corrupt(self, round_number: int, model: Vector, uploads: Mapping[str, Upload]) -> Mapping[str, Upload]:
        """Return the uploads, which all hold the same entries, with those of the Byzantine clients corrupted."""
        attack = self.attack
        if attack is None:
            return uploads
        names = sorted(uploads)
        entries = uploads[names[0]][0]
        chosen = [k for k, name in enumerate(names) if name in map(str, attack.clients)]
        attacking, normals = np.zeros(len(names), np.bool_), np.zeros((len(names), entries.size))
        for k in chosen:
            attacking[k], normals[k] = draw_attack(attack, self.seed, k, round_number, entries.size)
        received = corrupt_uploads(
            attack, uploads=np.array([uploads[name][1] for name in names], np.float64), attacking=attacking,
            server=np.asarray(model[entries], np.float64), clients=np.arange(len(names)), iteration=round_number,
            normals=normals, num_clients=len(names), memory=None, group=np.array(chosen),
            common_normals=draw_normals(self.seed, _EVERYBODY, round_number, entries.size),
        )  # fmt: skip
        return {name: (entries, received[k]) if attacking[k] else uploads[name] for k, name in enumerate(names)}


def make_step(method: Method, attack: Attack | None, seed: int) -> AttackedStep:
    """Return the server's step of a method."""
    rule: Any = as_part("aggregation", FLOWERS_RULES.get(method.kind, method.rule))
    if rule.kind == "multi-krum":
        rule = psofed.aggregations.MultiKrum(tolerated=BYZANTINE)
    return AttackedStep(Combination(rule), attack, seed)


def describe(method: Method) -> dict[str, Any]:
    """Return a method as JSON holds it."""
    return asdict(method)
