"""One page in one browser window: takes settings from the form, asks the workers, and shows their answers.

A slider goes this way: ``page.js`` → `Session._on_message` → `_set` (draft, scenario) → `_ask_theory` → `_ask` →
`workers.Worker.ask` → in another process `answering.run` and `theory.theory_steps` → `Session._hear` → `_take_in` →
`_show_answers`, which sends sentences and numbers. When the browser has painted them it says so, and
`painting.Painter` draws the charts.
"""

import queue
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import panel as pn

from psofed.common.errors import PsofedError
from psofed.explore import exports
from psofed.explore.answering import Question, SimulationQuestion, TheoryQuestion
from psofed.explore.answers import Answer, Answers, Simulation, Theory
from psofed.explore.canvas import ChartText
from psofed.explore.fields import field_for_error
from psofed.explore.frame import Form, Frame, plain
from psofed.explore.glossary import GLOSSARY
from psofed.explore.headline import PATIENCE, STOPPED, headline
from psofed.explore.painting import Painter
from psofed.explore.presets import Preset
from psofed.explore.settings import (
    SIDES,
    Limits,
    PageSettings,
    changed,
    form_mapping,
    from_query,
    make_scenario,
    parse_value,
    to_query,
)
from psofed.explore.sides import Side, SideMaker, with_dependents
from psofed.explore.workers import Pool, Worker
from psofed.results import METRIC_TITLES
from psofed.scenario.describe import describe_scenario

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_REDRAW = 90  # milliseconds between two drawings of curves that are still being refined


@dataclass(frozen=True)
class Explored:
    """State shared by all pages of one explorer.

    Attributes
    ----------
    pool : Pool
        Source of processes.
    presets : dict of str to Preset
        The page opens with the first.
    limits : Limits
        Largest fleet.
    origin : Origin
        Options of the command line.
    token : str
        For links.
    data : OwnData, optional
        The user's table.
    """

    pool: Pool
    presets: dict[str, Preset]
    limits: Limits
    origin: exports.Origin
    token: str
    data: "OwnData | None" = None


class Session:
    """A page, from its opening to its closing.

    Parameters
    ----------
    explored : Explored
        What all pages have in common.
    arguments : dict
        The query that the page was opened with.
    """

    def __init__(self, explored: Explored, arguments: dict[str, list[bytes]]) -> None:
        self._explored = explored
        self._maker = SideMaker(explored.limits, explored.data)
        self._metric, self._active, self._refused, self._figure = "network_mse", "A", "", ""
        self._sides: dict[str, Side] = {}
        self._count = 0
        self._is_waiting = False
        self._inbox: queue.SimpleQueue[tuple[str, int, Answer]] = queue.SimpleQueue()
        self._document: Any = pn.state.curdoc
        self._workers: dict[tuple[str, str], Worker] = {}
        self._restore(urlencode(arguments, doseq=True))
        self._painter = Painter(self._document)
        panes = [pn.pane.Bokeh(f, sizing_mode="stretch_width") for f in self._painter.charts.figures()]
        start = {
            "form": plain(self._form()),
            "errors": self._sides[self._active].errors,
            "headline": plain(headline(self._sides, self._metric, self._refused)),
            "address": self._query(),
            "words": plain(self._chart_words()),
            "glossary": GLOSSARY,
        }
        self.frame: Frame = Frame(self._on_message, charts=panes, sizing_mode="stretch_width", start=start)
        self.frame.param.watch(lambda event: self._painter.recolour(event.new), "dark")
        for side in self._sides:
            self._ask_theory(side)

    def close(self) -> None:
        """Return the processes of this page."""
        for worker in self._workers.values():
            worker.close()

    # Where settings come from

    def _restore(self, query: str) -> None:
        """Take the settings from the page's address, else from the first preset."""
        try:
            settings = from_query(query, self._explored.data is not None)
            if settings is not None:
                self._metric, self._figure = settings.metric, settings.figure
                self._sides = {
                    side: self._maker.from_link(dict(mapping), side in settings.own_data)
                    for side, mapping in settings.sides.items()
                }
                if any(side.errors for side in self._sides.values()):
                    self._refused = "Some settings of the link are invalid; they are marked in the form."
        except PsofedError as error:
            self._refused = f"The settings of the link are refused: {error}"
        presets = self._explored.presets
        if not self._sides:
            self._open(presets.get(self._figure) or next(iter(presets.values())))

    def _open(self, preset: Preset) -> None:
        """Open a preset in the active side; a figure of the paper needs both."""
        make = self._maker.make
        own_data = preset.scenario.data.rows is not None
        self._figure = preset.figure
        if preset.other is None:
            self._sides[self._active] = make(form_mapping(preset.scenario), own_data, preset.name)
        else:
            pair = zip(SIDES, (preset.scenario, preset.other), strict=True)
            self._sides = {side: make(form_mapping(scenario), False, preset.name) for side, scenario in pair}
            self._active = "A"

    def _go_to(self, query: str) -> None:
        """Return to settings that the page had before: the browser's Back and Forward."""
        for name in self._sides:
            self._stop(name)
        before, self._sides, self._figure, self._refused = self._sides, {}, "", ""
        self._restore(query)
        self._active = self._active if self._active in self._sides else "A"
        for name, restored in self._sides.items():
            restored.drawn = before[name].drawn if name in before else restored.drawn
            self._ask_theory(name)
        self._show_all()

    # Messages of the browser

    def _on_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        name = message.get("name")
        match message.get("type"):
            case "set":
                self._set(message.get("side"), name, message.get("value"))
            case "preset" if name in self._explored.presets:
                for side in self._sides:
                    self._stop(side)
                self._open(self._explored.presets[name])
                self._refused = ""
                for side in self._sides:
                    self._changed(side)
            case "address" if isinstance(name, str):
                self._go_to(name)
            case "best":
                self._use_best()
            case "metric" if name in METRIC_TITLES:
                self._metric = name
                for side in self._sides:
                    self._ask_theory(side)
                self._show_all()
            case "side" if name in self._sides:
                self._active = name
                self._show_settings()
            case "hello":  # the window listens only now; what was sent before is lost
                self.frame.forget()
                self._show_all()
            case "painted":
                self._painter.numbers_painted()
            case "compare":
                self._compare()
            case "simulate":
                self._simulate_or_stop()
            case "stop-theory" if name in self._sides:
                self._stop_theory(name)
            case "copies":
                self.frame.tell("copies", self._copies())
            case "download":
                self._download(name)

    def _set(self, side_name: Any, name: Any, value: Any) -> None:
        """Set one field of the form."""
        side = self._sides.get(side_name) if isinstance(side_name, str) else None
        if side is None or not isinstance(name, str) or not isinstance(value, str):
            return
        groups = self._maker.groups(side)
        if not any(field.name == name and field.type != "kept" for group in groups for field in group.fields):
            return
        self._refused = ""
        try:
            side.draft = with_dependents(changed(side.draft, name, parse_value(value)), name)
            if side.own_data and name == "model.kind" and value == "linear":
                side.draft.pop("dimension", None)  # follows from the table's columns
            data = self._explored.data if side.own_data else None
            scenario = make_scenario(side.draft, self._explored.limits, data)
        except PsofedError as error:
            place = field_for_error(self._maker.groups(side), getattr(error, "field", name)) or name
            side.errors = {**self._maker.marks(side), place: str(error)}
            self._show_settings()
            return
        side.errors = {}
        if scenario != side.scenario:
            side.scenario, side.preset = scenario, ""
            self._changed(side_name)
        else:
            self._show_settings()

    def _use_best(self) -> None:
        """Set the active side's stepsize to the best one."""
        best = self._sides[self._active].theory.best
        if best is not None and best.point is not None:
            self._set(self._active, "stepsize", f"{best.point.stepsize:.3g}")

    def _changed(self, name: str) -> None:
        """Ask about a side's new scenario; what was simulated belongs to the old one."""
        self._sides[name].simulation = Simulation()
        self._stop(name)
        self._ask_theory(name)
        self._show_settings()
        self._show_answers(charts=False)

    def _compare(self) -> None:
        if "B" in self._sides:
            self._stop("B")
            del self._sides["B"]
            self._active = "A"
        else:
            first = self._sides["A"]
            self._sides["B"] = Side(form_mapping(first.scenario), first.scenario, first.preset)
            self._active = "B"
            self._ask_theory("B")
        self._show_all()

    # Questions

    def _ask_theory(self, name: str) -> None:
        side = self._sides[name]
        side.theory, side.asked_at = Theory(), time.monotonic()
        side.theory_number = self._ask("theory", name, TheoryQuestion, side.scenario, self._metric)
        self._watch(name, side.theory_number, PATIENCE)

    def _watch(self, name: str, number: int, seconds: float) -> None:
        """Show from time to time how long an answer has taken."""

        def look() -> None:
            side = self._sides.get(name)
            if side is not None and side.theory_number == number and not side.theory.finished:
                self._show_answers(charts=False)
                self._watch(name, number, 1.0)

        self._document.add_timeout_callback(look, int(1000 * seconds))

    def _stop_theory(self, name: str) -> None:
        side = self._sides[name]
        if not side.theory.finished:
            side.theory_number = self._ask("theory", name, Question)
            side.theory = replace(side.theory, error=STOPPED, finished=True)
            self._show_answers(charts=False)

    def _simulate_or_stop(self) -> None:
        running = [name for name, side in self._sides.items() if side.simulating]
        for name in running or self._sides:
            (self._stop if running else self._simulate)(name)
        self._show_answers()

    def _simulate(self, name: str) -> None:
        side = self._sides[name]
        side.simulating, side.simulation = True, Simulation()
        question = (SimulationQuestion, side.scenario, side.theory.limit)
        side.simulation_number = self._ask("simulation", name, *question)

    def _stop(self, name: str) -> None:
        side = self._sides[name]
        if side.simulating:
            side.simulating = False
            side.simulation_number = self._ask("simulation", name, Question)

    def _ask(self, kind: str, name: str, question: type[Question], *about: Any) -> int:
        """Ask a side's worker for theory or for simulations, and return the question's number."""
        if (kind, name) not in self._workers:
            self._workers[kind, name] = Worker(self._explored.pool, partial(self._hear, name))
        self._count += 1
        self._workers[kind, name].ask(question(self._count, *about))
        return self._count

    # Answers

    def _hear(self, name: str, number: int, answer: Answer) -> None:
        """Take an answer from a worker's thread to the page's own loop."""
        self._inbox.put((name, number, answer))
        is_first = isinstance(answer, Theory) and answer.full is None
        at_once = is_first or answer.finished
        self._document.add_next_tick_callback(self._take_in if at_once else self._take_in_soon)

    def _take_in_soon(self) -> None:
        """Collect refinements for a moment before drawing them."""
        if not self._is_waiting:
            self._is_waiting = True
            self._document.add_timeout_callback(self._take_in, _REDRAW)

    def _take_in(self) -> None:
        self._is_waiting = False
        if self._inbox.empty():
            return
        while not self._inbox.empty():
            name, number, answer = self._inbox.get()
            side = self._sides.get(name)
            if side is None:
                continue
            if isinstance(answer, Simulation) and number == side.simulation_number:
                side.simulation, side.simulating = answer, not answer.finished
            elif isinstance(answer, Theory) and number == side.theory_number:
                side.theory, side.drawn = answer, answer.over(side.drawn)
                if answer.refusal:
                    self._simulate(name)
                    if self.frame.has_sent("copies"):  # they named `psofed predict`
                        self.frame.tell("copies", self._copies())
        self._show_answers()

    # What the browser shows

    def _show_all(self) -> None:
        self._show_settings()
        self._show_answers()

    def _show_settings(self) -> None:
        """Send the form, its errors and the address; after a setting has changed."""
        self.frame.tell("form", self._form())
        self.frame.tell("errors", self._sides[self._active].errors)
        self.frame.tell("address", self._query())

    def _show_answers(self, charts: bool = True) -> None:
        """Send sentences and numbers, and draw the charts."""
        if self.frame.tell("headline", headline(self._sides, self._metric, self._refused)):
            self._painter.numbers_sent()
        if charts:
            self._painter.draw_when_free(
                lambda: self.frame.tell("words", self._chart_words()), lambda: self._sides.values()
            )

    def _form(self) -> Form:
        active = self._sides[self._active]
        presets = tuple((preset.name, preset.title) for preset in self._explored.presets.values())
        return Form(
            self._active, tuple(self._sides), self._maker.groups(active), presets, active.preset,
            tuple(METRIC_TITLES.items()), self._metric, describe_scenario(active.scenario),
        )  # fmt: skip

    def _query(self) -> str:
        mappings = {name: form_mapping(side.scenario) for name, side in self._sides.items()}
        owned = frozenset(name for name, side in self._sides.items() if side.own_data)
        return to_query(PageSettings(mappings, owned, self._metric, self._figure))

    def _copies(self) -> exports.Copies:
        side = self._sides[self._active]
        is_predictable = not (side.theory.refusal or side.theory.error)
        about = (side.scenario, self._explored.origin, is_predictable)
        return exports.make_copies(*about, self._query(), self._explored.token)

    def _download(self, kind: Any) -> None:
        answers = self._answers()
        if kind == "csv":
            self.frame.send_file("psofed.csv", "text/csv", exports.numbers_as_csv(answers))
        elif kind == "json":
            self.frame.send_file("psofed.json", "application/json", exports.numbers_as_json(answers))

    def _chart_words(self) -> tuple[ChartText, ...]:
        """Draw the charts, and return the words around them."""
        return self._painter.charts.show(self._answers(), self._metric, self._figure)

    def _answers(self) -> dict[str, Answers]:
        return {name: side.answers() for name, side in self._sides.items()}
