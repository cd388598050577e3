"""One page in one browser window: takes settings from the form, asks the workers, and shows their answers.

A slider goes this way: `controls.Control` → `Session._set` (draft, scenario) → `_ask_theory` → `workers.Worker.ask` →
in another process `theory.theory_steps` → `Session._hear` → `_take_in` → `_show` (sentence, table and chart).
"""

import contextlib
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import panel as pn

from psofed.common.errors import PsofedError
from psofed.explore import exports
from psofed.explore.answers import Answer, PageState, Simulation, Theory, note, sentence, table
from psofed.explore.drafts import (
    Limits,
    changed,
    form_mapping,
    from_address,
    make_scenario,
    parse_value,
    to_address,
    with_dependents,
)
from psofed.explore.form import ESSENTIALS, form_groups
from psofed.explore.view import Control, View, shape_of
from psofed.explore.workers import Question, Worker
from psofed.results.metrics import LABELS
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData


@dataclass(frozen=True)
class Explored:
    """State shared by all pages of one explorer.

    Attributes
    ----------
    presets : dict of str to Scenario
        By title; the page opens with the first.
    limits : mapping of str to int
        Largest fleet, by field.
    plugins : tuple of str
        The user's modules, for commands that do the same.
    data : OwnData, optional
        The user's table.
    """

    presets: dict[str, Scenario]
    limits: Limits
    plugins: tuple[str, ...] = ()
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
        self._state: PageState = PageState({}, next(iter(explored.presets.values())))
        self._metric, self._refused = "network_mse", ""
        self._count = 0
        self._is_filling = False
        self._document: Any = pn.state.curdoc
        self._workers = {simulated: Worker(explored.data, self._hear) for simulated in (False, True)}
        self._controls: dict[tuple[Any, ...], Control] = {}
        files: dict[str, Callable[[], str]] = {
            "scenario.toml": lambda: self._state.scenario.to_toml(),
            "numbers.csv": lambda: exports.numbers_as_csv(self._state),
        }
        self.view: View = View(explored.presets, files)
        self._connect()
        self._open(self._scenario_of(urlencode(arguments, doseq=True)) or next(iter(explored.presets.values())))
        pn.state.onload(self._show_again)

    def close(self) -> None:
        """End the processes of this page."""
        for worker in self._workers.values():
            worker.close()

    def _connect(self) -> None:
        """Have the widgets call what they are for."""
        view = self.view
        view.simulate.on_click(lambda _: self._simulate_or_stop())
        view.best.on_click(lambda _: self._use_best())
        menus: dict[Any, Callable[[Any], None]] = {
            view.preset: self._choose_preset,
            view.metric: self._choose_metric,
            view.group: lambda _: self._show_form(),
            view.axis: self._choose_axis,
        }
        for menu, choose in menus.items():
            menu.param.watch(lambda event, choose=choose: None if self._is_filling else choose(event.new), "value")

    # Where settings come from

    def _scenario_of(self, query: str) -> Scenario | None:
        """Return the scenario in the page's address, if there is one."""
        try:
            mapping, self._metric = from_address(query)
            return None if mapping is None else self._make(mapping)
        except PsofedError as error:
            self._refused = f"The settings in the address are refused: {error}"
            return None

    def _make(self, mapping: Mapping[str, Any]) -> Scenario:
        return make_scenario(mapping, self._explored.limits, self._explored.data)

    def _open(self, scenario: Scenario) -> None:
        self._stop()
        self._state = PageState(form_mapping(scenario), scenario)
        self._ask_theory()
        self._show_all()

    def _set(self, name: str, text: str) -> None:
        """Set one field of the form."""
        state = self._state
        try:
            state.draft = with_dependents(changed(state.draft, name, parse_value(text)), name)
            if state.scenario.data.rows is not None and name == "model.kind" and text == "linear":
                state.draft.pop("dimension", None)  # follows from the table's columns
            scenario = self._make(state.draft)
        except PsofedError as error:
            state.error = str(error)
        else:
            state.error = self._refused = ""
            if scenario != state.scenario:
                self._stop()
                state.scenario, state.simulation = scenario, Simulation()  # what was simulated belongs to the old one
                self._ask_theory()
        self._show_all()

    def _use_best(self) -> None:
        best = self._state.theory.best
        if best is not None and best.x:
            self._set("stepsize", f"{best.x:.3g}")

    # Menus

    def _choose_preset(self, title: str) -> None:
        if title:
            self._refused = ""
            self._open(self._explored.presets[title])

    def _choose_metric(self, metric: str) -> None:
        self._metric = metric
        self._ask_theory()
        self._show_all()

    def _choose_axis(self, axis: str) -> None:
        self.view.draw_over(axis)
        self._show()

    # Questions

    def _ask_theory(self) -> None:
        self._state.theory = Theory()
        self._state.theory_number = self._ask(Question(self._state.scenario, metric=self._metric))

    def _simulate_or_stop(self) -> None:
        state = self._state
        if state.simulating:
            self._stop()
        else:
            state.simulating, state.simulation = True, Simulation()
            question = Question(state.scenario, simulated=True, limit=state.theory.limit)
            state.simulation_number = self._ask(question)
        self._show()

    def _stop(self) -> None:
        if self._state.simulating:
            self._state.simulating = False
            self._state.simulation_number = self._ask(Question(simulated=True))

    def _ask(self, question: Question) -> int:
        """Ask the worker for theory or that for simulations, and return the question's number."""
        self._count += 1
        self._workers[question.simulated].ask(self._count, question)
        return self._count

    # Answers

    def _hear(self, number: int, answer: Answer) -> None:
        """Take an answer from a worker's thread to the page's own loop."""
        with contextlib.suppress(AttributeError):  # Bokeh has taken a closed page's document apart
            self._document.add_next_tick_callback(partial(self._take_in, number, answer))

    def _take_in(self, number: int, answer: Answer) -> None:
        """Show an answer, unless it is to an earlier question."""
        state = self._state
        if number not in (state.theory_number, state.simulation_number):
            return
        if isinstance(answer, Simulation):
            state.simulation, state.simulating = answer, not answer.finished
        elif isinstance(answer, Theory):
            state.theory, state.drawn = answer, answer.over(state.drawn)
        self._show()

    # What the browser shows

    def _show_all(self) -> None:
        """Show settings and answers, after a setting has changed."""
        view, scenario = self.view, self._state.scenario
        titles = {preset: title for title, preset in self._explored.presets.items()}
        self._is_filling = True
        view.metric.value, view.preset.value = self._metric, titles.get(scenario, "")
        view.address.value = to_address(scenario, self._metric)
        self._show_form()
        self._is_filling = False
        self._show()

    def _show_again(self) -> None:
        """Show what was sent before the window listened, and the settings in the address instead of the token."""
        view = self.view
        view.address.value = ""
        view.address.value = to_address(self._state.scenario, self._metric)
        view.draw_over(view.axis.value)
        self._show()
        for pane in (view.sentence, view.table, view.caption):
            pane.param.trigger("object")

    def _show_form(self) -> None:
        """Show the chosen group of fields; a control stays while its field does."""
        view, state = self.view, self._state
        groups = form_groups(state.scenario, state.draft, self._explored.limits)
        view.group.options = [title for title, fields in groups.items() if fields]
        before, self._controls = self._controls, {}
        for field in groups.get(view.group.value) or groups[ESSENTIALS]:
            shape = shape_of(field)
            control = self._controls[shape] = before.get(shape) or Control(field, self._set)
            control.update(field)
        boxes = [control.box for control in self._controls.values()]
        if boxes != list(view.fields.objects):
            view.fields.objects = boxes
        view.error.object = html.escape(state.error)

    def _show(self) -> None:
        """Show sentence, table and chart."""
        view, state = self.view, self._state
        refused = f'<p class="note failed">{html.escape(self._refused)}</p>' if self._refused else ""
        text = html.escape(sentence(state, self._metric)).replace(" dB", "&nbsp;dB")
        with pn.io.hold():
            view.sentence.object = (
                f'{refused}<div class="{state.name}"><p class="sentence">{text}</p>'
                f'<p class="note">{html.escape(note(state))}</p></div>'
            )
            view.show_table(*table(state), LABELS[self._metric].title)
            view.chart.show(state, self._metric)
            view.caption.object = view.chart.caption
            view.figure.visible = not (state.name == "uncovered" and view.chart.is_empty)
            view.simulate.name = "Stop" if state.simulating else "Simulate"
            view.best.disabled = state.theory.best is None or not state.theory.best.x
            about = state.scenario, self._explored.plugins, not (state.theory.refusal or state.theory.error)
            view.usage.value = f"{exports.as_command(*about)}\n{exports.as_python(*about)}"
            address = exports.playground_address(state.scenario)
            link = f'<a href="{html.escape(address)}">Open in the playground</a>'
            view.playground.object = link if address else ""
