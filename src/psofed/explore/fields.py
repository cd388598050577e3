"""What the form shows: every field of a scenario with its range, its choices and its words, as plain values.

Kinds of parts and their options come from the registry and from the parts' own fields, so a plugin's attack has its
sliders like any other.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from psofed.common.options import describe, option_of, value_type
from psofed.explore.settings import Limits, variance_range
from psofed.explore.sliders import rounded_up, slider_range, slider_step, value_text
from psofed.parts.registry import find_part, part_names
from psofed.scenario import Data, Scenario
from psofed.scenario.scenario import UPLINKS

Field = dict[str, Any]


def form_groups(
    scenario: Scenario, mapping: Mapping[str, Any], limits: Limits, own_data: bool = False
) -> list[dict[str, Any]]:
    """Return the groups of fields for one side.

    Parameters
    ----------
    scenario : Scenario
        The last valid one: which kinds of parts there are, and how far sliders go.
    mapping : mapping
        What the fields hold, valid or not.
    limits : Limits
        The explorer's.
    own_data : bool
        Whether clients learn from the user's table, which fixes their number and their inputs.

    Returns
    -------
    list of dict
        Each with ``title`` and ``fields``; a field has ``name`` (as ``--set`` takes it), ``label``, ``hint``, ``type``
        (``"number"``, ``"choice"`` or ``"text"``; ``"kept"`` for what comes from the file or the table and has no
        control), ``value`` as text, and a slider's ``low``, ``high``, ``step`` and ``scale``.
    """
    form = _Form(scenario, mapping, limits, own_data)
    groups = {
        "Sharing": form.sharing(),
        "Attack": form.attack(),
        "Fleet": form.fleet(),
        "Defence and algorithm": form.defence(),
        "Data": form.data(),
        "Drift": form.drift(),
        "Moved inputs": form.evasion(),
    }
    shown = {title: list(fields) for title, fields in groups.items()}
    return [{"title": title, "fields": fields} for title, fields in shown.items() if fields]


def field_for_error(groups: list[dict[str, Any]], name: str) -> str | None:
    """Return the name of the field at which an error about `name` is shown; None if there is no such field.

    Examples
    --------
    >>> groups = [{"title": "", "fields": [{"name": "data.noise_variance.low"}, {"name": "drift.kind"}]}]
    >>> field_for_error(groups, "data.noise_variance.uniform"), field_for_error(groups, "drift")
    ('data.noise_variance.low', 'drift.kind')
    """
    names = [field["name"] for group in groups for field in group["fields"]]
    for wanted in (
        name,
        f"{name}.kind",
        f"{name}.low",
        f"{name.rpartition('.')[0]}.low",
        name.partition("[")[0],
    ):
        if wanted in names:
            return wanted
    table = name.rpartition(".")[0] or name
    table = {"aggregation_options": "aggregation", "algorithm_options": "algorithm"}.get(table, table)
    return next((known for known in names if known in (table, f"{table}.kind", f"{table}.norm")), None)


class _Form:
    def __init__(
        self, scenario: Scenario, mapping: Mapping[str, Any], limits: Limits, own_data: bool
    ) -> None:
        self._scenario, self._mapping, self._limits, self._own_data = scenario, mapping, limits, own_data

    def sharing(self) -> Iterator[Field]:
        scenario = self._scenario
        yield self._number("num_shared", "shared entries M", 1, scenario.dimension, integer=True,
                           hint="entries a participant exchanges each way")  # fmt: skip
        yield self._number("stepsize", "stepsize μ", 1e-3, 2.0, log=True, hint="of the clients' LMS steps")
        yield self._kinds("selection.pattern", "masks", "pattern", scenario.selection.pattern)
        yield from self._options("selection", scenario.selection.pattern)
        yield self._choice("selection.coordinated", "one mask",
                           [("true", "for all clients"), ("false", "for each client")])  # fmt: skip
        words = {"same": "who downloaded", "redrawn": "drawn anew"}
        yield self._choice("uplink", "who uploads", [(name, words.get(name, name)) for name in UPLINKS])

    def fleet(self) -> Iterator[Field]:
        scenario, limits = self._scenario, self._limits
        if not self._own_data:
            yield self._number("num_clients", "clients K", 1, min(max(200, scenario.num_clients), limits.num_clients),
                               integer=True)  # fmt: skip
            yield self._number("dimension", "entries D", 1, min(max(20, scenario.dimension), limits.dimension),
                               integer=True, hint="of the model")  # fmt: skip
        yield self._number("num_participants", "participants", 1, scenario.num_clients, integer=True,
                           hint="clients that the server talks to in each iteration")  # fmt: skip
        most = max(10_000, scenario.iterations)
        yield self._number(
            "iterations", "iterations", min(100, scenario.iterations), most, integer=True, log=True
        )

    def attack(self) -> Iterator[Field]:
        scenario, attack = self._scenario, self._scenario.attack
        yield self._kinds("attack.kind", "kind", "attack", attack, none="no attack")
        if attack is None:
            return
        if not attack.clients:
            yield self._number("attack.num_byzantine", "liars", 0, scenario.num_clients, integer=True,
                               hint="how many clients are Byzantine")  # fmt: skip
        which = "liars" if attack.clients else "or which ones"
        yield self._text("attack.clients", which, "numbers of clients, [3, 7], or names in your data",
                         value=self._value("attack", "clients") or "")  # fmt: skip
        yield self._number(
            "attack.probability", "how often", 0.0, 1.0, hint="probability of an attack, each time"
        )
        strength = attack.strength_field()
        own = attack.own_options()
        for name in sorted(own, key=lambda name: name != strength):
            yield self._option("attack", name, own[name], attack)
        words = {"fixed": "always the same", "redrawn": "drawn anew"}
        choices = option_of(attack.options()["byzantine_set"]).choices
        yield self._choice(
            "attack.byzantine_set", "who lies", [(name, words.get(name, name)) for name in choices]
        )

    def defence(self) -> Iterator[Field]:
        scenario = self._scenario
        yield self._kinds("aggregation", "rule", "aggregation", scenario.aggregation)
        yield from self._options("aggregation_options", scenario.aggregation)
        before = scenario.pre_aggregation
        yield self._kinds(
            "pre_aggregation.kind", "before the rule", "pre_aggregation", before, none="nothing"
        )
        if before is not None:
            yield from self._options("pre_aggregation", before)
        watch = scenario.defence
        yield self._kinds("defence.kind", "watching clients", "defence", watch, none="nobody is watched")
        if watch is not None:
            yield from self._options("defence", watch)
        yield self._kinds("algorithm", "algorithm", "algorithm", scenario.algorithm)
        yield from self._options("algorithm_options", scenario.algorithm)

    def data(self) -> Iterator[Field]:
        scenario, data = self._scenario, self._scenario.data
        if self._own_data:
            yield _kept("num_clients", "clients K", str(scenario.num_clients), "those in your table")
            yield _kept("data", "inputs and noise", "measured", "in your table")
        else:
            for name, label, high in (("noise_variance", "noise", 0.1), ("input_variance", "inputs", 2.0)):
                value = self._value("data", name)
                ends = variance_range(value)
                if name == "input_variance" and data.covariances is not None:
                    continue
                if ends is None:
                    yield self._text(f"data.{name}", f"{label}: variance", "one number for each client")
                    continue
                for key, at, word in (("low", ends[0], "from"), ("high", ends[1], "to")):
                    yield self._number(f"data.{name}.{key}", f"{label}: variance {word}", 0.0, rounded_up(high, at),
                                       value=at, hint="clients' variances are drawn from this range")  # fmt: skip
            if data.covariances is not None:
                size = f"{scenario.num_clients} matrices, {scenario.dimension} by {scenario.dimension}"
                yield _kept("data.covariances", "inputs: covariances", size, "kept from the file")
            else:
                yield self._number("data.input_correlation", "inputs: correlation ρ", -0.95, 0.95,
                                   hint="of neighbouring inputs")  # fmt: skip
            spread = rounded_up(0.5, data.target_spread)
            yield self._number("data.target_spread", "targets: spread", 0.0, spread,
                               hint="variance of clients' own targets around the common one")  # fmt: skip
            yield self._number("data.test_input_variance", "test inputs: variance", 0.05, 2.0)
            yield self._number("data.test_instances", "test set: size", 1, max(200, data.test_instances), integer=True,
                               hint="instances in the server's test set, for simulation")  # fmt: skip
            yield self._number("data.fleet_seed", "draw of the fleet", 0, 100, integer=True, hint="seed")
        yield self._kinds("model.kind", "model", "model", scenario.model)
        # The features' number is the dimension, which has its slider where there is no table.
        yield from self._options("model", scenario.model, skipped=() if self._own_data else ("features",))
        if not self._own_data:
            yield self._kinds("data.function", "function", "function", data.function, none="linear, y = wᵀx")
            if data.function is not None:
                yield from self._options("data.function", data.function)
            if not scenario.is_linear:
                yield self._number("data.input_dimension", "entries of x", 1, 20, integer=True,
                                   value=scenario.input_dimension)  # fmt: skip

    def drift(self) -> Iterator[Field]:
        if self._own_data:
            return
        drift = self._scenario.drift
        yield self._kinds("drift.kind", "the target", "drift", drift, none="stays where it is")
        if drift is not None:
            yield from self._options("drift", drift)

    def evasion(self) -> Iterator[Field]:
        if self._own_data:
            return
        evasion = self._scenario.evasion
        norms = [("", "not measured"), ("2", "by ε in the 2-norm"), ("inf", "each entry by ε")]
        value = "" if evasion is None else self._value("evasion", "norm")
        yield self._choice("evasion.norm", "inputs moved to hurt", norms, value=value)
        if evasion is not None:
            yield self._number("evasion.epsilon", "ε", 0.0, rounded_up(0.5, evasion.epsilon),
                               hint="how far an input is moved when the model is used")  # fmt: skip

    # One field

    def _options(self, table: str, part: Any, skipped: tuple[str, ...] = ()) -> Iterator[Field]:
        for name, about in part.options().items():
            if name not in skipped:
                yield self._option(table, name, about, part)

    def _option(self, table: str, name: str, about: "dataclasses.Field[Any]", part: Any) -> Field:
        option, (type_name, _) = option_of(about), value_type(about)
        path, label = f"{table}.{name}", name.replace("_", " ")
        value = self._value(table, name, getattr(part, name))
        if option.choices:
            return self._choice(
                path, label, [(choice, choice) for choice in option.choices], option.text, value
            )
        if type_name == "bool":
            return self._choice(path, label, [("true", "yes"), ("false", "no")], option.text, value)
        # A slider has no place for "not given".
        if type_name not in ("int", "float") or (getattr(part, name) is None and about.default is None):
            return self._text(path, label, option.text or describe(about), value)
        default = about.default if isinstance(about.default, int | float) else getattr(part, name)
        low, high, log = slider_range(option, default, value, type_name == "int", self._scenario)
        return self._number(
            path, label, low, high, integer=type_name == "int", log=log, hint=option.text, value=value
        )

    def _kinds(self, name: str, label: str, family: str, part: Any, none: str = "") -> Field:
        # What a family calls "none" is what the form says in its own words.
        kinds = [kind for kind in part_names(family) if not (none and kind == "none")]
        choices = [("", none)] if none else []
        choices += [(kind, kind) for kind in kinds]
        value = "" if part is None else part.kind
        hint = "" if part is None else find_part(family, part.kind).summary()
        return self._choice(name, label, choices, hint, value)

    def _choice(
        self, name: str, label: str, choices: list[tuple[str, str]], hint: str = "", value: Any = None
    ) -> Field:
        if value is None:
            table, _, key = name.rpartition(".")
            value = self._value(table, key)
        return {"name": name, "label": label, "hint": hint, "type": "choice", "value": value_text(value),
                "choices": [list(choice) for choice in choices]}  # fmt: skip

    def _text(self, name: str, label: str, hint: str = "", value: Any = None) -> Field:
        if value is None:
            table, _, key = name.rpartition(".")
            value = self._value(table, key)
        return {"name": name, "label": label, "hint": hint, "type": "text", "value": value_text(value)}

    def _number(
        self, name: str, label: str, low: float, high: float, *, integer: bool = False, log: bool = False,
        hint: str = "", value: Any = None,
    ) -> Field:  # fmt: skip
        if value is None:
            table, _, key = name.rpartition(".")
            value = self._value(table, key)
        step = 1 if integer else slider_step(low, high)
        return {"name": name, "label": label, "hint": hint, "type": "number", "value": value_text(value), "low": low,
                "high": high, "step": step, "scale": "log" if log else "linear", "integer": integer}  # fmt: skip

    def _value(self, table: str, key: str, default: Any = None) -> Any:
        """Return what a field holds: what was typed, else the valid scenario's own value."""
        values = self._mapping.get(table, {}) if table else self._mapping
        if isinstance(values, Mapping) and key in values:
            return values[key]
        if default is not None:
            return default
        scenario: Any = self._scenario
        holder = getattr(scenario, table) if table else scenario
        value: Any = getattr(holder, key, None)
        if table == "data" and value is None:
            value = getattr(Data(), key, None)
        return {"uniform": [value.low, value.high]} if hasattr(value, "low") else value


def _kept(name: str, label: str, value: str, hint: str) -> Field:
    return {"name": name, "label": label, "hint": hint, "type": "kept", "value": value}
