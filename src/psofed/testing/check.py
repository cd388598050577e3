"""Run the conformance tests on one part, built in or your own."""

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.options import option_of
from psofed.engine.hooks import run_as_python, why_python
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES
from psofed.scenario import Data, Links, Scenario, Selection
from psofed.simulation.monte_carlo import simulate
from psofed.testing.families import check_family

SIZES = {"dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 40}


@dataclass(frozen=True)
class PartReport:
    """Result of a check.

    Attributes
    ----------
    part : Part
        The part that was checked.
    problems : tuple of str
        Descriptions of problems; empty if the part passes.
    notes : tuple of str
        Remarks, such as that Numba cannot compile the body.
    """

    part: Part
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        name = f'{self.part.family} "{self.part.kind}"'
        lines = [f"{name}: {'passed' if not self.problems else f'{len(self.problems)} problem(s)'}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def check_part(part: "type[Part] | Part") -> PartReport:
    """Check that a part meets the requirements of its family in every package.

    Parameters
    ----------
    part : class or value
        A class is checked with its default options (an attack with two Byzantine clients). Pass a value if an option
        has no default.

    Returns
    -------
    PartReport
        If the part passes.

    Raises
    ------
    AssertionError
        With a list of all problems.

    Examples
    --------
    >>> from psofed.parts.attacks import SignFlip
    >>> print(check_part(SignFlip))
    attack "sign-flip": passed
    """
    value = _make(part)
    problems: list[str] = []
    # The family's check before the simulation: it compiles nothing, and says more clearly what is wrong.
    for check in (_check_value, check_family, _check_simulation):
        problems += _run(check, value)
        if problems:
            break  # later checks would report the same problem
    reason = why_python(value)
    slow = f"Numba cannot compile it, so it runs as plain Python, more slowly: {reason}"
    report = PartReport(value, tuple(problems), () if reason is None else (slow,))
    if problems:
        raise AssertionError(str(report))
    return report


def scenario_with(part: Part, *, coordinated: bool = True, **changes: Any) -> Scenario:
    """Return a small scenario that holds the part."""
    values: dict[str, Any] = {**SIZES, "num_clients": max(8, getattr(part, "num_byzantine", 0)), **changes}
    any_part: Any = part
    if part.family in ("stream", "function"):
        values["data"] = Data(**{part.family: any_part})
        values["dimension"] = getattr(part, "num_inputs", None) or values["dimension"]
    elif part.family == "channel":
        values["channel"] = Links(up=any_part, down=any_part if part.kind != "private" else None)
    elif part.family == "model":
        values |= {"model": part, "data": Data(function="sine", input_dimension=values["dimension"])}
    elif part.family != "pattern":
        values[part.family] = part
    pattern = any_part if part.family == "pattern" else "random"
    return Scenario(selection=Selection(pattern=pattern, coordinated=coordinated), **values)


def _make(part: "type[Part] | Part") -> Part:
    if isinstance(part, Part):
        return part
    if not (isinstance(part, type) and issubclass(part, Part)) or part.family not in FAMILIES:
        raise PsofedError(f"{part!r} is not a part; derive it from psofed.Attack, psofed.Aggregation, …")
    options: dict[str, Any] = {"num_byzantine": 2, "probability": 0.5} if part.family == "attack" else {}
    try:
        return part(**options)
    except TypeError as error:
        raise PsofedError(
            f"{part.__name__} needs options ({error}); pass check_part a value instead of the class"
        ) from None


def _run(check: Callable[[Part], Iterator[str]], part: Part) -> list[str]:
    try:
        return list(check(part))
    except Exception as error:
        return [f"{check.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}"]


def _check_value(part: Part) -> Iterator[str]:
    type(part).check_methods()  # a class whose name begins with an underscore is made without
    if not part.summary() or part.summary().startswith(f"{type(part).__name__}("):
        yield "it has no docstring, whose first sentence is shown in tables"
    for name, field in type(part).own_options().items():
        if not option_of(field).text:
            yield f"option {name} has no description; add one: {name}: … = option(…, text=…)"
        if field.default is not dataclasses.MISSING:
            part.replace(**{name: field.default})  # a default that is refused says so
    if hash(part) != hash(part.replace()) or part != part.replace():
        yield "two parts with the same options are not equal"
    if pickle.loads(pickle.dumps(part)) != part:
        yield "it changes when pickled, so it cannot be sent to other processes"
    scenario = scenario_with(part)
    if Scenario.from_toml(scenario.to_toml()) != scenario:
        yield "a scenario with it changes when written as TOML and read back"


def _check_simulation(part: Part) -> Iterator[str]:
    """Run the part compiled and as plain Python, alone and among other trials: the learning curves are the same."""
    changes: tuple[dict[str, Any], ...] = ({}, {"num_shared": 1}, {"num_shared": 4}, {"coordinated": False})
    for change in changes:
        scenario, metric = scenario_with(part, **change), "server_msd"
        result = simulate(scenario, trials=18, seed=3, threads=2, keep_trials=True)
        alone = simulate(scenario, trials=1, seed=3, threads=1)
        where = f" (with {', '.join(f'{k} = {v}' for k, v in change.items())})" if change else ""
        if not np.array_equal(result.steady_state[metric][0], alone.steady_state[metric][0]):
            yield f"the result of a trial depends on other trials{where}"
        with run_as_python(part):
            python = simulate(scenario, trials=3, seed=3, threads=1, keep_trials=True)
        assert result.trial_curves is not None
        assert python.trial_curves is not None
        for metric, curves in python.trial_curves.items():
            compiled, expected = result.trial_curves[metric][2], curves[2]
            is_large = np.abs(expected) > 1e10
            differs = ~(np.isclose(compiled, expected, rtol=1e-7, atol=1e-12, equal_nan=True) | is_large)
            if differs.any():
                n = int(np.flatnonzero(differs)[0])
                yield (
                    f"the compiled method and plain Python disagree: {metric} at iteration {n} is "
                    f"{compiled[n]:.6g} instead of {expected[n]:.6g}{where}"
                )
                return
