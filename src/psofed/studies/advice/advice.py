"""Advice on whether to federate, as text, tables and files."""

import json
import textwrap
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
        ``"alone"``, ``"federation"``, ``"pooled"`` or ``"average"`` (each station's running mean, no model).
    title : str
        For people.
    num_shared, stepsize : int or None, float or None
        What was best at the end: the setting to use from now on.
    error : float
        Mean squared error over the judged rows, each station weighing the same; 1 is the variance of the target.
    gain : Gain
        On each station alone.
    numbers : int
        Exchanged per iteration, up and down, by all participants; 0 where nothing is sent.
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


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Reported):
    """The outcome of :func:`psofed.advise`.

    Attributes
    ----------
    verdict : str
        ``"federate"``, ``"stay alone"`` or ``"no clear difference"``: the interval leaves the sign open, or the
        difference is below one per cent.
    federation, alone, pooled, average : LearningMethod
        The federation with the number of shared entries and the stepsize chosen from the past.
    shared : tuple of LearningMethod
        Federations with each number of shared entries.
    robust : LearningMethod or None
        A federation with a robust rule, nobody lying.
    lies : tuple of LearningMethod
        If some stations lied: with the mean and with the robust rule, on the honest stations alone.
    byzantine : tuple of str
        Who lied then.
    attack : dict
        What they did, as in a scenario file.
    stations : tuple of Station
    scenario : Scenario
        What is recommended, ready for :func:`psofed.simulate`.
    rows : int
        Rows that were judged, of all stations.
    data : dict
        What was read and what was done to it.
    notes : tuple of str
    """

    verdict: str
    federation: LearningMethod
    alone: LearningMethod
    pooled: LearningMethod
    average: LearningMethod
    shared: tuple[LearningMethod, ...]
    robust: LearningMethod | None
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
        from psofed.studies.advice.report import answer

        return answer(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, and what else should be known."""
        from psofed.studies.advice.report import more_sentences

        return (self.answer, *more_sentences(self))

    @property
    def methods(self) -> tuple[LearningMethod, ...]:
        """All that was compared without lies."""
        robust = () if self.robust is None else (self.robust,)
        return (self.alone, *self.shared, *robust, self.pooled, self.average)

    def report(self) -> Report:
        """Return the answer, what was compared, and how each client fares."""
        from psofed.studies.advice.report import advice_report

        return advice_report(self)

    def chart(self) -> "Panels":
        """Return gains and errors as a value."""
        from psofed.studies.advice.report import advice_chart

        return advice_chart(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON: what is not finite is None."""
        plain: dict[str, Any] = finite_or_none(
            {
                "verdict": self.verdict,
                "answer": self.answer,
                "sentences": list(self.sentences),
                "federation": self.federation.to_json(),
                "methods": [method.to_json() for method in self.methods],
                "gain_of_pooled_on_federation": self.pooled_gain.to_json(),
                "gain_of_best_on_running_mean": self.model_gain.to_json(),
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
        """Return a labelled data set: stations by name, methods by title."""
        import xarray

        stations, methods = self.stations, (*self.methods, *self.lies)
        by_station = {
            "rows": ("rows with a target", "1", [s.rows for s in stations]),
            "error_alone": (
                "mean squared error alone",
                "variance of the target",
                [s.alone for s in stations],
            ),
            "error_federation": (
                "mean squared error in the federation",
                "variance of the target",
                [s.federation for s in stations],
            ),
            "gain": ("gain of the federation on being alone", "1", [s.gain.value for s in stations]),
            "gain_low": ("lower end of the gain's interval", "1", [s.gain.interval[0] for s in stations]),
            "gain_high": ("upper end of the gain's interval", "1", [s.gain.interval[1] for s in stations]),
        }
        by_method = {
            "method_error": ("mean squared error", "variance of the target", [m.error for m in methods]),
            "method_gain": ("gain on each station alone", "1", [m.gain.value for m in methods]),
            "method_gain_low": ("lower end of its interval", "1", [m.gain.interval[0] for m in methods]),
            "method_gain_high": ("upper end of its interval", "1", [m.gain.interval[1] for m in methods]),
            "method_numbers": ("numbers exchanged per iteration", "1", [m.numbers for m in methods]),
        }
        variables = {
            name: (axis, np.asarray(values, np.float64), {"long_name": title, "units": units})
            for axis, group in (("client", by_station), ("method", by_method))
            for name, (title, units, values) in group.items()
        }
        return xarray.Dataset(
            variables,
            coords={
                "client": np.array([s.name for s in stations], dtype=object),
                "method": np.array([m.title for m in methods], dtype=object),
                "note": ("client", np.array([s.note for s in stations], dtype=object)),
            },
            attrs={"title": "psofed advice", "answer": self.answer, "advice": json.dumps(self.to_json())},
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row per station."""
        import pandas

        rows = [
            {
                "station": s.name,
                "rows": s.rows,
                "error_alone": s.alone,
                "error_federation": s.federation,
                "gain": s.gain.value,
                "gain_low": s.gain.interval[0],
                "gain_high": s.gain.interval[1],
                "note": s.note,
            }
            for s in self.stations
        ]
        return pandas.DataFrame(rows).set_index("station")

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


def check_out(path: Path) -> None:
    """Refuse a file to save to whose ending says nothing."""
    if path.suffix.lower() not in (".json", ".nc", ".csv", ".toml"):
        raise InvalidValueError("out", str(path), "a name ending in .json, .nc, .csv or .toml")
