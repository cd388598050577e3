"""One page in one browser window: takes what the form says, asks the workers, and shows what they answer."""

import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

import panel as pn

from psofed.common.errors import PsofedError
from psofed.explore import exports, view
from psofed.explore.charts import CAPTIONS, Charts
from psofed.explore.fields import field_for_error
from psofed.explore.frame import Frame
from psofed.explore.presets import Preset
from psofed.explore.settings import SIDES, Limits, changed, from_query, make_scenario, parse_value
from psofed.explore.sides import Side, SideMaker, with_dependents
from psofed.explore.workers import Pool, Question, Worker
from psofed.results import METRIC_TITLES

_REDRAW = 90  # milliseconds between two drawings of what is still being refined
_AFTER_NUMBERS = 40  # milliseconds that the browser has to paint numbers before charts keep it busy


class Session:
    """A page, from its opening to its closing.

    Parameters
    ----------
    pool : Pool
        Where processes come from.
    presets : dict of str to Preset
        The first is what the page opens with.
    limits : Limits
        How large a fleet may be.
    origin : Origin
        What the command line named.
    data : OwnData, optional
        The user's table.
    token : str
        For links.
    arguments : dict
        The query that the page was opened with.
    """

    def __init__(
        self, pool: Pool, presets: dict[str, Preset], limits: Limits, origin: exports.Origin, data: Any, token: str,
        arguments: dict[str, list[bytes]],
    ) -> None:  # fmt: skip
        self._pool, self._presets, self._limits, self._origin = pool, presets, limits, origin
        self._data, self._token = data, token
        self._maker = SideMaker(limits, data)
        self._metric, self._active, self._refused = "network_mse", "A", ""
        self._sides: dict[str, Side] = {}
        self._count = 0
        self._is_waiting = self._is_drawing = False
        self._inbox: queue.SimpleQueue[tuple[str, str, int, dict[str, Any]]] = queue.SimpleQueue()
        self._document: Any = pn.state.curdoc
        self._workers: dict[tuple[str, str], Worker] = {}
        self._restore(arguments)
        self._charts = Charts(SIDES)
        panes = [pn.pane.Bokeh(figure, sizing_mode="stretch_width") for figure in self._charts.figures()]
        start = self._frame_values()
        self.frame: Frame = Frame(
            self._on_message, charts=panes, captions=list(CAPTIONS), sizing_mode="stretch_width", start=start
        )
        self.frame.param.watch(self._recolour, "dark")
        for side in self._sides:
            self._ask_theory(side)

    def close(self) -> None:
        """End what computes for this page."""
        for worker in self._workers.values():
            worker.close()

    # Where settings come from

    def _restore(self, arguments: dict[str, list[bytes]]) -> None:
        pairs = [
            (name, value.decode("utf-8", "replace")) for name, values in arguments.items() for value in values
        ]
        try:
            settings = from_query(urlencode(pairs), self._data is not None)
            if settings is not None:
                self._metric = settings.metric
                made = {
                    side: self._maker.from_link(dict(mapping), side in settings.own_data)
                    for side, mapping in settings.sides.items()
                }
                self._sides = made
                if any(side.errors for side in made.values()):
                    self._refused = (
                        "Not all of the link's settings are allowed; what is not is marked at its field."
                    )
        except PsofedError as error:
            self._refused = f"The link's settings are refused: {error}"
        if not self._sides:
            preset = next(iter(self._presets.values()))
            self._sides = {"A": self._maker.make(dict(preset.mapping), preset.own_data, preset.name)}

    # What the browser says

    def _on_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        name = message.get("name")
        match message.get("type"):
            case "set":
                self._set(message.get("side"), name, message.get("value"))
            case "preset" if name in self._presets:
                preset = self._presets[name]
                self._sides[self._active] = self._maker.make(
                    dict(preset.mapping), preset.own_data, preset.name
                )
                self._refused = ""
                self._changed(self._active)
            case "metric" if name in METRIC_TITLES:
                self._metric = name
                for side in self._sides:
                    self._ask_theory(side)
                self._show()
            case "side" if name in self._sides:
                self._active = name
                self._show()
            case "hello":  # what was sent before the window listened is sent again
                self.frame.forget()
                self._show()
            case "compare":
                self._compare()
            case "simulate":
                self._simulate_or_stop()
            case "stop-theory" if name in self._sides:
                self._stop_theory(name)
            case "download":
                self._download(name)

    def _set(self, side_name: Any, name: Any, value: Any) -> None:
        side = self._sides.get(side_name) if isinstance(side_name, str) else None
        if side is None or not isinstance(name, str) or not isinstance(value, str):
            return
        known = {field["name"]: field["type"] for group in self._groups(side) for field in group["fields"]}
        if known.get(name, "kept") == "kept":
            return
        self._refused = ""
        try:
            side.draft = with_dependents(changed(side.draft, name, parse_value(value)), name)
            if side.own_data and name == "model.kind" and value == "linear":
                side.draft.pop("dimension", None)  # the table's columns
            scenario = make_scenario(side.draft, self._limits, self._data if side.own_data else None)
        except PsofedError as error:
            about = getattr(error, "field", name)
            place = field_for_error(self._groups(side), about) or name
            side.errors = {**self._maker.marks(side), place: str(error)}
            self._show(pictures=False)
            return
        side.errors = {}
        if scenario != side.scenario:
            side.scenario, side.preset = scenario, ""
            self._changed(side_name)
        else:
            self._show(pictures=False)

    def _changed(self, name: str) -> None:
        """Ask again for a side whose scenario changed, and drop its simulation."""
        side = self._sides[name]
        side.simulation = {}
        if side.simulating:
            self._stop(name)
        self._ask_theory(name)
        self._show(pictures=False)

    def _compare(self) -> None:
        if "B" in self._sides:
            self._stop("B")
            del self._sides["B"]
            self._active = "A"
        else:
            first = self._sides["A"]
            self._sides["B"] = Side(first.scenario.to_mapping(), first.scenario, first.own_data, first.preset)
            self._active = "B"
            self._ask_theory("B")
        self._show()

    # What is computed

    def _ask_theory(self, name: str) -> None:
        side = self._sides[name]
        self._count += 1
        side.theory_number, side.fresh = self._count, {}
        mapping = side.scenario.to_mapping()
        question = Question(self._count, "theory", mapping, side.own_data, {"metric": self._metric})
        side.asked_at = time.monotonic()
        self._worker("theory", name).ask(question)
        self._watch(name, self._count, view.PATIENCE)

    def _watch(self, name: str, number: int, seconds: float) -> None:
        """Say from time to time that an answer takes long, while it does."""

        def look() -> None:
            side = self._sides.get(name)
            if side is not None and side.theory_number == number and side.waits_for_theory:
                self._show(pictures=False)
                self._watch(name, number, 1.0)

        self._document.add_timeout_callback(look, int(1000 * seconds))

    def _stop_theory(self, name: str) -> None:
        side = self._sides[name]
        if side.waits_for_theory:
            self._count += 1
            side.theory_number = self._count
            self._worker("theory", name).ask(Question(self._count, "nothing"))
            side.fresh["stopped" if "point" in side.fresh else "error"] = "Theory was stopped."
            side.fresh["finished"] = True
            self._show(pictures=False)

    def _simulate_or_stop(self) -> None:
        running = [name for name, side in self._sides.items() if side.simulating]
        for name in running or self._sides:
            self._stop(name) if running else self._simulate(name)
        self._show()

    def _simulate(self, name: str) -> None:
        side = self._sides[name]
        self._count += 1
        side.simulation_number, side.simulating, side.simulation, side.progress = self._count, True, {}, 0.0
        options = {"limit": side.fresh.get("limit")}
        question = Question(self._count, "simulation", side.scenario.to_mapping(), side.own_data, options)
        self._worker("simulation", name).ask(question)

    def _stop(self, name: str) -> None:
        side = self._sides[name]
        if side.simulating:
            side.simulating = False
            self._count += 1
            side.simulation_number = self._count
            self._worker("simulation", name).ask(Question(self._count, "nothing"))

    def _worker(self, kind: str, name: str) -> Worker:
        if (kind, name) not in self._workers:
            self._workers[kind, name] = Worker(self._pool, partial(self._hear, kind, name))
        return self._workers[kind, name]

    def _hear(self, kind: str, name: str, number: int, update: dict[str, Any]) -> None:
        """Take what a worker's thread brings; it is shown when the page's own loop comes to it."""
        self._inbox.put((kind, name, number, update))
        at_once = bool({"point", "refusal", "error", "stopped", "finished"} & set(update))
        self._document.add_next_tick_callback(self._take_in if at_once else self._take_in_soon)

    def _take_in_soon(self) -> None:
        """Draw what refines a picture some at a time."""
        if not self._is_waiting:
            self._is_waiting = True
            self._document.add_timeout_callback(self._take_in, _REDRAW)

    def _take_in(self) -> None:
        self._is_waiting = False
        if self._inbox.empty():
            return
        refused = []
        while not self._inbox.empty():
            kind, name, number, update = self._inbox.get()
            side = self._sides.get(name)
            if side is None:
                continue
            if kind == "theory" and number == side.theory_number and side.waits_for_theory:
                if update.get("refusal") or update.get("error"):
                    side.picture = {}
                    refused.append(name)
                side.fresh.update(update)
                side.picture.update(update)
            elif kind == "simulation" and number == side.simulation_number:
                side.progress = update.pop("progress", side.progress)
                side.simulating = not (update.get("finished") or update.get("stopped"))
                side.simulation.update(update)
        for name in refused:
            if self._sides[name].fresh.get("refusal"):
                self._simulate(name)
        self._show()

    # What is shown

    def _recolour(self, event: Any) -> None:
        scheme = "dark" if event.new else "light"
        self._draw_soon(lambda: self._charts.recolour(scheme))

    def _draw_soon(self, draw: Callable[[], None]) -> None:
        """Change charts when the document is locked for it, and send it all as one message, after the numbers.

        Panel calls for messages and parameters without the lock.
        """

        def drawing() -> None:
            self._document.hold("combine")
            try:
                draw()
            finally:
                self._document.unhold()

        self._document.add_timeout_callback(drawing, _AFTER_NUMBERS)

    def _groups(self, side: Side) -> list[dict[str, Any]]:
        return self._maker.groups(side)

    def _frame_values(self) -> dict[str, Any]:
        active = self._sides[self._active]
        groups, presets = self._groups(active), self._presets.values()
        return {
            "form": view.form(self._sides, self._active, groups, presets, self._metric),
            "errors": active.errors,
            "top": view.top(self._sides, self._metric, self._refused),
            "copies": view.copies(self._sides, self._active, self._metric, self._origin, self._token),
        }

    def _show(self, pictures: bool = True) -> None:
        self.frame.tell(self._frame_values())
        if pictures and not self._is_drawing:
            self._is_drawing = True
            self._draw_soon(self._draw)

    def _draw(self) -> None:
        self._is_drawing = False
        self._charts.show({name: side.content() for name, side in self._sides.items()}, self._metric)

    def _download(self, kind: Any) -> None:
        makers = {
            "csv": (exports.numbers_as_csv, "text/csv"),
            "json": (exports.numbers_as_json, "application/json"),
        }
        if kind in makers:
            maker, mime = makers[kind]
            text = maker({name: side.content() for name, side in self._sides.items()})
            self.frame._send_msg({"type": "file", "name": f"psofed.{kind}", "mime": mime, "text": text})
