"""Report and chart of an advice: the answer, what was compared, and how each client fares."""

import math
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Panels, RowChart, Scale
from psofed.render.numbers import count, counted, shortened
from psofed.studies.advice.answers import byzantine_clients
from psofed.studies.advice.judging import Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice, LearningMethod, Station

MOST_NAMED = 40  # clients that a chart names
_METHOD_COLUMNS = (
    Column("method"),
    Column("stepsize", Kind.NUMBER, digits=2, minor=2),
    Column("error", Kind.NUMBER, digits=3),
    Column("gain", Kind.PERCENT, interval=True),
    Column("values sent per iteration", Kind.COUNT, minor=3),
)
_CLIENT_COLUMNS = (
    Column("client"),
    Column("rows", Kind.COUNT, minor=3),
    Column("alone", Kind.NUMBER, digits=3),
    Column("federation", Kind.NUMBER, digits=3),
    Column("gain", Kind.PERCENT, interval=True),
    Column("remark"),
)


def advice_report(advice: "Advice") -> Report:
    """Return cautions and the answer, what was compared, and how each client fares."""
    return Report(
        " ".join((*advice.cautions, advice.answer)),
        f"{count(advice.rows)} judged rows of {counted(len(advice.stations), 'client')}; groups, M and stepsizes are "
        "those that were best on the rows before.",
        (_methods(advice), _clients(advice)),
        (*advice.sentences[1:], *advice.notes),
        _next_step(advice),
        lambda: (advice_chart(advice),),
    )


def advice_chart(advice: "Advice") -> Panels:
    """Return the gains of methods on the left, and of clients on the right: those that gain least if there are many."""
    methods, stations = _all_methods(advice)[1:], _sorted(advice)[:MOST_NAMED]
    starred = frozenset(at for at, (title, _) in enumerate(methods) if title == advice.federation.title)
    left = _gains("gain on learning alone (★: recommended)", [(title, m.gain) for title, m in methods], starred)
    right = _gains("gain of each client", [(s.name, s.gain) for s in stations])
    height = max(3.6, 1.6 + 0.19 * len(right.names))
    title = "\n".join(textwrap.wrap(advice.answer.replace(" %", "\N{NO-BREAK SPACE}%"), 125))
    return Panels(title, ((left, right),), size=(10.0, height), widths=(1.0, 1.0))


def _all_methods(advice: "Advice") -> list[tuple[str, "LearningMethod"]]:
    """Return all methods with their titles, those under attack last."""
    what_if = advice.what_if
    attacked = [] if what_if is None else [(byzantine_clients(what_if), method) for method in what_if.methods]
    return [
        *((method.title, method) for method in advice.methods),
        *((f"{who} Byzantine, {method.rule}", method) for who, method in attacked),
    ]


def _sorted(advice: "Advice") -> list["Station"]:
    """Return all clients; if they are many those with a remark first, then those that gain least."""
    stations = list(advice.stations)
    if len(stations) > MOST_NAMED:
        stations.sort(key=lambda s: (not s.note, s.gain.value if math.isfinite(s.gain.value) else 9.0))
    return stations


def _methods(advice: "Advice") -> Table:
    rows = tuple(
        (title, m.stepsize, m.error, None if m.name == "alone" else _measured(m.gain), m.numbers or None)
        for title, m in _all_methods(advice)
    )
    notes = ["Error: mean squared, in variances of each client's target (lower is better)."]
    if len(advice.stations) > 1:
        notes.append(
            "* is the recommended federation, with its final M (shared parameters) and stepsize. Gain is measured "
            "against each client learning alone."
        )
    if advice.what_if is not None:
        kinds = ", ".join(attack["kind"] for attack in advice.what_if.attacks)
        notes.append(f"Byzantine clients ({kinds}): errors and gains are those of the honest ones.")
    marked = frozenset(at for at, method in enumerate(advice.methods) if method.name == "federation")
    return Table("Ways to learn", _METHOD_COLUMNS, rows, tuple(notes), marked)


def _clients(advice: "Advice") -> Table:
    group_of = {name: f"group {at}" for at, group in enumerate(advice.groups, 1) for name in group.clients}
    rows = []
    for s in _sorted(advice):
        group = group_of.get(s.name, "left out") if len(advice.groups) > 1 or advice.left_out else ""
        remark = "; ".join(filter(None, (group, s.note)))
        rows.append((s.name, s.rows, s.alone, s.federation, _measured(s.gain), remark))
    notes = ["All intervals in this table hold at once, with 95 % confidence."]
    if len(group_of) < len(rows):
        notes.append("For a client that is left out, federation is its error in a federation of everyone.")
    return Table("Error of each client", _CLIENT_COLUMNS, tuple(rows), tuple(notes))


def _next_step(advice: "Advice") -> NextStep | None:
    federation = advice.federation
    if len(advice.stations) == 1 or federation.stepsize is None:
        return None
    left_out = f"--leave-out {shlex.quote(','.join(advice.left_out))} " if advice.left_out else ""
    changes = (
        f"--set num_shared={federation.num_shared} --set stepsize={federation.stepsize:.3g} "
        f"--set num_participants={advice.scenario.num_participants}"
    )
    return NextStep("Simulate it", "psofed.simulate(advice.scenario)", f"psofed simulate FILE {left_out}{changes}")


def _gains(title: str, rows: Sequence[tuple[str, Gain]], starred: frozenset[int] = frozenset()) -> RowChart:
    values, low, high = 100 * np.array([(gain.value, *gain.interval) for _, gain in rows]).T
    is_far = np.isfinite(values) & (values < -100.0)  # the rest could not be told apart
    limits = (-100.0, max(float(np.nanmax(high)), 10.0)) if is_far.any() else None
    names = tuple(shortened(name, 40) for name, _ in rows)
    scale = Scale("reduction of the error (%), 95 % intervals", limits=limits)
    return RowChart(title, scale, names, values, low, high, starred)


def _measured(gain: Gain) -> Measured:
    return Measured(math.inf if gain.value == -math.inf else gain.value, *gain.interval)
