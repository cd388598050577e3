"""What came of a federation: curves, bytes and bad replies, as JSON and as labelled NetCDF."""

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.federation.checkpoint import ServerState
from psofed.federation.deployment.relay import Traffic
from psofed.federation.files import read_json, write_atomically, write_json
from psofed.federation.settings import RunSettings

if TYPE_CHECKING:
    import xarray


def build_result(
    state: ServerState, settings: RunSettings, counted: Traffic | None, window: tuple[float, float]
) -> dict[str, Any]:
    """Return the result of a run as plain dicts.

    Parameters
    ----------
    state : ServerState
        After the last round.
    settings : RunSettings
        What was run.
    counted : Traffic or None
        Bytes counted at the socket during the run, if the relay was there to count.
    window : tuple of float
        Unix times of the run's begin and end.
    """
    rounds = state.round_number
    return {
        "kind": "federation",
        "version": __version__,
        "scenario": settings.scenario.to_mapping(),
        "seed": settings.seed,
        "settings": {key: value for key, value in settings.to_config().items() if key != "scenario"},
        "session": state.session,
        "started": _clock(window[0]),
        "finished": _clock(window[1]),
        "window": list(window),
        "rounds": rounds,
        "learning_curve": learning_curve(state),
        "communication": communication(state, counted),
        "bad_replies": state.conduct["counts"],
        "benched": benched(state, settings),
        "model": state.model.tolist() if state.model.size <= 10_000 else None,
        "history": state.history,
    }


def learning_curve(state: ServerState) -> dict[str, list[Any]]:
    """Return by round: the clients' mean squared a-priori error and the server's MSD where it is known.

    The network MSE of round n is the mean of e² over all clients that have reported on that round by the end;
    a client left out reports when it is next asked. It is what the clients say: a liar may say anything.
    """
    errors: dict[int, dict[str, float]] = {}
    for record in state.history:
        for node, metrics in record["metrics"].items():
            values, last = metrics.get("squared-errors"), metrics.get("last-round")
            if not isinstance(values, list) or not isinstance(last, int | float):
                continue
            for back, value in enumerate(reversed(values)):
                if isinstance(value, int | float) and math.isfinite(value):
                    errors.setdefault(int(last) - back, {})[node] = float(value)
    numbers = [record["round"] for record in state.history]
    return {
        "round": numbers,
        "network_mse": [float(np.mean(list(errors[n].values()))) if n in errors else None for n in numbers],
        "reporting": [len(errors.get(n, {})) for n in numbers],
        "server_msd": [record.get("evaluation", {}).get("server-msd") for record in state.history],
        "seconds": [record["seconds"] for record in state.history],
    }


def communication(state: ServerState, counted: Traffic | None) -> dict[str, Any]:
    """Return numbers and bytes exchanged, against full sharing, and what was counted at the socket."""
    down, up = (sum(record[f"values_{way}"] for record in state.history) for way in ("down", "up"))
    messages = sum(len(record["participants"]) for record in state.history)
    replies = sum(len(record["accepted"]) for record in state.history)
    item, dimension = state.layout.dtype.itemsize, state.layout.dimension
    full = (messages + replies) * dimension
    return {
        "messages_down": messages,
        "messages_up": replies,
        "values_down": down,
        "values_up": up,
        "payload_bytes_down": down * item,
        "payload_bytes_up": up * item,
        "full_sharing_payload_bytes": full * item,
        "fraction_of_full_sharing": (down + up) / full if full else None,
        "socket_bytes_down": None if counted is None else counted.down,
        "socket_bytes_up": None if counted is None else counted.up,
    }


def benched(state: ServerState, settings: RunSettings) -> list[str]:
    """Return the nodes that were asked no more at the end."""
    from psofed.federation.checks import Conduct

    return sorted(str(node) for node in Conduct.from_mapping(state.conduct, settings.limits).benched)


def save_result(result: dict[str, Any], path: Path) -> None:
    """Write `result` as JSON to `path` and its curves as NetCDF beside it, both atomically."""
    write_json(path, result)
    dataset = result_dataset(result)
    partial = path.with_suffix(".nc.partial")
    dataset.to_netcdf(partial, engine="h5netcdf")
    write_atomically(path.with_suffix(".nc"), partial.read_bytes())
    partial.unlink()


def load_federation_result(path: Path) -> dict[str, Any]:
    """Read a result written by :func:`save_result`."""
    return dict(read_json(path))


def result_dataset(result: dict[str, Any]) -> "xarray.Dataset":
    """Return the curves as a labelled dataset, with scenario, seed and version as attributes."""
    import json

    import xarray

    curve = result["learning_curve"]
    names = {"network_mse": "mean squared a-priori error of the clients", "server_msd": "squared deviation of the server"}
    variables = {
        name: ("round", np.array(curve[name], dtype=np.float64), {"long_name": text}) for name, text in names.items()
    }
    for way in ("down", "up"):
        values = np.array([record[f"values_{way}"] for record in result["history"]], dtype=np.int64)
        variables[f"values_{way}"] = ("round", values, {"long_name": f"numbers sent {way}"})
    attributes = {name: str(result[name]) for name in ("kind", "version", "session", "started", "finished")}
    attributes["scenario"] = json.dumps(result["scenario"])
    return xarray.Dataset(
        variables,
        coords={"round": np.array(curve["round"], dtype=np.int64)},
        attrs={**attributes, "seed": result["seed"]},
    )


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
