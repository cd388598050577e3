"""The answer of an advice in sentences."""

import math
from typing import TYPE_CHECKING

from psofed.render.numbers import listed, percent
from psofed.studies.advice.judging import TOLERANCE, Gain

if TYPE_CHECKING:
    from psofed.studies.advice.advice import Advice
    from psofed.studies.advice.what_if import ByzantineWhatIf

_WINNERS = {
    "rls": "recursive least squares (RLS) at each client alone",
    "persistence": "the last value of the target",
    "average": "each client's running mean",
}
_MOST_LISTED = 4  # groups whose sizes are listed


def answer(advice: "Advice") -> str:
    """Return the answer in one sentence or two."""
    return " ".join(filter(None, (_winner(advice), _federating(advice), _model(advice))))


def more_sentences(advice: "Advice") -> tuple[str, ...]:
    """Return what else to know: whether the gain fades, pooled data, and the same under attack."""
    return tuple(filter(None, (_recent(advice), _pooled(advice), _under_attack(advice))))


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


def _federating(advice: "Advice") -> str:
    stations, gain = advice.stations, advice.federation.gain
    if len(stations) == 1:
        return f"There is nothing to federate: {stations[0].name} is the only client."
    if gain.value == -math.inf:
        return f"Do not federate: a federation of the {len(stations)} clients diverged."
    if math.isnan(gain.value):
        return f"Undecided: each of the {len(stations)} clients learns without error, alone and together."
    members = sum(len(group.clients) for group in advice.groups)
    federates = gain.matters and gain.value > 0
    if advice.winner and not federates:
        return ""
    start = "The federation gains on LMS alone" if advice.winner else "Federate"
    if federates and members < len(stations):
        return f"{start}: {_gaining(advice, members)}; {_leave_out(advice)}."
    if federates and len(advice.groups) > 1:
        return f"{start} in {len(advice.groups)} groups: {_gaining(advice, members)}."
    who = f"the {len(stations)} clients"
    if members < len(stations):
        who = f"{members} of {len(stations)} clients"
    if len(advice.groups) > 1:
        who += f" in {len(advice.groups)} groups"
    if federates:
        return f"{start}: {_sharing(advice)}, {who} have an error {change(gain)} than each alone{_losers(advice)}."
    if gain.matters:
        more = " and no smaller group gains" if members == len(stations) else ""
        return (
            f"Do not federate: {_sharing(advice)}, {who} have an error {change(gain)} than each alone{more}."
        )
    start = "No difference that matters" if gain.is_clear else "No clear difference"
    text = f"{start}: {_sharing(advice)}, a federation of {who} has an error {change(gain)} than each client alone"
    if members < len(stations):
        text += f", and one of all {brief(advice.everybody_gain)}. If you federate, {_leave_out(advice)}"
    return f"{text}. Learning alone needs no traffic."


def _gaining(advice: "Advice", members: int) -> str:
    gain, groups = advice.federation.gain, advice.groups
    ends = f" (95 % interval: {percent(gain.interval[0])} to {percent(min(gain.interval[1], 1.0))})"
    who = f"{members} of {len(advice.stations)} clients"
    sizes = [len(group.clients) for group in groups]
    if len(groups) > _MOST_LISTED:
        who += f", in {len(groups)} groups of {min(sizes)} to {max(sizes)},"
    elif len(groups) > 1:
        who = f"groups of {listed(list(map(str, sizes)))} clients"
    return f"{who} gain {percent(gain.value)}{ends}, {_sharing(advice)}"


def _sharing(advice: "Advice") -> str:
    entries = advice.scenario.dimension
    if entries == 1:
        return "sharing the only parameter"
    last, used = sorted({group.num_shared for group in advice.groups}), advice.shared_counts
    if set(used) <= set(last):
        return f"sharing {' or '.join(map(str, last))} of {entries} parameters"
    span = f"{used[0]} to {used[-1]}" if len(used) > 1 else str(used[0])
    return f"sharing {span} of {entries} parameters as it learned ({' or '.join(map(str, last))} at the end)"


def _leave_out(advice: "Advice") -> str:
    federating = {name for group in advice.groups for name in group.clients}
    out = [station for station in advice.stations if station.name not in federating]
    return f"leave out {listed([s.name + (f' ({s.flag})' if s.flag else '') for s in out])}"


def _winner(advice: "Advice") -> str:
    if not advice.winner:
        return ""
    several = len(advice.stations) > 1
    than = (
        "the best federation" if several and advice.federation.gain.value > 0 else "LMS at each client alone"
    )
    start = "Do not federate: " if several else ""
    if advice.winner != "rls":
        start += "no model is needed, " if start else "No model is needed: "
    text = f"{start}{_WINNERS[advice.winner]} has an error {change(advice.winner_gain)} than {than}."
    return text[0].upper() + text[1:]


def _recent(advice: "Advice") -> str:
    gain, recent = advice.federation.gain, advice.recent_gain
    fades = gain.value > 0 and recent.value < gain.value - TOLERANCE / 2
    if len(advice.stations) == 1 or not fades:
        return ""
    return (
        f"The gain fades: in the later half of these rows the error is {change(recent)}. Expect this from now on; "
        "federations gain most while models still learn."
    )


def _pooled(advice: "Advice") -> str:
    gain = advice.pooled_gain
    if len(advice.stations) == 1 or math.isnan(gain.value):
        return ""
    if not gain.matters:
        return "Pooling all data in one place would make no clear difference to the federation."
    return f"Pooling all data in one place would give an error {change(gain)} than the federation."


def byzantine_clients(what_if: "ByzantineWhatIf") -> str:
    """Say how many of which clients are Byzantine."""
    total = len(what_if.clients)
    return (
        f"{len(what_if.byzantine)} of the {total} clients"
        if what_if.byzantine
        else f"some of the {total} clients"
    )


def _under_attack(advice: "Advice") -> str:
    if advice.what_if is None:
        return ""
    plain, robust = advice.what_if.methods
    everybody = len(advice.what_if.clients) == len(advice.stations)
    where = "in a federation of all" if everybody else "in this federation"
    unclear, clear = ("" if m.gain.is_clear else " (no clear difference)" for m in (plain, robust))
    return (
        f"If {byzantine_clients(advice.what_if)} were Byzantine, the honest clients' error {where} would be "
        f"{brief(plain.gain)} than alone{unclear}, and {brief(robust.gain)} with the {robust.rule} instead of the "
        f"mean{clear}."
    )


def _direction(value: float) -> str:
    return "lower" if value >= 0 else "higher"


def _model(advice: "Advice") -> str:
    if advice.winner or (advice.model_gain.is_clear and advice.model_gain.value > 0):
        return ""
    return (
        "No model is clearly better than each client's running mean: the columns say little about the target."
    )


def _losers(advice: "Advice") -> str:
    losers = [s.name for s in advice.stations if s.gain.matters and s.gain.value < 0]
    return f"; {listed(losers)} {'is' if len(losers) == 1 else 'are'} clearly better alone" if losers else ""
