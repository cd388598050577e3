"""The answer in sentences."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from psofed.advice.judging import Gain

if TYPE_CHECKING:
    from psofed.advice.advice import Advice


def answer(advice: "Advice") -> str:
    """Return the answer in one sentence."""
    stations, federation = advice.stations, advice.federation
    if len(stations) == 1:
        return f"Nothing to federate: {stations[0].name} is the only station. {_model(advice)}".strip()
    all_of = f"{len(stations)} stations"
    entries = advice.scenario.dimension
    sharing = (
        "sharing the one entry" if entries == 1 else f"sharing {federation.num_shared} of {entries} entries"
    )
    if federation.gain.value == -math.inf:
        return f"Do not federate: a federation of the {all_of} diverged. {_model(advice)}".strip()
    if math.isnan(federation.gain.value):
        return f"Cannot say: each of the {all_of} learns without error, alone and together."
    if advice.verdict == "no clear difference":
        start = "No difference that matters" if federation.gain.is_clear else "No clear difference"
        text = (
            f"{start}: a federation of the {all_of}, {sharing}, has an error "
            f"{change(federation.gain)} than each station alone; alone costs no traffic."
        )
    elif advice.verdict == "federate":
        text = (
            f"Federate: {sharing}, the {all_of} together have an error {change(federation.gain)} "
            f"than each alone{_losers(advice)}."
        )
    else:
        text = (
            f"Do not federate: together, {sharing}, the {all_of} have an error {change(federation.gain)} "
            f"than each alone{_winners(advice)}."
        )
    return f"{text} {_model(advice)}".strip()


def pooled_sentence(advice: "Advice") -> str:
    """Say what all data in one place would give."""
    gain = advice.pooled_gain
    if len(advice.stations) == 1 or math.isnan(gain.value):
        return ""
    if not gain.is_clear:
        return "All data in one place would not be clearly different from the federation."
    return f"All data in one place would have an error {change(gain)} than the federation."


def outlier_sentence(advice: "Advice") -> str:
    """Say which stations stand out, and what to do."""
    found = [s for s in advice.stations if s.stands_out and s.times_median > 1]
    if not found:
        return ""
    worst = max(s.times_median for s in found)
    who, verb = names([s.name for s in found]), "stands" if len(found) == 1 else "stand"
    option = ",".join(s.name for s in found[:5])
    return (
        f"{who} {verb} out with errors up to {worst:.1f} times the median: look at the sensors, "
        f"and try again with --leave-out {option}."
    )


def lies_sentence(advice: "Advice") -> str:
    """Say what lies would change."""
    if not advice.lies:
        return ""
    plain, robust = advice.lies
    who = (
        f"If {len(advice.liars)} of the {len(advice.stations)} stations lied"
        if advice.liars
        else "With liars"
    )
    clear = "" if robust.gain.is_clear else " (no clear difference)"
    unclear = "" if plain.gain.is_clear else " (no clear difference)"
    return (
        f"{who}, the honest ones' error in the federation would be {brief(plain.gain)} than alone{unclear}, "
        f"and {brief(robust.gain)} with the {robust.rule} instead of the mean{clear}."
    )


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
        return "infinite: it diverged, higher"
    return f"{percent(abs(gain.value))} {_direction(gain.value)}"


def percent(share: float) -> str:
    """Return a share in per cent, with a digit more where it is small.

    Examples
    --------
    >>> percent(0.123), percent(0.0123), percent(12.0)
    ('12 %', '1.2 %', '1200 %')
    """
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 9.95 and f"{value:.1f}"[-1] != "0" else f"{value:.0f} %"


def _direction(value: float) -> str:
    return "lower" if value >= 0 else "higher"


def _model(advice: "Advice") -> str:
    if advice.model_gain.is_clear and advice.model_gain.value > 0:
        return ""
    return "No model is clearly better than each station's running mean: the columns say little about the target."


def _losers(advice: "Advice") -> str:
    losers = [s.name for s in advice.stations if s.gain.is_clear and s.gain.value < 0]
    return f"; not so {names(losers)}, clearly better alone" if losers else ""


def _winners(advice: "Advice") -> str:
    winners = [s.name for s in advice.stations if s.gain.is_clear and s.gain.value > 0]
    return f"; only {names(winners)} clearly gain{'s' if len(winners) == 1 else ''}" if winners else ""


def names(values: Sequence[str]) -> str:
    """Return names as a list in a sentence, some of them if they are many."""
    if len(values) > 5:
        return f"{', '.join(values[:4])} and {len(values) - 4} more"
    return " and ".join(filter(None, (", ".join(values[:-1]), *values[-1:])))
