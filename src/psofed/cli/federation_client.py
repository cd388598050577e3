"""``psofed federation client``: one node."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import Plugins, load_plugins
from psofed.cli.federation_common import DEFAULT_HOME, ready, say

_COUNTED = 1000  # rows of a file that are counted before the first round


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("client")(run_client)


def run_client(
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="Address of the server.")
    ] = "127.0.0.1:9092",
    key: Annotated[Path, typer.Option("--key", help="This node's private key.")] = DEFAULT_HOME
    / "credentials/node-0.key",
    authority: Annotated[
        Path, typer.Option("--ca", help="Certificate of the federation's authority.")
    ] = DEFAULT_HOME / "credentials/ca.pem",
    data: Annotated[
        str,
        typer.Option(
            "--data", metavar="SOURCE", help="A .csv file, a .parquet file or folder, or module:function."
        ),
    ] = "",
    target_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column to predict; by default the run's."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Columns to predict from; by default the run's.")
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with the client IDs; with --client.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Use only the rows of this client.")
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", min=0, help="Number of this client, for module:function.")
    ] = 0,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder for this node's model and logs.")
    ] = None,
    supernode: Annotated[
        bool, typer.Option("--supernode", help="Run Flower's own SuperNode instead of the long-lived node.")
    ] = False,
    byzantine: Annotated[
        bool, typer.Option("--byzantine", help="Rehearse an attack: poison what this node uploads.")
    ] = False,
    attack: Annotated[
        str | None,
        typer.Option(
            "--attack", metavar="KIND", help="Attack to rehearse, as attack.kind; the scenario's by default."
        ),
    ] = None,
    probability: Annotated[
        float | None,
        typer.Option("--attack-probability", min=0, max=1, help="Probability of attacking in a round."),
    ] = None,
    strength: Annotated[
        float | None, typer.Option("--attack-strength", help="Strength of the attack, as attack.strength.")
    ] = None,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Run one node until Ctrl-C."""
    with ready():
        load_plugins(plugins)
        folder = home if home is not None else Path(f"psofed-{key.stem}")
        settings: dict[str, str | int | float | bool] = {"partition": partition}
        columns = {
            "target-column": target_column,
            "features": features,
            "client-column": client_column,
            "client": client,
        }
        settings |= _check_data(data, columns)
        lies = {"attack": attack, "attack-probability": probability, "attack-strength": strength}
        settings |= _check_attack(
            byzantine, {name: value for name, value in lies.items() if value is not None}
        )
        if byzantine:
            say("this node is Byzantine: it poisons what it uploads")
        say(f"node {key.stem} works for {server} in {folder}; Ctrl-C stops")
        from psofed.federation.flower import TESTED_MINORS, untested_version

        untested = untested_version()
        if untested is not None:
            say(
                f"this node was tested with Flower {', '.join(TESTED_MINORS)}, not {untested}: "
                "Flower's own, slower SuperNode is used instead"
            )
        if supernode or untested is not None:
            _run_supernode(server, folder, key, authority, settings)
            return
        from psofed.federation.deploy.app import ReadyMadeApp
        from psofed.federation.deploy.node import LongLivedNode

        settings["psofed-state"] = str((folder / "state").resolve())
        LongLivedNode(server, key, authority, folder, settings, ReadyMadeApp(), say).run()


def _check_data(name: str, columns: dict[str, str | None]) -> dict[str, str]:
    """Return the node's settings of its data; a mistake should show here, not in the first round."""
    from psofed.common.errors import PsofedError
    from psofed.federation.client.columns import TableSource
    from psofed.federation.client.online import BACKLOG
    from psofed.federation.client.sources import GeneratorSource, Position, open_source
    from psofed.federation.deploy.app import open_data

    given = {option: value for option, value in columns.items() if value is not None}
    if given and not name:
        raise PsofedError(f"--{next(iter(given))} describes a table: add --data SOURCE.")
    if ("client" in given) != ("client-column" in given):
        raise PsofedError("--client and --client-column belong together: add the other one.")
    if not name:
        return {}
    if not given and isinstance(open_source(name, dimension=1), GeneratorSource):
        return {"data": name}
    path = Path(name)
    if not path.exists():
        raise PsofedError(f"{path}: no such file or folder")
    settings = {"data": str(path.resolve()), **given}
    source = open_data(settings, 0)
    assert isinstance(source, TableSource)  # generators have returned above
    if path.is_file() and not path.stat().st_size:
        say(f"{path} is empty so far")
        return settings
    chosen, target = source.chosen()
    shown = ", ".join(chosen[:8]) + (f", … ({len(chosen)})" if len(chosen) > 8 else "")
    say(f"features {shown}; target {target}; scaled as they come; the run's names decide")
    there = len(source.read(Position(), _COUNTED))
    if there > BACKLOG:
        number = f"{there:,}" if there < _COUNTED else f"at least {there:,}"
        say(
            f"{number} rows are there already: a run takes them all at once unless it has --samples-per-round"
        )
    return settings


def _check_attack(byzantine: bool, given: dict[str, str | float]) -> dict[str, str | float | bool]:
    """Return the node's settings of the attack it rehearses; a mistake should show here, not in the first round."""
    if not byzantine:
        if given:
            from psofed.common.errors import PsofedError

            raise PsofedError(f"--{next(iter(given))} describes an attack: add --byzantine.")
        return {}
    if "attack" in given:
        from psofed.federation.client.attacks import rehearse
        from psofed.scenario.changes import attack_from_mapping

        options = {name.removeprefix("attack-"): value for name, value in given.items() if name != "attack"}
        made = attack_from_mapping({"kind": given["attack"], "num_byzantine": 1, **options})
        if not made.poisons_samples():
            rehearse(made)
    return {"byzantine": True, **given}


def _run_supernode(
    server: str, folder: Path, key: Path, authority: Path, settings: dict[str, str | int | float | bool]
) -> None:
    from psofed.federation.deploy.processes import Supervisor
    from psofed.federation.deploy.supernode import keep_node_running, start_supernode

    with Supervisor(folder / "logs") as supervisor:
        keep_node_running(lambda: start_supernode(server, folder, key, authority, settings, supervisor), say)
