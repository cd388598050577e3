"""A whole federation on this machine, for show: real node processes where there is a broker, one of them Byzantine."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.files import only_one, read_json
from psofed.common.numbers import to_decibels
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.deploy.home import FINISHED, Home
from psofed.federation.deploy.operate import submit
from psofed.federation.deploy.options import DemoOptions
from psofed.federation.deploy.runs import FederationRun, RunStatus
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.ready_made import ready_made_server, run_ready_made
from psofed.federation.transport.hub import Hub
from psofed.federation.transport.in_process import InProcessHub
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.attacks.by_value import ConstantBias
from psofed.parts.defences.built_in import Cusum
from psofed.render import Column, Kind, Table
from psofed.render.numbers import decibels
from psofed.scenario import Data, Scenario

_BARS = "▁▂▃▄▅▆▇█"
_START_SECONDS = 180.0  # for all nodes, on a busy machine


def demo_settings(options: DemoOptions) -> RunSettings:
    """Return a run in which all clients take part in each round; the first is Byzantine and sends a bias.

    Examples
    --------
    >>> demo_settings(DemoOptions(nodes=4, rounds=10)).scenario.num_participants
    4
    """
    scenario = Scenario(
        num_clients=options.nodes,
        dimension=4,
        num_participants=options.nodes,
        num_shared=2,
        stepsize=0.2,
        iterations=options.rounds,
        data=Data(fleet_seed=options.seed),
        attack=ConstantBias(num_byzantine=1, probability=1.0, bias=0.3),
        defence=Cusum(threshold=15.0),
    )
    return RunSettings(
        scenario=scenario,
        seed=options.seed,
        deadline=options.deadline,
        samples_per_round=options.samples_per_round,
        synthetic=True,
        min_nodes=options.nodes,
        wait_for_nodes=_START_SECONDS,
    )


def run_demo(
    settings: RunSettings,
    home: Home,
    say: Callable[[str], None],
    on_round: Callable[[dict[str, Any]], None],
    *,
    in_process: bool = False,
) -> dict[str, Any]:
    """Start everything, run the rounds, stop everything whatever happens, and return the result.

    The result has ``seconds_per_round`` (the median) and ``megabytes_per_node`` (the mean, at the end; None within
    this process) beside it.
    """
    names = [f"node-{k}" for k in range(settings.scenario.num_clients)]
    request = submit(home, settings, force=True)
    with contextlib.ExitStack() as stack:
        hub: Hub
        processes: list[subprocess.Popen[bytes]] = []
        reason = "as asked for" if in_process else _why_no_broker()
        if reason:
            stack.enter_context(only_one(home.server_lock, f"a server of {home.folder} is running already"))
            say(f"running {len(names)} nodes within this process ({reason})")
            hub = in_process_hub(settings)
        else:
            hub = stack.enter_context(_started(home, names, settings.scenario.num_byzantine, processes, say))

        def attend() -> bool:
            dead = [name for name, child in zip(names, processes, strict=False) if child.poll() is not None]
            if dead:
                raise PsofedError(f"{dead[0]} has ended: see {home.logs / dead[0]}.log")
            return False

        run = FederationRun(RunStatus(home), request, attend, on_round=on_round)
        if run.carry_out(hub) != FINISHED:
            raise PsofedError(f"the demo has failed: {run.status.values['reason']}")
        memory = [_memory_of(child.pid) for child in processes]
    result = dict(read_json(home.result))
    return {
        **result,
        "seconds_per_round": float(np.median(result["learning_curve"]["seconds"])),
        "megabytes_per_node": round(float(np.mean(memory)), 1) if memory else None,
    }


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


@contextlib.contextmanager
def _started(
    home: Home,
    names: Sequence[str],
    num_byzantine: int,
    processes: list["subprocess.Popen[bytes]"],
    say: Callable[[str], None],
) -> Iterator[Hub]:
    """Start a server and the node processes, which end with the block."""
    from psofed.federation.deploy.options import ServerOptions
    from psofed.federation.deploy.server import serve
    from psofed.federation.transport.broker import bound_command
    from psofed.federation.transport.certificates import Certificates

    certificates = Certificates(home.credentials)
    say(f"making certificates for {len(names)} nodes in {certificates.folder}")
    certificates.make(nodes=names)
    say("starting mosquitto, and trying whether it keeps nodes apart")
    with serve(home, ServerOptions(port=0)) as server, contextlib.ExitStack() as stack:
        endpoint = str(server.hub.endpoint)
        say(f"starting {len(names)} node processes against {endpoint} (TLS, loopback)")
        home.logs.mkdir(exist_ok=True, mode=0o700)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        for k, name in enumerate(names):
            log = stack.enter_context((home.logs / f"{name}.log").open("ab"))
            words = [sys.executable, "-c", "from psofed.cli import main; main()", "federation", "client"]
            words += ["--broker", endpoint, "--certificate", str(certificates.bundle(name))]
            words += ["--home", str(home.folder / name), "--partition", str(k)]
            words += ["--byzantine"] if k < num_byzantine else []
            child = subprocess.Popen(
                bound_command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
            processes.append(child)
            stack.callback(_end, child)
        yield server.hub


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(10.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _memory_of(pid: int) -> float:
    """Return the memory of a process in MB; NaN where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return float("nan")


# --- what the protection was worth -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoComparison:
    """Server MSD by round of a demo's run, and of the same streams without its protection.

    Attributes
    ----------
    node : str
        The Byzantine node.
    found : int or None
        The round in which the defence excluded it.
    curves : mapping
        Server MSD by round: unprotected, and protected, which is the run itself.
    """

    node: str
    found: int | None
    curves: Mapping[str, Sequence[float]]

    @property
    def ends(self) -> list[float]:
        """The mean server MSD of each curve over its last quarter."""
        return [float(np.mean(curve[-max(1, len(curve) // 4) :])) for curve in self.curves.values()]

    @property
    def headline(self) -> str:
        """The outcome in two sentences or three; a loss is called one."""
        rounds, (unprotected, protected) = (
            len(next(iter(self.curves.values()))),
            (decibels(end, 1) for end in self.ends),
        )
        caught = f"was not caught in {rounds} rounds" if not self.found else f"was caught in round {self.found}"
        is_lost = self.ends[1] >= self.ends[0]
        lost = " Here the protection does not pay off: more rounds may show more." if is_lost else ""
        return (
            f"{self.node} is Byzantine and {caught}. "
            f"Protected, the server's error ends at {protected}; unprotected, at {unprotected}.{lost}"
        )

    def table(self) -> Table:
        """Return the curves as small charts on the same scale."""
        levels = [to_decibels(np.array(curve, dtype=np.float64)) for curve in self.curves.values()]
        low, high = min(map(np.min, levels)), max(map(np.max, levels))
        columns = (Column("run"), Column("by round"), Column("mean of the last quarter", Kind.LEVEL, digits=1))
        bars_by_run = [bars(level, low, high) for level in levels]
        rows = tuple(zip(self.curves, bars_by_run, self.ends, strict=True))
        return Table("Server's error: MSD by round (lower is better)", columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"node": self.node, "found": self.found, "server_msd": dict(self.curves)}


def bars(level: Any, low: float, high: float, width: int = 40) -> str:
    """Return values as a line of bars, the latest `width` of them.

    Examples
    --------
    >>> bars([0.0, 5.0, 10.0], 0.0, 10.0)
    '▁▄█'
    """
    reach = max(high - low, 1e-12)
    return "".join(_BARS[int((len(_BARS) - 1) * (value - low) / reach)] for value in level[-width:])


def compare_unprotected(result: Mapping[str, Any], settings: RunSettings) -> DemoComparison:
    """Replay the streams of a demo's run with all parameters shared, the plain mean and no defence."""
    scenario, curve = settings.scenario, list[float]()
    unprotected = settings.replace(
        scenario=scenario.replace(defence=None, aggregation=Mean(), num_shared=scenario.dimension)
    )
    server = ready_made_server(
        unprotected, on_round=lambda state: curve.append(state.history[-1]["evaluation"]["server-msd"])
    )
    run_ready_made(server, in_process_hub(unprotected), unprotected)
    shared = f"protected: {scenario.num_shared} of {scenario.dimension} parameters, defence"
    curves = {"unprotected: all parameters, no defence": curve, shared: result["learning_curve"]["server_msd"]}
    suspect = result.get("suspects", {}).get("node-0")
    return DemoComparison("node-0", None if suspect is None else int(suspect["first_round"]), curves)
