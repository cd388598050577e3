"""The server's step: how a round's uploads become the next model, and which of them do not count.

Every upload has passed the checks on its own (:mod:`psofed.federation.server.checks`). Here they are seen
together, by client name and with the entries that each of them is about: first by the defence, then by the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.logs import log
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import MIXING, Indices, derive_words
from psofed.federation.protocol.run_settings import check_defence, check_rule
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.aggregations.clipping import CentredClipping, RememberedClipping
from psofed.parts.base import Aggregation, Defence, PreAggregation
from psofed.parts.part import takes_memory
from psofed.parts.plain import combine_uploads, mix_uploads
from psofed.parts.watching import Watch, WatchPlan
from psofed.scenario import Scenario
from psofed.scenario.accepted import as_part

Upload = tuple[NDArray[np.int64], Vector]
"""The entries S_{k,n+1} that a client has shared, ascending, and its values there; both of shape (M,)."""


# From this many entries, or numbers in its memory, on a rule is worth compiling, which takes a second or two once.
_LARGE, _LARGE_MEMORY = 500, 20_000

# Beyond this many shared numbers a threshold found on small linear fleets says nothing.
_MOST_SHARED = 1000


def as_rows(uploads: Sequence[Upload], size: int | None = None) -> tuple[NDArray[np.int64], Vector]:
    """Return the entries that anybody has shared (or all of `size`), and a row of them for each upload, NaN elsewhere.

    Examples
    --------
    >>> as_rows([(np.array([0, 2]), np.array([4.0, 5.0])), (np.array([2]), np.array([6.0]))])
    (array([0, 2]), array([[ 4.,  5.],
           [nan,  6.]]))
    """
    entries = np.unique(np.concatenate([indices for indices, _ in uploads])) if size is None else np.arange(size)
    rows = np.full((len(uploads), len(entries)), np.nan)
    for row, (indices, values) in zip(rows, uploads, strict=True):
        row[np.searchsorted(entries, indices)] = values
    return entries, rows


def aggregate(
    model: Vector, uploads: Sequence[Upload], rule: Aggregation, pre: PreAggregation | None = None, **given: Any
) -> Vector:
    """Return w_{n+1}: under the mean, the average over participants of (uploaded entry, or w_n's where not shared).

    w_{n+1} = 1/|S_n| Σ_k [S_{k,n+1} u_k + (I − S_{k,n+1}) w_n].

    Parameters
    ----------
    model : array (D,)
        w_n.
    uploads : sequence of (indices, values)
        For every valid participant the positions S_{k,n+1} and its entries there, both of shape (M,).
    rule : Aggregation
        Is applied to the entries that each participant shared.
    pre : PreAggregation, optional
        What is done with the uploads before that.
    given : mapping
        ``uniforms`` (participants,), the random numbers in [0, 1) that `pre` needs, one for each participant; for a
        rule with memory, ``memory``, ``clients`` and ``num_clients`` as in
        :func:`psofed.parts.plain.combine_uploads`.

    Returns
    -------
    array (D,)
        A new vector of the type of `model`; a copy of it if there are no uploads. Sums are in float64.

    Examples
    --------
    >>> uploads = [(np.array([0]), np.array([4.0])), (np.array([1]), np.array([20.0]))]
    >>> aggregate(np.array([0.0, 10.0]), uploads, Mean())
    array([ 2., 15.])
    """
    if not uploads:
        return model.copy()
    result = model.astype(np.float64)
    if pre is None and isinstance(rule, Mean):
        change, share = np.zeros_like(result), 1.0 / len(uploads)
        for indices, values in uploads:
            change[indices] += share * (values - result[indices])
        return (result + change).astype(model.dtype, copy=False)
    uniforms, memory = given.pop("uniforms", None), given.get("memory")
    entries, sent = as_rows(uploads, None if memory is None else model.size)  # a memory is of all entries
    server = result[entries]
    if pre is not None:
        sent = mix_uploads(pre, sent, server, uniforms=uniforms)
    rule.check_participants(len(sent))
    combine: Callable[..., Vector] = combine_uploads
    if len(entries) >= _LARGE or (memory is not None and memory.size >= _LARGE_MEMORY):
        from psofed.engine.server import combine_compiled as combine
    result[entries] = combine(rule, sent, server, **given)
    return result.astype(model.dtype, copy=False)


ROBUST: Aggregation = RememberedClipping()
"""The default rule. It needs no guess of the number of Byzantine nodes, and takes any number of uploads."""

WITHOUT_MEMORY: Aggregation = CentredClipping(factor=1.0, iterations=5)
"""The default after a pre-aggregation, and what replaces a rule whose memory has grown too large."""

MOST_REMEMBERED = 1_000_000
"""Numbers in a rule's memory, which every checkpoint holds: at 8 bytes a number, 8 MB."""


@dataclass(eq=False)
class RuleMemory:
    """The array of a rule with memory, for clients that join later: numbered by name, it grows at its end.

    Examples
    --------
    >>> from psofed.aggregations import RememberedClipping
    >>> rule, memory = RememberedClipping(), RuleMemory()
    >>> memory.rows(rule, ["pump-1", "pump-2"], 3), memory.rows(rule, ["pump-2", "pump-3"], 3), memory.values.size
    (array([0, 1]), array([1, 2]), 9)
    """

    names: list[str] = field(default_factory=list)
    values: Vector = field(default_factory=lambda: np.zeros(0))

    def rows(self, rule: Aggregation, names: list[str], size: int) -> NDArray[np.int64]:
        """Return the numbers of these clients, after adding those that are new, for a model of `size` entries."""
        known = {name: row for row, name in enumerate(self.names)}
        for name in names:
            known.setdefault(name, len(known))
        self.names = list(known)
        needed = rule.memory_size(len(known), size)
        if needed > MOST_REMEMBERED:
            self.values = np.zeros(0)
        elif needed > self.values.size:
            self.values = np.concatenate([self.values, np.zeros(needed - self.values.size)])
        return np.array([known[name] for name in names])


class Suspects:
    """Watches the nodes of a federation, which come and go.

    Each is compared with its own past (:class:`psofed.parts.watching.Watch`). At most a third of the known nodes are
    excluded at a time, so with fewer than four nodes none ever is.

    Parameters
    ----------
    defence : Defence
        How they are watched.
    state : mapping, optional
        From :meth:`to_mapping`.

    Examples
    --------
    >>> from psofed.defences import Cusum
    >>> suspects, shared = Suspects(Cusum(threshold=10.0)), np.array([0])
    >>> for n in range(1, 9):
    ...     uploads = {f"pump-{k}": (shared, np.array([0.01 * (n + k) % 0.07])) for k in range(6)}
    ...     _ = suspects.judge(n, np.zeros(1), uploads)
    >>> suspects.judge(9, np.zeros(1), {**uploads, "pump-3": (shared, np.array([5.0]))})
    {'pump-3': 'suspect since round 9'}
    """

    def __init__(self, defence: Defence, state: Mapping[str, Any] | None = None) -> None:
        check_defence(defence)
        if defence.threshold is None:
            allowed = "a number, such as psofed.federation.plan_defence finds"
            raise InvalidValueError("defence.threshold", None, allowed)
        plan = WatchPlan(defence.threshold, np.zeros((0, 0)), by_past=True)
        self.defence: Defence = defence
        known = dict(state or {})
        self._numbers: dict[str, int] = {name: number for number, name in enumerate(known.get("names", ()))}
        self._watch = Watch(defence, plan, len(self._numbers))
        if known:
            self._watch.restore(known["watch"])

    def judge(self, round_number: int, model: Vector, uploads: Mapping[str, tuple[Indices, Vector]]) -> dict[str, str]:
        """Judge a round's uploads, and return the excluded clients, each with the round of its exclusion."""
        if not uploads:
            return {}
        numbers = np.array([self._number(name) for name in uploads])
        entries, sent = as_rows(list(uploads.values()))
        out = self._watch.judge(sent, model[entries].astype(np.float64), numbers, round_number - 1)
        return {
            name: f"suspect since round {self._watch.since[number] + 1}"
            for name, number, is_out in zip(uploads, numbers, out, strict=True)
            if is_out
        }

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return the record of every client that was ever excluded, by name, as JSON holds it."""
        watch = self._watch
        return {
            name: {
                "out": bool(watch.is_out[k]),
                "first_round": int(watch.first[k]) + 1,
                "since_round": int(watch.since[k]) + 1,
                "exclusions": int(watch.exclusions[k]),
                "uploads_until_return": int(watch.left[k]) if watch.left[k] >= 0 else None,
            }
            for name, k in sorted(self._numbers.items())
            if watch.exclusions[k]
        }

    def to_mapping(self) -> dict[str, Any]:
        """Return plain lists, as JSON holds them."""
        return {"names": list(self._numbers), "watch": self._watch.to_mapping(), "nodes": self.describe()}

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self._watch.resize(len(self._numbers))
        return self._numbers[name]


@dataclass(frozen=True)
class Combination:
    """How uploads are combined.

    Parameters
    ----------
    rule : Aggregation, or its name, optional
        By default :data:`ROBUST`; :data:`WITHOUT_MEMORY` after a pre-aggregation.
    pre_aggregation : PreAggregation, or its name, optional
        A step before the rule: ``psofed.pre_aggregations.NNM(tolerated=1)``, ….

    Examples
    --------
    >>> Combination("median", pre_aggregation="nnm").rule
    Median(quorum=3)
    """

    rule: Aggregation | str | None = None
    pre_aggregation: PreAggregation | str | None = None

    def __post_init__(self) -> None:
        pre = self.pre_aggregation
        default = ROBUST if pre is None else WITHOUT_MEMORY
        rule: Aggregation = as_part("aggregation", default if self.rule is None else self.rule)
        pre = None if pre is None else as_part("pre_aggregation", pre)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "pre_aggregation", pre)
        check_rule(rule, pre)


@dataclass(frozen=True)
class Outcome:
    """Result of a round's uploads.

    Attributes
    ----------
    model : array (D,)
        w_{n+1}; the very w_n if nothing was used.
    used : tuple of str
        The nodes whose uploads went into it.
    suspects : mapping
        For each node that a defence leaves out, since when.
    """

    model: Vector
    used: tuple[str, ...] = ()
    suspects: Mapping[str, str] = field(default_factory=dict)


class ServerStep:
    """From w_n and the uploads of a round to w_{n+1}.

    Parameters
    ----------
    combination : Combination
        How the uploads are combined.
    suspects : Suspects or None
        A defence that watches the nodes, and leaves out whom it suspects.
    seed : int
        With the round it gives the random numbers of a step before the rule.

    Attributes
    ----------
    memory : RuleMemory
        What a rule with memory keeps, at most :data:`MOST_REMEMBERED` numbers; the checkpoint keeps it, too.

    Examples
    --------
    >>> step, shared = ServerStep(Combination("mean")), np.array([0])
    >>> uploads = {"pump-1": (shared, np.array([1.0])), "pump-2": (shared, np.array([3.0]))}
    >>> step.take(1, np.zeros(2), uploads).model
    array([2., 0.])
    """

    def __init__(self, combination: Combination, *, suspects: Suspects | None = None, seed: int = 0) -> None:
        self.rule: Aggregation = combination.rule  # type: ignore[assignment]
        self.pre: PreAggregation | None = combination.pre_aggregation  # type: ignore[assignment]
        self.seed: int = seed
        self.suspects = suspects
        self.memory: RuleMemory = RuleMemory()

    def take(self, round_number: int, model: Vector, uploads: Mapping[str, Upload]) -> Outcome:
        """Join the uploads of a round that began with `model`."""
        # Sums depend on their order in the last bits: by name, never by arrival.
        received = dict(sorted(uploads.items()))
        suspects = {} if self.suspects is None else self.suspects.judge(round_number, model, received)
        received = {name: upload for name, upload in received.items() if name not in suspects}
        rule, given = self._recall(list(received), model.size)
        if self.pre is not None:
            given["uniforms"] = self._uniforms(round_number, list(received))
        model = aggregate(model, list(received.values()), rule, self.pre, **given)
        return Outcome(model, tuple(received), suspects)

    def _recall(self, names: list[str], size: int) -> tuple[Aggregation, dict[str, Any]]:
        """Return the rule and, if it has one, its memory, the clients' numbers in it and how many there are."""
        if not names or not takes_memory(type(self.rule).combine):
            return self.rule, {}
        memory, rule = self.memory, self.rule
        was_within = rule.memory_size(len(memory.names), size) <= MOST_REMEMBERED
        rows = memory.rows(rule, names, size)
        needed = rule.memory_size(len(memory.names), size)
        if needed <= MOST_REMEMBERED:
            return rule, {"memory": memory.values, "clients": rows, "num_clients": len(memory.names)}
        if was_within:
            log.warning(
                'aggregation = "%s" would remember %s numbers (%s nodes, %s parameters); the limit is %s, so "%s" is '
                "used from now on",
                rule.kind, *(f"{n:,}" for n in (needed, len(memory.names), size, MOST_REMEMBERED)), WITHOUT_MEMORY.kind,
            )  # fmt: skip
        return WITHOUT_MEMORY, {}

    def _uniforms(self, round_number: int, names: list[str]) -> Vector:
        """Return a random number in [0, 1) for each node, which depends on seed, round and name alone."""
        nodes = [int.from_bytes(sha256(name.encode()).digest()[:8], "little") for name in names]
        words = [int(derive_words(self.seed, node, round_number, MIXING, 1)[0]) for node in nodes]
        return np.array([float(word >> 11) * 2.0**-53 for word in words])


def plan_defence(
    defence: Defence,
    *,
    num_nodes: int,
    num_participants: int | None = None,
    dimension: int,
    num_shared: int,
    rounds: int = 3000,
    stepsize: float = 0.15,
) -> Defence:
    """Return a defence with a suitable threshold for a federation.

    It is found on a simulated fleet of the same size with the paper's streams.

    Variances are estimated during the run, so the scale of the data does not matter; heavy tails of honest residuals
    matter a little. For models of thousands of shared numbers, such as neural networks, give ``defence.threshold``.
    """
    if num_shared > _MOST_SHARED:
        allowed = f"a threshold: {num_shared} shared numbers are too many to find one by simulation"
        raise InvalidValueError("defence.threshold", defence.threshold, allowed)
    twin = Scenario(
        num_clients=max(num_nodes, 2), dimension=dimension, num_shared=num_shared, iterations=rounds,
        num_participants=min(num_participants or num_nodes, max(num_nodes, 2)), stepsize=stepsize, defence=defence,
    )  # fmt: skip
    return with_threshold(defence, twin)


def with_threshold(defence: Defence, scenario: Scenario) -> Defence:
    """Return a defence with the threshold that it needs in a scenario; each node is compared with its past."""
    from psofed.simulation.watch_plan import make_plan

    plan = make_plan(scenario.replace(attack=None, defence=defence.replace(variance="past")))
    assert plan is not None  # there is a defence
    return defence.replace(threshold=plan.threshold)
