"""Advice on whether to federate, as text, tables and files."""

import json
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError
from psofed.common.files import write_atomically
from psofed.common.numbers import json_object
from psofed.common.validation import check_choice
from psofed.render import Report, Reported
from psofed.results.dataset import variable
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario
from psofed.scenario.file import scenario_to_toml
from psofed.studies.advice.judging import Gain
from psofed.studies.advice.methods import ClientGroup, LearningMethod, Station
from psofed.studies.advice.what_if import ByzantineWhatIf

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.render.charts import Panels


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Reported):
    """The outcome of :func:`psofed.advise`.

    Attributes
    ----------
    verdict : str
        ``"federate"``, ``"stay alone"``, ``"no clear difference"`` (the interval leaves the sign open, or the
        difference is below 0.1 dB) or ``"naive"``: a forecast without a model is better.
    winner : str
        Name of the method without a federation that is better than all others; empty if no such method is.
    winner_gain : Gain
        Its gain on the best federation or, if that is better, on each client alone.
    methods : tuple of LearningMethod
        All that was compared without an attack.
    groups : tuple of ClientGroup
        Who federates with whom in the federation that the answer is about; the largest group first.
    shared_counts : tuple of int
        Numbers of shared parameters that this federation used in the judged rows. Several if it chose again as it
        went; ``groups`` has the last.
    everybody_gain : Gain
        Of a federation of all clients on each alone.
    recent_gain : Gain
        Of the federation in the answer in the later half of the judged rows: what to expect from now on. Federations
        gain most while models still learn.
    what_if : ByzantineWhatIf or None
        The federation in the answer with some Byzantine clients; None if that was not asked for.
    stations : tuple of Station
    scenario : Scenario
        The largest group's federation, ready for :func:`psofed.simulate` with data without :attr:`left_out`.
    rows : int
        Rows that were judged, of all clients.
    data : dict
        What was read and what was done to it.
    notes : tuple of str
    pooled_gain, model_gain : Gain
        Of the pooled model on the federation, and of the better of federation and alone on the running mean.
    """

    verdict: str
    winner: str
    winner_gain: Gain
    methods: tuple[LearningMethod, ...]
    groups: tuple[ClientGroup, ...]
    shared_counts: tuple[int, ...]
    everybody_gain: Gain
    recent_gain: Gain
    what_if: ByzantineWhatIf | None
    stations: tuple[Station, ...]
    scenario: Scenario
    rows: int
    data: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)
    pooled_gain: Gain
    model_gain: Gain
    version: str = __version__

    @property
    def answer(self) -> str:
        """The answer in one sentence."""
        from psofed.studies.advice.answers import answer

        return answer(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer and the notes."""
        from psofed.studies.advice.answers import more_sentences

        return (self.answer, *more_sentences(self))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Clients that are not in the largest group."""
        return tuple(s.name for s in self.stations if s.name not in self.groups[0].clients)

    @property
    def federation(self) -> LearningMethod:
        """The federation that the answer is about; groups, M and stepsize were always chosen from the past."""
        return self.method("federation")

    @property
    def alone(self) -> LearningMethod:
        """Each client alone."""
        return self.method("alone")

    def method(self, name: str) -> LearningMethod:
        """Return the first method of that name."""
        check_choice("name", name, dict.fromkeys(method.name for method in self.methods))
        return next(method for method in self.methods if method.name == name)

    def report(self) -> Report:
        """Return the answer, what was compared, and how each client fares."""
        from psofed.studies.advice.report import advice_report

        return advice_report(self)

    def chart(self) -> "Panels":
        """Return gains and errors as a value."""
        from psofed.studies.advice.charts import advice_chart

        return advice_chart(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON; values that are not finite become None."""
        return json_object(
            {
                "verdict": self.verdict,
                "winner": self.winner,
                "answer": self.answer,
                "sentences": list(self.sentences),
                "federation": self.federation.to_json(),
                "methods": [method.to_json() for method in self.methods],
                "groups": [asdict(group) for group in self.groups],
                "shared_counts": list(self.shared_counts),
                "left_out": list(self.left_out),
                "gains": {name: getattr(self, f"{name}_gain").to_json() for name in GAINS},
                "what_if": None if self.what_if is None else self.what_if.to_json(),
                "stations": [station.to_json() for station in self.stations],
                "judged_rows": self.rows,
                "data": self.data,
                "notes": list(self.notes),
                "scenario": self.scenario.to_mapping(),
                "version": self.version,
            }
        )

    def to_dataset(self) -> "xarray.Dataset":
        """Return a labelled data set: clients by name, methods by title."""
        import xarray

        methods = (*self.methods, *(() if self.what_if is None else self.what_if.methods))
        variables = {
            name: variable("client", np.array([of(s) for s in self.stations], np.float64), title, units)
            for name, (title, units, of) in _STATIONS.items()
        } | {
            name: variable("method", np.array([of(m) for m in methods], np.float64), title, units)
            for name, (title, units, of) in _METHODS.items()
        }
        return xarray.Dataset(
            variables,
            coords={
                "client": np.array([s.name for s in self.stations], dtype=object),
                "method": np.array([m.title for m in methods], dtype=object),
                "note": ("client", np.array([s.note for s in self.stations], dtype=object)),
            },
            attrs={"title": "psofed advice", "answer": self.answer, "advice": json.dumps(self.to_json())},
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row per client."""
        import pandas

        columns = {name: [values(s) for s in self.stations] for name, (_, _, values) in _STATIONS.items()}
        notes = {"flag": [s.flag for s in self.stations], "note": [s.note for s in self.stations]}
        names = pandas.Index([s.name for s in self.stations], name="station")
        return pandas.DataFrame(columns | notes, index=names)

    def save(self, path: str | Path) -> None:
        """Write everything as ``.json`` or NetCDF (``.nc``), the clients as ``.csv``, or the plan as ``.toml``.

        The plan is the recommended scenario, with the table's file and columns: what ``psofed simulate``, ``predict``,
        ``sweep``, ``explore`` and ``federation run`` take.
        """
        check_out(Path(path))
        kind = Path(path).suffix.lower()
        if kind == ".nc":
            save_dataset(self.to_dataset(), path)
            return
        if kind == ".csv":
            table = self.to_dataframe().reset_index()
            text = csv_text([table.columns, *table.itertuples(index=False)])
        elif kind == ".toml":
            about = self.answer
            if len(self.groups) > 1:
                about += f" This plan is for the largest of the {len(self.groups)} groups."
            comment = "".join(f"# {line}\n" for line in textwrap.wrap(about, 110))
            plan = self.scenario.replace(stepsize=float(f"{self.scenario.stepsize:.4g}"))
            text = comment + scenario_to_toml(plan, Path(path).absolute().parent)
        else:
            text = json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_atomically(Path(path), text.encode(), mode=0o666)


GAINS = ("winner", "everybody", "recent", "pooled", "model")
_VARIANCES = "variance of the target"
_STATIONS: dict[str, tuple[str, str, Callable[[Station], float]]] = {
    "rows": ("rows with a target", "1", lambda s: s.rows),
    "error_alone": ("mean squared error alone", _VARIANCES, lambda s: s.alone),
    "error_federation": ("mean squared error in the federation", _VARIANCES, lambda s: s.federation),
    "gain": ("gain of the federation on being alone", "1", lambda s: s.gain.value),
    "gain_low": ("lower end of the gain's interval", "1", lambda s: s.gain.interval[0]),
    "gain_high": ("upper end of the gain's interval", "1", lambda s: s.gain.interval[1]),
}
_METHODS: dict[str, tuple[str, str, Callable[[LearningMethod], float]]] = {
    "method_error": ("mean squared error", _VARIANCES, lambda m: m.error),
    "method_gain": ("gain on each client alone", "1", lambda m: m.gain.value),
    "method_gain_low": ("lower end of its interval", "1", lambda m: m.gain.interval[0]),
    "method_gain_high": ("upper end of its interval", "1", lambda m: m.gain.interval[1]),
    "method_numbers": ("values sent per iteration", "1", lambda m: m.numbers),
}


def check_out(path: Path) -> None:
    """Refuse a file to save to whose ending says nothing."""
    if path.suffix.lower() not in (".json", ".nc", ".csv", ".toml"):
        raise InvalidValueError("out", str(path), "a name ending in .json, .nc, .csv or .toml")


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
