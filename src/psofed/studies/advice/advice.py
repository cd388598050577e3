"""Advice on whether to federate, as text, tables and files."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError
from psofed.common.files import write_atomically
from psofed.common.numbers import finite_or_none
from psofed.render import Report, Reported
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario
from psofed.scenario.file import scenario_to_toml
from psofed.studies.advice.judging import Gain
from psofed.studies.advice.stations import Station

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.render.charts import Panels


@dataclass(frozen=True)
class LearningMethod:
    """One way to learn, as it did.

    Attributes
    ----------
    name : str
        ``"alone"``, ``"federation"`` (the one in the answer), ``"everybody"`` (a federation of all clients with a fixed
        number of shared parameters), ``"pooled"``, ``"rls"``, ``"persistence"``, ``"seasonal"`` or ``"average"`` (each
        client's running mean, no model).
    title : str
        For people.
    num_shared, stepsize : int or None, float or None
        What was best at the end: the setting to use from now on.
    error : float
        Mean squared error over the judged rows, each client weighing the same; 1 is the variance of the target.
    gain : Gain
        On each client alone; of a federation of some clients, theirs.
    numbers : float
        Values sent per iteration, up and down, by all participants; 0 where nothing is sent.
    rule : str
        How the server joins what arrives; empty without a server.
    """

    name: str
    title: str
    num_shared: int | None
    stepsize: float | None
    error: float
    gain: Gain
    numbers: float = 0
    rule: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gain": self.gain.to_json()}


@dataclass(frozen=True)
class ClientGroup:
    """Clients that should federate with each other, and their setting."""

    clients: tuple[str, ...]
    num_shared: int
    stepsize: float


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Reported):
    """The outcome of :func:`psofed.advise`.

    Attributes
    ----------
    verdict : str
        ``"federate"``, ``"stay alone"``, ``"no clear difference"`` (the interval leaves the sign open, or the
        difference is below 0.1 dB) or ``"naive"``: a forecast without a model is better.
    winner : str
        Name of the method without a federation that is better than all others; empty if there is none.
    winner_gain : Gain
        Its gain on the best federation or, if that is better, on each client alone.
    methods : tuple of LearningMethod
        All that was compared without an attack.
    groups : tuple of ClientGroup
        Who federates with whom in the federation that the answer is about; the largest group first.
    everybody_gain : Gain
        Of a federation of all clients on each alone.
    lies : tuple of LearningMethod
        If some clients were Byzantine: with the mean and with the robust rule, on the honest clients.
    byzantine : tuple of str
        Who was Byzantine then.
    attack : dict
        What they did, as in a scenario file.
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
    everybody_gain: Gain
    lies: tuple[LearningMethod, ...]
    byzantine: tuple[str, ...]
    attack: dict[str, Any]
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
        """The answer, and what else should be known."""
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
        """Return plain dicts and lists, ready for JSON: what is not finite is None."""
        plain: dict[str, Any] = finite_or_none(
            {
                "verdict": self.verdict,
                "winner": self.winner,
                "answer": self.answer,
                "sentences": list(self.sentences),
                "federation": self.federation.to_json(),
                "methods": [method.to_json() for method in self.methods],
                "groups": [asdict(group) for group in self.groups],
                "left_out": list(self.left_out),
                "gains": {name: getattr(self, f"{name}_gain").to_json() for name in GAINS},
                "lies": {
                    "stations": list(self.byzantine),
                    "attack": self.attack,
                    "methods": [method.to_json() for method in self.lies],
                },
                "stations": [station.to_json() for station in self.stations],
                "judged_rows": self.rows,
                "data": self.data,
                "notes": list(self.notes),
                "scenario": self.scenario.to_mapping(),
                "version": self.version,
            }
        )
        return plain

    def to_dataset(self) -> "xarray.Dataset":
        """Return a labelled data set: clients by name, methods by title."""
        import xarray

        methods = (*self.methods, *self.lies)
        variables = {
            name: ("client", np.array([of(s) for s in self.stations], np.float64), _attributes(title, units))
            for name, (title, units, of) in _STATIONS.items()
        } | {
            name: ("method", np.array([of(m) for m in methods], np.float64), _attributes(title, units))
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
            comment = "".join(f"# {line}\n" for line in textwrap.wrap(self.answer, 110))
            plan = self.scenario.replace(stepsize=float(f"{self.scenario.stepsize:.4g}"))
            text = comment + scenario_to_toml(plan, Path(path).absolute().parent)
        else:
            text = json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_atomically(Path(path), text.encode(), mode=0o666)


GAINS = ("winner", "everybody", "pooled", "model")
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


def _attributes(title: str, units: str) -> dict[str, str]:
    return {"long_name": title, "units": units}


def check_out(path: Path) -> None:
    """Refuse a file to save to whose ending says nothing."""
    if path.suffix.lower() not in (".json", ".nc", ".csv", ".toml"):
        raise InvalidValueError("out", str(path), "a name ending in .json, .nc, .csv or .toml")
