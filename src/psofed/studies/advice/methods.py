"""Ways to learn and clients, as they did on a table."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.studies.advice.judging import Gain, Judge, Judged


@dataclass(frozen=True)
class LearningMethod:
    """One way to learn, as it did.

    Attributes
    ----------
    name : str
        ``"alone"``, ``"federation"`` (the one in the answer), ``"robust"`` (the same clients with a robust rule),
        ``"everybody"`` (a federation of all clients with a fixed number of shared parameters), ``"pooled"``,
        ``"rls"``, ``"persistence"`` (the last value) or ``"average"`` (each client's running mean, no model).
    title : str
        For people.
    num_shared, stepsize : int or None, float or None
        What was best at the end: the setting to use from now on.
    error : float
        Mean squared error over the judged rows, each client weighing the same; 1 is the variance of the target.
    gain : Gain
        On each client alone; of a federation of some clients, theirs.
    numbers : float
        Values sent per iteration, up and down, by all participants; 0 if nothing is sent.
    rule : str
        How the server combines what arrives; empty without a server.
    """

    name: str
    title: str
    num_shared: int | None
    stepsize: float | None
    error: float
    gain: Gain
    numbers: float = 0
    rule: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gain": self.gain.to_json()}


@dataclass(frozen=True)
class ClientGroup:
    """Clients that should federate with each other, and their setting."""

    clients: tuple[str, ...]
    num_shared: int
    stepsize: float


@dataclass(frozen=True)
class Station:
    """One client of the table.

    Attributes
    ----------
    name : str
    rows : int
        With a target.
    alone, federation : float
        Mean squared errors over its judged rows; NaN if it has none. If it is to be left out, `federation` is its error
        in a federation of everybody.
    gain : Gain
        Of the federation; the intervals of all clients hold together (95 %).
    flag : str
        ``"hard to predict"`` (its error alone is no smaller than its running mean's), ``"too few rows"`` (for an
        interval), or empty.
    """

    name: str
    rows: int
    alone: float
    federation: float
    gain: Gain
    flag: str

    @property
    def note(self) -> str:
        """Remark on the client, or an empty string."""
        is_better_alone = self.gain.matters and self.gain.value < 0
        return "; ".join(filter(None, (self.flag, "better alone" if is_better_alone else "")))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gain": self.gain.to_json(), "note": self.note}


def describe_stations(
    names: Sequence[str],
    rows: Sequence[int],
    judge: Judge,
    alone: Judged,
    federation: Judged,
    average: Judged,
) -> tuple[Station, ...]:
    """Return all clients in the order of the table; `average` is the running mean's forecast."""
    errors = zip(
        *(judge.client_errors(judged).tolist() for judged in (alone, federation, average)), strict=True
    )
    stations = []
    for name, count, (own, joined, mean), gain in zip(
        names, rows, errors, judge.client_gains(federation, alone), strict=True
    ):
        flag = "" if own < mean else "hard to predict"
        if math.isnan(own) or (math.isfinite(gain.value) and math.isnan(gain.interval[0])):
            flag = "too few rows"
        stations.append(Station(name, count, own, joined, gain, flag))
    return tuple(stations)


def federation_method(name: str, who: str, setting: Scenario, error: float, gain: Gain) -> LearningMethod:
    """Describe a federation: who takes part, the setting it ends with, its error and its gain on each alone."""
    rule = setting.aggregation.kind
    title = f"{who}, M = {setting.num_shared}" + ("" if rule == "mean" else f", {rule}")
    return LearningMethod(
        name, title, setting.num_shared, setting.common_stepsize, error, gain, values_sent(setting), rule
    )


def values_sent(scenario: Scenario) -> float:
    """Return the values sent per iteration, up and down, by all participants."""
    sent = measure_communication(scenario)
    return sent.numbers_down + sent.numbers_up
