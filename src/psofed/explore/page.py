"""One page in one browser window: takes settings from the form, asks the workers, and shows their answers.

A slider goes this way: `controls.Control` → `Session._set` (draft, scenario) → `_ask_theory` → `workers.Worker.ask` →
in another process `theory.theory_steps` → `Session._hear` → `_take_in` → `_show` (sentence, table and chart).
"""

import html
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import panel as pn

from psofed.common.errors import PsofedError
from psofed.explore import exports
from psofed.explore.answers import Answer, Simulation, Theory
from psofed.explore.controls import Control, shape_of
from psofed.explore.drafts import (
    SIDES,
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
from psofed.explore.presets import Preset
from psofed.explore.view import View
from psofed.explore.words import Side, note, sentence, table
from psofed.explore.workers import Pool, Question, Worker
from psofed.results.metrics import LABELS

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_ONE_CHANGE = 1.5  # seconds within which changes of one setting are undone together


@dataclass(frozen=True)
class Explored:
    """State shared by all pages of one explorer.

    Attributes
    ----------
    pool : Pool
        Source of processes.
    presets : dict of str to Preset
        By title; the page opens with the first.
    limits : mapping of str to int
        Largest fleet, by field.
    plugins : tuple of str
        The user's modules, for commands that do the same.
    data : OwnData, optional
        The user's table.
    """

    pool: Pool
    presets: dict[str, Preset]
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
        self._sides: dict[str, Side] = {}
        self._active, self._metric, self._refused = "A", "network_mse", ""
        self._history: list[str] = []
        self._last_change = "", 0.0
        self._count = 0
        self._is_filling = False
        self._document: Any = pn.state.curdoc
        self._workers: dict[tuple[str, bool], Worker] = {}
        self._controls: dict[tuple[Any, ...], Control] = {}
        self.view: View = View(
            explored.presets,
            {
                "scenario.toml": lambda: self._side.scenario.to_toml(),
                "numbers.csv": lambda: exports.numbers_as_csv(self._sides),
            },
        )
        self._connect()
        self._open_address(urlencode(arguments, doseq=True))
        if not self._sides:
            self._open_preset(next(iter(explored.presets.values())))
        self._show_all()
        pn.state.onload(self._show_again)

    def close(self) -> None:
        """End the processes of this page."""
        for worker in self._workers.values():
            worker.close()

    def _connect(self) -> None:
        """Have the widgets call what they are for."""
        view = self.view
        buttons: dict[Any, Callable[[], None]] = {
            view.compare: self._compare_or_close,
            view.undo: self._undo_change,
            view.simulate: self._simulate_or_stop,
            view.best: self._use_best,
        }
        menus: dict[Any, Callable[[Any], None]] = {
            view.preset: self._choose_preset,
            view.metric: self._choose_metric,
            view.side: self._choose_side,
            view.group: lambda _: self._show_form(),
            view.axis: self._choose_axis,
        }
        for button, act in buttons.items():
            button.on_click(lambda _, act=act: act())
        for menu, choose in menus.items():
            menu.param.watch(lambda event, choose=choose: None if self._is_filling else choose(event.new), "value")

    @property
    def _side(self) -> Side:
        return self._sides[self._active]

    # Where settings come from

    def _open_address(self, query: str) -> None:
        """Take the settings from the page's address, if there are any."""
        try:
            mappings, self._metric = from_address(query)
            self._sides = {name: self._side_of(mapping) for name, mapping in mappings.items()} or self._sides
        except PsofedError as error:
            self._refused = f"The settings in the address are refused: {error}"
        self._active = self._active if self._active in self._sides else "A"
        for name in self._sides:
            self._ask_theory(name)

    def _open_preset(self, preset: Preset) -> None:
        """Open a preset in the active side; a figure of the paper needs both."""
        scenarios = {self._active: preset.scenario}
        if preset.other is not None:
            self._active = "A"
            scenarios = dict(zip(SIDES, (preset.scenario, preset.other), strict=True))
        for name, scenario in scenarios.items():
            self._stop(name)
            self._sides[name] = Side(form_mapping(scenario), scenario)
            self._ask_theory(name)

    def _side_of(self, mapping: Mapping[str, Any]) -> Side:
        scenario = make_scenario(mapping, self._explored.limits, self._explored.data)
        return Side(form_mapping(scenario), scenario)

    def _set(self, name: str, text: str) -> None:
        """Set one field of the form."""
        side = self._side
        try:
            side.draft = with_dependents(changed(side.draft, name, parse_value(text)), name)
            if side.scenario.data.rows is not None and name == "model.kind" and text == "linear":
                side.draft.pop("dimension", None)  # follows from the table's columns
            scenario = make_scenario(side.draft, self._explored.limits, self._explored.data)
        except PsofedError as error:
            side.error = str(error)
        else:
            side.error = self._refused = ""
            if scenario != side.scenario:
                self._remember(name)
                side.scenario = scenario
                self._renew(self._active)
        self._show_all()

    def _renew(self, name: str) -> None:
        """Ask about a side's new scenario; what was simulated belongs to the old one."""
        self._sides[name].simulation = Simulation()
        self._stop(name)
        self._ask_theory(name)

    def _use_best(self) -> None:
        best = self._side.theory.best
        if best is not None and best.x:
            self._last_change = "", 0.0  # undone apart from a slider moved just before
            self._set("stepsize", f"{best.x:.3g}")

    # Undo

    def _remember(self, cause: str) -> None:
        """Keep the settings before a change; a slider on its way is one change."""
        before, now = self._last_change, time.monotonic()
        self._last_change = cause, now
        if cause != before[0] or now - before[1] > _ONE_CHANGE:
            self._history.append(self._query())

    def _undo_change(self) -> None:
        self._last_change, self._refused = ("", 0.0), ""
        if self._history:
            for name in self._sides:
                self._stop(name)
            drawn = {name: side.drawn for name, side in self._sides.items()}
            self._open_address(self._history.pop())
            for name, side in self._sides.items():
                side.drawn = drawn.get(name, side.drawn)
            self._show_all()

    # Menus

    def _choose_preset(self, title: str) -> None:
        if title:
            self._remember("preset")
            self._refused = ""
            self._open_preset(self._explored.presets[title])
            self._show_all()

    def _choose_metric(self, metric: str) -> None:
        self._metric = metric
        for name in self._sides:
            self._ask_theory(name)
        self._show_all()

    def _choose_side(self, name: str) -> None:
        self._active = name
        self._show_all()

    def _choose_axis(self, axis: str) -> None:
        self.view.draw_over(axis)
        self._show()

    def _compare_or_close(self) -> None:
        self._remember("compare")
        if "B" in self._sides:
            self._stop("B")
            del self._sides["B"]
            self._active = "A"
        else:
            self._sides["B"] = Side(self._side.draft, self._side.scenario)
            self._active = "B"
            self._ask_theory("B")
        self._show_all()

    # Questions

    def _ask_theory(self, name: str) -> None:
        side = self._sides[name]
        side.theory = Theory()
        side.theory_number = self._ask(name, Question(side.scenario, metric=self._metric))

    def _simulate_or_stop(self) -> None:
        running = [name for name, side in self._sides.items() if side.simulating]
        for name in running or self._sides:
            if running:
                self._stop(name)
                continue
            side = self._sides[name]
            side.simulating, side.simulation = True, Simulation()
            question = Question(side.scenario, simulated=True, limit=side.theory.limit)
            side.simulation_number = self._ask(name, question)
        self._show()

    def _stop(self, name: str) -> None:
        side = self._sides.get(name)
        if side is not None and side.simulating:
            side.simulating = False
            side.simulation_number = self._ask(name, Question(simulated=True))

    def _ask(self, name: str, question: Question) -> int:
        """Ask a side's worker for theory or for simulations, and return the question's number."""
        key = name, question.simulated
        if key not in self._workers:
            self._workers[key] = Worker(self._explored.pool, partial(self._hear, name))
        self._count += 1
        self._workers[key].ask(self._count, question)
        return self._count

    # Answers

    def _hear(self, name: str, number: int, answer: Answer) -> None:
        """Take an answer from a worker's thread to the page's own loop."""
        self._document.add_next_tick_callback(partial(self._take_in, name, number, answer))

    def _take_in(self, name: str, number: int, answer: Answer) -> None:
        """Show an answer, unless it is to an earlier question."""
        side = self._sides.get(name)
        if side is None or number not in (side.theory_number, side.simulation_number):
            return
        if isinstance(answer, Simulation):
            side.simulation, side.simulating = answer, not answer.finished
        elif isinstance(answer, Theory):
            side.theory, side.drawn = answer, answer.over(side.drawn)
        self._show()

    # What the browser shows

    def _show_all(self) -> None:
        """Show settings and answers, after a setting has changed."""
        view, presets = self.view, self._explored.presets
        titles = {preset.scenario: title for title, preset in presets.items() if preset.other is None}
        self._is_filling = True
        view.metric.value, view.side.value = self._metric, self._active
        view.preset.value = titles.get(self._side.scenario, "")
        view.side.visible = len(self._sides) > 1
        view.compare.name = "Close B" if "B" in self._sides else "Compare with B"
        view.address.value = self._query()
        self._show_form()
        self._is_filling = False
        self._show()

    def _query(self) -> str:
        return to_address({name: side.scenario for name, side in self._sides.items()}, self._metric)

    def _show_again(self) -> None:
        """Show what was sent before the window listened, and the settings in the address instead of the token."""
        view = self.view
        view.address.value = ""
        view.address.value = self._query()
        view.draw_over(view.axis.value)
        self._show()
        for pane in (view.sentence, view.table, view.caption):
            pane.param.trigger("object")

    def _show_form(self) -> None:
        """Show the chosen group of fields; a control stays while its field does."""
        view, side = self.view, self._side
        groups = form_groups(side.scenario, side.draft, self._explored.limits)
        view.group.options = [title for title, fields in groups.items() if fields]
        before, self._controls = self._controls, {}
        for field in groups.get(view.group.value) or groups[ESSENTIALS]:
            shape = shape_of(field)
            control = self._controls[shape] = before.get(shape) or Control(field, self._set)
            control.update(field)
        boxes = [control.box for control in self._controls.values()]
        if boxes != list(view.fields.objects):
            view.fields.objects = boxes
        view.error.object = html.escape(side.error)

    def _show(self) -> None:
        """Show sentence, table and chart."""
        view, side = self.view, self._side
        with pn.io.hold():
            view.sentence.object = self._sentences()
            view.show_table(table(self._sides), LABELS[self._metric].title)
            view.chart.show(self._sides, self._metric)
            view.caption.object = view.chart.caption(self._sides)
            view.simulate.name = "Stop" if any(one.simulating for one in self._sides.values()) else "Simulate"
            view.undo.disabled = not self._history
            view.best.disabled = side.theory.best is None or not side.theory.best.x
            about = side.scenario, self._explored.plugins, not (side.theory.refusal or side.theory.error)
            view.usage.value = f"{exports.as_command(*about)}\n{exports.as_python(*about)}"
            address = exports.playground_address(side.scenario)
            link = f'<a href="{html.escape(address)}">Open in the playground</a>'
            view.playground.object = link if address else ""

    def _sentences(self) -> str:
        texts = [f'<p class="note failed">{html.escape(self._refused)}</p>'] if self._refused else []
        for name, side in self._sides.items():
            prefix = f"<b>{name}</b> " if len(self._sides) > 1 else ""
            text = html.escape(sentence(side, self._metric)).replace(" dB", "&nbsp;dB")
            texts.append(f'<div class="{name} {side.state}"><p class="sentence">{prefix}{text}</p>'
                         f'<p class="note">{html.escape(note(side))}</p></div>')  # fmt: skip
        return "".join(texts)
