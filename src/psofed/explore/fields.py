"""The form: every setting of a scenario with its range, choices and explanation, as plain values.

Groups, labels, types, ranges, choices and explanations come from the settings' own declarations
(:func:`psofed.option`), also those of a plugin's parts, so a new setting appears here by itself. This module only
decides what does not apply to a scenario, and what is kept from the user's file.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from psofed.common.options import Option, describe, option_of, value_type
from psofed.common.per_client import Uniform
from psofed.common.settings import Settings
from psofed.explore.glossary import GLOSSARY
from psofed.explore.settings import Limits, variance_range
from psofed.explore.sliders import rounded_up, slider_range, slider_step, value_text
from psofed.parts.part import Part
from psofed.parts.registry import part_names
from psofed.scenario import Scenario
from psofed.scenario.accepted import PartCheck, TableCheck
from psofed.scenario.mapping import CHANNEL_TABLES, KIND_TABLES, NAMED, OPTIONAL

_GROUPS = (
    "Sharing", "Attack", "Fleet", "Defence and algorithm", "Data", "Network", "Drift", "Adversarial inputs"
)  # fmt: skip
_OPEN_GROUPS = _GROUPS[:3]
# Fields that the glossary explains
_WORDS = {
    "stepsize": "Stepsize (learning rate)",
    "num_shared": "Dimension D, shared parameters M",
    "num_participants": "Participants",
    "attack.num_byzantine": "Byzantine client",
}
# Fields of the simple level, besides the attack's strength: how many attack, how often, how much is shared.
_SIMPLE = ("num_shared", "stepsize", "attack.num_byzantine", "attack.probability")


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
    simple : bool
        Whether the form's simple level shows it too.
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
    simple: bool = False


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
    groups: dict[str, list[Field]] = {title: [] for title in _GROUPS}
    for name, declared in Scenario.options().items():
        groups[option_of(declared).group] += map(form.graded, form.setting(scenario, name))
    return tuple(
        Group(title, tuple(fields), title in _OPEN_GROUPS) for title, fields in groups.items() if fields
    )


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
    table = next((part for part, options in NAMED.items() if options == table), table)
    return next((known for known in names if known in (table, f"{table}.kind", f"{table}.norm")), None)


class _Form:
    def __init__(self, scenario: Scenario, mapping: Mapping[str, Any], limits: Limits) -> None:
        self._scenario, self._mapping, self._limits = scenario, mapping, limits

    def graded(self, field: Field) -> Field:
        """Return a field with its level, and with the glossary's explanation where there is one."""
        attack, name = self._scenario.attack, field.name
        field = dataclasses.replace(field, hint=GLOSSARY.get(_WORDS.get(name, ""), field.hint))
        if attack is None:
            is_simple = name == "attack.kind"  # without it there would be no Byzantine clients to set
        elif name == f"attack.{attack.strength_field()}" and name not in _SIMPLE:
            return dataclasses.replace(field, simple=True, label=f"attack strength ({field.label})")
        else:
            is_simple = name == ("attack.clients" if attack.clients else "attack")
        return dataclasses.replace(field, simple=is_simple or name in _SIMPLE)

    def setting(self, holder: Settings, path: str) -> Iterator[Field]:
        """Yield the fields of one setting of `holder`: one, or those of the table or part that it holds."""
        key = path.rpartition(".")[2]
        about, value = option_of(holder.options()[key]), getattr(holder, key)
        if path in self._kept:
            yield self._kept[path]
        elif path in self._inapplicable:
            return
        elif isinstance(about.check, TableCheck):
            table = about.check.kind() if value is None else value
            for name in table.options():
                yield from self.setting(table, f"{path}.{name}")
        elif isinstance(about.check, PartCheck):
            yield from self._part(path, about, value)
        elif isinstance(holder.options()[key].default, Uniform):
            yield from self._variance(holder, path)
        else:
            yield self._field(holder, path)

    @cached_property
    def _inapplicable(self) -> set[str]:
        """Settings that mean nothing in this scenario, or are another one in disguise."""
        scenario, data = self._scenario, self._scenario.data
        found = {
            "attack.num_byzantine": scenario.attack is not None and scenario.attack.clients,
            "data.covariances": True,
            "data.input_variance": data.covariances is not None,
            "data.input_correlation": data.covariances is not None or not data.stream.is_independent,
            "data.input_dimension": scenario.is_linear,
            "data.rows": True,
            "model.features": data.rows is None,  # it is the dimension, which has its own slider
        }
        # Fixed by the user's table, or meaningless with one.
        by_table = ("num_clients", "dimension", "data", "drift") if data.rows is not None else ()
        return {path for path, is_found in found.items() if is_found} | set(by_table)

    @cached_property
    def _kept(self) -> dict[str, Field]:
        """Fields of settings that come from the user's file or table, and cannot be changed here."""
        scenario = self._scenario
        size = f"{scenario.num_clients} matrices, {scenario.dimension} by {scenario.dimension}"
        kinds = " and ".join(f"{group.num_byzantine} {group.kind}" for group in scenario.attacks)
        kept = {}
        if len(scenario.attacks) > 1:
            kept["attack"] = ("groups of attackers", kinds, "from the file")
        if scenario.data.rows is not None:
            kept["num_clients"] = ("clients K", str(scenario.num_clients), "from your table")
            kept["data"] = ("inputs and noise", "measured", "in your table")
        elif scenario.data.covariances is not None:
            kept["data.covariances"] = ("input covariances", size, "from the file")
        for table in CHANNEL_TABLES:
            series = getattr(scenario.channel, table.removeprefix("channel."), ())
            if len(series) > 1:
                kinds = ", then ".join(channel.kind for channel in series)
                kept[table] = (table.replace(".", " "), kinds, "several in series, from the file")
        return {path: Field(path, label, hint, "kept", value) for path, (label, value, hint) in kept.items()}

    def _part(self, path: str, about: Option, value: Any) -> Iterator[Field]:
        """Yield a part's kind and its options."""
        assert isinstance(about.check, PartCheck)
        family = about.check.family
        part: Part | None = (value[0] if value else None) if isinstance(value, tuple) else value
        has_table = path in (*KIND_TABLES, *CHANNEL_TABLES)
        # The family's own "none" is shown in the form's words.
        is_optional = path in OPTIONAL
        kinds = [kind for kind in part_names(family) if not (is_optional and kind == "none")]
        choices = ((("", about.absent),) if is_optional else ()) + tuple((kind, kind) for kind in kinds)
        kind, hint = ("", "") if part is None else (part.kind, part.summary())
        yield Field(f"{path}.kind" if has_table else path, _label(path, about), hint, "choice", kind, choices)
        if part is not None:
            for name in part.options():
                yield from self.setting(part, f"{path if has_table else part.table}.{name}")

    def _variance(self, holder: Settings, path: str) -> Iterator[Field]:
        """Yield the two ends of a range of variances, or one text field if each client has its own."""
        key = path.rpartition(".")[2]
        about = option_of(holder.options()[key])
        ends = variance_range(self._value(path, getattr(holder, key)))
        if ends is None:
            yield self._field(holder, path)
            return
        for name, end, word in (("low", ends[0], "from"), ("high", ends[1], "to")):
            range_ = _usual_range(about, end)
            yield _number(f"{path}.{name}", f"{_label(path, about)} {word}", about.text, end, range_)

    def _field(self, holder: Settings, path: str) -> Field:
        """Return the field of a plain setting, as its declaration says."""
        key = path.rpartition(".")[2]
        declared, given = holder.options()[key], getattr(holder, key)
        about, (type_name, _) = option_of(declared), value_type(declared)
        label = _label(path, about)
        value = self._value(path, self._scenario.input_dimension if path == "data.input_dimension" else given)
        if about.choices or type_name == "bool":
            choices = about.choices or ("true", "false")
            words = about.words or (("yes", "no") if type_name == "bool" else choices)
            pairs = tuple(zip(choices, words, strict=True))
            return Field(path, label, about.text, "choice", value_text(value), pairs)
        # A slider has no position for "not given".
        is_open = given is None and declared.default is None and about.slider is None
        # A value that may differ between clients has a slider while it is one number.
        is_number = type_name in ("int", "float") or (
            about.check is not None and isinstance(value, float | int)
        )
        if not is_number or is_open or isinstance(value, Mapping | list | tuple):
            shown = "" if value == () else value_text(value)
            return Field(path, label, about.text or describe(declared), "text", shown)
        integer = type_name == "int"
        if path == "attack.num_byzantine":
            ends, log = (0.0, float(self._scenario.num_clients)), False
        elif about.slider is not None:
            low, high = _usual_range(about, value)
            ends, log = (low, min(high, getattr(self._limits, path, high))), about.log
        else:
            default = declared.default if isinstance(declared.default, int | float) else given
            top = float(getattr(holder, about.high) if isinstance(about.high, str) else about.high)
            low, high, log = slider_range(about, top, default, value, integer, self._scenario)
            ends = (low, high)
        return _number(path, label, about.text, value, ends, integer=integer, log=log)

    def _value(self, path: str, default: Any) -> Any:
        """Return what was typed into a field, else the valid scenario's value."""
        *tables, key = path.split(".")
        values: Any = self._mapping
        for table in tables:
            values = values.get(table) if isinstance(values, Mapping) else None
        if isinstance(values, Mapping) and key in values:
            return values[key]
        return {"uniform": [default.low, default.high]} if isinstance(default, Uniform) else default


def _label(path: str, about: Option) -> str:
    return about.label or path.rpartition(".")[2].replace("_", " ")


def _usual_range(about: Option, value: Any) -> tuple[float, float]:
    """Return the usual ends of a slider, or ends that include the value."""
    assert about.slider is not None
    low, high = about.slider
    is_lower = isinstance(value, int | float) and math.isfinite(value) and about.low <= value < low
    return float(value) if is_lower else low, rounded_up(high, value)


def _number(
    name: str, label: str, hint: str, value: Any, ends: tuple[float, float], *, integer: bool = False,
    log: bool = False,
) -> Field:  # fmt: skip
    low, high = ends
    return Field(
        name, label, hint, "number", value_text(value), low=low, high=high, scale="log" if log else "linear",
        step=1 if integer else slider_step(low, high), integer=integer,
    )  # fmt: skip
