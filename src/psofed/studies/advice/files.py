"""Advice that was saved, read back as it was."""

import math
from collections.abc import Mapping
from typing import Any

from psofed.scenario import Scenario
from psofed.studies.advice.advice import GAINS, Advice
from psofed.studies.advice.judging import Gain
from psofed.studies.advice.methods import ClientGroup, LearningMethod
from psofed.studies.advice.stations import Station
from psofed.studies.advice.what_if import ByzantineWhatIf


def advice_from_json(plain: Mapping[str, Any]) -> Advice:
    """Make the advice whose :meth:`Advice.to_json` this is.

    JSON has no number for what is infinite or unknown. An error that is null is read as infinite: it diverged. A
    station's is read as NaN unless its gain says that the federation diverged.
    """
    what_if = plain["what_if"]
    return Advice(
        verdict=plain["verdict"],
        winner=plain["winner"],
        methods=tuple(_method(entry) for entry in plain["methods"]),
        groups=tuple(
            ClientGroup(**{**entry, "clients": tuple(entry["clients"])}) for entry in plain["groups"]
        ),
        shared_counts=tuple(plain["shared_counts"]),
        what_if=None if what_if is None else _what_if(what_if),
        stations=tuple(_station(entry) for entry in plain["stations"]),
        scenario=Scenario.from_mapping(plain["scenario"]),
        rows=plain["judged_rows"],
        data=dict(plain["data"]),
        notes=tuple(plain["notes"]),
        version=plain["version"],
        **{f"{name}_gain": _gain(plain["gains"][name]) for name in GAINS},
    )


def _gain(plain: Mapping[str, Any]) -> Gain:
    value = plain["value"]
    if value is None:
        value = -math.inf if plain["is_clear"] else math.nan
    low, high = (math.nan if end is None else float(end) for end in plain["interval_95"])
    return Gain(float(value), (low, high))


def _what_if(plain: Mapping[str, Any]) -> ByzantineWhatIf:
    methods = tuple(_method(entry) for entry in plain["methods"])
    attacks = tuple(map(dict, plain["attacks"]))
    return ByzantineWhatIf(tuple(plain["clients"]), tuple(plain["byzantine"]), attacks, methods)


def _method(plain: Mapping[str, Any]) -> LearningMethod:
    error = math.inf if plain["error"] is None else plain["error"]
    return LearningMethod(**{**plain, "error": error, "gain": _gain(plain["gain"])})


def _station(plain: Mapping[str, Any]) -> Station:
    values = {name: value for name, value in plain.items() if name != "note"}
    gain = _gain(plain["gain"])
    for name in ("alone", "federation"):
        if values[name] is None:
            values[name] = math.inf if name == "federation" and gain.value == -math.inf else math.nan
    return Station(**{**values, "gain": gain})
