"""PSO-Fed as a Flower app: the bits of the in-process hub, models of several libraries, failures and refusals."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from nodes import fast_time, make_node

from psofed.attacks import ConstantBias
from psofed.channels import Private
from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.defences import Cusum
from psofed.federation import PSOFed, arrays_of, load_into, partial_sharing
from psofed.federation.client.gateway import Rehearsal, TrainingResult
from psofed.federation.flower import in_process
from psofed.federation.flower.in_process import InProcessGrid
from psofed.federation.protocol.layout import ColumnNames
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.loop import Server
from psofed.federation.transport.in_process import InProcessHub

pytestmark = pytest.mark.federation

NODES = (3, 8, 9, 2**63 + 5)
DIMENSION = 6


def reply(message, arrays, examples=2, **metrics):
    records = {"arrays": arrays_of(arrays), "metrics": MetricRecord({"num-examples": examples, **metrics})}
    return Message(RecordDict(records), reply_to=message)


def make_app(function, **sharing):
    app = ClientApp()
    app.train(mods=[partial_sharing(**sharing)])(function)
    return app


def add_one(message, context):
    return reply(message, [array + 1.0 for array in message.content["arrays"].to_numpy_ndarrays()])


class FaultyGrid(InProcessGrid):
    """Remembers what was sent, and delivers what `tamper`, given a reply, makes of it."""

    def __init__(self, apps, tamper=None):
        super().__init__(apps)
        self.tamper, self.sent = tamper or (lambda reply: [reply]), []

    def push_messages(self, messages):
        self.sent += (pushed := list(messages))
        ids = super().push_messages(pushed)
        for message_id in ids:
            self._replies[message_id] = [new for reply in self._replies[message_id] for new in self.tamper(reply)]
        return ids


def start(apps, rounds=3, initial=None, num_shared=2, tamper=None, **options):
    """Run a small federation, and return its strategy and result."""
    grid = FaultyGrid(apps if isinstance(apps, dict) else dict.fromkeys((1, 2, 3), apps), tamper)
    given = {"aggregation": "mean", "limits": ReplyLimits(ban_after=0), **options}
    strategy = PSOFed(num_shared, **given)
    with fast_time():
        result = strategy.start(grid, np.zeros(DIMENSION) if initial is None else initial, rounds)
    return strategy, result


# --- same bits ------------------------------------------------------------------------------------


def lms_step(model, node, round_number, phase):
    """A step of LMS on a sample that node and round determine."""
    rng = np.random.default_rng([node, round_number, phase == "missed"])
    inputs = rng.standard_normal(model.size)
    return model + 0.1 * inputs * (inputs.sum() + 0.1 * rng.standard_normal() - inputs @ model)


def learn_in_flower(message, context):
    config = message.content["config"]
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    learned = lms_step(model, context.node_id, config["server-round"], config["psofed-phase"])
    return reply(message, [learned], 2, loss=float(learned[0]))


def learn_in_process(node):
    def train(request):
        learned = lms_step(request.model, node, request.round_number, request.phase)
        return TrainingResult(learned, request.kept, request.records, 2, {"loss": float(learned[0])})

    return train


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({"aggregation": "mean"}, {}),
        ({"aggregation": "median", "num_participants": 3}, {"catch_up": True}),
        ({"num_participants": 2, "rounds": RoundPlan(newcomers="current")}, {"catch_up": True}),
        ({"defence": Cusum(threshold=8.0)}, {"corruption": Rehearsal(ConstantBias(num_byzantine=1, bias=0.5))}),
        ({"num_shared": Sharing(2, "round-robin", coordinated=False)}, {}),
    ],
)
def test_flower_gives_the_bits_of_the_in_process_hub(options, client):
    options = {"num_shared": 2, "seed": 4, **options}
    nodes = {str(node): make_node(str(node), learn_in_process(node), **client) for node in NODES}
    expected = Server(**options).run(InProcessHub(nodes), {"0": np.zeros(DIMENSION)}, 20)
    strategy = PSOFed(**options)
    grid = InProcessGrid({node: make_app(learn_in_flower, **client) for node in NODES})
    result = strategy.start(grid, np.zeros(DIMENSION), 20)
    assert strategy.state.model.tobytes() == expected.model.tobytes()
    assert result.arrays.to_numpy_ndarrays()[0].tobytes() == expected.model.tobytes()
    for ours, theirs in zip(strategy.state.history, expected.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path):
    def run(rounds, grid, **options):
        strategy = PSOFed(2, seed=4, **options)
        strategy.start(grid, np.zeros(DIMENSION), rounds)
        return strategy.state.model.tobytes()

    def make_grid():
        return InProcessGrid(dict.fromkeys(NODES, make_app(learn_in_flower)))

    grid, checkpoint = make_grid(), tmp_path / "checkpoint.npz"
    run(4, grid, checkpoint=checkpoint)
    assert run(9, grid, checkpoint=checkpoint, resume=True) == run(9, make_grid())


def test_a_clients_model_survives_a_restart_of_its_node_on_disk(tmp_path):
    def run(restarts, **sharing):
        app = make_app(learn_in_flower, **sharing)
        grid = InProcessGrid(dict.fromkeys(NODES, app))
        forget = grid.contexts.clear if restarts else lambda: None
        strategy = PSOFed(2, seed=4, on_round=lambda state: forget())
        strategy.start(grid, np.zeros(DIMENSION), 6)
        return strategy.state

    expected = run(restarts=False)
    assert run(restarts=True, state_directory=tmp_path).model.tobytes() == expected.model.tobytes()
    lost = [name for entry in run(restarts=True).history for name in entry["lost_state"]]
    assert {*lost} == {*map(str, NODES)}


def test_private_uploads_report_what_they_spend():
    app = make_app(learn_in_flower, privacy=Private(clip=1.0, multiplier=2.0))
    strategy, _ = start(app)
    assert strategy.state.history[-1]["metrics"]["1"]["privacy-uploads"] == 3


# --- what a training function sees and returns -----------------------------------------------------


def test_a_training_function_gets_the_full_model_and_what_it_must_know():
    seen = []

    def train(message, context):
        seen.append(dict(message.content["config"]))
        return add_one(message, context)

    columns = ColumnNames(tuple("abcdef"), "y")
    app = make_app(train, columns=columns)
    grid = InProcessGrid({1: app})
    strategy = PSOFed(2, columns=columns)
    strategy.start(grid, np.zeros(DIMENSION), 2, train_config=ConfigRecord({"rate": 0.5, "name": "x"}))
    assert [config["server-round"] for config in seen] == [1, 2]
    assert {(config["rate"], config["name"], config["psofed-phase"]) for config in seen} == {(0.5, "x", "current")}
    assert json.loads(seen[0]["psofed-columns"]) == columns.to_mapping()


def test_metrics_are_averaged_and_evaluations_kept():
    def train(message, context):
        return reply(message, message.content["arrays"], 1, loss=float(context.node_id))

    grid, evaluated = InProcessGrid(dict.fromkeys((1, 2, 3), make_app(train))), []

    def evaluate(round_number, arrays):
        evaluated.append(round_number)
        return MetricRecord({"norm": float(np.linalg.norm(arrays["0"].numpy()))})

    strategy = PSOFed(2)
    result = strategy.start(grid, np.ones(DIMENSION), 2, evaluate_fn=evaluate)
    assert dict(result.train_metrics_clientapp[2]) == {"loss": 2.0}
    assert evaluated == [0, 1, 2] == list(result.evaluate_metrics_serverapp)
    assert strategy.state.history[-1]["evaluation"] == dict(result.evaluate_metrics_serverapp[2])


def test_what_training_keeps_in_its_context_stays_and_a_failure_changes_nothing():
    def train(message, context):
        number = message.content["config"]["server-round"]
        context.state[f"round-{number}"] = MetricRecord({"seen": 1})
        if number == 2:
            raise RuntimeError("no data")
        return add_one(message, context)

    grid = InProcessGrid({1: make_app(train)})
    strategy = PSOFed(2, limits=ReplyLimits(rest_rounds=0))
    strategy.start(grid, np.zeros(DIMENSION), 4)
    assert sorted(grid.contexts[1].state) == ["psofed", "round-1", "round-3", "round-4"]
    assert strategy.state.history[1]["reasons"] == {"1": "RuntimeError: no data"}


def test_arrays_that_are_not_shared_stay_with_the_client():
    def train(message, context):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        arrays["head"] = arrays["head"] + context.node_id
        arrays["count"] = arrays["count"] + 1
        heads[context.node_id] = (float(arrays["head"][0]), int(arrays["count"]))
        return reply(message, arrays)

    heads = {}
    initial = {"body": np.zeros(3, np.float32), "head": np.zeros(2), "count": np.array(0)}
    strategy, result = start(make_app(train), initial=initial, num_shared=Sharing(0.5, exclude=("head",)))
    assert heads == {1: (3.0, 3), 2: (6.0, 3), 3: (9.0, 3)}
    assert strategy.state.layout.dimension == 3
    assert result.arrays["head"].numpy().tolist() == [0.0, 0.0]


# --- failures ---------------------------------------------------------------------------------------


def broken(message, context):
    raise RuntimeError("broken")


def changes_shape(message, context):
    return reply(message, [np.zeros(DIMENSION + 1)])


def returns_nothing(message, context):
    return Message(RecordDict(), reply_to=message)


def diverges(message, context):
    return reply(message, [np.full(DIMENSION, np.nan)])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "RuntimeError: broken"),
        (changes_shape, "training returned another model than it was given"),
        (returns_nothing, "training must return one ArrayRecord"),
        (diverges, "training diverged"),
    ],
)
def test_a_failing_client_costs_only_its_reply(function, reason):
    apps = {1: make_app(function), 2: make_app(add_one), 3: make_app(add_one)}
    strategy, _ = start(apps, rounds=1)
    entry = strategy.state.history[0]
    assert entry["dropped"] == {"1": "error"}
    assert reason in entry["reasons"]["1"]
    assert entry["accepted"] == ["2", "3"]
    assert not strategy.strikes.banned


def test_a_client_without_the_mod_is_told_apart():
    app = ClientApp()
    app.train()(lambda message, context: Message(RecordDict(), reply_to=message))
    strategy, _ = start({1: app, 2: make_app(add_one)}, rounds=1)
    assert "partial_sharing()" in strategy.state.history[0]["reasons"]["1"]


def test_messages_that_are_not_the_strategys_or_another_nodes_are_refused():
    grid = FaultyGrid({1: make_app(add_one)})
    message = grid.create_message(RecordDict({"arrays": ArrayRecord()}), "train", 1, "")
    (answer,) = grid.send_and_receive([message])
    assert "not PSOFed's" in answer.error.reason
    PSOFed(2).start(grid, np.zeros(DIMENSION), 1)
    grid.apps[2] = grid.apps[1]
    sent = grid.sent[-1]
    (answer,) = grid.send_and_receive([grid.create_message(sent.content, "train", 2, "")])
    assert "for node 1, not 2" in answer.error.reason


def silence(answer):
    return [answer] if answer.metadata.src_node_id != 1 else []


def report_error(answer):
    if answer.metadata.src_node_id != 1:
        return [answer]
    return [Message(Error(5, ""), reply_to=answer)]


def garble(answer):
    if answer.metadata.src_node_id == 1:
        answer.content["psofed"]["frame"] = b"nonsense"
    return [answer]


def repeat(answer):
    return [answer, answer]


@pytest.mark.parametrize(
    ("tamper", "dropped"), [(silence, "no-reply"), (report_error, "error"), (garble, "malformed"), (repeat, None)]
)
def test_replies_that_are_lost_garbled_or_repeated_harm_nobody_else(tamper, dropped):
    strategy, _ = start(make_app(add_one), rounds=1, tamper=tamper)
    entry = strategy.state.history[0]
    assert entry["dropped"] == ({} if dropped is None else {"1": dropped})
    assert {"2", "3"} <= {*entry["accepted"]}


class Unreadable(InProcessGrid):
    """Flower cannot read the first node's replies."""

    is_down = False

    def get_node_ids(self):
        if self.is_down:
            raise ConnectionError("the SuperLink is gone")
        return super().get_node_ids()

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        if self.is_down or any(answer.metadata.src_node_id == 1 for answer in replies):
            raise ValueError("bad object")
        return replies


def test_a_reply_that_flower_cannot_read_is_that_nodes_failure_and_a_lost_connection_ends_the_run():
    strategy, grid = PSOFed(2), Unreadable(dict.fromkeys((1, 2, 3), make_app(add_one)))
    strategy.start(grid, np.zeros(DIMENSION), 1)
    entry = strategy.state.history[0]
    assert (entry["dropped"], entry["accepted"]) == ({"1": "error"}, ["2", "3"])
    grid.is_down = True
    with pytest.raises(ConnectionError):
        PSOFed(2).start(grid, np.zeros(DIMENSION), 1)


class Refusing(InProcessGrid):
    """Flower takes no message for the first node."""

    def push_messages(self, messages):
        return [] if messages[0].metadata.dst_node_id == 1 else super().push_messages(messages)


def test_a_message_that_flower_refuses_costs_one_reply():
    strategy = PSOFed(2)
    strategy.start(Refusing(dict.fromkeys((1, 2), make_app(add_one))), np.zeros(DIMENSION), 1)
    assert strategy.state.history[0]["reasons"] == {"1": "Flower did not accept the message"}


# --- refusals ---------------------------------------------------------------------------------------


def test_what_is_not_supported_is_refused_by_name():
    grid = InProcessGrid({1: make_app(add_one)})
    with pytest.raises(NotCoveredError, match="evaluate_config"):
        PSOFed(2).start(grid, np.zeros(3), 1, evaluate_config=ConfigRecord({"a": 1}))
    with pytest.raises(NotCoveredError, match="settings"):
        PSOFed(2, settings={"a": 1}).start(grid, np.zeros(3), 1)
    with pytest.raises(InvalidValueError, match=r"train_config\['rates'\]"):
        PSOFed(2).start(grid, np.zeros(3), 1, train_config=ConfigRecord({"rates": [0.1, 0.2]}))
    with pytest.raises(InvalidValueError, match="initial model"):
        PSOFed(2).start(grid, {"count": np.zeros(3, int)}, 1)
    with pytest.raises(InvalidValueError, match="num_shared"):
        PSOFed(4).start(grid, np.zeros(3), 1)
    wrapped = DifferentialPrivacyServerSideFixedClipping(PSOFed(2), 1.0, 1.0, 1)
    with pytest.raises(NotCoveredError, match="wrapped"):
        wrapped.start(grid, ArrayRecord([np.zeros(3)]), 1)
    with pytest.raises(PsofedError, match="no node is available"), fast_time():
        PSOFed(2).start(InProcessGrid({}), np.zeros(3), 1)


# --- models -----------------------------------------------------------------------------------------


def test_numpy_models_are_written_in_place_or_returned():
    vector = np.zeros(3)
    assert load_into(vector, ArrayRecord([np.ones(3)])) is vector
    assert vector.tolist() == [1, 1, 1]
    (first, second) = load_into([vector, vector], ArrayRecord([np.ones(2), np.zeros(1)]))
    assert (len(first), len(second)) == (2, 1)
    assert list(load_into({}, ArrayRecord({"a": Array(np.ones(2))}))) == ["a"]
    with pytest.raises(InvalidValueError, match="model"):
        arrays_of(object())


def test_a_scikit_learn_regressor_learns_in_a_federation():
    linear_model = pytest.importorskip("sklearn.linear_model")
    truth = np.array([1.0, -2.0, 0.5])

    def blank():
        model = linear_model.SGDRegressor(eta0=0.05, learning_rate="constant")
        model.coef_, model.intercept_ = np.zeros(3), np.zeros(1)
        return model

    def train(message, context):
        model = load_into(blank(), message.content["arrays"])
        rng = np.random.default_rng([context.node_id, message.content["config"]["server-round"]])
        inputs = rng.standard_normal((40, 3))
        model.partial_fit(inputs, inputs @ truth + 3.0)
        return reply(message, model, 40)

    strategy, result = start(
        make_app(train), 120, blank(), Sharing(2, coordinated=False), num_participants=2, aggregation=None
    )
    model = load_into(blank(), result.arrays)
    np.testing.assert_allclose([*model.coef_, *model.intercept_], [*truth, 3.0], atol=0.1)
    assert not strategy.strikes.counts


def test_lists_of_layers_as_scikit_learns_perceptrons_have_them():
    class Perceptron:
        coefs_ = [np.ones((2, 3)), np.ones((3, 1))]  # noqa: RUF012
        intercepts_ = [np.zeros(3), np.zeros(1)]  # noqa: RUF012

    record = arrays_of(Perceptron())
    assert list(record) == ["coefs_.0", "coefs_.1", "intercepts_.0", "intercepts_.1"]
    again = load_into(Perceptron(), record)
    assert [layer.shape for layer in again.coefs_] == [(2, 3), (3, 1)]


def test_a_pytorch_module_goes_there_and_back():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (psofed[torch])")
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.BatchNorm1d(2))
    record = arrays_of(model)
    assert record["1.num_batches_tracked"].numpy().dtype == np.int64
    with torch.no_grad():
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for parameter in model.parameters():
            parameter.zero_()
    load_into(model, record)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "library", "good"),
    [
        ("federation_sklearn", "sklearn", lambda accuracy: accuracy > 0.93),
        ("federation_torch", "torch", lambda loss: loss < 0.4),
    ],
)
def test_the_examples_learn(name, library, good):
    pytest.importorskip(library)
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert good(module.main())


# --- imports ----------------------------------------------------------------------------------------


def test_only_public_modules_of_flower_are_imported_and_only_in_one_package():
    public = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
    package = Path(in_process.__file__).parent
    for path in package.parent.rglob("*.py"):
        modules = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
        assert {name for name in modules if name.split(".")[0] == "flwr"} <= (
            public if path.is_relative_to(package) else set()
        ), path


def test_the_federation_is_imported_without_flower():
    code = (
        "import sys; from psofed import federation as federation;"
        "from psofed.federation.client import node; from psofed.federation.server import loop;"
        "assert 'PSOFed' in dir(federation);"
        "sys.exit('flwr' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
