"""The ready-made Flower app: online regression with PSO-Fed, as ``psofed federation`` runs it.

What is to be done travels in the run's config (see :class:`~psofed.federation.deploy.settings.RunSettings`). What
concerns one machine comes from that machine alone: the server's folder from its environment, a client's
data from its node's settings. So nobody who submits a run can name a file on somebody else's machine.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from psofed.common.errors import PsofedError
from psofed.common.files import only_one
from psofed.common.logs import write_log_lines
from psofed.federation.client.attacks import PoisonedSource, rehearse
from psofed.federation.client.columns import TableSource
from psofed.federation.client.gateway import Gateway
from psofed.federation.client.learners import Learners
from psofed.federation.client.online import OnlineRegression, online_regression
from psofed.federation.client.shared_table import ClientRows, SharedTable
from psofed.federation.client.sharing import state_folder
from psofed.federation.client.sources import Source, open_source
from psofed.federation.client.synthetic import SyntheticSource, evaluate_model
from psofed.federation.client.uplink import Uplink
from psofed.federation.deploy.guard import die_with_parent
from psofed.federation.deploy.report import latest_errors, standing
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import write_result
from psofed.federation.deploy.superlink import Home
from psofed.federation.deploy.traffic import read_traffic
from psofed.federation.protocol.bounds import MAX_CONFIG, READY_MADE_ENTRIES, check_scenario
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.node_options import LINK, NodeOptions
from psofed.federation.protocol.wire import client_number
from psofed.federation.server.adoption import ADOPT
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.clients import anybody
from psofed.federation.server.step import Combination
from psofed.federation.server.strategy import PSOFed
from psofed.parts.base import Attack, Defence
from psofed.parts.channels.private import Private
from psofed.parts.channels.quantised import Quantised
from psofed.parts.network import Channel
from psofed.scenario import Scenario
from psofed.scenario.changes import attack_from_mapping

HOME_VARIABLE = "PSOFED_FEDERATION_HOME"
LOG_JSON_VARIABLE = "PSOFED_LOG_JSON"

client_app: ClientApp = ClientApp()
server_app: ServerApp = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Learn from all samples since the last call, and share a part."""
    settings, node, learners = _prepare(*_texts(context))
    attack = attack_of(node, settings.scenario.attack)
    lies = attack is not None and not attack.poisons_samples()
    # A lie is sent as it is.
    links = () if lies else links_of(node, settings)
    gateway = Gateway(
        catch_up=True,
        max_entries=READY_MADE_ENTRIES,
        columns=learners,
        uplink=Uplink(links) if links else None,
        clients=learners.names,
    )

    def answer(message: Message, context: Context) -> Message:
        folder = state_folder(context)
        content = gateway.answer(message.content, context, folder, learners.learn, evaluates=False)
        return Message(content, reply_to=message)

    if attack is not None and lies:
        return rehearse(attack, seed=settings.seed)(message, context, answer)
    return answer(message, context)


class ReadyMadeApp:
    """The ready-made ClientApp as a long-lived node runs it."""

    def __init__(self) -> None:
        self._run_id: int | None = None

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        if context.run_id != self._run_id:
            _prepare.cache_clear()  # what was made for earlier runs, by whatever they asked for
            self._run_id = context.run_id
        return client_app(message, context)

    def learn_arrived(self, context: Context) -> int:
        """Learn from what has arrived, and keep the state on disk if this node has a folder for it."""
        settings, _, learners = _prepare(*_texts(context))
        if settings.samples_per_round:
            return 0  # samples are counted out by round
        return learners.learn_arrived(context, state_folder(context))


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds; keep checkpoint, status and result in the server's folder."""
    if HOME_VARIABLE not in os.environ:
        raise PsofedError(
            "this app is started by `psofed federation server`, which says where to keep its files"
        )
    home = Home(Path(os.environ[HOME_VARIABLE]))
    write_log_lines("psofed.federation", as_json=bool(os.environ.get(LOG_JSON_VARIABLE)))
    sys.modules.setdefault("dask", None)  # type: ignore[arg-type]  # xarray would import it, half a second for nothing
    die_with_parent()  # SuperExec, which the server has started: a run without its server holds the lock for nothing
    try:
        run_server(grid, RunSettings.from_config(context.run_config), home)
    except Exception as error:
        word = "stopped" if home.stop_mark.exists() else "failed"
        reason = str(error) if isinstance(error, PsofedError) else f"{type(error).__name__}: {error}"
        home.write_status({"round": 0, "rounds": 0} | home.read_status(), state=word, reason=reason)
        raise


def run_server(grid: Grid, settings: RunSettings, home: Home) -> None:
    """Do what :func:`main` does on any grid."""
    with only_one(home.run_lock, f"a run is already in progress in {home.folder}"):
        say_finished = _run_server(grid, settings, home)
    say_finished()  # once the next run may begin


def _run_server(grid: Grid, settings: RunSettings, home: Home) -> Callable[[], None]:
    scenario = settings.scenario
    counted = read_traffic(home.traffic)
    began = {"time": time.time(), "traffic": None if counted is None else dataclasses.asdict(counted)}
    submitted = home.read_status()
    if submitted:  # from now on the server continues the run should this process die
        home.write_status(submitted, state="running", began=began)

    errors: dict[str, float] = {}

    def write_status(state: ServerState, word: str = "running") -> None:
        errors.update(latest_errors(state))
        home.write_status(
            standing(state, settings),
            state=word,
            run=str(submitted.get("run", "")),
            began=began,
            rounds=settings.num_rounds,
            round=state.round_number,
            last=state.history[-1] if state.history else None,
            conduct=state.conduct,
            seen=state.seen,
            gateways=state.clients.get("rosters", {}),
            refused=state.clients.get("refused", {}),
            errors=errors,
        )

    checkpoints = CheckpointStore(home.checkpoint, replaces=True)  # `submit` has asked
    strategy = PSOFed(
        Sharing(scenario.num_shared, scenario.selection.pattern, scenario.selection.coordinated),
        num_participants=scenario.num_participants,
        aggregation=Combination(scenario.aggregation, scenario.pre_aggregation),
        defence=_planned_defence(scenario),
        rounds=settings.plan,
        limits=settings.limits,
        seed=settings.seed,
        checkpoint=checkpoints,
        resume=settings.resume,
        columns=None if settings.synthetic else settings.columns or ADOPT,
        # A grid within this process has no keys.
        is_gateway=home.credentials.is_gateway if home.credentials.public_keys() else anybody,
        on_round=write_status,
    )
    initial = ArrayRecord([np.zeros(scenario.dimension, dtype=settings.dtype)])

    def evaluate(round_number: int, arrays: ArrayRecord) -> MetricRecord:
        (model,) = arrays.to_numpy_ndarrays()
        return MetricRecord(dict(evaluate_model(scenario, model, settings.seed)))

    strategy.start(
        grid,
        initial,
        num_rounds=settings.num_rounds,
        timeout=settings.deadline,
        evaluate_fn=evaluate if settings.synthetic else None,
    )
    state = write_result(home, settings, began)
    return lambda: write_status(state, "finished")


def _planned_defence(scenario: Scenario) -> Defence | None:
    """Return the scenario's defence with its threshold; each node is compared with its past."""
    if scenario.defence is None:
        return None
    from psofed.simulation.watch_plan import make_plan

    plan = make_plan(scenario.replace(attack=None, defence=scenario.defence.replace(variance="past")))
    assert plan is not None  # there is a defence
    return scenario.defence.replace(threshold=plan.threshold)


def _texts(context: Context) -> tuple[str, str]:
    return json.dumps(dict(context.run_config), sort_keys=True), json.dumps(
        dict(context.node_config), sort_keys=True
    )


@lru_cache(maxsize=64)
def _prepare(run_config: str, node_config: str) -> tuple[RunSettings, NodeOptions, Learners]:
    """Return a run's settings, a node's own and its clients, made once and then kept."""
    node = NodeOptions.from_node_config(json.loads(node_config))
    planned = node.byzantine and node.attack is None
    given = json.loads(run_config)
    if len(str(given.get("scenario", ""))) > MAX_CONFIG:
        raise PsofedError(f"the server's scenario is longer than {MAX_CONFIG:,} characters")
    settings = RunSettings.for_client(given, attack=planned)
    check_scenario(settings.scenario)
    source = _clean_source(node, settings)
    attack = attack_of(node, settings.scenario.attack)
    poisons = attack is not None and attack.poisons_samples()

    def make(samples: Source, client: str) -> OnlineRegression:
        scaled = isinstance(samples, TableSource | ClientRows)
        if attack is not None and poisons:
            samples = PoisonedSource(samples, attack, client_number(node.partition, client), settings.seed)
        stepsize = settings.scenario.common_stepsize
        return online_regression(samples, stepsize, settings.samples_per_round, scaled=scaled)

    return settings, node, Learners(source, make)


def attack_of(node: NodeOptions, planned: Attack | None = None) -> Attack | None:
    """Return the attack that a node rehearses: the one its settings name, the `planned` one, or the paper's."""
    if not node.byzantine:
        return None
    values: dict[str, Any] = {} if node.attack is None else {"kind": node.attack}
    if not values and planned is not None:
        values = {name: value for name, value in planned.to_mapping().items() if name != "clients"}
    given = {"probability": node.attack_probability, "strength": node.attack_strength}
    values |= {name: value for name, value in given.items() if value is not None}
    return attack_from_mapping({**values, "num_byzantine": 1, "byzantine_set": "fixed"})


def links_of(node: NodeOptions, settings: RunSettings) -> tuple[Channel, ...]:
    """Return what a node does to its uploads: what its own settings say, otherwise what the run's scenario says."""
    given = {name: value for name in LINK if (value := getattr(node, name)) is not None}
    if not given:
        links = settings.scenario.channel
        return () if links is None else links.up
    kinds = {Private: ("clip", "multiplier", "delta"), Quantised: ("bits", "reach", "rounding")}
    named = {kind: {name: given[name] for name in names if name in given} for kind, names in kinds.items()}
    return tuple(kind(**values) for kind, values in named.items() if values)


def _clean_source(node: NodeOptions, settings: RunSettings) -> Source | SharedTable:
    """Return a node's samples, or the table of a gateway."""
    if settings.synthetic and node.is_gateway:
        raise PsofedError(
            "this node is a gateway, whose clients have rows of their own: a synthetic run has none"
        )
    if settings.synthetic:
        return SyntheticSource(settings.scenario, node.partition, settings.seed)
    if not node.data:
        raise PsofedError("this node has no data: start it with `psofed federation client --data …`")
    source = open_data(node, settings.scenario.dimension)
    return SharedTable(source) if node.is_gateway and isinstance(source, TableSource) else source


def open_data(node: NodeOptions, dimension: int) -> Source:
    """Return the samples that a node's settings name: a table with named columns, or any other source."""
    if not node.describes_table:
        return open_source(node.data, dimension, node.partition)
    units = (text.partition("=") for text in node.units)
    return TableSource(
        Path(node.data),
        dimension,
        node.target_column,
        tuple(node.features),
        node.client_column or "",
        node.client or "",
        units=tuple((column.strip(), unit.strip()) for column, _, unit in units),
    )
