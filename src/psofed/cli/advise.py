"""``psofed advise``: say whether federating helps on a table of one's own."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.common import AsJson, Plugins, Settings, load_plugins, print_json, progress
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Features,
    LeaveOut,
    MinRows,
    OptionalScenarioFile,
    TargetColumn,
    read_own_data,
)

if TYPE_CHECKING:
    from rich.console import Console

    from psofed.advice import Advice, Method, Station
    from psofed.advice.judging import Gain

_MOST_STATIONS = 40
_WAYS = {"alone": "each alone", "federation": "federation", "pooled": "all pooled", "average": "running mean"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(advise)


def advise(
    file: OptionalScenarioFile = None,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    min_rows: MinRows = None,
    leave_out: LeaveOut = None,
    liars: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of the clients that lie in a second look; 0 for none."),
    ] = 0.2,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="The robust rule that is tried beside the mean; the scenario's, or the median, by default.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Draws of participants, masks and lies.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws, and of who lies.")] = 0,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw the answer (.png, .svg or .pdf).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Save everything (.json, or .nc for NetCDF), or the stations (.csv)."
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Say whether the clients of your table should federate, how, and how sure that is.

    Each client alone, federations with each number of shared entries, and all data pooled are tuned on the past and
    judged by what follows. A scenario file or --set says more about the federation: num_participants (all by default),
    model, selection, pre-aggregation, defence, attack (what liars do).
    """
    if table is None:
        from psofed.common.errors import PsofedError

        raise PsofedError("advise needs --data TABLE: a CSV or Parquet file, one row per observation")
    load_plugins(plugins)
    if plot is not None:
        from psofed.plots.curves import check_picture_format

        check_picture_format(plot)
    if out is not None:
        from psofed.advice.advice import check_out

        check_out(out)
    data = read_own_data(
        table, client_column, target_column, features, min_rows=min_rows, leave_out=leave_out
    )
    from psofed.advice import advise as ask
    from psofed.scenario.changes import parse_setting, set_values
    from psofed.scenario.file import read_mapping

    assert data is not None
    mapping = {} if file is None else read_mapping(file)
    values = set_values(mapping, dict(parse_setting(text) for text in settings))
    with progress("comparing", "runs") as report:
        advice = ask(data, settings=values, liars=liars, rule=rule, trials=trials, seed=seed, progress=report)
    if out is not None:
        advice.save(out)
    if plot is not None:
        from psofed.plots.advice import plot_advice
        from psofed.plots.curves import save_figure

        save_figure(plot_advice(advice), plot)
    if as_json:
        print_json(advice.to_json())
    else:
        _print(advice, str(table))


def _print(advice: "Advice", table: str) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(advice.answer, style="bold", markup=False)
    for sentence in advice.sentences[1:]:
        console.print(sentence, markup=False)
    _print_methods(advice, console)
    _print_stations(advice.stations, console)
    console.print(
        f"error: mean squared, over {advice.rows} rows, in variances of each station's target; stepsize and M are "
        "always those that were best before. Intervals: 95 %, from blocks of time; those of stations hold together."
    )
    if len(advice.stations) > 1:
        federation = advice.federation
        assert federation.stepsize is not None
        console.print(
            f"To try it: psofed simulate --data {Path(table).name} … --set num_shared={federation.num_shared} "
            f"--set stepsize={federation.stepsize:.3g} --set num_participants={advice.scenario.num_participants}",
            markup=False,
        )
    for line in advice.notes:
        console.print(f"Note: {line}", markup=False)


def _print_methods(advice: "Advice", console: "Console") -> None:
    from rich.table import Table

    table = Table(title="What to use, everybody honest")
    _columns(table, "way to learn", "M", "stepsize", "error", "gain", "95 % interval", "numbers")
    for method in advice.methods:
        is_best = (method.num_shared, method.rule) == (advice.federation.num_shared, "mean")
        _row(table, method, " *" if is_best and len(advice.stations) > 1 else "")
    console.print(table)
    if len(advice.stations) > 1:
        console.print(
            "M: entries shared, * as in the answer; gain: on each station alone; numbers: exchanged per iteration",
            markup=False,
        )
    if not advice.lies:
        return
    options = ", ".join(
        f"{key} = {value}"
        for key, value in advice.attack.items()
        if key not in ("kind", "clients", "byzantine_set")
    )
    table = Table(title=f"The honest stations if {_liars(advice)} lie\n({advice.attack['kind']}: {options})")
    _columns(table, "way to learn", "M", "stepsize", "error", "gain", "95 % interval", "numbers")
    for method in advice.lies:
        _row(table, method)
    console.print(table)


def _liars(advice: "Advice") -> str:
    if not advice.liars:
        return "some stations"
    return f"{len(advice.liars)} of {len(advice.stations)} stations"


def _row(table: "object", method: "Method", mark: str = "") -> None:
    interval = "" if method.name == "alone" else _interval(method.gain)
    stepsize = "" if method.stepsize is None else f"{method.stepsize:.3g}"
    gain = "" if method.name == "alone" else _percent(method.gain.value)
    numbers = f"{method.numbers:g}" if method.numbers else ""
    way = _WAYS[method.name] + ("" if method.rule in ("", "mean") else f", {method.rule}")
    shared = "" if method.num_shared is None else f"{method.num_shared}{mark}"
    table.add_row(way, shared, stepsize, _error(method.error), gain, interval, numbers)  # type: ignore[attr-defined]


def _print_stations(stations: "tuple[Station, ...]", console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Stations")
    _columns(table, "station", "rows", "alone", "federation", "gain", "95 % interval", "")
    if not any(station.note for station in stations):
        table.columns.pop()
    listed = stations
    if len(stations) > _MOST_STATIONS:
        # Those with a note first, then those that gain least.
        order = sorted(
            stations, key=lambda s: (not s.note, s.gain.value if math.isfinite(s.gain.value) else 9.0)
        )
        chosen = {s.name for s in order[:_MOST_STATIONS]}
        listed = tuple(s for s in stations if s.name in chosen)
    for station in listed:
        table.add_row(
            escape(station.name),
            str(station.rows),
            _error(station.alone),
            _error(station.federation),
            _percent(station.gain.value),
            _interval(station.gain, digits=0),
            *([station.note] if len(table.columns) > 6 else []),
            style="bold" if station.stands_out else None,
        )
    console.print(table)
    if len(listed) < len(stations):
        console.print(
            f"{len(stations) - len(listed)} of {len(stations)} stations are not shown: nothing stands out in them, and "
            "they gain more than those shown; --out stations.csv has all."
        )


def _columns(table: "object", *headings: str) -> None:
    for at, heading in enumerate(headings):
        justify = "left" if at == 0 or not heading else "right"
        table.add_column(heading, justify=justify, no_wrap=at > 0 and bool(heading))  # type: ignore[attr-defined]


def _error(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}" if math.isfinite(value) else "diverged"


def _percent(value: float) -> str:
    if math.isnan(value):
        return ""
    return "diverged" if math.isinf(value) else f"{100 * value:+.1f} %"


def _interval(gain: "Gain", digits: int = 1) -> str:
    low, high = gain.interval
    return "" if math.isnan(low) else f"{100 * low:+.{digits}f} … {100 * high:+.{digits}f}"
