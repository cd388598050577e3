"""The federation's commands that run something: the demo, a scenario, and its continuation."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    ScenarioFile,
    Settings,
    load_plugins,
    print_json,
    progress,
    read_scenario_with,
)
from psofed.cli.federation_common import DEFAULT_HOME, HomeFolder, open_home, ready, say
from psofed.cli.flags import Given, flattened
from psofed.federation.protocol.run_options import DemoOptions, RunOptions

if TYPE_CHECKING:
    from psofed.federation.deploy.settings import RunSettings
    from psofed.federation.deploy.superlink import Home

PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the learning curve (.png, .svg or .pdf).")
]


_said: dict[str, str] = {}  # the nodes' last remarks, in the one run that a command follows


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (flattened(demo), flattened(run), resume, stop, rollback, export, predict):
        app.command()(command)


def demo(
    options: DemoOptions,
    home: HomeFolder = Path("psofed-demo"),
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a federation of real processes on this machine, with TLS, node keys and one Byzantine node."""
    with ready():
        from psofed.federation.deploy.demo import demo_settings, predict_demo, run_demo

        _check_plot(plot)
        settings = demo_settings(
            options.nodes, options.rounds, options.seed, options.samples_per_round, options.deadline
        )
        place = open_home(home)
        with progress("federation", "rounds") as update:
            result = run_demo(
                settings,
                place,
                on_step=say,
                on_round=lambda status: _show_round(status, update),
                supernodes=options.supernodes,
            )
        prediction = predict_demo(settings)
        _draw(result, prediction, plot)
        if as_json:
            curve = None if prediction is None else vars(prediction)
            print_json({**result, "prediction": curve})
            return
        _print_outcome(result, prediction, place)


def run(
    file: ScenarioFile,
    options: Given[RunOptions],
    settings: Settings = [],  # noqa: B006
    home: HomeFolder = DEFAULT_HOME,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the result and checkpoints of an earlier run.")
    ] = False,
    plot: PlotFile = None,
    as_json: AsJson = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Run a scenario on the server of this machine; each iteration is a round.

    A scenario with a table, such as the plan that `psofed advise --out plan.toml` writes, gives the columns.
    Unless options say otherwise, its nodes learn one row per round, and the run waits for all participants.
    """
    with ready():
        from psofed.federation.deploy.settings import RunSettings

        scenario = read_scenario_with(file, settings, plugins, open_data=False)
        fixed_length = any(text.partition("=")[0].strip() == "iterations" for text in settings)
        chosen = RunSettings.planned(scenario, options.values, fixed_length=fixed_length)
        if scenario.data.rows is not None:
            named = chosen.columns
            say(f"columns {'as most nodes have them' if named is None else named}; {_pace(chosen)}")
        _submit_and_follow(chosen, open_home(home), plot, as_json, force=force)


def resume(
    home: HomeFolder = DEFAULT_HOME,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, help="New total number of rounds; 0 keeps the old one.")
    ] = 0,
    plot: PlotFile = None,
    as_json: AsJson = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Continue the last run from its last completed round."""
    with ready():
        load_plugins(plugins)
        import dataclasses

        from psofed.common.files import read_json
        from psofed.federation.deploy.settings import RunSettings
        from psofed.federation.server.checkpoint import CheckpointStore
        from psofed.federation.server.sessions import load_usable

        place = open_home(home)
        load_usable(
            CheckpointStore(place.checkpoint)
        )  # or the user would read it only after the run has begun
        chosen = RunSettings.from_config(read_json(place.settings))
        scenario = chosen.scenario.replace(iterations=rounds) if rounds else chosen.scenario
        _submit_and_follow(dataclasses.replace(chosen, resume=True, scenario=scenario), place, plot, as_json)


def rollback(
    to_round: Annotated[int, typer.Option("--to-round", min=0, metavar="N", help="Round to return to.")],
    home: HomeFolder = DEFAULT_HOME,
) -> None:
    """Return to the checkpoint of an earlier round; `resume` continues from there.

    Everything learned since is discarded, by the clients too: each receives the full model when it is next selected.
    """
    with ready():
        from psofed.common.files import read_json, write_json
        from psofed.federation.deploy.submit import check_free
        from psofed.federation.server.checkpoint import CheckpointStore

        place = open_home(home)
        check_free(place, force=True)
        state = CheckpointStore(place.checkpoint).rollback(to_round)
        if place.status.exists():
            status = read_json(place.status)
            write_json(place.status, {**status, "round": state.round_number, "state": "rolled back"})
        typer.echo(f"back at round {state.round_number}; `psofed federation resume` continues from there")


def stop(home: HomeFolder = DEFAULT_HOME) -> None:
    """Stop the current run; continue it with `resume`."""
    with ready():
        from psofed.federation.deploy.submit import stop as stop_run

        done = stop_run(open_home(home))
        typer.echo(f"stopped after round {done}; `psofed federation resume` continues from there")


def export(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write (.npz or .json).")],
    home: HomeFolder = DEFAULT_HOME,
    scaling: Annotated[
        Path | None,
        typer.Option(
            "--scaling", metavar="DIR", help="Folder of a client whose scaling is stored with the model."
        ),
    ] = None,
) -> None:
    """Write the model of the last completed round to a file."""
    with ready():
        from psofed.federation.deploy.export import describe, from_checkpoint, from_client, save_model

        client = None if scaling is None else from_client(scaling)
        model = from_checkpoint(open_home(home).checkpoint, client)
        save_model(model, out)
        typer.echo(f"{out}: {describe(model)}")


def predict(
    model: Annotated[
        Path, typer.Option("--model", metavar="FILE", help="File written by `export`, or a client's folder.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="TABLE", help="A CSV or Parquet file with a header.")
    ],
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Columns of a model without column names, in the order of training; by default all.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the target for every row of a table, in its own unit if the model has a scaling."""
    with ready():
        from psofed.federation.deploy.export import describe, load_model, predict_rows

        loaded = load_model(model)
        say(describe(loaded))
        columns = tuple(name.strip() for name in (features or "").split(",") if name.strip())
        predictions = list(predict_rows(loaded, data, columns))
        if as_json:
            print_json({"predictions": predictions})
            return
        for value in predictions:
            typer.echo(f"{value:.10g}")


def _submit_and_follow(
    settings: "RunSettings", home: "Home", plot: Path | None, as_json: bool, *, force: bool = False
) -> None:
    from psofed.common.errors import PsofedError
    from psofed.federation.deploy.status import server_address
    from psofed.federation.deploy.submit import follow, submit

    _check_plot(plot)
    if server_address(home) is None:
        raise PsofedError(f"no server of {home.folder} is running; start it with: psofed federation server")
    identity = submit(home, settings, force=force)
    say("run submitted, waiting for the nodes")
    with progress("federation", "rounds") as update:
        patience = settings.wait_for_nodes + settings.deadline + settings.interval + 60.0
        result = follow(home, identity, patience, on_progress=lambda status: _show_round(status, update))
    _draw(result, None, plot)
    if as_json:
        print_json(result)
    else:
        _print_outcome(result, None, home)
    _check_learned(result)


def _check_learned(result: dict[str, Any]) -> None:
    """End with code 1 if nobody has learned anything."""
    if result["examples"]:
        return
    say("nobody has learned anything: no reply with a sample was accepted")
    raise typer.Exit(1)


def _check_plot(plot: Path | None) -> None:
    if plot is not None:
        from psofed.render.style import check_picture_format

        check_picture_format(plot)


def _draw(result: dict[str, Any], prediction: Any, plot: Path | None) -> None:
    if plot is not None:
        from psofed.federation.deploy.outcome import plot_federation
        from psofed.render.figures import save_figure

        save_figure(plot_federation(result, prediction), plot)


def _pace(settings: "RunSettings") -> str:
    count = settings.samples_per_round
    return "all rows that have arrived" if not count else f"{count} row{'' if count == 1 else 's'} a round"


def _show_round(status: dict[str, Any], update: Any) -> None:
    update(status["round"], status["rounds"])
    last = status.get("last")
    if not last:
        return
    reasons = last["reasons"]
    dropped = ", ".join(
        f"{node}: {kind}" + (f" ({reasons[node]})" if node in reasons else "")
        for node, kind in last["dropped"].items()
    )
    answered = f"{len(last['accepted'])} of {len(last['participants'])} nodes"
    line = f"round {last['round']}/{status['rounds']}: {answered}, {last['seconds']:.1f} s"
    if not sys.stderr.isatty():
        say(f"{line}; dropped {dropped}" if dropped else line)
    for node, remark in last["remarks"].items():
        if _said.get(node) != remark:  # once is enough, until it changes
            say(f"  {node}: {remark}")
    _said.update(last["remarks"])


def _print_outcome(result: dict[str, Any], prediction: Any, home: "Home") -> None:
    from psofed.federation.deploy.outcome import federation_report
    from psofed.render.text import print_report

    print_report(federation_report(result, prediction))
    typer.echo(f"\nResult in {home.result} and {home.result.with_suffix('.nc')}; logs in {home.logs}")
