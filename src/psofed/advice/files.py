"""Advice that was saved, read back as it was."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psofed.advice.advice import Advice, Method
from psofed.advice.judging import Gain
from psofed.advice.stations import Station
from psofed.common.errors import PsofedError
from psofed.scenario import Scenario


def read_advice(path: str | Path) -> Advice:
    """Read the advice in a ``.json`` file.

    Raises
    ------
    PsofedError
        If there is no such file, or it holds something else.
    """
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
        return advice_from_json(plain)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except PsofedError as error:  # such as a part from a plugin that is not loaded
        raise PsofedError(f"{path}: {error}") from None
    except Exception as error:  # a file of any content: too deep, of other types, not text
        reason = f"{type(error).__name__}: {error}"
        raise PsofedError(
            f"{path}: not a saved advice ({reason:.300}); other results are read from NetCDF files (.nc)"
        ) from None


def advice_from_json(plain: Mapping[str, Any]) -> Advice:
    """Make the advice whose :meth:`Advice.to_json` this is.

    JSON has no number for what is infinite or unknown. An error that is null is read as infinite: it diverged. A
    station's is read as NaN unless its gain says that the federation diverged.
    """
    methods = [_method(entry) for entry in plain["methods"]]
    by_name = {method.name: method for method in methods if method.name != "federation"}
    federations = [method for method in methods if method.name == "federation"]
    lies = plain["lies"]
    return Advice(
        verdict=plain["verdict"],
        federation=_method(plain["federation"]),
        alone=by_name["alone"],
        pooled=by_name["pooled"],
        average=by_name["average"],
        shared=tuple(method for method in federations if method.rule == "mean"),
        robust=next((method for method in federations if method.rule != "mean"), None),
        lies=tuple(_method(entry) for entry in lies["methods"]),
        liars=tuple(lies["stations"]),
        attack=dict(lies["attack"]),
        stations=tuple(_station(entry) for entry in plain["stations"]),
        scenario=Scenario.from_mapping(plain["scenario"]),
        rows=plain["judged_rows"],
        data=dict(plain["data"]),
        notes=tuple(plain["notes"]),
        pooled_gain=_gain(plain["gain_of_pooled_on_federation"]),
        model_gain=_gain(plain["gain_of_best_on_running_mean"]),
        version=plain["version"],
    )


def _gain(plain: Mapping[str, Any]) -> Gain:
    value = plain["value"]
    if value is None:
        value = -math.inf if plain["is_clear"] else math.nan
    low, high = (math.nan if end is None else float(end) for end in plain["interval_95"])
    return Gain(float(value), (low, high))


def _method(plain: Mapping[str, Any]) -> Method:
    error = math.inf if plain["error"] is None else plain["error"]
    return Method(**{**plain, "error": error, "gain": _gain(plain["gain"])})


def _station(plain: Mapping[str, Any]) -> Station:
    values = {name: value for name, value in plain.items() if name != "note"}
    gain = _gain(plain["gain"])
    for name in ("alone", "federation"):
        if values[name] is None:
            values[name] = math.inf if name == "federation" and gain.value == -math.inf else math.nan
    return Station(**{**values, "gain": gain})
