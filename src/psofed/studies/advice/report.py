"""Report of an advice: the answer in sentences, its tables and its charts."""

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Chart, Panels, RowChart, Rows, Scale, Series
from psofed.render.numbers import count, listed, percent, significant
from psofed.studies.advice.judging import Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice, LearningMethod
    from psofed.studies.advice.stations import Station

_TITLES = {
    "alone": "each alone",
    "federation": "federation",
    "pooled": "all pooled",
    "average": "running mean",
}
_MOST_NAMED = 40  # clients that a chart names
_METHOD_COLUMNS = (
    Column("method"),
    Column("M", Kind.COUNT),
    Column("stepsize", Kind.NUMBER, digits=3),
    Column("error", Kind.NUMBER),
    Column("gain", Kind.PERCENT, interval=True),
    Column("values sent per iteration", Kind.COUNT),
)


def advice_report(advice: "Advice") -> Report:
    """Return the answer, what was compared, and how each client fares."""
    several = len(advice.stations) > 1
    tables = [_methods(advice, several)]
    if advice.lies:
        tables.append(_attacked(advice))
    tables.append(_stations(advice))
    federation, step = advice.federation, None
    if several and federation.stepsize is not None:
        changes = (
            ("num_shared", str(federation.num_shared)),
            ("stepsize", f"{federation.stepsize:.3g}"),
            ("num_participants", str(advice.scenario.num_participants)),
        )
        step = NextStep(
            "Simulate it",
            "psofed.simulate(advice.scenario)",
            f"psofed simulate --data FILE --client-column {advice.data['client_column']} "
            f"--target-column {advice.data['target_column']} "
            + " ".join(f"--set {name}={value}" for name, value in changes),
        )
    return Report(
        advice.answer,
        f"{count(advice.rows)} judged rows of {count(len(advice.stations))} clients; stepsize and M are those "
        "that were best on the rows before.",
        tuple(tables),
        (*advice.sentences[1:], *advice.notes),
        step,
        lambda: (advice_chart(advice),),
    )


def answer(advice: "Advice") -> str:
    """Return the answer in one sentence."""
    stations, federation = advice.stations, advice.federation
    if len(stations) == 1:
        return (
            f"There is nothing to federate: {stations[0].name} is the only client. {_model(advice)}".strip()
        )
    everybody = f"{len(stations)} clients"
    entries = advice.scenario.dimension
    sharing = (
        "sharing the only parameter"
        if entries == 1
        else f"sharing {federation.num_shared} of {entries} parameters"
    )
    if federation.gain.value == -math.inf:
        return f"Do not federate: a federation of the {everybody} diverged. {_model(advice)}".strip()
    if math.isnan(federation.gain.value):
        return f"Undecided: each of the {everybody} learns without error, alone and together."
    if advice.verdict == "no clear difference":
        start = "No difference that matters" if federation.gain.is_clear else "No clear difference"
        text = (
            f"{start}: a federation of the {everybody}, {sharing}, has an error {change(federation.gain)} than each "
            "client alone, and learning alone needs no traffic."
        )
    elif advice.verdict == "federate":
        text = (
            f"Federate: {sharing}, the {everybody} have an error {change(federation.gain)} than each alone"
            f"{_losers(advice)}."
        )
    else:
        text = (
            f"Do not federate: {sharing}, the {everybody} have an error {change(federation.gain)} than each alone"
            f"{_winners(advice)}."
        )
    return f"{text} {_model(advice)}".strip()


def more_sentences(advice: "Advice") -> tuple[str, ...]:
    """Return what else to know: clients that stand out, pooled data, and the same under attack."""
    return tuple(filter(None, (_outliers(advice), _pooled(advice), _under_attack(advice))))


def change(gain: Gain) -> str:
    """Say a gain with its interval.

    Examples
    --------
    >>> change(Gain(0.12, (0.08, 0.16)))
    '12 % lower (95 % interval: 8 % to 16 % lower)'
    >>> change(Gain(0.01, (-0.02, 0.04)))
    '1 % lower (95 % interval: 2 % higher to 4 % lower)'
    """
    low, high = gain.interval
    if math.isnan(low):
        return f"{brief(gain)} (too few rows for an interval)"
    if (low < 0) == (high < 0):
        ends = sorted((abs(low), abs(high)))
        span = f"{percent(ends[0])} to {percent(min(ends[1], 1.0) if low > 0 else ends[1])} {_direction(low)}"
    else:
        span = f"{percent(-low)} higher to {percent(min(high, 1.0))} lower"
    return f"{brief(gain)} (95 % interval: {span})"


def brief(gain: Gain) -> str:
    """Say a gain without its interval."""
    if gain.value == -math.inf:
        return "infinitely higher (it diverged)"
    return f"{percent(abs(gain.value))} {_direction(gain.value)}"


def advice_chart(advice: "Advice") -> Panels:
    """Return gains with their intervals on the left, every client's errors on the right."""
    named = len(advice.stations) <= _MOST_NAMED
    height = max(3.6, 1.6 + 0.19 * min(len(advice.stations), _MOST_NAMED))
    right = _dumbbells(advice.stations) if named else _cloud(advice.stations)
    title = "\n".join(textwrap.wrap(advice.answer, 125))
    return Panels(title, ((_gains(advice), right),), size=(10.0, height), widths=(1.0, 1.1))


def _methods(advice: "Advice", several: bool) -> Table:
    rows = tuple(_method_row(method) for method in advice.methods)
    best = (advice.federation.num_shared, "mean")
    marked = frozenset(
        at for at, m in enumerate(advice.methods) if several and (m.num_shared, m.rule) == best
    )
    notes = ["Error: mean squared, in variances of each client's target (lower is better)."]
    if several:
        notes.append(
            "M: shared parameters; * is the choice in the answer. Gain: how much lower the error is than each alone."
        )
    return Table("Without an attack", _METHOD_COLUMNS, rows, tuple(notes), marked)


def _attacked(advice: "Advice") -> Table:
    options = ", ".join(
        f"{key} = {value}"
        for key, value in advice.attack.items()
        if key not in ("kind", "clients", "byzantine_set")
    )
    who = f"{len(advice.byzantine)} of {len(advice.stations)} clients" if advice.byzantine else "some clients"
    title = f"Honest clients if {who} are Byzantine ({advice.attack['kind']}: {options})"
    return Table(title, _METHOD_COLUMNS, tuple(_method_row(method) for method in advice.lies))


def _method_row(method: "LearningMethod") -> tuple[str | float | Measured | None, ...]:
    name = _TITLES[method.name] + ("" if method.rule in ("", "mean") else f", {method.rule}")
    gain = None if method.name == "alone" else _gain(method.gain)
    return name, method.num_shared, method.stepsize, method.error, gain, method.numbers or None


def _stations(advice: "Advice") -> Table:
    """Return a row per client: those with a remark first if they are many, then those that gain least."""
    stations = advice.stations
    if len(stations) > _MOST_NAMED:
        stations = tuple(
            sorted(stations, key=lambda s: (not s.note, s.gain.value if math.isfinite(s.gain.value) else 9.0))
        )
    columns = (
        Column("client"),
        Column("rows", Kind.COUNT),
        Column("alone", Kind.NUMBER),
        Column("federation", Kind.NUMBER),
        Column("gain", Kind.PERCENT, interval=True),
        Column("remark"),
    )
    rows = tuple((s.name, s.rows, s.alone, s.federation, _gain(s.gain), s.note) for s in stations)
    marked = frozenset(at for at, s in enumerate(stations) if s.stands_out)
    note = "Intervals: from blocks of time; those of all clients hold together (95 %)."
    return Table("Error of each client", columns, rows, (note,), marked)


def _gain(gain: Gain) -> Measured:
    return Measured(math.inf if gain.value == -math.inf else gain.value, *gain.interval)


def _pooled(advice: "Advice") -> str:
    gain = advice.pooled_gain
    if len(advice.stations) == 1 or math.isnan(gain.value):
        return ""
    if not gain.is_clear:
        return "Pooling all data in one place would not be clearly different from the federation."
    return f"Pooling all data in one place would give an error {change(gain)} than the federation."


def _outliers(advice: "Advice") -> str:
    found = [s for s in advice.stations if s.stands_out and s.times_median > 1]
    if not found:
        return ""
    worst = max(s.times_median for s in found)
    who, verb = listed([s.name for s in found]), "stands" if len(found) == 1 else "stand"
    return (
        f"{who} {verb} out with errors up to {significant(worst, 2)} times the median. Check the sensors, and try "
        f"again with --leave-out {','.join(s.name for s in found[:5])}."
    )


def _under_attack(advice: "Advice") -> str:
    if not advice.lies:
        return ""
    plain, robust = advice.lies
    who = (
        f"{len(advice.byzantine)} of the {len(advice.stations)} clients"
        if advice.byzantine
        else "some clients"
    )
    unclear, clear = ("" if m.gain.is_clear else " (no clear difference)" for m in (plain, robust))
    return (
        f"If {who} were Byzantine, the honest clients' error in the federation would be {brief(plain.gain)} than "
        f"alone{unclear}, and {brief(robust.gain)} with the {robust.rule} instead of the mean{clear}."
    )


def _direction(value: float) -> str:
    return "lower" if value >= 0 else "higher"


def _model(advice: "Advice") -> str:
    if advice.model_gain.is_clear and advice.model_gain.value > 0:
        return ""
    return (
        "No model is clearly better than each client's running mean: the columns say little about the target."
    )


def _losers(advice: "Advice") -> str:
    losers = [s.name for s in advice.stations if s.gain.is_clear and s.gain.value < 0]
    return f"; {listed(losers)} {'is' if len(losers) == 1 else 'are'} clearly better alone" if losers else ""


def _winners(advice: "Advice") -> str:
    winners = [s.name for s in advice.stations if s.gain.is_clear and s.gain.value > 0]
    return f"; only {listed(winners)} clearly gain{'s' if len(winners) == 1 else ''}" if winners else ""


def _gains(advice: "Advice") -> RowChart:
    plain = [m for m in advice.methods if m.name in ("federation", "pooled")]
    shown = [*plain, *advice.lies]
    attacked = f"{len(advice.byzantine) or 'some'} Byzantine"
    names = [m.title for m in plain] + [f"{attacked}: M = {m.num_shared}, {m.rule}" for m in advice.lies]
    values = 100 * np.array([m.gain.value for m in shown])
    low, high = (100 * np.array([m.gain.interval[end] for m in shown]) for end in (0, 1))
    is_lie = np.arange(len(shown)) >= len(plain)
    chosen = (advice.federation.num_shared, "mean")
    starred = frozenset(at for at, m in enumerate(plain) if (m.num_shared, m.rule) == chosen)
    groups = []
    for mask, colour in ((~is_lie, 0), (is_lie, 1)):
        if mask.any():
            shown_here = [np.where(mask, column, np.nan) for column in (values, low, high)]
            groups.append(Rows("", shown_here[0], shown_here[1], shown_here[2], colour=colour))
    return RowChart(
        "gain over learning alone, 95 % interval (★: the choice)",
        Scale("error below each client's alone (%)"),
        tuple(names),
        tuple(groups),
        zero=True,
        starred=starred,
    )


def _dumbbells(stations: "tuple[Station, ...]") -> RowChart:
    rows = (
        Rows("alone", np.array([s.alone for s in stations]), colour=4, hollow=True),
        Rows("in the federation", np.array([s.federation for s in stations]), colour=0),
    )
    errors = np.concatenate([row.values for row in rows])
    errors = errors[np.isfinite(errors) & (errors > 0)]
    # With an outlier the others are told apart on a logarithmic axis.
    log = bool(errors.size and errors.max() > 10 * float(np.median(errors)))
    return RowChart(
        "error of each client",
        Scale("mean squared error; 1 is the variance of the target", log=log),
        tuple(_short(s.name) for s in stations),
        rows,
        joined=True,
        flagged=frozenset(at for at, s in enumerate(stations) if s.stands_out),
    )


def _cloud(stations: "tuple[Station, ...]") -> Chart:
    alone, joined = (np.array([getattr(s, name) for s in stations]) for name in ("alone", "federation"))
    fit = np.isfinite(alone) & np.isfinite(joined) & (alone > 0) & (joined > 0)
    flagged = np.array([s.stands_out for s in stations]) & fit
    usual = fit & ~flagged
    series = [Series("", alone[usual], joined[usual], line="", marker="o", size=4)]
    if flagged.any():
        series.append(
            Series("stands out", alone[flagged], joined[flagged], line="", marker="s", colour=1, size=5)
        )
    if fit.any():
        ends = np.array([min(alone[fit].min(), joined[fit].min()), max(alone[fit].max(), joined[fit].max())])
        series.append(Series("", ends, ends, colour="black", width=0.9))
    title = f"errors of {len(stations)} clients: below the line the federation is better"
    return Chart(title, Scale("alone", log=True), Scale("in the federation", log=True), tuple(series))


def _short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
