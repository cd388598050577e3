"""The server's step: how a round's uploads become the next model, and which of them do not count.

Every upload has passed the checks on its own (:mod:`psofed.federation.server.replies`). Here they are seen
together, by client name and with the entries that each of them is about: first by the defence, then by the rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.validation import check_boolean
from psofed.federation.protocol.aggregate import aggregate
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import MIXING, derive_words
from psofed.federation.server.rule_memory import RememberedUpdates
from psofed.federation.server.suspects import Suspects
from psofed.parts.aggregations.centred_clipping import CentredClipping
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Aggregation, PreAggregation
from psofed.parts.part import takes_memory
from psofed.scenario.accepted import as_part

Upload = tuple[NDArray[np.int64], Vector]
"""The entries S_{k,n+1} that a client has shared, ascending, and its values there; both of shape (M,)."""

ROBUST: Aggregation = CentredClipping(factor=1.0, iterations=5)
"""The default rule. It needs no guess of the number of Byzantine nodes, and takes any number of uploads."""


@dataclass(frozen=True)
class Combination:
    """How uploads are combined.

    Parameters
    ----------
    rule : Aggregation, or its name, optional
        By default :data:`ROBUST`, or the mean if `weighted`.
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
        default = Mean() if self.weighted else ROBUST
        rule: Aggregation = as_part("aggregation", default if self.rule is None else self.rule)
        pre = self.pre_aggregation
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "pre_aggregation", None if pre is None else as_part("pre_aggregation", pre))
        if rule.has_root_data:
            raise NotCoveredError(
                f'aggregation = "{rule.kind}" needs root data on the server; a federation has none'
            )
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
    memory : RememberedUpdates
        What a rule with memory keeps of each client; the checkpoint keeps it, too.

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
        self.memory: RememberedUpdates = RememberedUpdates()

    def take(
        self, round_number: int, model: Vector, uploads: Mapping[str, Upload], examples: Mapping[str, int]
    ) -> Outcome:
        """Join the uploads of a round that began with `model`; `examples` are the nodes' numbers of examples."""
        # Sums depend on their order in the last bits: by name, never by arrival.
        received = dict(sorted(uploads.items()))
        suspects = {} if self.suspects is None else self.suspects.judge(round_number, model, received)
        received = {name: upload for name, upload in received.items() if name not in suspects}
        weights = [float(examples[name]) for name in received] if self.weighted else None
        if received and takes_memory(type(self.rule).combine):
            model = self._remember(model, received)
        elif weights is None or sum(weights) > 0:
            drawn = self._uniforms(round_number, list(received))
            model = aggregate(model, list(received.values()), weights, self.rule, self.pre, drawn)
        return Outcome(model, tuple(received), suspects)

    def _remember(self, model: Vector, received: Mapping[str, Upload]) -> Vector:
        """Combine the uploads by a rule that keeps a row of numbers for every client it has ever heard from."""
        updates = np.full((len(received), model.size), np.nan)
        for row, (indices, values) in zip(updates, received.values(), strict=True):
            row[indices] = values - model[indices].astype(np.float64)
        rows, change = self.memory.rows(list(received), model.size), np.zeros(model.size)
        self.rule.combine(updates, rows, self.memory.values, change)
        return np.asarray((model + change).astype(model.dtype))

    def _uniforms(self, round_number: int, names: list[str]) -> Vector:
        """Return a random number in [0, 1) for each node, which depends on seed, round and name alone."""
        if self.pre is None:
            return np.zeros(len(names))
        nodes = [int.from_bytes(sha256(name.encode()).digest()[:8], "little") for name in names]
        return np.array([_unit(derive_words(self.seed, node, round_number, MIXING, 1)[0]) for node in nodes])


def _unit(word: Any) -> float:
    return float(int(word) >> 11) * 2.0**-53
