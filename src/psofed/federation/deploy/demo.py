"""A whole federation on this machine, for show: real processes, TLS, node keys, one Byzantine node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.processes import Process, flower_environment
from psofed.federation.deploy.server import Server, client_command, serve
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, submit
from psofed.federation.deploy.superlink import Home
from psofed.federation.deploy.supernode import start_supernode
from psofed.parts.attacks.constant_bias import ConstantBias
from psofed.parts.attacks.gaussian import Gaussian
from psofed.parts.defences.cusum import Cusum
from psofed.scenario import Data, Scenario


@dataclass(frozen=True)
class RunPrediction:
    """Predictions of theory and simulation for each round.

    Attributes
    ----------
    network_mse : list of float
        The theory's expected squared a-priori error of the clients in rounds 1 … N.
    server_msd : list of float
        The theory's expected MSD of the server after rounds 1 … N.
    low, high : list of float
        Between these lies the server's MSD after each round in 90 % of simulated runs.
    """

    network_mse: list[float]
    server_msd: list[float]
    low: list[float]
    high: list[float]


def demo_settings(
    nodes: int,
    rounds: int,
    seed: int,
    samples_per_round: int = 1,
    deadline: float = 60.0,
    *,
    defended: bool = False,
) -> RunSettings:
    """Return a run of `nodes` clients of which the first is Byzantine.

    If it is `defended`, all take part in each round, and the Byzantine client sends a bias. Otherwise half of them take
    part, and it adds noise now and then: theory covers that.

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
        attack=Gaussian(num_byzantine=1, probability=0.5, variance=0.25),
    )
    if defended:
        scenario = scenario.replace(
            num_participants=nodes,
            attack=ConstantBias(num_byzantine=1, probability=1.0, bias=0.3),
            defence=Cusum(threshold=15.0),
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
    *,
    supernodes: bool = False,
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
    supernodes : bool
        Start Flower's SuperNodes in the place of long-lived nodes, to compare the two.

    Returns
    -------
    dict
        The run's result, with ``seconds_per_round`` (the median) and ``megabytes_per_node`` (the mean, of a
        node's processes together, at the end) beside it.
    """
    names = [f"node-{k}" for k in range(settings.scenario.num_clients)]
    on_step(f"making certificates and {len(names)} node keys in {home.credentials.folder}")
    make_credentials(home.credentials.folder, [], names)
    on_step("starting the SuperLink and registering the keys")
    with serve(home) as server:
        kind = "SuperNodes" if supernodes else "nodes"
        on_step(f"starting {len(names)} {kind} against {server.address} (TLS, loopback)")
        nodes = [
            start_demo_node(
                server, name, k, byzantine=k < settings.scenario.num_byzantine, supernode=supernodes
            )
            for k, name in enumerate(names)
        ]
        run = submit(home, settings, force=True)
        on_step("run submitted, waiting for the nodes")
        result = follow(
            home, run, timeout=settings.wait_for_nodes + settings.deadline + 60.0,
            on_progress=on_round, check=server.supervisor.check,
        )  # fmt: skip
        memory = sum(node.memory() for node in nodes) / len(nodes)
    seconds = result["learning_curve"]["seconds"]
    return {
        **result,
        "seconds_per_round": float(np.median(seconds)),
        "megabytes_per_node": round(memory / 2**20, 1),
    }


def start_demo_node(
    server: Server, name: str, partition: int, *, byzantine: bool, supernode: bool = False
) -> Process:
    """Start one node of a demo, whose key is among the server's credentials."""
    credentials = server.home.credentials
    folder = server.home.folder / name
    key, authority = credentials.node_key(name), credentials.authority
    if supernode:
        settings: dict[str, str | int | float | bool] = {"partition": partition, "byzantine": byzantine}
        return start_supernode(server.address, folder, key, authority, settings, server.supervisor)
    command = client_command(
        server.address, folder, key, authority, {"partition": partition, "byzantine": byzantine}
    )
    return server.supervisor.start(name, command, flower_environment((folder / "flower").resolve()))


def predict_demo(settings: RunSettings, trials: int = 1000) -> RunPrediction | None:
    """Ask the theory for the learning curve, and the simulator how far single runs stray from it.

    None if more than one sample arrives per client and round: neither describes that.
    """
    if settings.samples_per_round != 1:
        return None
    from psofed.simulation.monte_carlo import simulate
    from psofed.theory.prediction import predict

    rounds = settings.scenario.iterations
    curve = predict(settings.scenario).learning_curve(rounds + 1)
    simulated = simulate(
        settings.scenario.replace(iterations=rounds + 1), trials=trials, seed=settings.seed, keep_trials=True
    )
    if simulated.trial_curves is None or simulated.bin_width != 1:
        return None  # a run so long that its curve is averaged over rounds
    low, high = np.quantile(simulated.trial_curves["server_msd"], (0.05, 0.95), axis=0)
    # Iteration n is round n + 1; the server's entry n is its state before that round, so after round n.
    after = slice(1, rounds + 1)
    return RunPrediction(
        network_mse=curve.network_mse[:rounds].tolist(),
        server_msd=curve.server_msd[after].tolist(),
        low=low[after].tolist(),
        high=high[after].tolist(),
    )
