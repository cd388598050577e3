"""The same federations without messages, for many seeds.

Flower's messages cost milliseconds for each client and round, whatever is in them: many times what a small network's
training does. Here the clients' models are rows of an array; what the server does is psofed's own code: its masks
(:class:`DerivedMasks`), its step with defence and rule (:class:`ServerStep`). Flower's FedAvg,
FedMedian and MultiKrum are that step with all entries shared. ``study.py check`` runs the cases on the grid with the
real strategies, and psfed's own classes, and compares models.
"""

from typing import Any

import numpy as np
from federations import LIARS, Method, Run, note, note_own
from network import Digits, Vector, initial_weights, learn_with_numpy
from rehearsal import attack_step

import psofed
from psofed.federation_new.protocol.masks import DerivedMasks, resolve_num_shared
from psofed.federation_new.server.step import Combination, ServerStep
from psofed.federation_new.server.suspects import Suspects
from psofed.parts.base import Attack
from psofed.scenario.accepted import as_part

FLOWERS_RULES = {"fedavg": "mean", "fedmedian": "median", "multi-krum": "multi-krum"}


def run_directly(
    method: Method,
    attack: Attack | None,
    seed: int,
    digits: Digits,
    *,
    rounds: int,
    look_every: int,
    masks: Any = None,
) -> tuple[Run, Vector]:
    """Run one federation; return what came of it, without bytes, and the server's last model."""
    server = initial_weights(seed)
    step = make_step(method, attack, seed)
    shared = resolve_num_shared(method.shared, server.size)
    masks = masks or DerivedMasks(seed=seed, dimension=server.size, num_shared=shared)
    models = np.repeat(server[None], len(digits.images), axis=0)
    names = [str(1 + k) for k in range(len(models))]
    run, examples = Run(), dict.fromkeys(names, digits.labels.shape[1])
    note(run, 0, server, 0, digits)
    for number in range(1, rounds + 1):
        down = masks.indices(number, 0)
        # psfed uploads what it has just downloaded, PSO-Fed the entries of the next mask.
        up = down if method.kind == "psfed" else masks.indices(number + 1, 0)
        models[:, down] = server[down]
        models = learn_with_numpy(models, digits.images, digits.labels, method.stepsize, method.steps)
        uploads = {name: (up, models[k][up]) for k, name in enumerate(names)}
        outcome = step.take(number, server, uploads, examples)
        server = outcome.model
        run.left_out = sorted(outcome.suspects)
        if number % look_every == 0:
            note(run, number, server, 0, digits)
    note_own(run, {1 + k: model for k, model in enumerate(models)}, attack, digits)
    return run, server


def make_step(method: Method, attack: Attack | None, seed: int) -> ServerStep:
    """Return the server's step of a method."""
    rule = as_part("aggregation", FLOWERS_RULES.get(method.kind, method.rule))
    if rule.kind == "multi-krum":
        rule = psofed.aggregations.MultiKrum(tolerated=LIARS)
    suspects = Suspects(psofed.defences.Cusum(threshold=method.threshold)) if method.threshold else None
    step = ServerStep(Combination(rule), suspects=suspects, seed=seed)
    attack_step(step, attack, seed)
    return step
