"""Count the arithmetic of an exchange by running an algorithm's bodies on numbers that count their operations.

What is counted is the plain form, as written in the equations: nothing is skipped because a number happens to be zero.
"""

import math
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.fleet import draw_fleet
from psofed.parts.contexts import Message, Received
from psofed.parts.traffic import Momentum, Traffic
from psofed.reference.draws import draw_trial
from psofed.scenario import Scenario


@dataclass
class Operations:
    """A tally of operations on real numbers; copying, indexing and random draws do not count.

    Examples
    --------
    >>> Operations(additions=10, multiplications=11).total
    21
    """

    additions: float = 0
    multiplications: float = 0
    divisions: float = 0
    comparisons: float = 0
    roots: float = 0

    @property
    def total(self) -> float:
        """Total number of operations."""
        return self.additions + self.multiplications + self.divisions + self.comparisons + self.roots


@dataclass(frozen=True)
class ExchangeCost:
    """Number of operations of an algorithm.

    Attributes
    ----------
    participant : Operations
        Of one participant in one exchange: its LMS step, and what it makes of it to send.
    server : Operations
        Of the server in one exchange, for all its participants.
    bystander : Operations
        Of a client that does not take part, in one iteration.
    shared_draws, own_draws : int
        Random numbers of one exchange that both sides derive from a shared seed (so each participant and the server
        draw them all), and those that a participant draws for itself.
    traffic : Traffic
        What an exchange sends, and how often there is one.
    num_clients : int
        K.
    """

    participant: Operations
    server: Operations
    bystander: Operations
    shared_draws: int
    own_draws: int
    traffic: Traffic
    num_clients: int

    @property
    def all_clients_per_iteration(self) -> float:
        """Operations of all K clients together, on average over iterations."""
        taking_part = float(self.traffic.exchanges_per_iteration)
        return taking_part * self.participant.total + (self.num_clients - taking_part) * self.bystander.total

    @property
    def server_per_iteration(self) -> float:
        """Operations of the server, on average over iterations."""
        return float(self.traffic.exchanges_per_iteration / self.traffic.group) * self.server.total


def count_operations(scenario: Scenario, seed: int = 0) -> ExchangeCost:
    """Count the operations of one exchange of the scenario's algorithm, by running it in plain Python.

    Parameters
    ----------
    scenario : Scenario
        Aggregation must be the mean. An attack, being no work that the algorithm asks for, is left out.
    seed : int, optional
        Of the draws on which it runs; only the comparisons of medians depend on them.

    Examples
    --------
    One LMS step: 2D + 1 products, 2D sums.

    >>> cost = count_operations(Scenario(num_clients=50, dimension=5, num_participants=5))
    >>> cost.participant.multiplications, cost.participant.additions, cost.server.additions
    (11, 10, 4)
    """
    if scenario.learner.kind != "lms":
        raise NotCoveredError(
            f'operations are counted only for learner.kind = "lms", not "{scenario.learner.kind}"'
        )
    if scenario.aggregation.kind != "mean" or scenario.pre_aggregation is not None:
        raise NotCoveredError(
            'operations are counted only for aggregation = "mean" without a pre-aggregation'
        )
    if scenario.algorithm.holds_models:
        return _count_pso_fed(scenario, seed)
    return _count_server_model(scenario, seed)


def _count_pso_fed(scenario: Scenario, seed: int) -> ExchangeCost:
    draws = draw_trial(scenario.replace(iterations=1, attack=None), seed, 0)
    step, server = Operations(), Operations()
    model = _server_model(scenario)
    own = _numbers(model, step)
    _ = own + _update(own, draws.inputs[0, 0], draws.noise[0, 0], _number(scenario.common_stepsize, step))
    senders = np.flatnonzero(draws.uploaders[0])
    masks = draws.upload_masks[0, senders]
    for i in np.flatnonzero(masks.any(axis=0)):
        # Those who did not send the entry count with the server's own number.
        missing = int((~masks[:, i]).sum())
        instead = [missing * _number(model[i], server)] if missing else []
        _average([*_numbers(np.full(len(senders) - missing, model[i]), server), *instead], len(senders))
    drawn = scenario.num_shared if scenario.selection.pattern.kind == "random" else 0
    traffic = scenario.algorithm.traffic(scenario)
    return ExchangeCost(step, server, step, drawn, 0, traffic, scenario.num_clients)


def _count_server_model(scenario: Scenario, seed: int) -> ExchangeCost:
    algorithm, exchange = scenario.algorithm, scenario.algorithm.exchange(scenario)
    traffic = algorithm.traffic(scenario)
    participants = traffic.group
    draws = draw_trial(scenario.replace(iterations=1, attack=None), seed, 0)
    rng = np.random.default_rng(seed)
    normals, uniforms = rng.standard_normal(exchange.normals), rng.random(exchange.uniforms)
    model = _server_model(scenario)
    sent, tallies = [], []
    for k in range(participants):
        tally = Operations()
        number, numbers = partial(_number, tally=tally), partial(_numbers, tally=tally)
        stepsize = number(scenario.common_stepsize)
        update = _update(numbers(model), draws.inputs[0, k], draws.noise[0, k], stepsize)
        if exchange.client_momentum is not None:
            update = _remember(exchange.client_momentum, numbers(model), update)
        out = numbers(np.zeros(exchange.numbers))
        own = rng.random(exchange.client_uniforms)
        _counting(algorithm.encode, tally)(Message(update, stepsize, numbers(normals), uniforms, own), out)
        sent.append(numbers(model) + out if exchange.sends_model else out)
        tallies.append(tally)
    tally = Operations()
    number, numbers = partial(_number, tally=tally), partial(_numbers, tally=tally)
    receive = partial(
        Received, participants=participants, stepsize=number(scenario.common_stepsize), normals=numbers(normals),
        uniforms=uniforms,
    )  # fmt: skip
    arrived = [numbers(row) for row in sent]
    decode = _counting(algorithm.decode, tally)

    def decoded(row: Any) -> Any:
        out = numbers(np.zeros(scenario.dimension))
        decode(receive(row), out)
        return numbers(out)  # zeros that a body has set count as well

    if algorithm.decodes() and not exchange.decode_joined:
        arrived = [decoded(row) for row in arrived]
    momentum = exchange.server_momentum
    if momentum is not None:
        size, absent = len(arrived[0]), scenario.num_clients - participants
        memories = [numbers(np.ones(size)) for _ in range(scenario.num_clients)]
        arrived = [_remember(momentum, m, row) for m, row in zip(memories, arrived, strict=False)]
        arrived += [_shrink(momentum, m) for m in memories[:absent]]
    joined = _average(arrived, len(arrived))
    if algorithm.decodes() and exchange.decode_joined:
        joined = decoded(joined)
    if not exchange.sends_model:
        change = numbers(np.zeros(scenario.dimension))
        _counting(algorithm.apply, tally)(receive(joined), numbers(np.zeros(exchange.memory)), change)
        _ = numbers(model) + change  # only to be counted
    shared = (exchange.normals + exchange.uniforms) if exchange.fresh else 0
    bystander = Operations()
    if exchange.client_momentum is not None:
        _shrink(exchange.client_momentum, _numbers(model, bystander))
        # It does so in each exchange, and not in each iteration.
        bystander.multiplications *= float(traffic.exchanges_per_iteration / traffic.group)
    return ExchangeCost(
        _mean_of(tallies),
        tally,
        bystander,
        shared,
        exchange.client_uniforms,
        traffic,
        scenario.num_clients,
    )


def _server_model(scenario: Scenario) -> Any:
    """Return a partly converged model without zero entries."""
    return 0.5 * draw_fleet(scenario).target + 0.1


def _update(model: Any, x: Any, y: float, stepsize: Any) -> Any:
    """Return u = μ e x with e = y − wᵀx."""
    factor = stepsize * (y - (model * x).sum())
    return np.array([factor * entry for entry in x], object)


def _remember(momentum: Momentum, memory: Any, update: Any) -> Any:
    """Return keep · m + take · u; taking the update's place is no arithmetic."""
    if (momentum.keep, momentum.take) == (0.0, 1.0):
        return update
    return momentum.keep * memory + momentum.take * update


def _shrink(momentum: Momentum, memory: Any) -> Any:
    return memory if momentum.absent == 1.0 else momentum.absent * memory


def _average(values: Sequence[Any], count: int) -> Any:
    return sum(values[1:], start=values[0]) / count


def _mean_of(tallies: list[Operations]) -> Operations:
    counts = [asdict(tally) for tally in tallies]
    means = {name: Fraction(sum(count[name] for count in counts), len(counts)) for name in counts[0]}
    return Operations(**{name: int(m) if m.denominator == 1 else float(m) for name, m in means.items()})


class _Number:
    """A number that counts the operations on it."""

    __slots__ = ("tally", "value")
    __array_ufunc__ = None  # NumPy's scalars leave mixed operations to this class

    def __init__(self, value: float, tally: Operations) -> None:
        self.value, self.tally = float(value), tally

    def __float__(self) -> float:
        return self.value

    def __abs__(self) -> "_Number":
        return _Number(abs(self.value), self.tally)

    def __neg__(self) -> "_Number":
        return _Number(-self.value, self.tally)


def _operation(
    kind: str, work: Callable[[float, float], Any], swapped: bool = False
) -> Callable[[_Number, Any], Any]:
    def method(self: _Number, other: Any) -> Any:
        setattr(self.tally, kind, getattr(self.tally, kind) + 1)
        both = (float(other), self.value) if swapped else (self.value, float(other))
        result = work(*both)
        return result if kind == "comparisons" else _Number(result, self.tally)

    return method


for _kind, _names in {
    "additions": ("add", "sub"),
    "multiplications": ("mul",),
    "divisions": ("truediv",),
    "comparisons": ("lt", "le", "gt", "ge", "eq"),
}.items():
    for _name in _names:
        _work = getattr(operator, _name)
        setattr(_Number, f"__{_name}__", _operation(_kind, _work))
        setattr(_Number, f"__r{_name}__", _operation(_kind, _work, swapped=True))


def _number(value: float, tally: Operations) -> Any:
    return _Number(value, tally)


def _numbers(values: Any, tally: Operations) -> Any:
    """Return numbers of the same values that are counted in `tally`."""
    return np.array([_Number(float(value), tally) for value in values], object)


def _counting(body: Any, tally: Operations) -> Callable[..., None]:
    """Return an algorithm's method with NumPy and math replaced by versions that keep counted numbers."""
    function = body.__func__
    counting = {"np": _CountingNumPy(), "math": _CountingMath(tally), "middle": _middle}
    names = {**function.__globals__, **counting}
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    return types.MethodType(copy, body.__self__)


class _CountingNumPy:
    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(count: int) -> Any:
        return np.empty(count, object)


def _middle(values: Any) -> Any:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


class _CountingMath:
    def __init__(self, tally: Operations) -> None:
        self.tally = tally

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    def sqrt(self, value: Any) -> Any:
        self.tally.roots += 1
        return _Number(math.sqrt(float(value)), self.tally)
