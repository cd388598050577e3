"""Advice on whether to federate, as a value and in files."""

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError
from psofed.common.files import write_atomically
from psofed.common.numbers import finite_or_none
from psofed.common.validation import check_choice
from psofed.render import Report, Reported
from psofed.results.dataset import variable
from psofed.results.netcdf import save_dataset
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.scenario.file import scenario_to_toml
from psofed.studies.advice.judging import Gain, Judge, Way

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.render.charts import Panels

_ENDINGS = (".json", ".nc", ".csv", ".toml")


@dataclass(frozen=True)
class LearningMethod:
    """One way to learn, as it did.

    Attributes
    ----------
    name : str
        ``"alone"``, ``"federation"`` (the one in the answer), ``"everybody"`` (a federation of all clients with a fixed
        number of shared parameters), ``"robust"`` (the clients in the answer with a robust rule), ``"pooled"``,
        ``"rls"``, ``"persistence"`` (the last value), ``"average"`` (each client's running mean, no model), ``"rff"``
        (a federation of all with random features) or ``"boosting"`` (of trees, on the pooled rows); in a what-if
        analysis ``"mean"`` or ``"robust"``.
    title : str
        For people.
    num_shared, stepsize : int or None, float or None
        What was best at the end: the setting to use from now on.
    error : float
        Mean squared error over the judged rows, each client weighing the same; 1 is the variance of the target.
    gain : Gain
        On each client alone; of a federation of some clients, theirs.
    numbers : float
        Values sent per iteration, up and down, by all participants; 0 if nothing is sent.
    rule : str
        How the server combines what arrives; empty without a server.
    model : dict
        The scenario's model, if it is not linear.
    """

    name: str
    title: str
    num_shared: int | None
    stepsize: float | None
    error: float
    gain: Gain
    numbers: float = 0
    rule: str = ""
    model: dict[str, Any] = field(default_factory=dict)


def describe(way: Way, alone: Way, of_gain: Judge, of_error: Judge) -> LearningMethod:
    """Describe a way to learn at the setting it ends with; gain and error may be those of some clients."""
    judged = of_gain.choose(way)
    error, gain = of_error.error(judged), of_gain.gain(judged, of_gain.choose(alone))
    if not way.scenarios:
        stepsize = way.stepsizes[judged.last] if way.stepsizes else None
        return LearningMethod(way.name, way.title, None, stepsize, error, gain)
    setting = way.scenarios[judged.last]
    rule = setting.aggregation.kind
    title = f"{way.title}, M = {setting.num_shared}" + ("" if rule == "mean" else f", {rule}")
    model = {} if setting.is_linear else setting.model.to_mapping()
    how = setting.num_shared, setting.common_stepsize, error, gain, values_sent(setting), rule, model
    return LearningMethod(way.name, title, *how)


def values_sent(scenario: Scenario) -> float:
    """Return the values sent per iteration, up and down, by all participants."""
    sent = measure_communication(scenario)
    return sent.numbers_down + sent.numbers_up


@dataclass(frozen=True)
class ClientGroup:
    """Clients that should federate with each other, and their setting."""

    clients: tuple[str, ...]
    num_shared: int
    stepsize: float


@dataclass(frozen=True)
class Station:
    """One client of the table.

    Attributes
    ----------
    name : str
    rows : int
        With a target.
    alone, federation : float
        Mean squared errors over its judged rows; NaN if it has none. If it is to be left out, `federation` is its error
        in a federation of everybody.
    gain : Gain
        Of the federation; the intervals of all clients hold together (95 %).
    flag : str
        ``"hard to predict"`` (its error alone is no smaller than its running mean's), ``"too few rows"`` (for an
        interval), or empty.
    """

    name: str
    rows: int
    alone: float
    federation: float
    gain: Gain
    flag: str

    @property
    def note(self) -> str:
        """Remark on the client, or an empty string."""
        is_better_alone = self.gain.matters and self.gain.value < 0
        return "; ".join(filter(None, (self.flag, "better alone" if is_better_alone else "")))


@dataclass(frozen=True)
class ByzantineWhatIf:
    """The federation in the answer with some Byzantine clients.

    Attributes
    ----------
    clients : tuple of str
        Clients that federate: the largest group in the answer, or all if the scenario names the Byzantine ones.
    byzantine : tuple of str
        Byzantine clients; empty if they are redrawn in every iteration.
    attacks : tuple of dict
        What each group of them does, as in a scenario file.
    methods : tuple of LearningMethod
        With the mean and with the robust rule, on the honest clients.
    """

    clients: tuple[str, ...]
    byzantine: tuple[str, ...]
    attacks: tuple[dict[str, Any], ...]
    methods: tuple[LearningMethod, ...]


@dataclass(frozen=True)
class Newcomer:
    """How long a client that joins later needs alone.

    Attributes
    ----------
    rows : int
        Rows after its warm-up until it predicts as well alone as with the federation's model from its first row.
    interval : (int, int)
        95 % confidence.
    most : int
        Rows that were looked at: with as many, `rows` and the interval's end mean "at least".
    """

    rows: int
    interval: tuple[int, int]
    most: int


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Reported):
    """The outcome of :func:`psofed.advise`.

    Attributes
    ----------
    verdict : str
        ``"federate"``, ``"stay alone"``, ``"no clear difference"`` (the sign is open, or below 0.1 dB), ``"depends on
        extreme rows"`` (clear, but not with targets limited to five deviations) or ``"naive"``: a forecast without a
        model is better.
    winner : str
        Method without a federation that is better than all others; empty if there is none.
    methods : tuple of LearningMethod
        All that was compared without an attack.
    groups : tuple of ClientGroup
        Who federates with whom in the federation that the answer is about; the largest group first.
    shared_counts : tuple of int
        Numbers of shared parameters that it used in the judged rows; `groups` has the last.
    extreme_rows : tuple of str
        Rows with targets beyond five deviations, the most extreme first, by client and time or number.
    everybody_gain, recent_gain, bounded_gain : Gain
        Of all clients together on each alone; of the federation in the later half of the judged rows, which is what to
        expect now; of the federation with targets limited to five deviations.
    winner_gain : Gain
        Of the winner on the better of federation and clients alone.
    pooled_gain, model_gain : Gain
        Of the pooled model on the federation; of the better of federation and alone on the running mean.
    rff_gain, boosting_gain : Gain
        Of random features on the better of federation and alone, and of gradient boosting on the best of these; NaN
        where not tried.
    what_if : ByzantineWhatIf or None
        The federation with some Byzantine clients, if asked for.
    newcomer : Newcomer or None
        What a client that joins later gains; None with too few clients or rows.
    stations : tuple of Station
        How each client fares.
    scenario : Scenario
        The largest group's federation, ready for :func:`psofed.simulate` with data without `left_out`.
    rows : int
        Rows that were judged, of all clients.
    data : dict
        What was read and what was done to it.
    cautions : tuple of str
        What in the table should be looked at before the answer.
    notes : tuple of str
        Remarks on how it was computed.
    """

    verdict: str
    winner: str
    winner_gain: Gain
    methods: tuple[LearningMethod, ...]
    groups: tuple[ClientGroup, ...]
    shared_counts: tuple[int, ...]
    everybody_gain: Gain
    recent_gain: Gain
    bounded_gain: Gain
    extreme_rows: tuple[str, ...]
    pooled_gain: Gain
    model_gain: Gain
    rff_gain: Gain
    boosting_gain: Gain
    what_if: ByzantineWhatIf | None
    newcomer: Newcomer | None
    stations: tuple[Station, ...]
    scenario: Scenario
    rows: int
    data: dict[str, Any] = field(repr=False)
    cautions: tuple[str, ...]
    notes: tuple[str, ...] = field(repr=False)
    version: str = __version__

    @property
    def answer(self) -> str:
        """The answer in some sentences."""
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
        """Return gains, of methods and of clients, as a value."""
        from psofed.studies.advice.report import advice_chart

        return advice_chart(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON; values that are not finite become None."""
        derived = {
            "answer": self.answer,
            "sentences": list(self.sentences),
            "federation": _plain(self.federation),
            "left_out": list(self.left_out),
        }
        cleaned: dict[str, Any] = finite_or_none(derived | _plain(self))
        return cleaned

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row per client."""
        import pandas

        columns = {
            "rows": [s.rows for s in self.stations],
            "error_alone": [s.alone for s in self.stations],
            "error_federation": [s.federation for s in self.stations],
            "gain": [s.gain.value for s in self.stations],
            "gain_low": [s.gain.interval[0] for s in self.stations],
            "gain_high": [s.gain.interval[1] for s in self.stations],
            "flag": [s.flag for s in self.stations],
            "note": [s.note for s in self.stations],
        }
        return pandas.DataFrame(columns, index=pandas.Index([s.name for s in self.stations], name="station"))

    def to_dataset(self) -> "xarray.Dataset":
        """Return a labelled data set: clients by name, and everything else as JSON."""
        import xarray

        table = self.to_dataframe().drop(columns="flag")
        units = dict.fromkeys(("error_alone", "error_federation"), "variance of the target")
        variables = {
            name: variable("client", table[name].to_numpy(float), name.replace("_", " "), units.get(name, "1"))
            for name in table.columns.drop("note")
        }
        names, notes = (np.array(list(values), dtype=object) for values in (table.index, table["note"]))
        return xarray.Dataset(
            variables,
            coords={"client": names, "note": ("client", notes)},
            attrs={"title": "psofed advice", "answer": self.answer, "advice": json.dumps(self.to_json())},
        )

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


def check_out(path: Path) -> None:
    """Refuse a file to save to whose ending says nothing."""
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidValueError("out", str(path), f"a name ending in {', '.join(_ENDINGS[:-1])} or .toml")


def advice_from_json(plain: Mapping[str, Any]) -> Advice:
    """Make the advice whose :meth:`Advice.to_json` this is; null, for what is not finite, becomes NaN."""
    advice: Advice = _restored(Advice, plain)
    return advice


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Gain):
        return value.to_json()
    if isinstance(value, Scenario):
        return value.to_mapping()
    if not is_dataclass(value):
        return value
    plain = {member.name: _plain(getattr(value, member.name)) for member in fields(value)}
    return plain | ({"note": value.note} if isinstance(value, Station) else {})


def _restored(kind: Any, plain: Any) -> Any:
    """Return the value of a type whose plain form this is."""
    arguments = get_args(kind)
    if kind is Gain:
        value = -math.inf if plain["value"] is None and plain["is_clear"] else _restored(float, plain["value"])
        return Gain(value, _restored(tuple[float, float], plain["interval_95"]))
    if kind is Scenario:
        return Scenario.from_mapping(plain)
    if is_dataclass(kind):
        hints: Any = get_type_hints(kind)
        make: Any = kind
        return make(**{name: _restored(hints[name], plain[name]) for name in (f.name for f in fields(kind))})
    if get_origin(kind) is tuple:
        kinds = arguments[:1] * len(plain) if Ellipsis in arguments else arguments
        return tuple(map(_restored, kinds, plain))
    if plain is None:
        return math.nan if kind is float else None
    return _restored(arguments[0], plain) if arguments and type(None) in arguments else plain
