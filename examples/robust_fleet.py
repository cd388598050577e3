"""A fleet under attack by clients that know everything, with any of psofed's rules: the run of robust_rules.py.

- *greedy*: in each round the Byzantine clients choose what moves the server's model farthest from the target, of 15
  candidates: the direction away from it in seven lengths, the honest mean plus some deviations, the honest extremes,
  zero, the honest mean turned round, …. With absences they may also stay silent.
- *drift*: the same, in a fixed direction. *steady*: always twice the honest clients' median length, away from the
  target.
- *mimic*: they send the update of one honest client. *echo*: they send the server's model back.

The rules are psofed's own methods, compiled, with the loops around them of :mod:`psofed.parts.plain`.
"""

# ruff: noqa: NPY002 (Numba compiles the legacy generator)

from types import FunctionType
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

import psofed.engine.vocabulary  # noqa: F401 (compiled forms of psofed.parts.vectors)
from psofed.aggregations import (
    CentredClipping,
    GeometricMedian,
    Mean,
    Median,
    MultiKrum,
    RememberedClipping,
    TrimmedMean,
)
from psofed.parts import vectors
from psofed.parts.contexts import AllUpdates, Numbers, Updates
from psofed.pre_aggregations import NNM

NO_ATTACK, GREEDY, DRIFT, STEADY, MIMIC, ECHO = range(6)
RULES = {
    "mean": lambda f: Mean(),
    "median": lambda f: Median(),
    "trimmed mean": lambda f: TrimmedMean(trim=f),
    "centred clipping": lambda f: CentredClipping(factor=1.0, iterations=5),
    "multi-Krum": lambda f: MultiKrum(tolerated=f),
    "geometric median": lambda f: GeometricMedian(),
    "NNM + trimmed mean": lambda f: (NNM(tolerated=f), TrimmedMean(trim=f)),
    "remembered clipping": lambda f: RememberedClipping(),
}
"""Rules by name, for an assumed number of Byzantine participants."""


class Fleet(NamedTuple):
    """A fleet and its task; the first `byzantine` clients are Byzantine."""

    clients: int
    byzantine: int
    participants: int
    shared: int
    coordinated: bool
    stepsize: float
    variances: np.ndarray  # of the inputs, (K,)
    deviations: np.ndarray  # of the noise, (K,)
    targets: np.ndarray  # (K, D)
    walk: float  # length of the targets' step per round
    absent: float  # share of the time that an honest client is away,
    spell: float  # in spells of this mean length
    leavers: int  # honest clients that leave for good after a third of the run
    rounds: int
    seed: int


def fields_of(part):
    """Return a part's options as its compiled methods take them."""
    return part.Fields(*(getattr(part, name) for name in part.Fields._fields))


def compile_body(function):
    """Compile a part's method, and the plain functions that it calls."""
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, FunctionType) and used.__module__ != vectors.__name__:
            register_jitable(used)
            compile_body(used)
    return njit(function)


def compile_rule(name):
    """Return ``combine(options, updates, clients, memory, out)`` of a rule by name."""
    rule = RULES[name](1)
    if isinstance(rule, tuple):
        return _compile_mixed(compile_body(type(rule[0]).weigh), _compile_entries(compile_body(type(rule[1]).combine)))
    body = compile_body(type(rule).combine)
    if rule.over == "entries":
        return _compile_entries(body)
    if rule.memory_size(1, 1):
        return _compile_vectors(body)
    return _compile_vectors(njit(lambda fields, updates, memory, out: body(fields, updates, out)))


def options_of(name, tolerated):
    """Return what the compiled rule takes as its options."""
    rule = RULES[name](tolerated)
    pre, rule = rule if isinstance(rule, tuple) else (rule, rule)
    return fields_of(rule), rule.fewest_numbers(), fields_of(pre)


def _compile_entries(body):
    @njit
    def combine(options, updates, clients, memory, out):
        count, size = updates.shape
        for i in range(size):
            numbers = updates[:, i][~np.isnan(updates[:, i])]
            if numbers.size:
                total = max(numbers.size, min(options[1], count))  # zeros: the server's own value
                values = np.zeros(total)
                values[: numbers.size] = numbers
                out[i] = numbers.size / count * body(options[0], Numbers(values, 0.0))

    return combine


def _compile_vectors(body):
    @njit
    def combine(options, updates, clients, memory, out):
        count, sent = updates.shape[0], ~np.isnan(updates)
        rows, entries = np.flatnonzero(sent.sum(axis=1)), np.flatnonzero(sent.sum(axis=0))
        if rows.size == 0:
            return
        shared = np.zeros((rows.size, entries.size), np.bool_)
        changes, agreed, zeros = np.zeros(shared.shape), np.zeros(entries.size), np.zeros(entries.size)
        for a in range(rows.size):
            for b in range(entries.size):
                shared[a, b] = sent[rows[a], entries[b]]
                if shared[a, b]:
                    changes[a, b] = updates[rows[a], entries[b]]
        scratch = np.empty(rows.size**2 + 2 * rows.size + 2 * entries.size)
        who, total = clients[rows], memory.shape[0]
        seen = Updates(changes, shared, zeros, zeros, scratch, entries, who, total)
        body(options[0], seen, memory.reshape(memory.size), agreed)
        for b in range(entries.size):
            out[entries[b]] = rows.size / count * agreed[b]

    return combine


def _compile_mixed(weigh, combine_mixed):
    @njit
    def combine(options, updates, clients, memory, out):
        count, size = updates.shape
        sent = ~np.isnan(updates)
        changes, weights = np.where(sent, updates, 0.0), np.zeros((count, count))
        scratch = np.empty(count**2 + 2 * count + 2 * size)
        weigh(options[2], AllUpdates(changes, sent, np.zeros(size), np.random.rand(count), scratch), weights)
        mixed = np.full((count, size), np.nan)
        for p in range(count):
            for i in range(size):
                for q in range(count):
                    if weights[p, q] != 0.0 and sent[q, i]:
                        before = mixed[p, i] if mixed[p, i] == mixed[p, i] else 0.0
                        mixed[p, i] = before + weights[p, q] * changes[q, i]
        combine_mixed(options, mixed, clients, memory, out)

    return combine


@njit
def _draw_masks(fleet, masks):
    masks[:] = False
    for k in range(masks.shape[0]):
        if k == 0 or not fleet.coordinated:
            for i in np.random.permutation(masks.shape[1])[: fleet.shared]:
                masks[k, i] = True
        else:
            masks[k] = masks[0]


@njit
def _draw_participants(fleet, t, is_away):
    """Return who answers; Byzantine clients are never away."""
    answers = np.zeros(fleet.clients, np.bool_)
    answers[np.random.permutation(fleet.clients)[: fleet.participants]] = True
    for k in range(fleet.byzantine, fleet.clients):
        leaves = fleet.absent / (1.0 - fleet.absent) / fleet.spell
        is_away[k] = np.random.rand() >= 1.0 / fleet.spell if is_away[k] else np.random.rand() < leaves
        gone = k >= fleet.clients - fleet.leavers and t >= fleet.rounds // 3
        answers[k] = answers[k] and not is_away[k] and not gone
    return np.flatnonzero(answers)


@njit
def _describe(rows):
    """Return mean, deviation, highest and lowest of every entry of the honest rows, and the rows' median length."""
    entries, lengths = np.zeros((4, rows.shape[1])), np.full(max(rows.shape[0], 1), 1e-12)
    for p in range(rows.shape[0]):
        lengths[p] = max(np.sqrt(np.nansum(rows[p] ** 2)), 1e-12)
    for i in range(rows.shape[1]):
        honest = rows[:, i][~np.isnan(rows[:, i])]
        if honest.size:
            entries[:, i] = (honest.mean(), honest.std(), honest.max(), honest.min())
    return entries, np.median(lengths)


@njit
def _candidate(c, sent, entries, typical, away, out):
    """Write candidate c of what a Byzantine row may be into ``out``, where it is `sent`; `away` has length 1."""
    strengths = (0.3, 0.6, 0.9, 1.2, 2.0, 4.0, 100.0)
    for i in range(sent.size):
        if not sent[i]:
            continue
        mean, deviation, high, low = entries[:, i]
        sign = 1.0 if away[i] > 0.0 else -1.0
        edge = high if sign > 0.0 else low
        if c < 7:
            out[i] = strengths[c] * typical * away[i]
        elif c < 10:
            out[i] = mean + 0.5 * (c - 6) * deviation * sign
        elif c < 12:
            out[i] = edge if c == 10 else 0.7 * edge
        elif c < 14:
            out[i] = 0.0 if c == 12 else -1.5 * mean
        else:
            out[i] = 1e3 * typical * sign if c == 14 else np.nan


def compile_run(combine, decay):
    """Return ``run(fleet, attack, options)``: the honest clients' MSE late in the run, and in rounds 1/μ to 2/μ."""

    @njit
    def attack_uploads(fleet, attack, options, updates, clients, memory, away):
        """Replace the Byzantine updates by the candidate that moves the server farthest."""
        size, attackers = updates.shape[1], np.sum(clients < fleet.byzantine)
        rows, kept = updates[attackers:], 0.0
        if decay > 0.0:  # what the rule sees of honest clients is what it remembers of them
            seen, kept = memory.copy(), decay ** (size / fleet.shared)
            combine(options, rows, clients[attackers:], seen, np.zeros(size))
            rows = seen[fleet.byzantine :]
        entries, typical = _describe(rows)
        best, chosen, tried = -np.inf, updates.copy(), updates.copy()
        sent = ~np.isnan(updates)
        first, last = (4, 5) if attack == STEADY else (0, 16 if fleet.absent > 0.0 or fleet.leavers > 0 else 15)
        for c in range(first, last):
            for p in range(attackers):
                # Of a memory, all entries count.
                along = np.sqrt(np.sum(away**2) if decay > 0.0 else np.sum(away**2 * sent[p])) + 1e-300
                _candidate(c, sent[p], entries, typical, away / along, tried[p])
                if decay > 0.0:  # the upload that makes the server remember just that
                    tried[p] = (tried[p] - kept * memory[clients[p]]) / (1.0 - kept)
            change = np.zeros(size)
            combine(options, tried, clients, memory.copy(), change)
            gain = np.sum(away * change) + (0.5 * np.sum(change**2) if attack == GREEDY else 0.0)
            if gain > best:
                best = gain
                chosen[:] = tried
        updates[:] = chosen

    @njit(error_model="numpy")
    def run(fleet, attack, options):
        np.random.seed(fleet.seed)
        f, size = fleet.byzantine, fleet.targets.shape[1]
        targets, server, models = fleet.targets.copy(), np.zeros(size), np.zeros(fleet.targets.shape)
        memory, is_away = np.zeros(targets.shape), np.zeros(fleet.clients, np.bool_)
        masks, following = np.zeros(targets.shape, np.bool_), np.zeros(targets.shape, np.bool_)
        _draw_masks(fleet, masks)
        late, early = 0.0, 0.0
        for t in range(fleet.rounds):
            targets += fleet.walk / np.sqrt(size) * np.random.normal(0.0, 1.0, size)
            _draw_masks(fleet, following)
            clients = _draw_participants(fleet, t, is_away)
            for k in clients:
                models[k] = np.where(masks[k], server, models[k])
            for k in range(fleet.clients):
                inputs = np.sqrt(fleet.variances[k]) * np.random.normal(0.0, 1.0, size)
                error = fleet.deviations[k] * np.random.normal() + np.sum(inputs * (targets[k] - models[k]))
                models[k] += fleet.stepsize * error * inputs
            if not np.max(np.abs(models)) < 1e4:
                return np.inf, np.inf
            updates, change = np.full((clients.size, size), np.nan), np.zeros(size)
            for p in range(clients.size):
                k = clients[p]
                source = models[fleet.clients - 1] if attack == MIMIC and k < f else models[k]
                source = server if attack == ECHO and k < f else source
                updates[p] = np.where(following[k], source - server, np.nan)
            if NO_ATTACK < attack < MIMIC and np.any(clients < f):
                away = server - np.sum(targets[f:], axis=0) / (fleet.clients - f)
                away = away if attack != DRIFT else np.full(size, 1.0 / np.sqrt(size))
                attack_uploads(fleet, attack, options, updates, clients, memory, away)
            if clients.size:
                combine(options, updates, clients, memory, change)
            server += change
            mse = 0.0
            for k in range(f, fleet.clients):
                excess = fleet.variances[k] * np.sum((models[k] - targets[k]) ** 2)
                mse += (fleet.deviations[k] ** 2 + excess) / (fleet.clients - f)
            if t >= fleet.rounds // 2:
                late += mse
            if fleet.rounds > 2.0 / fleet.stepsize and 1.0 <= t * fleet.stepsize < 2.0:
                early += mse
            masks[:] = following
        return late, early

    return run
