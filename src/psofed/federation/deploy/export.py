"""Using the result: exporting the server's model, and predicting with it or with a client's model.

A model is a JSON document, the one that the server retains in the topic ``model``
(:func:`psofed.federation.server.loop.describe_model`). An exported one also says how the model makes features, and may
have a client's scaling.

Weights are for scaled inputs if the clients scale their data (``--target-column``). Scaling is each client's own and
never leaves it; whoever wants to predict takes it from a client's folder, into the exported file or beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.files import read_json, write_json
from psofed.common.types import FloatArray
from psofed.data.standardise import Standardiser
from psofed.federation.client.online import read_stream
from psofed.federation.client.ready_made import RUN_FILE
from psofed.federation.client.sources import Position, TableSource
from psofed.federation.client.state import ClientState, NodeMemory
from psofed.federation.deploy.home import Home
from psofed.federation.protocol.layout import ColumnNames, listed
from psofed.federation.protocol.messages import RunDescription
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.parts.base import Model
from psofed.parts.features import FeatureMap, identity
from psofed.parts.registry import find_part

_ARRAY = "0"  # the name of a linear regression's one array


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A model, and what is needed to use it.

    Attributes
    ----------
    weights : array (D,)
        w; all values are finite.
    round_number, session
        The round and the federation it is from.
    scaling : Standardiser or None
        A client's, for predictions in the target's own unit.
    columns : ColumnNames or None
        What the inputs are; None if the run's columns have no names.
    inputs : int or None
        d, the number of inputs, if the model makes features of them.
    kind : mapping
        The scenario's ``[model]``, by which features are made.
    """

    weights: FloatArray
    round_number: int
    session: str
    scaling: Standardiser | None = None
    columns: ColumnNames | None = None
    inputs: int | None = None
    kind: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all():
            problem = "has values that are not finite" if self.weights.ndim == 1 else "is not a list of weights"
            raise PsofedError(f"the model of round {self.round_number} {problem}")

    def features(self) -> FeatureMap:
        """Return z, by which ŷ = wᵀz(x)."""
        size = self.weights.size
        if self.inputs is None or self.kind is None:
            return identity(size)
        options = dict(self.kind)
        model: Model = find_part("model", str(options.pop("kind", "")), "features.kind").from_mapping(options)
        return model.make_features(self.inputs, size)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return self.weights.size if self.inputs is None else self.inputs


def from_server(home: Home, client: ExportedModel | None = None) -> ExportedModel:
    """Return the server's model of its last completed round, with the scaling of a client's model if one is given."""
    state, request = CheckpointStore(home.checkpoint).load(), home.read_request()
    if client is not None and client.columns != state.layout.columns:
        raise PsofedError(
            f"the client's columns ({client.columns or 'without names'}) are not those of the model "
            f"({state.layout.columns or 'without names'})"
        )
    model = _model_of(state, state.session, None if request is None else request.settings)
    return model if client is None else replace(model, scaling=client.scaling)


def from_client(folder: Path) -> ExportedModel:
    """Return the own model and scaling of the client that works in `folder`, from its newest saved state.

    A client of a gateway is addressed as if it had a folder in that of the gateway: ``psofed-gateway/north``.
    """
    if not any((place / "state").is_dir() for place in (folder, folder.parent)):
        raise PsofedError(f"{folder}: not the folder of a client, which is psofed-NODE on the node's machine")
    node, client = (folder, "") if (folder / "state").is_dir() else (folder.parent, folder.name)
    memory = read_memory(node)
    if client not in memory.clients:
        names = sorted(memory.clients)
        problem = f"holds no state of a client {client}" if client else "is the folder of a gateway"
        raise PsofedError(f"{node} {problem}; name one of its clients ({listed(names)}): {node / names[0]}")
    return client_model(node, memory, client)


def read_memory(node: Path) -> NodeMemory:
    """Return what the node that works in this folder has saved last."""
    files = sorted((node / "state").glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise PsofedError(f"{node} holds no client state")
    return NodeMemory.load(files[-1])


def client_model(node: Path, memory: NodeMemory, client: str) -> ExportedModel:
    """Return the own model and scaling of a client of the node that works in this folder."""
    state, settings = memory.clients[client], None
    if (path := node / "state" / RUN_FILE).exists():
        run = RunDescription.from_bytes(path.read_bytes())
        settings = run.settings if run.session == memory.session else None
    return replace(_model_of(state, memory.session, settings), scaling=read_stream(state.records).scaling)


def _model_of(state: ServerState | ClientState, session: str, settings: Mapping[str, Any] | None) -> ExportedModel:
    """Return the model of a state; the `settings` of its run say how it makes features."""
    if [len(shape) for shape in state.layout.shapes] != [1]:
        raise PsofedError("only a linear regression can be exported; this model has other arrays")
    weights = np.array(state.model, dtype=np.float64)
    model = ExportedModel(weights, state.round_number, session, columns=state.layout.columns)
    run = None if settings is None else RunSettings.for_client(settings)
    if run is None or run.scenario.model.kind == "linear":
        return model
    return replace(model, inputs=run.input_dimension, kind=run.scenario.model.to_mapping())


def save_model(model: ExportedModel, path: Path) -> None:
    """Write a model to a ``.json`` file, atomically."""
    if path.suffix != ".json":
        raise PsofedError(f"--out {path}: must end with .json")
    document = {
        "session": model.session,
        "round": model.round_number,
        "columns": None if model.columns is None else model.columns.to_mapping(),
        "model": {_ARRAY: model.weights.tolist()},
        "scaling": None if model.scaling is None else model.scaling.to_mapping(),
        "inputs": model.inputs,
        "features": None if model.kind is None else dict(model.kind),
    }
    write_json(path, document)


def load_model(path: Path) -> ExportedModel:
    """Read what :func:`save_model` wrote or the server has published, or the model of the client in folder `path`."""
    if path.is_dir() or (not path.exists() and (path.parent / "state").is_dir()):
        return from_client(path)
    if path.suffix != ".json":
        fix = "give a .json file written by `psofed federation export`, or the folder of a client"
        raise PsofedError(f"--model {path}: not a model; {fix}")
    document = read_json(path)
    try:
        scaling, columns = document.get("scaling"), document["columns"]
        return ExportedModel(
            np.array(document["model"][_ARRAY], dtype=np.float64), int(document["round"]), str(document["session"]),
            scaling=None if scaling is None else Standardiser.from_mapping(scaling),
            columns=None if columns is None else ColumnNames.from_mapping(columns),
            inputs=document.get("inputs"), kind=document.get("features"),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PsofedError(f"{path} is not an exported model: {error}") from None


def predict_rows(model: ExportedModel, path: Path, features: tuple[str, ...] = ()) -> Iterator[float]:
    """Yield a prediction for every row of a table, in the target's own unit if the model has a scaling.

    Parameters
    ----------
    features : tuple of str
        Columns of x, in the order of training, for a model whose columns have no names; all columns of the table if
        empty. Otherwise the model's own are found by name.
    """
    columns = model.columns
    if columns is not None:
        if features:
            columns.check_same(features, columns.target, "--features")
        features = columns.features
    table = TableSource(path, growing=False)
    table = replace(table, features=features or tuple(table.open().header))
    if len(table.features) != model.width:
        available = f"{len(table.features)} features ({listed(table.features)})"
        raise PsofedError(f"{path}: {available} for a model of {model.width}; choose with --features")
    rows = table.read(Position(), 1 << 62)
    if skipped := rows.end.skipped:
        raise PsofedError(f"{path}: {skipped} rows cannot be read (the last: {rows.problem})")
    yield from predict_inputs(model, rows.inputs, str(path))


def predict_inputs(model: ExportedModel, inputs: FloatArray, where: str) -> Iterator[float]:
    """Yield a prediction for every row of `inputs` (rows, d), NaN where a value is missing; errors name `where`."""
    scaling, make_features = model.scaling, model.features()
    if scaling is not None and scaling.width != model.width:
        raise PsofedError(f"the scaling is for {scaling.width} features, the model for {model.width}")
    if scaling is None and np.isnan(inputs).any():
        raise PsofedError(f"{where}: values are missing, which needs a model with a scaling")
    for k, x in enumerate(inputs):
        with np.errstate(over="ignore", invalid="ignore"):
            prediction = float(model.weights @ make_features(x if scaling is None else scaling.scale(x)))
            prediction = prediction if scaling is None else scaling.restore(prediction)
        if not np.isfinite(prediction):
            raise PsofedError(f"{where}, row {k + 1}: its values are too large to predict from")
        yield prediction


def describe(model: ExportedModel) -> str:
    """Describe a model in one line."""
    scaled = "with a scaling" if model.scaling is not None else "without a scaling"
    takes = "columns without names" if model.columns is None else str(model.columns)
    return f"{model.weights.size} parameters, after round {model.round_number}, {scaled}; {takes}"
