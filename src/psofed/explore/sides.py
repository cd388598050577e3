"""One of the two scenarios on the page, A or B: what was typed, what is valid of it, and what is known about it."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.explore.answers import Answers, Simulation, Theory
from psofed.explore.fields import Group, field_for_error, form_groups
from psofed.explore.settings import Limits, form_mapping, make_scenario
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_MOST_MARKED = 8  # mistakes in a link that are marked one by one


@dataclass
class Side:
    """The state of one side.

    Attributes
    ----------
    draft : dict
        Values in the form, in the layout of a scenario file; they may be invalid.
    scenario : Scenario
        The last valid scenario.
    preset : str
        Name of the preset that it is, if it was not changed.
    errors : dict
        Error messages by the field that shows them.
    theory, drawn : Theory
        The answer about `scenario`, for sentences; and the same completed by older answers, for charts.
    simulation : Simulation
        The simulation of `scenario`.
    simulating : bool
        Whether more of it will come.
    theory_number, simulation_number : int
        Numbers of the newest questions.
    asked_at : float
        Time of the newest question about the theory, by the monotonic clock.
    form : tuple, optional
        The draft and the scenario that the form was last made of, and the form.
    """

    draft: dict[str, Any]
    scenario: Scenario
    preset: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    theory: Theory = field(default_factory=Theory)
    drawn: Theory = field(default_factory=Theory)
    simulation: Simulation = field(default_factory=Simulation)
    simulating: bool = False
    theory_number: int = 0
    simulation_number: int = 0
    asked_at: float = 0.0
    form: tuple[dict[str, Any], Scenario, tuple[Group, ...]] | None = None

    @property
    def own_data(self) -> bool:
        """Whether clients learn from the user's table."""
        return self.scenario.data.rows is not None

    def is_expected(self, within: float) -> bool:
        """Return whether the theory was asked less than `within` seconds ago and has no number yet."""
        is_missing = self.theory.point is None and not self.theory.finished
        return is_missing and time.monotonic() - self.asked_at < within

    def answers(self) -> Answers:
        """Return everything that charts and files show."""
        return Answers(self.scenario, self.drawn, self.simulation, self.simulating)


class SideMaker:
    """Makes sides from presets and links.

    Parameters
    ----------
    limits : Limits
        Largest fleet.
    data : OwnData, optional
        The user's table.
    """

    def __init__(self, limits: Limits, data: "OwnData | None" = None) -> None:
        self._limits, self._data = limits, data

    def make(self, mapping: dict[str, Any], own_data: bool, preset: str = "") -> Side:
        """Return a side from a valid mapping; raise :class:`PsofedError` otherwise."""
        scenario = make_scenario(mapping, self._limits, self._data if own_data else None)
        return Side(form_mapping(scenario), scenario, preset)

    def groups(self, side: Side) -> tuple[Group, ...]:
        """Return the form of a side, made once for each draft."""
        if side.form is None or side.form[0] is not side.draft or side.form[1] is not side.scenario:
            groups = form_groups(side.scenario, side.draft, self._limits)
            side.form = (side.draft, side.scenario, groups)
        return side.form[2]

    def from_link(self, mapping: dict[str, Any], own_data: bool) -> Side:
        """Return a side from a link's settings; invalid ones are marked at their fields and otherwise ignored.

        Raises
        ------
        PsofedError
            If a mistake has no field, or the scenario is invalid without it too.
        """
        side, found = self._without_mistakes(mapping, own_data)
        if side is None:
            raise found[-1]
        if found:
            side.draft = mapping
            if None in (places := self._places(side, found)):
                raise PsofedError("; ".join(map(str, found)))
            side.errors = places
        return side

    def marks(self, side: Side) -> dict[str, str]:
        """Return the mistakes in a draft, by the field that shows each."""
        places = self._places(side, self._without_mistakes(side.draft, side.own_data)[1])
        return {place: text for place, text in places.items() if place is not None}

    def _places(self, side: Side, found: list[InvalidValueError]) -> dict[Any, str]:
        """Return the mistakes by field, None for those without one; of two at one field the first."""
        groups = self.groups(side)
        return {field_for_error(groups, error.field): str(error) for error in reversed(found)}

    def _without_mistakes(
        self, mapping: dict[str, Any], own_data: bool
    ) -> tuple[Side | None, list[InvalidValueError]]:
        """Return a side without the invalid settings of a mapping, if possible, and the mistakes."""
        kept: dict[str, Any] | None = mapping
        found: list[InvalidValueError] = []
        while kept is not None and len(found) <= _MOST_MARKED:
            try:
                return self.make(kept, own_data), found
            except InvalidValueError as error:
                found.append(error)
                kept = _without(kept, error.field)
        return None, found


def with_dependents(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    """Reduce the settings that may not exceed the one that was just reduced."""
    bounded = {"dimension": ["num_shared"], "num_clients": ["num_participants", "attack.num_byzantine"]}
    top = mapping.get(name)
    if name in bounded and isinstance(top, int) and top >= 1:
        for dotted in bounded[name]:
            table, _, key = dotted.rpartition(".")
            values = mapping.get(table, {}) if table else mapping
            if isinstance(values.get(key), int) and values[key] > top:
                values[key] = top
    return mapping


def _without(mapping: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return a mapping without a setting, or without its table; None if it is required."""
    table, _, key = name.partition("[")[0].rpartition(".")
    values = mapping.get(table)
    if isinstance(values, dict) and key in values and key != "kind":
        return {**mapping, table: {other: value for other, value in values.items() if other != key}}
    top = table or key
    if mapping.get(top) is None or top in ("num_clients", "dimension"):
        return None
    return {other: value for other, value in mapping.items() if other != top}
