"""Run the conformance tests on one part, built in or your own."""

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.options import option_of
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES
from psofed.scenario import Data, Links, Scenario, Selection
from psofed.testing import families

SIZES = {"num_clients": 8, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 40}


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
    for check in (
        _check_value,
        _check_options,
        _check_files,
        families.CHECKS[value.family],
        _check_simulation,
    ):
        problems += _run(check, value)
        if problems:
            break  # later checks would report the same problem
    report = PartReport(value, tuple(problems), tuple(_notes(value)))
    if problems:
        raise AssertionError(str(report))
    return report


def scenario_with(part: Part, **changes: Any) -> Scenario:
    """Return a small scenario that holds the part."""
    values: dict[str, Any] = {**SIZES, **changes}
    if part.family == "pattern":
        coordinated = values.pop("coordinated", True)
        values["selection"] = Selection(pattern=part, coordinated=coordinated)  # type: ignore[arg-type]
    elif part.family == "stream":
        values["data"] = Data(stream=part)  # type: ignore[arg-type]
    elif part.family == "function":
        values["data"] = Data(function=part)  # type: ignore[arg-type]
        values["dimension"] = getattr(part, "num_inputs", None) or values["dimension"]
    elif part.family == "model":
        values |= {"model": part, "data": Data(function="sine", input_dimension=values["dimension"])}
    elif part.family == "channel":
        values["channel"] = Links(up=part, down=part if part.kind != "private" else None)  # type: ignore[arg-type]
    else:
        values[part.family] = part
        values["num_clients"] = max(values["num_clients"], getattr(part, "num_byzantine", 0))
    return Scenario(**values)


def _make(part: "type[Part] | Part") -> Part:
    if isinstance(part, Part):
        return part
    if not (isinstance(part, type) and issubclass(part, Part)) or part.family not in FAMILIES:
        raise PsofedError(f"{part!r} is not a part; derive it from psofed.Attack, psofed.Aggregation, …")
    try:
        return part(num_byzantine=2, probability=0.5) if part.family == "attack" else part()  # type: ignore[call-arg]
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
    try:
        type(part).check_methods()  # a class whose name begins with an underscore is made without
    except PsofedError as error:
        yield str(error)
    if not part.summary() or part.summary().startswith(f"{type(part).__name__}("):
        yield "it has no docstring, whose first sentence is shown in tables"
    if hash(part) != hash(part.replace()) or part != part.replace():
        yield "two parts with the same options are not equal"
    if pickle.loads(pickle.dumps(part)) != part:
        yield "it changes when pickled, so it cannot be sent to other processes"


def _check_options(part: Part) -> Iterator[str]:
    for name, field in type(part).own_options().items():
        about = option_of(field)
        if not about.text:
            yield f"option {name} has no description; add one: {name}: … = option(…, text=…)"
        if field.default is not dataclasses.MISSING:
            try:
                part.replace(**{name: field.default})
            except PsofedError as error:
                yield f"the default of {name} is refused: {error}"


def _check_files(part: Part) -> Iterator[str]:
    scenario = scenario_with(part)
    if Scenario.from_toml(scenario.to_toml()) != scenario:
        yield "a scenario with it changes when written as TOML and read back"


def _check_simulation(part: Part) -> Iterator[str]:
    from psofed.engine.hooks import run_as_python
    from psofed.simulation.monte_carlo import simulate

    changes: list[dict[str, Any]] = [{}, {"num_shared": 1}]
    if part.family == "pattern":
        changes += [{"num_shared": 4}, {"coordinated": False}]
    elif part.family != "function":
        changes += [{"num_shared": 4}, {"selection": Selection(coordinated=False)}]
    for change in changes:
        scenario = scenario_with(part, **change)
        result = simulate(scenario, trials=18, seed=3, threads=2, keep_trials=True)
        alone = simulate(scenario, trials=1, seed=3, threads=1)
        where = f" (with {', '.join(f'{k} = {v}' for k, v in change.items())})" if change else ""
        if not np.array_equal(result.steady_state["server_msd"][0], alone.steady_state["server_msd"][0]):
            yield f"the result of a trial depends on other trials{where}"
        with run_as_python(part):
            python = simulate(scenario, trials=3, seed=3, threads=1, keep_trials=True)
        yield from _compare(result.trial_curves, python.trial_curves, where)


def _compare(compiled: Any, python: Any, where: str) -> Iterator[str]:
    """Compare the learning curves of one trial with those of the same trial with the method as plain Python."""
    for metric, curves in python.items():
        found, expected = compiled[metric][2], curves[2]
        with np.errstate(invalid="ignore"):
            same = np.isclose(found, expected, rtol=1e-7, atol=1e-12, equal_nan=True) | (
                np.abs(expected) > 1e10
            )
        if not same.all():
            n = int(np.flatnonzero(~same)[0])
            yield (
                f"the compiled method and plain Python disagree: {metric} at iteration {n} is "
                f"{found[n]:.6g} instead of {expected[n]:.6g}{where}"
            )
            return


def _notes(part: Part) -> Iterator[str]:
    from psofed.engine.hooks import why_python

    reason = why_python(part)
    if reason is not None:
        yield f"Numba cannot compile it, so it runs as plain Python, more slowly: {reason}"
