"""Views of an advice: the answer in sentences, the report with what was compared and each client, and the chart."""

import json
import math
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Panels, RowChart, Scale
from psofed.render.numbers import count, counted, listed, percent, sentence_case, shortened, significant
from psofed.studies.advice.judging import TOLERANCE, Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice, ByzantineWhatIf, LearningMethod, Station

_WINNERS = {
    "rls": "recursive least squares (RLS) at each client alone",
    "persistence": "no model is needed, the last value of the target",
    "average": "no model is needed, each client's running mean",
}
_CLEARLY_CURVED = 0.1  # gain of a model that is not linear from which on it is mentioned
_MOST_LISTED = 4  # groups whose sizes are listed
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


def answer(advice: "Advice") -> str:
    """Return the answer in some sentences."""
    several, gain = len(advice.stations) > 1, advice.federation.gain
    parts, is_model_useful = [], advice.winner or (advice.model_gain.is_clear and advice.model_gain.value > 0)
    if advice.winner:
        than = "the best federation" if several and gain.helps else "LMS at each client alone"
        start = "Do not federate: " if several else ""
        parts.append(sentence_case(f"{start}{_WINNERS[advice.winner]} has {change(advice.winner_gain)} than {than}."))
    parts.append(_federating(advice))
    if not is_model_useful:
        parts.append(
            "No model is clearly better than each client's running mean: the columns say little about the target."
        )
    elif advice.verdict != "naive":
        parts.append(_newcomer(advice))
    return " ".join(filter(None, (*parts, *_relation(advice))))


def more_sentences(advice: "Advice") -> tuple[str, ...]:
    """Return what else to know: extreme rows, whether the gain fades, pooled data, and an attack."""
    gain, recent, pooled, rows = advice.federation.gain, advice.recent_gain, advice.pooled_gain, advice.extreme_rows
    several, what_if = len(advice.stations) > 1, advice.what_if
    attacked = ""
    if what_if is not None:
        unclear, clear = ("" if m.gain.is_clear else " (not clear)" for m in what_if.methods)
        plain, robust = (brief(m.gain) for m in what_if.methods)
        attacked = (
            f"If {byzantine_clients(what_if)} were Byzantine, the honest ones would have {plain} than alone{unclear}, "
            f"and {robust} with the {what_if.methods[1].rule} instead of the mean{clear}."
        )
    sentences = (
        (
            several and bool(rows) and advice.verdict != "depends on extreme rows",
            f"With targets limited to five deviations ({counted(len(rows), 'row')}: {listed(rows, 3)}) this federation "
            f"has {change(advice.bounded_gain)} than each client alone.",
        ),
        (
            several and gain.value > 0 and recent.value < gain.value - TOLERANCE / 2,
            f"The gain fades: in the later half of these rows the federation has {change(recent)}. Expect this from "
            "now on; federations gain most while models still learn.",
        ),
        (several and pooled.matters, f"Pooling all data in one place would have {change(pooled)} than the federation."),
        (
            several and not pooled.matters and not math.isnan(pooled.value),
            "Pooling all data in one place would make no clear difference to the federation.",
        ),
        (what_if is not None, attacked),
    )
    return tuple(text for holds, text in sentences if holds)


def brief(gain: Gain) -> str:
    """Say a gain without its interval.

    Examples
    --------
    >>> brief(Gain(0.12)), brief(Gain(-0.03))
    ('12 % less error', '3 % more error')
    """
    if gain.value == -math.inf:
        return "an error without limit (it diverged)"
    return f"{percent(abs(gain.value))} {'less' if gain.value >= 0 else 'more'} error"


def change(gain: Gain) -> str:
    """Say a gain with its interval.

    Examples
    --------
    >>> change(Gain(0.12, (0.08, 0.16))), change(Gain(0.01, (-0.02, 0.04)))
    ('12 % less error (95 % interval: 8 to 16 %)', '1 % less error (95 % interval: 2 % more to 4 % less)')
    """
    low, high = gain.interval[0], min(gain.interval[1], 1.0)
    if math.isnan(low):
        return f"{brief(gain)} (too few rows for an interval)"
    if low < 0 <= high:
        span = f"{percent(-low)} more to {percent(high)} less"
    else:
        least, most = sorted((abs(low), abs(high)))
        span = f"{percent(least).removesuffix(' %')} to {percent(most)}"
    return f"{brief(gain)} (95 % interval: {span})"


def byzantine_clients(what_if: "ByzantineWhatIf") -> str:
    """Say how many of which clients are Byzantine."""
    return f"{len(what_if.byzantine) or 'some'} of the {len(what_if.clients)} clients"


def _federating(advice: "Advice") -> str:
    """Return the first sentence that holds."""
    stations, gain, rows = advice.stations, advice.federation.gain, advice.extreme_rows
    who, how = _who(advice), _how(advice)
    (low, high), than = gain.interval, f"{who} have {change(gain)} than each alone"
    no_smaller = " No smaller group gains." if len(advice.groups[0].clients) == len(stations) else ""
    guess = f"We can't tell whether federating helps. Best guess: {brief(gain)} for {who}"
    sentences = (
        (len(stations) == 1, f"There is nothing to federate: {stations[0].name} is the only client."),
        (gain.value == -math.inf, f"Do not federate: a federation of {who} diverged."),
        (math.isnan(gain.value), f"We can't tell: {who} learn without error, alone and together."),
        (
            advice.verdict == "depends on extreme rows",
            f"It depends on a few extreme rows: {how}, {than}, but {change(advice.bounded_gain)} if targets are "
            f"limited to five deviations. That is {counted(len(rows), 'row')}: {listed(rows, 4)}.",
        ),
        (gain.helps and bool(advice.winner), f"The federation gains on LMS alone: {how}, {than}.{_others(advice)}"),
        (gain.helps, f"Federate: {how}, {than}.{_others(advice)}"),
        (bool(advice.winner), ""),
        (gain.matters, f"Do not federate: {how}, {than}.{no_smaller}"),
        (gain.is_clear, f"Federating makes no difference that matters: {than}."),
        (math.isnan(low), f"{guess}; there are too few rows for an interval."),
        (
            True,
            f"{guess}, but the true effect could be anything from {percent(-low)} worse to {percent(min(high, 1.0))} "
            "better. Learning alone needs no traffic.",
        ),
    )
    return next(text for holds, text in sentences if holds)


def _who(advice: "Advice") -> str:
    sizes = [len(group.clients) for group in advice.groups]
    total = len(advice.stations)
    who = f"your {total} clients" if sum(sizes) == total else f"{sum(sizes)} of your {total} clients"
    if len(sizes) > _MOST_LISTED:
        return f"{who}, in {len(sizes)} groups of {min(sizes)} to {max(sizes)},"
    return f"{who}, in groups of {listed(list(map(str, sizes)))}," if len(sizes) > 1 else who


def _how(advice: "Advice") -> str:
    entries, groups = advice.scenario.dimension, advice.groups
    shared = sorted({group.num_shared for group in groups})
    what = f"{' or '.join(map(str, shared))} of {entries} parameters" if entries > 1 else "the only parameter"
    stepsizes = " and ".join(dict.fromkeys(significant(group.stepsize, 2) for group in groups[:_MOST_LISTED]))
    return f"sharing {what} with stepsize {stepsizes} and the mean"


def _others(advice: "Advice") -> str:
    members = {name for group in advice.groups for name in group.clients}
    out = [s.name + (f" ({s.flag})" if s.flag else "") for s in advice.stations if s.name not in members]
    losers = [s.name for s in advice.stations if s.name in members and "better alone" in s.note]
    text = f" Leave out {listed(out)}." if out else ""
    return f"{text} Clearly better alone: {listed(losers)}." if losers else text


def _newcomer(advice: "Advice") -> str:
    newcomer = advice.newcomer
    if newcomer is None:
        return ""
    (low, high), most = newcomer.interval, newcomer.most
    if newcomer.rows == 0 and high < most:
        return f"A newcomer gains nothing from this federation's model after {counted(high, 'row')} of its own."
    rows = f"more than {most}" if newcomer.rows == most else f"about {newcomer.rows}"
    span = "" if low == most else f" (95 % interval: {low} to {f'more than {high}' if high == most else high})"
    return f"A newcomer needs {rows} rows of its own{span} to predict as well alone as with their model from its first."


def _relation(advice: "Advice") -> list[str]:
    features, trees, sentences = advice.rff_gain, advice.boosting_gain, []
    start = "The relation is not linear, and random features miss it: gradient"
    if features.helps and features.value > _CLEARLY_CURVED:
        method, start = advice.method("rff"), "Even so, gradient"
        model = listed([f"`model.{name} = {json.dumps(value)}`" for name, value in method.model.items()])
        sentences.append(
            f"The relation is not linear: {method.num_shared} random features would have {change(features)}; "
            f"add {model}."
        )
    if trees.helps and trees.value > _CLEARLY_CURVED:
        sentences.append(f"{start} boosting of trees on the pooled rows has {change(trees)}.")
    return sentences


def advice_report(advice: "Advice") -> Report:
    """Return cautions and the answer, what was compared, and how each client fares."""
    return Report(
        " ".join((*advice.cautions, advice.answer)),
        f"{count(advice.rows)} judged rows of {counted(len(advice.stations), 'client')}; groups, M and stepsizes are "
        "those that were best on the rows before.",
        (_methods(advice), _clients(advice)),
        (*advice.sentences[1:], *advice.notes),
        _next_step(advice),
        advice.chart,
    )


def advice_chart(advice: "Advice") -> Panels:
    """Return the gains of methods on the left, and of clients on the right: those that gain least if there are many."""
    methods, stations = _all_methods(advice)[1:], _sorted(advice)[:MOST_NAMED]
    starred = frozenset(at for at, (title, _) in enumerate(methods) if title == advice.federation.title)
    left = _gains("gain on learning alone (★: recommended)", [(title, m.gain) for title, m in methods], starred)
    right = _gains("gain of each client", [(s.name, s.gain) for s in stations])
    height = max(3.6, 1.6 + 0.19 * len(right.names))
    title = "\n".join(textwrap.wrap(advice.answer.replace(" %", "\N{NO-BREAK SPACE}%"), 125))
    return Panels(title, (left, right), 2, size=(10.0, height))


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
    rows = advice.scenario.own_data
    left_out = "" if rows is None else ",".join(rows.settings.leave_out)
    words = f"--leave-out {shlex.quote(left_out)} " if left_out else ""
    changes = (
        f"--set num_shared={federation.num_shared} --set stepsize={federation.stepsize:.3g} "
        f"--set num_participants={advice.scenario.num_participants}"
    )
    return NextStep("Simulate it", "psofed.simulate(advice.scenario)", f"psofed simulate FILE {words}{changes}")


def _gains(title: str, rows: Sequence[tuple[str, Gain]], starred: frozenset[int] = frozenset()) -> RowChart:
    values, low, high = 100 * np.array([(gain.value, *gain.interval) for _, gain in rows]).T
    is_far = np.isfinite(values) & (values < -100.0)  # the rest could not be told apart
    limits = (-100.0, float(np.nanmax(high[~is_far], initial=10.0))) if is_far.any() else None
    names = tuple(shortened(name, 40) for name, _ in rows)
    scale = Scale("error reduction (%), 95 % intervals", limits=limits)
    return RowChart(title, scale, names, values, low, high, starred)


def _measured(gain: Gain) -> Measured:
    return Measured(math.inf if gain.value == -math.inf else gain.value, *gain.interval)
