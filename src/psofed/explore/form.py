"""The form: every setting of a scenario with its range, choices and explanation, as plain values.

Groups, labels, types, ranges, choices and explanations come from the settings' own declarations
(:func:`psofed.option`), also those of a plugin's parts, so a new setting appears here by itself. This module only
decides what does not apply to a scenario, what is fixed by the user's file, and where sliders end.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeGuard

from psofed.common.options import Option, describe, option_of, value_type
from psofed.common.per_client import Uniform
from psofed.common.settings import Settings
from psofed.common.toml import toml_value
from psofed.explore.drafts import Limits
from psofed.parts.part import Part
from psofed.parts.registry import part_names
from psofed.scenario import Scenario
from psofed.scenario.accepted import PartCheck, TableCheck
from psofed.scenario.mapping import CHANNEL_TABLES, KIND_TABLES, OPTIONAL

ESSENTIALS = "Essentials"
_END = 1e300  # larger values can be typed; a slider with such a range would overflow


@dataclasses.dataclass(frozen=True)
class Slider:
    """Range and step of a slider; a logarithmic one has no step."""

    low: float
    high: float
    step: float
    is_log: bool = False


@dataclasses.dataclass(frozen=True)
class Field:
    """One control of the form.

    Attributes
    ----------
    name : str
        Dotted name of the setting, as ``--set`` takes it.
    label, hint : str
        What the page calls it, and its explanation.
    value : str
        Its value as text, valid or not.
    choices : tuple of (str, str)
        Values and their labels, if there is nothing else to choose.
    slider : Slider, optional
        For a number.
    is_fixed : bool
        Whether the value comes from the user's file or table and cannot be changed here.
    """

    name: str
    label: str
    hint: str
    value: str
    choices: tuple[tuple[str, str], ...] = ()
    slider: Slider | None = None
    is_fixed: bool = False


def form_groups(scenario: Scenario, mapping: Mapping[str, Any], limits: Limits) -> dict[str, list[Field]]:
    """Return the groups of fields: the essentials, then all fields by the heading that their settings declare.

    Parameters
    ----------
    scenario : Scenario
        The last valid one: it decides which parts have options and how far sliders reach.
    mapping : mapping
        The values in the fields, valid or not.
    limits : mapping of str to int
        The explorer's, by field.
    """
    form = _Form(scenario, mapping, limits)
    groups: dict[str, list[Field]] = {ESSENTIALS: []}
    for name, declared in Scenario.options().items():
        groups.setdefault(option_of(declared).group, []).extend(form.fields(scenario, name))
    names = _essentials(scenario)
    every = {field.name: field for fields in groups.values() for field in fields}
    groups[ESSENTIALS] = [every[name] for name in names if name in every]
    return groups


def _essentials(scenario: Scenario) -> list[str]:
    """Return who attacks, how often and how strongly, and what is shared."""
    attack, names = scenario.attack, ["num_shared", "stepsize", "aggregation"]
    if len(scenario.attacks) > 1:
        return ["attack", *names]
    if attack is None:
        return ["attack.kind", *names]
    who = "clients" if attack.clients else "num_byzantine"
    return [f"attack.{name}" for name in ("kind", who, "probability", attack.strength_field())] + names


class _Form:
    def __init__(self, scenario: Scenario, mapping: Mapping[str, Any], limits: Limits) -> None:
        self._scenario, self._mapping, self._limits = scenario, mapping, limits

    def fields(self, holder: Settings, path: str) -> Iterator[Field]:
        """Yield the fields of one setting of `holder`: one, or those of the table or part that it holds."""
        key = path.rpartition(".")[2]
        about, value = option_of(holder.options()[key]), getattr(holder, key)
        if path in self._fixed:
            yield self._fixed[path]
        elif path in self._inapplicable:
            return
        elif isinstance(about.check, TableCheck):
            table = about.check.kind() if value is None else value
            for name in table.options():
                yield from self.fields(table, f"{path}.{name}")
        elif isinstance(about.check, PartCheck):
            yield from self._part(path, about, value)
        else:
            yield self._field(holder, path)

    @cached_property
    def _inapplicable(self) -> set[str]:
        """Settings that mean nothing in this scenario, or are another one in disguise."""
        scenario, data = self._scenario, self._scenario.data
        inapplicable = {
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
        return {path for path, is_true in inapplicable.items() if is_true} | set(by_table)

    @cached_property
    def _fixed(self) -> dict[str, Field]:
        """Settings that come from the user's file or table, and cannot be changed here."""
        scenario = self._scenario
        size = f"{scenario.num_clients} matrices, {scenario.dimension} by {scenario.dimension}"
        kinds = " and ".join(f"{group.num_byzantine} {group.kind}" for group in scenario.attacks)
        fixed = {}
        if len(scenario.attacks) > 1:
            fixed["attack"] = ("groups of attackers", kinds, "from the file")
        if scenario.data.rows is not None:
            fixed["num_clients"] = ("clients K", str(scenario.num_clients), "from your table")
            fixed["data"] = ("inputs and noise", "measured", "in your table")
        elif scenario.data.covariances is not None:
            fixed["data.covariances"] = ("input covariances", size, "from the file")
        for table in CHANNEL_TABLES:
            series = getattr(scenario.channel, table.removeprefix("channel."), ())
            if len(series) > 1:
                kinds = ", then ".join(channel.kind for channel in series)
                fixed[table] = (table.replace(".", " "), kinds, "several in series, from the file")
        return {path: Field(path, label, hint, value, is_fixed=True) for path, (label, value, hint) in fixed.items()}

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
        yield Field(f"{path}.kind" if has_table else path, _label(path, about), hint, kind, choices)
        if part is not None:
            for name in part.options():
                yield from self.fields(part, f"{path if has_table else part.table}.{name}")

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
            return Field(path, label, about.text, value_text(value), pairs)
        # A slider has no position for "not given".
        is_open = given is None and declared.default is None and about.slider is None
        # A value that may differ between clients has a slider while it is one number.
        is_number = type_name in ("int", "float") or (about.check is not None and isinstance(value, float | int))
        if not is_number or is_open or isinstance(value, Mapping | list | tuple):
            shown = "" if value == () else value_text(value)
            return Field(path, label, about.text or describe(declared), shown)
        slider = self._slider(holder, path, value, type_name == "int")
        return Field(path, label, about.text, value_text(value), slider=slider)

    def _slider(self, holder: Settings, path: str, value: Any, is_integer: bool) -> Slider:
        """Return the range of a slider: the declared one, or four times the setting's value where it has no end."""
        declared = holder.options()[path.rpartition(".")[2]]
        about, default = option_of(declared), declared.default
        size = min(max((abs(x) for x in (default, value) if _is_finite(x)), default=1.0) or 1.0, _END / 4)
        low, high = about.slider or (
            about.low,
            getattr(holder, about.high) if isinstance(about.high, str) else about.high,
        )
        if path == "attack.num_byzantine":
            low, high = 0.0, float(self._scenario.num_clients)
        low, high = low if math.isfinite(low) else -4 * size, high if math.isfinite(high) else 4 * size
        if about.slider is None:  # open ends themselves are refused
            margin = 0.01 * (high - low)
            low, high = low + margin * about.open_low, high - margin * about.open_high
        elif _is_finite(value):
            low, high = min(low, max(value, about.low)), max(high, min(value, _END))
        high = max(min(high, self._limits.get(path, high)), low + (1.0 if is_integer else 1e-12))
        return Slider(low, high, 1.0 if is_integer else _step(low, high), about.log)

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


def value_text(value: Any) -> str:
    """Return a value as the form shows it and as it can be typed.

    Examples
    --------
    >>> value_text(0.25), value_text(True), value_text([3, 7]), value_text("mean")
    ('0.25', 'true', '[3, 7]', 'mean')
    """
    return "" if value is None else value if isinstance(value, str) else toml_value(value)


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _step(low: float, high: float) -> float:
    """Return a step of about a two-hundredth of the range, a round number."""
    rough = (high - low) / 200
    power = 10.0 ** math.floor(math.log10(rough))
    return float(f"{power * max(step for step in (1, 2, 5) if step * power <= rough * 1.0001):.3g}")
