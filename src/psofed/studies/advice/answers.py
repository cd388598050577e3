"""The answer of an advice in sentences."""

import json
import math
from typing import TYPE_CHECKING

from psofed.render.numbers import counted, listed, percent, significant
from psofed.studies.advice.judging import TOLERANCE, Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice, ByzantineWhatIf

_WINNERS = {
    "rls": "recursive least squares (RLS) at each client alone",
    "persistence": "the last value of the target",
    "average": "each client's running mean",
}
_CLEARLY_CURVED = 0.1  # gain of a model that is not linear from which on it is mentioned
_MOST_LISTED = 4  # groups whose sizes are listed


def answer(advice: "Advice") -> str:
    """Return the answer in some sentences."""
    parts = (_winner(advice), _federating(advice), _newcomer(advice), _model(advice), _relation(advice))
    return " ".join(filter(None, parts))


def more_sentences(advice: "Advice") -> tuple[str, ...]:
    """Return what else to know: extreme rows, whether the gain fades, pooled data, and an attack."""
    return tuple(filter(None, (_bounded(advice), _recent(advice), _pooled(advice), _under_attack(advice))))


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
    low, high = gain.interval
    if math.isnan(low):
        return f"{brief(gain)} (too few rows for an interval)"
    if (low < 0) == (high < 0):
        ends = sorted((abs(low), min(abs(high), 1.0) if low > 0 else abs(high)))
        span = f"{percent(ends[0]).removesuffix(' %')} to {percent(ends[1])}"
    else:
        span = f"{percent(-low)} more to {percent(min(high, 1.0))} less"
    return f"{brief(gain)} (95 % interval: {span})"


def byzantine_clients(what_if: "ByzantineWhatIf") -> str:
    """Say how many of which clients are Byzantine."""
    count = len(what_if.byzantine) or "some"
    return f"{count} of the {len(what_if.clients)} clients"


def _federating(advice: "Advice") -> str:
    stations, gain = advice.stations, advice.federation.gain
    who = _who(advice)
    if len(stations) == 1:
        return f"There is nothing to federate: {stations[0].name} is the only client."
    if gain.value == -math.inf:
        return f"Do not federate: a federation of {who} diverged."
    if math.isnan(gain.value):
        return f"We can't tell: {who} learn without error, alone and together."
    if advice.verdict == "depends on extreme rows":
        rows = advice.extreme_rows
        return (
            f"It depends on a few extreme rows: {_how(advice)}, {who} have {change(gain)} than each alone, but "
            f"{change(advice.bounded_gain)} if targets are limited to five deviations. That is "
            f"{counted(len(rows), 'row')}: {listed(rows, 4)}."
        )
    if gain.helps:
        start = "The federation gains on LMS alone" if advice.winner else "Federate"
        text = f"{start}: {_how(advice)}, {who} have {change(gain)} than each alone."
        return text + _others(advice)
    if advice.winner:
        return ""
    if gain.matters:
        more = " No smaller group gains." if len(advice.groups[0].clients) == len(stations) else ""
        return f"Do not federate: {_how(advice)}, {who} have {change(gain)} than each alone.{more}"
    low, high = gain.interval
    if gain.is_clear:
        return f"Federating makes no difference that matters: {who} have {change(gain)} than each alone."
    best = f"We can't tell whether federating helps. Best guess: {brief(gain)} for {who}"
    if math.isnan(low):
        return f"{best}; there are too few rows for an interval."
    true = f"{percent(-low)} worse to {percent(min(high, 1.0))} better"
    return f"{best}, but the true effect could be anything from {true}. Learning alone needs no traffic."


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


def _winner(advice: "Advice") -> str:
    if not advice.winner:
        return ""
    several = len(advice.stations) > 1
    than = "the best federation" if several and advice.federation.gain.helps else "LMS at each client alone"
    start = "Do not federate: " if several else ""
    start += "" if advice.winner == "rls" else "no model is needed, "
    text = f"{start}{_WINNERS[advice.winner]} has {change(advice.winner_gain)} than {than}."
    return text[0].upper() + text[1:]


def _newcomer(advice: "Advice") -> str:
    newcomer = advice.newcomer
    if newcomer is None or _model(advice) or advice.verdict == "naive":
        return ""
    low, high = newcomer.interval
    if newcomer.rows == 0 and high < newcomer.most:
        return f"A newcomer gains nothing from this federation's model after {counted(high, 'row')} of its own."
    rows = f"more than {newcomer.most}" if newcomer.rows == newcomer.most else f"about {newcomer.rows}"
    most = f"more than {high}" if high == newcomer.most else str(high)
    span = "" if low == newcomer.most else f" (95 % interval: {low} to {most})"
    return f"A newcomer needs {rows} rows of its own{span} to predict as well alone as with their model from its first."


def _model(advice: "Advice") -> str:
    if advice.winner or (advice.model_gain.is_clear and advice.model_gain.value > 0):
        return ""
    return "No model is clearly better than each client's running mean: the columns say little about the target."


def _relation(advice: "Advice") -> str:
    features, trees, sentences = advice.rff_gain, advice.boosting_gain, []
    if features.helps and features.value > _CLEARLY_CURVED:
        method = advice.method("rff")
        model = [f"`model.{name} = {json.dumps(value)}`" for name, value in method.model.items()]
        sentences.append(
            f"The relation is not linear: {method.num_shared} random features would have {change(features)}; add "
            f"{listed(model)}."
        )
    if trees.helps and trees.value > _CLEARLY_CURVED:
        start = (
            "Even so, gradient" if sentences else "The relation is not linear, and random features miss it: gradient"
        )
        sentences.append(f"{start} boosting of trees on the pooled rows has {change(trees)}.")
    return " ".join(sentences)


def _bounded(advice: "Advice") -> str:
    rows = advice.extreme_rows
    if not rows or len(advice.stations) == 1 or advice.verdict == "depends on extreme rows":
        return ""
    return (
        f"With targets limited to five deviations ({counted(len(rows), 'row')}: {listed(rows, 3)}) this federation "
        f"has {change(advice.bounded_gain)} than each client alone."
    )


def _recent(advice: "Advice") -> str:
    gain, recent = advice.federation.gain, advice.recent_gain
    fades = gain.value > 0 and recent.value < gain.value - TOLERANCE / 2
    if len(advice.stations) == 1 or not fades:
        return ""
    return (
        f"The gain fades: in the later half of these rows the federation has {change(recent)}. Expect this from now "
        "on; federations gain most while models still learn."
    )


def _pooled(advice: "Advice") -> str:
    gain = advice.pooled_gain
    if len(advice.stations) == 1 or math.isnan(gain.value):
        return ""
    if not gain.matters:
        return "Pooling all data in one place would make no clear difference to the federation."
    return f"Pooling all data in one place would have {change(gain)} than the federation."


def _under_attack(advice: "Advice") -> str:
    if advice.what_if is None:
        return ""
    plain, robust = advice.what_if.methods
    unclear, clear = ("" if m.gain.is_clear else " (not clear)" for m in (plain, robust))
    return (
        f"If {byzantine_clients(advice.what_if)} were Byzantine, the honest ones would have {brief(plain.gain)} than "
        f"alone{unclear}, and {brief(robust.gain)} with the {robust.rule} instead of the mean{clear}."
    )
