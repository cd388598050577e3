"""Excluding suspects from a federation: a defence that watches the clients' uploads, by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.federation.protocol.aggregate import as_rows, check_defence
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import Indices
from psofed.parts.base import Defence
from psofed.parts.watching import Watch, WatchPlan
from psofed.scenario import Scenario

# Beyond this many shared numbers a threshold found on small linear fleets says nothing.
_MOST_SHARED = 1000


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
        self._names: list[str] = list(known.get("names", []))
        self._numbers: dict[str, int] = {name: number for number, name in enumerate(self._names)}
        self._watch = Watch(defence, plan, len(self._names))
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

    @property
    def names(self) -> list[str]:
        """The clients that are excluded now."""
        return sorted(name for name, out in zip(self._names, self._watch.is_out, strict=True) if out)

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
            for k, name in sorted(enumerate(self._names), key=lambda pair: pair[1])
            if watch.exclusions[k]
        }

    def to_mapping(self) -> dict[str, Any]:
        """Return plain lists, as JSON holds them."""
        return {"names": list(self._names), "watch": self._watch.to_mapping(), "nodes": self.describe()}

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
            self._watch.resize(len(self._names))
        return self._numbers[name]


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
