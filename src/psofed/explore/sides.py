"""One of the two scenarios on the page, A or B: where it comes from, and what is known of it."""

from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.explore.fields import field_for_error, form_groups
from psofed.explore.settings import Limits, make_scenario
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData

_MOST_MARKED = 8  # settings of a link that are marked one by one


class Side:
    """One of the two scenarios: what was typed, what is valid of it, and what is known about that."""

    def __init__(self, mapping: dict[str, Any], scenario: Scenario, own_data: bool, preset: str = "") -> None:
        self.draft: dict[str, Any] = mapping
        self.scenario: Scenario = scenario
        self.own_data: bool = own_data
        self.preset: str = preset
        self.errors: dict[str, str] = {}
        self.picture: dict[str, Any] = {}  # what is drawn: may be of the scenario before
        self.fresh: dict[str, Any] = {}  # what is said: of this scenario only
        self.simulation: dict[str, Any] = {}
        self.simulating = False
        self.progress: float = 0.0
        self.theory_number = self.simulation_number = 0
        self.asked_at: float = 0.0  # of the theory, by the monotonic clock

    @property
    def waits_for_theory(self) -> bool:
        """Whether theory has something left to say."""
        return not any(self.fresh.get(key) for key in ("finished", "refusal", "error"))

    def content(self) -> dict[str, Any]:
        """Return what pictures and files are made of."""
        return {"scenario": self.scenario, "theory": self.picture, "simulation": self.simulation}


class SideMaker:
    """Makes sides from what files, presets and links say.

    Parameters
    ----------
    limits : Limits
        How large a fleet may be.
    data : OwnData, optional
        The user's table.
    """

    def __init__(self, limits: Limits, data: "OwnData | None" = None) -> None:
        self._limits, self._data = limits, data

    def make(self, mapping: dict[str, Any], own_data: bool, preset: str = "") -> Side:
        """Make a side of a valid scenario; refuse what is not one."""
        scenario = make_scenario(mapping, self._limits, self._data if own_data else None)
        return Side(scenario.to_mapping(), scenario, own_data, preset)

    def groups(self, side: Side) -> list[dict[str, Any]]:
        """Return the form of a side."""
        return form_groups(side.scenario, side.draft, self._limits, side.own_data)

    def from_link(self, mapping: dict[str, Any], own_data: bool) -> Side:
        """Make a side of what a link says; what is not allowed stays in its field, marked, and plays no part.

        Raises
        ------
        PsofedError
            If there is no field to mark, or nothing is left without it.
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
        """Return every mistake in what was typed, by the field that it is shown at."""
        places = self._places(side, self._without_mistakes(side.draft, side.own_data)[1])
        return {place: text for place, text in places.items() if place is not None}

    def _places(self, side: Side, found: list[InvalidValueError]) -> dict[Any, str]:
        """Return the mistakes by their fields, None for those without one; of two at one field the first."""
        groups = self.groups(side)
        return {field_for_error(groups, error.field): str(error) for error in reversed(found)}

    def _without_mistakes(
        self, mapping: dict[str, Any], own_data: bool
    ) -> tuple[Side | None, list[InvalidValueError]]:
        """Make a side of what is allowed in a mapping, None if that is nothing; also return the mistakes."""
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
    """Make smaller what cannot be more than what was just made smaller."""
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
    """Leave a field out of a scenario's mapping, or the table that it is in; None if it cannot be left out."""
    table, _, key = name.partition("[")[0].rpartition(".")
    values = mapping.get(table)
    if isinstance(values, dict) and key in values and key != "kind":
        return {**mapping, table: {other: value for other, value in values.items() if other != key}}
    top = table or key
    if mapping.get(top) is None or top in ("num_clients", "dimension"):
        return None
    return {other: value for other, value in mapping.items() if other != top}
