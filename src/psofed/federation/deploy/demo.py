"""A whole federation on this machine, for show: real node processes where there is a broker, one of them Byzantine."""

import contextlib
import os
import resource
import subprocess
import sys
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.files import only_one, read_json
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.deploy.home import FINISHED, Home
from psofed.federation.deploy.options import DemoOptions
from psofed.federation.deploy.runs import FederationRun, OnRound, RunStatus, Say, submit
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.ready_made import run_ready_made
from psofed.federation.transport.hub import Hub
from psofed.federation.transport.in_process import InProcessHub
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.attacks.by_value import ConstantBias
from psofed.parts.defences.built_in import Cusum
from psofed.scenario import Data, Scenario

_Process = subprocess.Popen[bytes]
_START_SECONDS = 180.0  # for all nodes, on a busy machine


def demo_settings(options: DemoOptions) -> RunSettings:
    """Return a run in which all clients take part in each round; the first is Byzantine and sends a bias.

    Examples
    --------
    >>> demo_settings(DemoOptions(nodes=4, rounds=10)).scenario.num_participants
    4
    """
    scenario = Scenario(
        num_clients=options.nodes, num_participants=options.nodes, iterations=options.rounds,
        dimension=4, num_shared=2, stepsize=0.2, data=Data(fleet_seed=options.seed),
        attack=ConstantBias(num_byzantine=1, probability=1.0, bias=0.3), defence=Cusum(threshold=15.0),
    )  # fmt: skip
    return RunSettings(
        scenario=scenario, seed=options.seed, deadline=options.deadline, samples_per_round=options.samples_per_round,
        synthetic=True, min_nodes=options.nodes, wait_for_nodes=_START_SECONDS,
    )  # fmt: skip


def run_demo(
    settings: RunSettings, home: Home, say: Say, on_round: OnRound, *, in_process: bool = False
) -> dict[str, Any]:
    """Start everything, run the rounds, stop everything whatever happens, and return the result.

    Besides, it has ``seconds_per_round`` (the median), ``megabytes_per_node`` (of the largest node process, None
    without any) and ``payoff``, the server MSD over the last quarter of the rounds, with and without protection.
    """
    names = [f"node-{k}" for k in range(settings.scenario.num_clients)]
    request = submit(home, settings, force=True)
    reason = "as asked for" if in_process else _why_no_broker()
    with contextlib.ExitStack() as stack:
        hub: Hub
        processes: list[_Process] = []
        if reason:
            stack.enter_context(only_one(home.server_lock, f"a server of {home.folder} is running already"))
            say(f"running {len(names)} nodes within this process ({reason})")
            hub = in_process_hub(settings)
        else:
            hub = _start(stack, home, names, settings.scenario.num_byzantine, processes, say)

        def attend() -> bool:
            dead = [name for name, child in zip(names, processes, strict=False) if child.poll() is not None]
            if dead:
                raise PsofedError(f"{dead[0]} has ended: see {home.logs / dead[0]}.log")
            return False

        run = FederationRun(RunStatus(home), request, attend, on_round=on_round)
        if run.carry_out(hub) != FINISHED:
            raise PsofedError(f"the demo has failed: {run.status.values['reason']}")
    result = dict(read_json(home.result))
    unit = 1 << (10 if sys.platform == "linux" else 20)  # of what is measured: kB or bytes
    memory = None if reason else round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / unit / 1000, 1)
    say("replaying the same streams without protection")
    curves = {"protected": result["learning_curve"]["server_msd"], "unprotected": unprotected_curve(settings)}
    payoff = {name: float(np.mean(curve[-max(1, len(curve) // 4) :])) for name, curve in curves.items()}
    seconds = float(np.median(result["learning_curve"]["seconds"]))
    return {**result, "seconds_per_round": seconds, "megabytes_per_node": memory, "payoff": payoff}


def unprotected_curve(settings: RunSettings) -> list[float]:
    """Return the server MSD by round of the same streams with all parameters shared, the plain mean and no defence."""
    scenario, curve = settings.scenario, list[float]()
    changed = scenario.replace(defence=None, aggregation=Mean(), num_shared=scenario.dimension)
    unprotected = settings.replace(scenario=changed)

    def note(state: ServerState) -> None:
        curve.append(state.history[-1]["evaluation"]["server-msd"])

    run_ready_made(unprotected, in_process_hub(unprotected), on_round=note)
    return curve


def in_process_hub(settings: RunSettings) -> InProcessHub:
    """Return a hub with the demo's nodes; they have the same bits as processes, since names and seeds are the same."""
    num_byzantine = settings.scenario.num_byzantine
    options = [NodeOptions(partition=k, byzantine=k < num_byzantine) for k in range(settings.scenario.num_clients)]
    return InProcessHub({f"node-{k}": ready_made_node(f"node-{k}", each) for k, each in enumerate(options)})


def _why_no_broker() -> str:
    """Return why there can be no node processes; empty if there can."""
    try:
        from psofed.federation.transport.broker import find_mosquitto

        find_mosquitto()
    except ImportError as error:
        return f"{error.name} is not installed"
    except PsofedError:
        return "no mosquitto is installed"
    return ""


def _start(
    stack: contextlib.ExitStack, home: Home, names: list[str], num_byzantine: int, processes: list[_Process], say: Say
) -> Hub:
    """Start a server and the node processes, which end with the stack."""
    from psofed.federation.deploy.options import ServerOptions
    from psofed.federation.deploy.server import serve
    from psofed.federation.transport.broker import bound_command, end_process
    from psofed.federation.transport.certificates import Certificates

    certificates = Certificates(home.credentials)
    say(f"making certificates for {len(names)} nodes in {certificates.folder}")
    certificates.make(nodes=names)
    say("starting mosquitto, and trying whether it keeps nodes apart")
    hub = stack.enter_context(serve(home, ServerOptions(port=0))).hub
    say(f"starting {len(names)} node processes against {hub.endpoint} (TLS, loopback)")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for k, name in enumerate(names):
        words = [sys.executable, "-c", "from psofed.cli import main; main()", "federation", "client"]
        words += ["--broker", str(hub.endpoint), "--certificate", str(certificates.bundle(name))]
        words += ["--home", str(home.folder / name), "--partition", str(k), *["--byzantine"] * (k < num_byzantine)]
        with (home.logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                bound_command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        processes.append(child)
        stack.callback(end_process, child)
    return hub
