"""The form: every setting of a scenario with its range, choices and explanation, as plain values.

Types, ranges, choices and explanations come from the settings' own declarations (:func:`psofed.option`), also those of
a plugin's parts. This module only decides what stands where, what it is called and how far a slider reaches.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from psofed.common.options import describe, option_of, value_type
from psofed.explore.settings import Limits, variance_range
from psofed.explore.sliders import rounded_up, slider_range, slider_step, value_text
from psofed.parts.network import Channel
from psofed.parts.part import Part
from psofed.parts.registry import find_part, part_names
from psofed.scenario import Data, Scenario
from psofed.scenario.mapping import CHANNEL_TABLES, INNER

_LABELS = {
    "num_shared": "shared parameters M",
    "stepsize": "stepsize μ",
    "selection.coordinated": "masks are drawn",
    "uplink": "uploads come from",
    "num_clients": "clients K",
    "dimension": "parameters D",
    "num_participants": "participants",
    "attack.num_byzantine": "Byzantine clients",
    "attack.clients": "or which clients",
    "attack.probability": "probability of attack",
    "attack.byzantine_set": "Byzantine clients are",
    "data.input_correlation": "input correlation ρ",
    "data.target_spread": "spread of client targets",
    "data.test_input_variance": "test input variance",
    "data.test_instances": "test set size",
    "data.fleet_seed": "fleet seed",
    "data.input_dimension": "dimension of x",
    "evasion.epsilon": "largest change ε",
}
_CHOICES = {
    "selection.coordinated": {"true": "for all clients", "false": "for each client"},
    "uplink": {"same": "the same clients", "redrawn": "other clients"},
    "attack.byzantine_set": {"fixed": "always the same", "redrawn": "redrawn"},
    "evasion.norm": {"": "not at all", "2": "by ε in the 2-norm", "inf": "by ε per entry"},
}
_YES_NO = {"true": "yes", "false": "no"}
_OPEN_GROUPS = ("Sharing", "Attack", "Fleet")


@dataclasses.dataclass(frozen=True)
class Field:
    """One control of the form.

    Attributes
    ----------
    name : str
        Dotted name of the setting, as ``--set`` takes it.
    label, hint : str
        What the page calls it, and its explanation.
    type : str
        ``"number"`` (with a slider), ``"choice"``, ``"text"``, or ``"kept"`` for what comes from a file or table and
        cannot be changed here.
    value : str
        Its value as text, valid or not.
    choices : tuple of (str, str)
        Values and their labels.
    low, high, step : float
        Range and step of the slider.
    scale : str
        ``"linear"`` or ``"log"``.
    integer : bool
        Whether the slider stops at integers only.
    """

    name: str
    label: str
    hint: str
    type: str
    value: str
    choices: tuple[tuple[str, str], ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0
    scale: str = "linear"
    integer: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """A titled group of fields, open or folded at first."""

    title: str
    fields: tuple[Field, ...]
    open: bool


def form_groups(scenario: Scenario, mapping: Mapping[str, Any], limits: Limits) -> tuple[Group, ...]:
    """Return the groups of fields for one side.

    Parameters
    ----------
    scenario : Scenario
        The last valid one: it decides which parts have options and how far sliders reach.
    mapping : mapping
        The values in the fields, valid or not.
    limits : Limits
        The explorer's.
    """
    form = _Form(scenario, mapping, limits)
    groups = {
        "Sharing": form.sharing(),
        "Attack": form.attack(),
        "Fleet": form.fleet(),
        "Defence and algorithm": form.defence(),
        "Data": form.data(),
        "Network": form.network(),
        "Drift": form.drift(),
        "Adversarial inputs": form.evasion(),
    }
    made = [Group(title, tuple(fields), title in _OPEN_GROUPS) for title, fields in groups.items()]
    return tuple(group for group in made if group.fields)


def field_for_error(groups: tuple[Group, ...], name: str) -> str | None:
    """Return the name of the field that shows an error about `name`; None if there is none.

    Examples
    --------
    >>> fields = (Field("data.noise_variance.low", "", "", "number", ""), Field("drift.kind", "", "", "choice", ""))
    >>> groups = (Group("", fields, True),)
    >>> field_for_error(groups, "data.noise_variance.uniform"), field_for_error(groups, "drift")
    ('data.noise_variance.low', 'drift.kind')
    """
    names = [field.name for group in groups for field in group.fields]
    table = name.rpartition(".")[0]
    for wanted in (name, f"{name}.kind", f"{name}.low", f"{table}.low", name.partition("[")[0]):
        if wanted in names:
            return wanted
    table = table or name
    table = {"aggregation_options": "aggregation", "algorithm_options": "algorithm"}.get(table, table)
    return next((known for known in names if known in (table, f"{table}.kind", f"{table}.norm")), None)


class _Form:
    def __init__(self, scenario: Scenario, mapping: Mapping[str, Any], limits: Limits) -> None:
        self._scenario, self._mapping, self._limits = scenario, mapping, limits
        self._own_data = scenario.data.rows is not None  # which fixes the clients' number and inputs

    def sharing(self) -> Iterator[Field]:
        scenario = self._scenario
        yield self._field("num_shared", ends=(1, scenario.dimension))
        yield self._field("stepsize", ends=(1e-3, 2.0), log=True)
        yield self._kinds("learner.kind", "learner", "learner", scenario.learner)
        yield from self._options("learner", scenario.learner)
        yield self._kinds("selection.pattern", "mask pattern", "pattern", scenario.selection.pattern)
        yield from self._options("selection", scenario.selection.pattern)
        yield self._field("selection.coordinated")
        yield self._field("uplink")

    def fleet(self) -> Iterator[Field]:
        scenario, limits = self._scenario, self._limits
        if not self._own_data:
            yield self._field(
                "num_clients", ends=(1, min(max(200, scenario.num_clients), limits.num_clients))
            )
            yield self._field("dimension", ends=(1, min(max(20, scenario.dimension), limits.dimension)))
        yield self._field("num_participants", ends=(1, scenario.num_clients))
        shortest, longest = min(100, scenario.iterations), max(10_000, scenario.iterations)
        yield self._field("iterations", ends=(shortest, longest), log=True)

    def attack(self) -> Iterator[Field]:
        scenario, attack = self._scenario, self._scenario.attack
        if len(scenario.attacks) > 1:
            kinds = " and ".join(f"{group.num_byzantine} {group.kind}" for group in scenario.attacks)
            yield _kept("attack", "groups of attackers", kinds, "from the file")
            return
        yield self._kinds("attack.kind", "kind", "attack", attack, none="no attack")
        if attack is None:
            return
        if not attack.clients:
            yield self._field("attack.num_byzantine", ends=(0, scenario.num_clients))
        yield self._field("attack.clients")
        yield self._field("attack.probability")
        strength = attack.strength_field()
        for name in sorted(attack.own_options(), key=lambda name: name != strength):
            yield self._field(f"attack.{name}")
        yield self._field("attack.byzantine_set")

    def defence(self) -> Iterator[Field]:
        scenario = self._scenario
        yield self._kinds("aggregation", "aggregation rule", "aggregation", scenario.aggregation)
        yield from self._options("aggregation_options", scenario.aggregation)
        before, watch = scenario.pre_aggregation, scenario.defence
        yield self._kinds("pre_aggregation.kind", "pre-aggregation", "pre_aggregation", before, none="none")
        yield from self._options("pre_aggregation", before)
        yield self._kinds("defence.kind", "defence", "defence", watch, none="none")
        yield from self._options("defence", watch)
        yield self._kinds("algorithm", "algorithm", "algorithm", scenario.algorithm)
        yield from self._options("algorithm_options", scenario.algorithm)

    def data(self) -> Iterator[Field]:
        scenario, data = self._scenario, self._scenario.data
        if self._own_data:
            yield _kept("num_clients", "clients K", str(scenario.num_clients), "from your table")
            yield _kept("data", "inputs and noise", "measured", "in your table")
        else:
            yield from self._variance("noise_variance", "noise variance", 0.1)
            if data.covariances is None:
                yield from self._variance("input_variance", "input variance", 2.0)
                if data.stream.is_independent:
                    yield self._field("data.input_correlation", ends=(-0.95, 0.95))
            else:
                size = f"{scenario.num_clients} matrices, {scenario.dimension} by {scenario.dimension}"
                yield _kept("data.covariances", "input covariances", size, "from the file")
            yield self._field("data.target_spread", ends=(0.0, rounded_up(0.5, data.target_spread)))
            yield self._field("data.test_input_variance", ends=(0.05, 2.0))
            yield self._field("data.test_instances", ends=(1, max(200, data.test_instances)))
            yield self._field("data.fleet_seed", ends=(0, 100))
        yield self._kinds("model.kind", "model", "model", scenario.model)
        # The number of features is the dimension, which has its own slider unless there is a table.
        yield from self._options("model", scenario.model, skipped=() if self._own_data else ("features",))
        if not self._own_data:
            yield self._kinds("data.stream", "inputs over time", "stream", data.stream)
            yield from self._options("data.stream", data.stream)
            yield self._kinds("data.function", "function", "function", data.function, none="linear, y = wᵀx")
            yield from self._options("data.function", data.function)
            if not scenario.is_linear:
                yield self._field("data.input_dimension", ends=(1, 20), value=scenario.input_dimension)

    def network(self) -> Iterator[Field]:
        scenario = self._scenario
        yield self._kinds(
            "availability.kind", "availability", "availability", scenario.availability, none="always"
        )
        yield from self._options("availability", scenario.availability)
        for direction in ("up", "down"):
            table, channels = f"channel.{direction}", self._channels(direction)
            if len(channels) > 1:
                kinds = ", then ".join(channel.kind for channel in channels)
                yield _kept(table, f"channel {direction}", kinds, "several in series, from the file")
                continue
            channel = channels[0] if channels else None
            yield self._kinds(f"{table}.kind", f"channel {direction}", "channel", channel, none="perfect")
            yield from self._options(table, channel)
        yield self._kinds("delay.kind", "uploads arrive", "delay", scenario.delay, none="at once")
        yield from self._options("delay", scenario.delay)

    def _channels(self, direction: str) -> tuple[Channel, ...]:
        links = self._scenario.channel
        return () if links is None else getattr(links, direction)

    def drift(self) -> Iterator[Field]:
        if not self._own_data:
            drift = self._scenario.drift
            yield self._kinds("drift.kind", "target", "drift", drift, none="constant")
            yield from self._options("drift", drift)

    def evasion(self) -> Iterator[Field]:
        if self._own_data:
            return
        evasion = self._scenario.evasion
        hint = "inputs changed to increase the error as much as possible"
        value = "" if evasion is None else self._value("evasion", "norm", evasion.norm)
        choices = tuple(_CHOICES["evasion.norm"].items())
        yield Field("evasion.norm", "inputs are changed", hint, "choice", value_text(value), choices)
        if evasion is not None:
            yield self._field("evasion.epsilon", ends=(0.0, rounded_up(0.5, evasion.epsilon)))

    # Single fields

    def _options(self, table: str, part: Part | None, skipped: tuple[str, ...] = ()) -> Iterator[Field]:
        for name in () if part is None else part.options():
            if name not in skipped:
                yield self._field(f"{table}.{name}")

    def _variance(self, name: str, label: str, usual: float) -> Iterator[Field]:
        """Yield the two ends of a range of variances, or one text field if each client has its own."""
        about = option_of(Data.options()[name])
        ends = variance_range(self._value("data", name, getattr(self._scenario.data, name)))
        if ends is None:
            yield self._field(f"data.{name}", label=label)
            return
        for key, end, word in (("low", ends[0], "from"), ("high", ends[1], "to")):
            yield _number(
                f"data.{name}.{key}", f"{label} {word}", about.text, end, (0.0, rounded_up(usual, end))
            )

    def _field(
        self, path: str, *, label: str = "", ends: tuple[float, float] | None = None, log: bool = False,
        value: Any = None,
    ) -> Field:  # fmt: skip
        """Return the field of a setting, as its declaration says; `ends` and `log` are those of its slider."""
        table, _, key = path.rpartition(".")
        holder = self._holder(table, key)
        declared = holder.options()[key]
        about, (type_name, _) = option_of(declared), value_type(declared)
        label = label or _LABELS.get(path, key.replace("_", " "))
        value = self._value(table, key, getattr(holder, key)) if value is None else value
        words = _CHOICES.get(path, _YES_NO if type_name == "bool" else {c: c for c in about.choices})
        if words:
            return Field(path, label, about.text, "choice", value_text(value), tuple(words.items()))
        # A slider has no position for "not given".
        is_open = ends is None and getattr(holder, key) is None and declared.default is None
        # A value that may differ between clients has a slider while it is one number.
        is_number = type_name in ("int", "float") or (
            about.check is not None and isinstance(value, float | int)
        )
        if not is_number or is_open or isinstance(value, Mapping | list | tuple):
            shown = "" if value == () else value_text(value)
            return Field(path, label, about.text or describe(declared), "text", shown)
        integer = type_name == "int"
        if ends is None:
            default = declared.default if isinstance(declared.default, int | float) else getattr(holder, key)
            top = float(getattr(holder, about.high) if isinstance(about.high, str) else about.high)
            low, high, log = slider_range(about, top, default, value, integer, self._scenario)
            ends = (low, high)
        return _number(path, label, about.text, value, ends, integer=integer, log=log)

    def _kinds(self, name: str, label: str, family: str, part: Part | None, none: str = "") -> Field:
        # The family's own "none" is shown in the form's words.
        kinds = [kind for kind in part_names(family) if not (none and kind == "none")]
        choices = (("", none),) if none else ()
        hint = "" if part is None else find_part(family, part.kind).summary()
        value = "" if part is None else part.kind
        return Field(name, label, hint, "choice", value, (*choices, *((kind, kind) for kind in kinds)))

    def _holder(self, table: str, key: str) -> Any:
        """Return the value that has a setting: the scenario, one of its tables or parts."""
        scenario = self._scenario
        if table == "selection":
            return scenario.selection if key in scenario.selection.options() else scenario.selection.pattern
        if table in INNER:
            return getattr(scenario.data, table.removeprefix("data."))
        if table in CHANNEL_TABLES:
            return self._channels(table.removeprefix("channel."))[0]
        return getattr(scenario, table.removesuffix("_options")) if table else scenario

    def _value(self, table: str, key: str, default: Any) -> Any:
        """Return what was typed into a field, else the valid scenario's value."""
        outer, _, inner = table.partition(".")
        values = self._mapping.get(outer, {}) if table else self._mapping
        values = values.get(inner) if inner and isinstance(values, Mapping) else values
        if isinstance(values, Mapping) and key in values:
            return values[key]
        return {"uniform": [default.low, default.high]} if hasattr(default, "low") else default


def _number(
    name: str, label: str, hint: str, value: Any, ends: tuple[float, float], *, integer: bool = False,
    log: bool = False,
) -> Field:  # fmt: skip
    low, high = ends
    return Field(
        name, label, hint, "number", value_text(value), low=low, high=high, scale="log" if log else "linear",
        step=1 if integer else slider_step(low, high), integer=integer,
    )  # fmt: skip


def _kept(name: str, label: str, value: str, hint: str) -> Field:
    return Field(name, label, hint, "kept", value)
