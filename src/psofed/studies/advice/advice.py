"""Advice on whether to federate, as a value and in files."""

import json
import textwrap
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError
from psofed.common.files import write_atomically
from psofed.common.numbers import finite_or_none
from psofed.common.validation import check_choice
from psofed.render import Report, Reported
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.scenario.file import scenario_to_toml
from psofed.studies.advice import report as views
from psofed.studies.advice.judging import Gain, Judge, Way

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Panels


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
    way = of_gain.follow(way)
    gain = of_gain.gain(way, of_gain.follow(alone))
    method = LearningMethod(way.name, way.title, None, None, of_error.error(way), gain)
    if not way.scenarios:
        return replace(method, stepsize=next(iter(way.stepsizes), None))
    setting = way.scenarios[0]
    rule = setting.aggregation.kind
    traffic = [measure_communication(scenario) for scenario in way.scenarios]
    return replace(
        method,
        title=f"{way.title}, M = {setting.num_shared}" + ("" if rule == "mean" else f", {rule}"),
        num_shared=setting.num_shared,
        stepsize=setting.common_stepsize,
        numbers=sum(each.numbers_down + each.numbers_up for each in traffic),
        rule=rule,
        model={} if setting.is_linear else setting.model.to_mapping(),
    )


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
    note : str
        Flag and ``"better alone"``, or an empty string.
    """

    name: str
    rows: int
    alone: float
    federation: float
    gain: Gain
    flag: str
    note: str


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
        Method without a federation that is clearly better than all others, or empty.
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
        return views.answer(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer and the notes."""
        return (self.answer, *views.more_sentences(self))

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
        return views.advice_report(self)

    def chart(self) -> "Panels":
        """Return gains, of methods and of clients, as a value."""
        return views.advice_chart(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON; values that are not finite become None."""
        derived = {
            "answer": self.answer,
            "sentences": self.sentences,
            "federation": self.federation,
            "left_out": self.left_out,
        }
        cleaned: dict[str, Any] = finite_or_none(
            _plain(derived) | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        )
        return cleaned

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row per client."""
        import pandas

        columns = ["rows", "error_alone", "error_federation", "gain", "gain_low", "gain_high", "flag", "note"]
        rows = [(s.rows, s.alone, s.federation, s.gain.value, *s.gain.interval, s.flag, s.note) for s in self.stations]
        return pandas.DataFrame(rows, pandas.Index([s.name for s in self.stations], name="station"), columns)

    def save(self, path: str | Path) -> None:
        """Write everything as ``.json``, the clients as ``.csv``, or the plan as ``.toml``.

        The plan is the recommended scenario, with the table's file and columns: what ``psofed simulate``, ``predict``,
        ``sweep``, ``explore`` and ``federation run`` take.
        """
        kind = check_out(Path(path))
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


def check_out(path: Path) -> str:
    """Return the ending of a file to save to; refuse one that says nothing."""
    if path.suffix.lower() not in (".json", ".csv", ".toml"):
        raise InvalidValueError("out", str(path), "a name ending in .json, .csv or .toml")
    return path.suffix.lower()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(member) for member in value]
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, Gain):
        return value.to_json()
    if isinstance(value, Scenario):
        return value.to_mapping()
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value
