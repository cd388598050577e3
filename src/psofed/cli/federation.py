"""``psofed federation``: PSO-Fed by real clients over a real network."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    ScenarioFile,
    Settings,
    decibels,
    print_json,
    progress,
    read_scenario_with,
)

if TYPE_CHECKING:
    from psofed.federation.deploy.superlink import Home
    from psofed.federation.settings import RunSettings

federation = typer.Typer(
    name="federation",
    help="Run PSO-Fed by real clients: demo on one machine, or certs, server, client and run on several.",
    no_args_is_help=True,
)

HomeFolder = Annotated[
    Path, typer.Option("--home", metavar="DIR", help="Folder of all files of this federation.")
]
Deadline = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", help="When a round ends at the latest.")
]
SamplesPerRound = Annotated[
    int,
    typer.Option(
        "--samples-per-round", metavar="Q", help="Samples that arrive per client and round; 0: all there are."
    ),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the learning curve (.png, .svg or .pdf).")
]
_DEFAULT_HOME = Path("psofed-federation")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(federation)


@federation.command()
def demo(
    nodes: Annotated[int, typer.Option("--nodes", min=2, max=64, help="SuperNodes to start.")] = 4,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds to run.")] = 10,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of data, masks, participants and attack.")
    ] = 0,
    home: HomeFolder = Path("psofed-demo"),
    deadline: Deadline = 60.0,
    samples_per_round: SamplesPerRound = 1,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a federation of real processes on this machine, with TLS, node keys and one Byzantine node."""
    with _ready():
        from psofed.federation.demo import demo_settings, predict_demo, run_demo

        _check_plot(plot)
        settings = demo_settings(nodes, rounds, seed, samples_per_round, deadline)
        place = _home(home)
        with progress("federation", "rounds") as update:
            result = run_demo(
                settings, place, on_step=_say, on_round=lambda status: _show_round(status, update)
            )
        prediction = predict_demo(settings)
        _draw(result, prediction, plot)
        if as_json:
            curve = None if prediction is None else vars(prediction)
            print_json({**result, "prediction": curve})
            return
        _print_curve(result, prediction)
        _print_outcome(result, place)


@federation.command()
def certs(
    home: HomeFolder = _DEFAULT_HOME,
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host", metavar="NAME", help="Name or address by which nodes reach the server; repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="Node keys to make, node-0 and on.")] = 0,
    names: Annotated[
        list[str], typer.Option("--node", metavar="NAME", help="A node key to make by name; repeatable.")
    ] = [],  # noqa: B006
) -> None:
    """Make the authority, the server's certificate and the nodes' keys that are missing."""
    with _ready():
        from psofed.federation.deploy.credentials import make_credentials

        made = make_credentials(
            _home(home).credentials.folder, hosts, [*(f"node-{k}" for k in range(nodes)), *names]
        )
        typer.echo(f"authority    {made.authority}  (goes to every machine)")
        typer.echo(f"server       {made.certificate}, {made.key}  (stay here)")
        for path in made.public_keys():
            typer.echo(f"node         {path.with_suffix('.key')}  (goes to that node alone)")


@federation.command()
def server(
    home: HomeFolder = _DEFAULT_HOME,
    host: Annotated[str, typer.Option("--host", help="Address to listen on for nodes.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for any, kept from then on.")
    ] = 9092,
) -> None:
    """Run the server until Ctrl-C: a SuperLink on loopback, and the counting relay that nodes connect to."""
    with _ready():
        from psofed.federation.deploy.server import exposure_warning, serve

        warning = exposure_warning(host, port)
        if warning:
            _say(warning)
        with serve(_home(home), host, port) as running:
            keys = len(running.home.credentials.public_keys())
            _say(f"listening on {running.address}; {keys} node keys let in; Ctrl-C stops")
            _watch(running.supervisor)


@federation.command()
def client(
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="The server.")
    ] = "127.0.0.1:9092",
    key: Annotated[Path, typer.Option("--key", help="This node's private key.")] = _DEFAULT_HOME
    / "credentials/node-0.key",
    authority: Annotated[Path, typer.Option("--ca", help="The authority's certificate.")] = _DEFAULT_HOME
    / "credentials/ca.pem",
    data: Annotated[
        str,
        typer.Option(
            "--data", metavar="SOURCE", help="A .csv file, a .parquet file or folder, or module:function."
        ),
    ] = "",
    partition: Annotated[
        int, typer.Option("--partition", min=0, help="Number of this client, for module:function.")
    ] = 0,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder for this node's model and logs.")
    ] = None,
    byzantine: Annotated[
        bool, typer.Option("--byzantine", help="Rehearse an attack: poison what this node uploads.")
    ] = False,
    probability: Annotated[
        float, typer.Option("--attack-probability", min=0, max=1, help="How often it attacks.")
    ] = 0.2,
    variance: Annotated[
        float, typer.Option("--attack-variance", min=0, help="Variance of what it adds.")
    ] = 0.5,
) -> None:
    """Run one node until Ctrl-C."""
    with _ready():
        from psofed.federation.deploy.processes import Supervisor
        from psofed.federation.deploy.server import keep_node_running, start_node

        folder = home if home is not None else Path(f"psofed-{key.stem}")
        settings: dict[str, str | int | float | bool] = {"partition": partition}
        if data:
            settings["data"] = _check_data(data)
        if byzantine:
            settings |= {"byzantine": True, "attack-probability": probability, "attack-variance": variance}
            _say("this node is Byzantine: it poisons what it uploads")
        with Supervisor(folder / "logs") as supervisor:
            _say(f"node {key.stem} works for {server}; log in {folder / 'logs'}; Ctrl-C stops")
            keep_node_running(lambda: start_node(server, folder, key, authority, settings, supervisor), _say)


@federation.command()
def run(
    file: ScenarioFile,
    settings: Settings = [],  # noqa: B006
    home: HomeFolder = _DEFAULT_HOME,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of masks and participants.")] = 0,
    deadline: Deadline = 60.0,
    samples_per_round: SamplesPerRound = 0,
    min_nodes: Annotated[
        int, typer.Option("--min-nodes", min=1, help="Nodes to wait for before the first round.")
    ] = 1,
    max_magnitude: Annotated[
        float,
        typer.Option("--max-magnitude", min=0, help="Drop replies with a value beyond this; 0: no bound."),
    ] = 0.0,
    bench_after: Annotated[
        int, typer.Option("--bench-after", min=0, help="Bad replies that bench a node; 0: never.")
    ] = 3,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Clients draw their data from the scenario.")
    ] = False,
    plot: PlotFile = None,
    as_json: AsJson = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Run a scenario on the server of this machine; its iterations are the rounds."""
    with _ready():
        from psofed.federation.settings import RunSettings

        chosen = RunSettings(
            scenario=read_scenario_with(file, settings, plugins),
            seed=seed,
            deadline=deadline,
            samples_per_round=1 if synthetic and not samples_per_round else samples_per_round,
            synthetic=synthetic,
            min_nodes=min_nodes,
            max_magnitude=max_magnitude,
            bench_after=bench_after,
        )
        _submit_and_follow(chosen, _home(home), plot, as_json)


@federation.command()
def resume(
    home: HomeFolder = _DEFAULT_HOME,
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="New total of rounds; 0: as before.")] = 0,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Go on with the last run from its last completed round."""
    with _ready():
        import dataclasses

        from psofed.federation.files import read_json
        from psofed.federation.settings import RunSettings

        place = _home(home)
        chosen = RunSettings.from_config(read_json(place.settings))
        scenario = chosen.scenario.replace(iterations=rounds) if rounds else chosen.scenario
        _submit_and_follow(dataclasses.replace(chosen, resume=True, scenario=scenario), place, plot, as_json)


@federation.command()
def status(home: HomeFolder = _DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Show whether the server runs, which nodes are there, and how far the run has come."""
    with _ready():
        from psofed.federation.deploy.status import federation_status

        found = federation_status(_home(home))
        if as_json:
            print_json(found)
            return
        typer.echo(f"server     {found['server'] or 'not running'}")
        for node in found["nodes"]:
            typer.echo(f"node       {node['node-id']}  {node['status']}")
        latest = found["run"]
        typer.echo(
            f"run        {latest['state']}, round {latest['round']} of {latest['rounds']}"
            if latest
            else "run        none"
        )
        typer.echo(f"checkpoint {found['checkpoint'] or 'none'}")
        for node, counts in found["bad_replies"].items():
            typer.echo(
                f"dropped    node {node}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
            )


@contextmanager
def _ready() -> Iterator[None]:
    """Check that Flower is there, and let SIGTERM end a command as Ctrl-C does, so that it cleans up."""
    from psofed.federation import require_flower

    require_flower()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _home(folder: Path) -> "Home":
    from psofed.federation.deploy.superlink import Home

    return Home(folder)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_data(name: str) -> str:
    """Return the source's name with an absolute path; a mistake should show here, not in the first round."""
    from psofed.common.errors import PsofedError
    from psofed.federation.sources import GeneratorSource, open_source

    source = open_source(name, dimension=1)
    if isinstance(source, GeneratorSource):
        return name
    path = Path(name)
    if not path.exists():
        raise PsofedError(f"there is no {path}")
    return str(path.resolve())


def _watch(supervisor: Any) -> None:
    """Wait for Ctrl-C, or raise if a process ends by itself."""
    import time

    while True:
        supervisor.check()
        time.sleep(0.5)


def _submit_and_follow(settings: "RunSettings", home: "Home", plot: Path | None, as_json: bool) -> None:
    from psofed.common.errors import PsofedError
    from psofed.federation.deploy.status import server_address
    from psofed.federation.deploy.submit import follow, submit

    _check_plot(plot)
    if server_address(home) is None:
        raise PsofedError(f"no server of {home.folder} is running; start it with: psofed federation server")
    identity = submit(home, settings)
    _say(f"run {identity} submitted, waiting for the nodes")
    with progress("federation", "rounds") as update:
        patience = settings.wait_for_nodes + settings.deadline + 60.0
        result = follow(home, identity, patience, on_progress=lambda status: _show_round(status, update))
    _draw(result, None, plot)
    if as_json:
        print_json(result)
        return
    _print_curve(result, None)
    _print_outcome(result, home)


def _check_plot(plot: Path | None) -> None:
    if plot is not None:
        from psofed.plots.curves import check_picture_format

        check_picture_format(plot)


def _draw(result: dict[str, Any], prediction: Any, plot: Path | None) -> None:
    if plot is not None:
        from psofed.federation.plots import plot_federation
        from psofed.plots.curves import save_figure

        save_figure(plot_federation(result, prediction), plot)


def _show_round(status: dict[str, Any], update: Any) -> None:
    update(status["round"], status["rounds"])
    last = status.get("last")
    if not last or sys.stderr.isatty():
        return
    dropped = ", ".join(f"{node}: {kind}" for node, kind in last["dropped"].items())
    answered = f"{len(last['accepted'])} of {len(last['participants'])} nodes"
    line = f"round {last['round']}/{status['rounds']}: {answered}, {last['seconds']:.1f} s"
    _say(f"{line}; dropped {dropped}" if dropped else line)


def _print_curve(result: dict[str, Any], prediction: Any) -> None:
    curve = result["learning_curve"]
    columns: list[tuple[str, list[str]]] = [
        ("round", [str(number) for number in curve["round"]]),
        ("network MSE", [_level(value) for value in curve["network_mse"]]),
    ]
    if prediction is not None:
        columns.append(("theory", [_level(value) for value in prediction.network_mse]))
    if any(value is not None for value in curve["server_msd"]):
        columns.append(("server MSD", [_level(value) for value in curve["server_msd"]]))
    if prediction is not None:
        columns.append(("theory", [_level(value) for value in prediction.server_msd]))
        bounds = zip(prediction.low, prediction.high, strict=True)
        columns.append(("90 % of runs", [f"{_level(low)} … {_level(high)}" for low, high in bounds]))
    widths = [max(map(len, (head, *cells))) for head, cells in columns]
    typer.echo("  ".join(head.rjust(width) for (head, _), width in zip(columns, widths, strict=True)))
    for row in zip(*(cells for _, cells in columns), strict=True):
        typer.echo("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _level(value: float | None) -> str:
    return "—" if value is None else decibels(value)


def _print_outcome(result: dict[str, Any], home: "Home") -> None:
    traffic = result["communication"]
    typer.echo(
        f"{traffic['values_down']} numbers down and {traffic['values_up']} up, "
        f"{100 * traffic['fraction_of_full_sharing']:.1f} % of full sharing"
    )
    if traffic["socket_bytes_up"] is not None:
        typer.echo(
            f"at the socket: {traffic['socket_bytes_down']:,} bytes down, {traffic['socket_bytes_up']:,} up"
        )
    for node, counts in result["bad_replies"].items():
        typer.echo(
            f"dropped from node {node}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
        )
    typer.echo(f"result in {home.result} and {home.result.with_suffix('.nc')}; logs in {home.logs}")
