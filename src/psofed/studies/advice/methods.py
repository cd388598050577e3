"""Ways to learn, as they did on a table."""

from dataclasses import asdict, dataclass
from typing import Any

from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.studies.advice.judging import Gain


@dataclass(frozen=True)
class LearningMethod:
    """One way to learn, as it did.

    Attributes
    ----------
    name : str
        ``"alone"``, ``"federation"`` (the one in the answer), ``"robust"`` (the same clients with a robust rule),
        ``"everybody"`` (a federation of all clients with a fixed number of shared parameters), ``"pooled"``,
        ``"rls"``, ``"persistence"``, ``"seasonal"`` or ``"average"`` (each client's running mean, no model).
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
