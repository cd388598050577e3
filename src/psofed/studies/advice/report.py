"""Report of an advice: the answer, what was compared, and how each client fares."""

import math
import shlex
from typing import TYPE_CHECKING

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.numbers import count, counted
from psofed.studies.advice.answers import byzantine_clients
from psofed.studies.advice.charts import MOST_NAMED, advice_chart
from psofed.studies.advice.judging import Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice
    from psofed.studies.advice.methods import LearningMethod
    from psofed.studies.advice.what_if import ByzantineWhatIf

_METHOD_COLUMNS = (
    Column("method"),
    Column("M", Kind.COUNT),
    Column("stepsize", Kind.NUMBER, digits=3, minor=1),
    Column("error", Kind.NUMBER),
    Column("gain", Kind.PERCENT, interval=True),
    Column("values sent per iteration", Kind.COUNT, minor=2),
)

_NOT_OPTIONS = ("kind", "clients", "byzantine_set")  # of an attack: the others say what Byzantine clients do


def advice_report(advice: "Advice") -> Report:
    """Return the answer, what was compared, and how each client fares."""
    tables = [_methods(advice)]
    if len(advice.groups) > 1:
        tables.append(_groups(advice))
    if advice.what_if is not None:
        tables.append(_attacked(advice.what_if))
    tables.append(_stations(advice))
    return Report(
        advice.answer,
        f"{count(advice.rows)} judged rows of {counted(len(advice.stations), 'client')}; groups, M and stepsizes are "
        "those that were best on the rows before.",
        tuple(tables),
        (*advice.sentences[1:], *advice.notes),
        _next_step(advice),
        lambda: (advice_chart(advice),),
    )


def _next_step(advice: "Advice") -> NextStep | None:
    federation = advice.federation
    if len(advice.stations) == 1 or federation.stepsize is None:
        return None
    changes = {
        "num_shared": str(federation.num_shared),
        "stepsize": f"{federation.stepsize:.3g}",
        "num_participants": str(advice.scenario.num_participants),
    }
    left_out = f"--leave-out {shlex.quote(','.join(advice.left_out))} " if advice.left_out else ""
    return NextStep(
        "Simulate it",
        "psofed.simulate(advice.scenario)",
        f"psofed simulate FILE {left_out}"
        + " ".join(f"--set {name}={value}" for name, value in changes.items()),
    )


def _methods(advice: "Advice") -> Table:
    notes = ["Error: mean squared, in variances of each client's target (lower is better)."]
    if len(advice.stations) > 1:
        federating = sum(len(group.clients) for group in advice.groups)
        whose = "" if federating == len(advice.stations) else ", in that row of the clients that federate"
        notes.append(
            "*: the federation in the answer; M (shared parameters) and stepsize are those it ends with. Gain: how "
            f"much lower the error is than with each alone{whose}."
        )
    marked = frozenset(at for at, method in enumerate(advice.methods) if method.name == "federation")
    rows = tuple(_method_row(method) for method in advice.methods)
    return Table("Without an attack", _METHOD_COLUMNS, rows, tuple(notes), marked)


def _groups(advice: "Advice") -> Table:
    columns = (
        Column("group", Kind.COUNT),
        Column("size", Kind.COUNT),
        Column("M", Kind.COUNT),
        Column("stepsize", Kind.NUMBER, digits=3),
        Column("clients"),
    )
    rows = tuple(
        (at + 1, len(group.clients), group.num_shared, group.stepsize, ", ".join(group.clients))
        for at, group in enumerate(advice.groups)
    )
    return Table("Groups that should federate", columns, rows)


def _attacked(what_if: "ByzantineWhatIf") -> Table:
    attacks = []
    for attack in what_if.attacks:
        options = ", ".join(f"{key} = {value}" for key, value in attack.items() if key not in _NOT_OPTIONS)
        attacks.append(f"{attack['kind']}: {options}")
    title = f"Honest clients if {byzantine_clients(what_if)} are Byzantine ({'; '.join(attacks)})"
    return Table(title, _METHOD_COLUMNS, tuple(_method_row(method) for method in what_if.methods))


def _method_row(method: "LearningMethod") -> tuple[str | float | Measured | None, ...]:
    gain = None if method.name == "alone" else _gain(method.gain)
    title = method.title.replace(f", M = {method.num_shared}", "")
    return title, method.num_shared, method.stepsize, method.error, gain, method.numbers or None


def _stations(advice: "Advice") -> Table:
    """Return a row per client: those with a remark first if they are many, then those that gain least."""
    stations = advice.stations
    if len(stations) > MOST_NAMED:
        stations = tuple(
            sorted(stations, key=lambda s: (not s.note, s.gain.value if math.isfinite(s.gain.value) else 9.0))
        )
    columns = (
        Column("client"),
        Column("rows", Kind.COUNT, minor=3),
        Column("alone", Kind.NUMBER, minor=1),
        Column("federation", Kind.NUMBER, minor=2),
        Column("gain", Kind.PERCENT, interval=True),
        Column("remark"),
    )
    rows = tuple((s.name, s.rows, s.alone, s.federation, _gain(s.gain), s.note) for s in stations)
    marked = frozenset(at for at, s in enumerate(stations) if s.flag)
    notes = ["Intervals: those of all clients hold together (95 %)."]
    if len(advice.groups[0].clients) < len(stations):
        notes.append("Federation: of a client that no group has, its error in a federation of all.")
    return Table("Error of each client", columns, rows, tuple(notes), marked)


def _gain(gain: Gain) -> Measured:
    return Measured(math.inf if gain.value == -math.inf else gain.value, *gain.interval)
