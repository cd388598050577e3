"""A whole federation on this machine, for show: real processes, TLS, node keys, one Byzantine node."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.errors import PsofedError
from psofed.federation.deployment.credentials import make_credentials
from psofed.federation.deployment.server import Server, serve, start_node
from psofed.federation.deployment.submit import follow, submit
from psofed.federation.deployment.superlink import Home
from psofed.federation.settings import RunSettings
from psofed.scenario import Attack, Data, Scenario


@dataclass(frozen=True)
class Prediction:
    """What the theory says about each round, before any has been run.

    Attributes
    ----------
    network_mse : list of float
        The clients' expected squared a-priori error in rounds 1 … N.
    server_msd : list of float
        The server's expected MSD after rounds 1 … N.
    """

    network_mse: list[float]
    server_msd: list[float]


def demo_settings(
    nodes: int, rounds: int, seed: int, samples_per_round: int = 1, deadline: float = 60.0
) -> RunSettings:
    """Return a run of `nodes` clients of which the first is Byzantine and half take part in a round.

    Examples
    --------
    >>> demo_settings(nodes=4, rounds=10, seed=0).scenario.num_participants
    2
    """
    scenario = Scenario(
        num_clients=nodes,
        dimension=4,
        num_participants=(nodes + 1) // 2,
        num_shared=2,
        stepsize=0.2,
        iterations=rounds,
        data=Data(fleet_seed=seed),
        attack=Attack(num_byzantine=1, probability=0.5, variance=0.25),
    )
    return RunSettings(
        scenario=scenario,
        seed=seed,
        deadline=deadline,
        samples_per_round=samples_per_round,
        synthetic=True,
        min_nodes=nodes,
    )


def run_demo(
    settings: RunSettings,
    home: Home,
    on_step: Callable[[str], None],
    on_round: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Start everything, run the rounds, stop everything whatever happens, and return the result.

    Parameters
    ----------
    settings : RunSettings
        See :func:`demo_settings`.
    home : Home
        A folder that is new or holds an earlier demo.
    on_step : callable
        Told what is being done.
    on_round : callable
        Given the status after each round.
    """
    names = [f"node-{k}" for k in range(settings.scenario.num_clients)]
    on_step(f"making certificates and {len(names)} node keys in {home.credentials.folder}")
    make_credentials(home.credentials.folder, [], names)
    on_step("starting the SuperLink and registering the keys")
    with serve(home) as server:
        on_step(f"starting {len(names)} SuperNodes against {server.address} (TLS, loopback)")
        for k, name in enumerate(names):
            start_demo_node(server, name, k, byzantine=k < settings.scenario.num_byzantine)
        run = submit(home, settings)
        on_step(f"run {run} submitted, waiting for the nodes")
        return follow(
            home, run, timeout=settings.wait_for_nodes + settings.deadline + 60.0,
            on_progress=on_round, check=server.supervisor.check,
        )  # fmt: skip


def start_demo_node(server: Server, name: str, partition: int, *, byzantine: bool) -> Any:
    """Start one SuperNode of a demo, whose key is among the server's credentials."""
    credentials = server.home.credentials
    settings: dict[str, str | int | float | bool] = {"partition": partition, "byzantine": byzantine}
    folder: Path = server.home.folder / name
    return start_node(
        server.address, folder, credentials.node_key(name), credentials.authority, settings, server.supervisor
    )


def predict_demo(settings: RunSettings) -> Prediction | None:
    """Ask the theory for the learning curve, or return None where it has none to give.

    It describes one sample per client and round, and this installation may not have it.
    """
    if settings.samples_per_round != 1:
        return None
    import psofed

    rounds = settings.scenario.iterations
    try:
        curve = psofed.predict(settings.scenario).learning_curve(rounds + 1)
    except (AttributeError, ImportError, PsofedError):
        return None
    # Iteration n is round n + 1; the server's entry n is its state before that round, so after round n.
    return Prediction(
        list(map(float, curve.network_mse[:rounds])), list(map(float, curve.server_msd[1 : rounds + 1]))
    )
