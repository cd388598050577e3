"""The server's step: how a round's uploads become the next model, and which of them do not count.

Every upload has passed the checks on its own (:mod:`psofed.federation.server.checks`). Here they are seen
together, by client name and with the entries that each of them is about: first by the defence, then by the rule.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_boolean
from psofed.federation.protocol.aggregate import Upload, aggregate, check_rule
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import MIXING, derive_words
from psofed.federation.server.suspects import Suspects
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.aggregations.clipping import CentredClipping, RememberedClipping
from psofed.parts.base import Aggregation, PreAggregation
from psofed.parts.part import takes_memory
from psofed.scenario.accepted import as_part

ROBUST: Aggregation = RememberedClipping()
"""The default rule. It needs no guess of the number of Byzantine nodes, and takes any number of uploads."""

WITHOUT_MEMORY: Aggregation = CentredClipping(factor=1.0, iterations=5)
"""The default after a pre-aggregation, and what replaces a rule whose memory has grown too large."""

MOST_REMEMBERED = 1_000_000
"""Numbers in a rule's memory, which every checkpoint holds: at 8 bytes a number, 8 MB."""

_log = logging.getLogger("psofed.federation")


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


@dataclass(frozen=True)
class Combination:
    """How uploads are combined.

    Parameters
    ----------
    rule : Aggregation, or its name, optional
        By default :data:`ROBUST`; :data:`WITHOUT_MEMORY` after a pre-aggregation; the mean if `weighted`.
    pre_aggregation : PreAggregation, or its name, optional
        A step before the rule: ``psofed.pre_aggregations.NNM(tolerated=1)``, ….
    weighted : bool
        Weigh clients by their number of examples. The paper does not, and a Byzantine client would profit. Only with
        the mean.

    Examples
    --------
    >>> Combination("median", pre_aggregation="nnm").rule
    Median(quorum=3)
    """

    rule: Aggregation | str | None = None
    pre_aggregation: PreAggregation | str | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        check_boolean("weighted", self.weighted)
        pre = self.pre_aggregation
        default = Mean() if self.weighted else ROBUST if pre is None else WITHOUT_MEMORY
        rule: Aggregation = as_part("aggregation", default if self.rule is None else self.rule)
        pre = None if pre is None else as_part("pre_aggregation", pre)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "pre_aggregation", pre)
        check_rule(rule, pre)
        if self.weighted and not isinstance(rule, Mean):
            raise InvalidValueError("weighted", True, f'false with aggregation = "{rule.kind}"')
        if self.weighted and pre is not None:
            raise InvalidValueError("weighted", True, "false with a pre_aggregation")


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
    >>> step.take(1, np.zeros(2), uploads, {"pump-1": 5, "pump-2": 5}).model
    array([2., 0.])
    """

    def __init__(self, combination: Combination, *, suspects: Suspects | None = None, seed: int = 0) -> None:
        self.rule: Aggregation = combination.rule  # type: ignore[assignment]
        self.pre: PreAggregation | None = combination.pre_aggregation  # type: ignore[assignment]
        self.weighted: bool = combination.weighted
        self.seed: int = seed
        self.suspects = suspects
        self.memory: RuleMemory = RuleMemory()

    def take(
        self, round_number: int, model: Vector, uploads: Mapping[str, Upload], examples: Mapping[str, int]
    ) -> Outcome:
        """Join the uploads of a round that began with `model`; `examples` are the nodes' numbers of examples."""
        # Sums depend on their order in the last bits: by name, never by arrival.
        received = dict(sorted(uploads.items()))
        suspects = {} if self.suspects is None else self.suspects.judge(round_number, model, received)
        received = {name: upload for name, upload in received.items() if name not in suspects}
        weights = [float(examples[name]) for name in received] if self.weighted else None
        if weights is None or sum(weights) > 0:
            drawn = self._uniforms(round_number, list(received))
            rule, *remembered = self._recall(list(received), model.size)
            model = aggregate(model, list(received.values()), weights, rule, self.pre, drawn, *remembered)
        return Outcome(model, tuple(received), suspects)

    def _recall(self, names: list[str], size: int) -> tuple[Any, ...]:
        """Return the rule and, if it has one, its memory, the clients' numbers in it and how many there are."""
        if not names or not takes_memory(type(self.rule).combine):
            return (self.rule,)
        memory, rule = self.memory, self.rule
        was_within = rule.memory_size(len(memory.names), size) <= MOST_REMEMBERED
        rows = memory.rows(rule, names, size)
        needed = rule.memory_size(len(memory.names), size)
        if needed <= MOST_REMEMBERED:
            return rule, memory.values, rows, len(memory.names)
        if was_within:
            _log.warning(
                'aggregation = "%s" would remember %s numbers (%s nodes, %s parameters); the limit is %s, so "%s" is '
                "used from now on",
                rule.kind, *(f"{n:,}" for n in (needed, len(memory.names), size, MOST_REMEMBERED)), WITHOUT_MEMORY.kind,
            )  # fmt: skip
        return (WITHOUT_MEMORY,)

    def _uniforms(self, round_number: int, names: list[str]) -> Vector:
        """Return a random number in [0, 1) for each node, which depends on seed, round and name alone."""
        if self.pre is None:
            return np.zeros(len(names))
        nodes = [int.from_bytes(sha256(name.encode()).digest()[:8], "little") for name in names]
        words = [int(derive_words(self.seed, node, round_number, MIXING, 1)[0]) for node in nodes]
        return np.array([float(word >> 11) * 2.0**-53 for word in words])
