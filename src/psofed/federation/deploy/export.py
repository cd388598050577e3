"""Using the result: exporting the server's model, and predicting with it or with a client's model.

Weights are for scaled inputs if the clients scale their data (``--target-column``). Scaling is each client's own and
never leaves it; whoever wants to predict takes it from a client's folder, into the exported file or beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.common.files import read_json, write_json
from psofed.common.types import FloatArray
from psofed.data.standardise import Standardiser
from psofed.federation.client.columns import TableSource
from psofed.federation.client.online import read_stream
from psofed.federation.client.sources import Position
from psofed.federation.client.state import NodeMemory
from psofed.federation.protocol.archive import read_archive, write_archive
from psofed.federation.protocol.column_names import ColumnNames, listed
from psofed.federation.server.checkpoint import CheckpointStore

FORMAT = 1
KIND = "model"


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A model, and what is needed to use it.

    Attributes
    ----------
    arrays : dict
        All arrays of the model by name.
    round_number : int
        The round it is from.
    session : str
        The federation it is from.
    scaling : Standardiser or None
        A client's, for predictions in the target's own unit.
    columns : ColumnNames or None
        What entries of a linear model belong to; None if the run's columns have no names.
    """

    arrays: dict[str, Any]
    round_number: int
    session: str
    scaling: Standardiser | None = None
    columns: ColumnNames | None = None

    def weights(self) -> FloatArray:
        """Return w of a linear model; a PsofedError if the model is another."""
        arrays = list(self.arrays.values())
        if len(arrays) != 1 or arrays[0].ndim != 1:
            raise PsofedError("this is not the model of a linear regression; load its arrays with numpy.load")
        return np.asarray(arrays[0], dtype=np.float64)


def from_checkpoint(path: Path, client: ExportedModel | None = None) -> ExportedModel:
    """Return the server's model of its last completed round, with the scaling of a client's model if one is given."""
    state = CheckpointStore(path).load()
    if client is not None and client.columns != state.layout.columns:
        raise PsofedError(
            f"the client's columns ({client.columns or 'without names'}) are not those of the model "
            f"({state.layout.columns or 'without names'})"
        )
    scaling = None if client is None else client.scaling
    arrays = state.layout.restore(state.model, state.kept)
    named = {name: array.numpy() for name, array in arrays.items()}
    return ExportedModel(named, state.round_number, state.session, scaling, state.layout.columns)


def from_client(folder: Path) -> ExportedModel:
    """Return the own model and scaling of the client that works in `folder`, from its newest saved state.

    A client of a gateway is addressed as if it had a folder in that of the gateway: ``psofed-gateway/north``.
    """
    if not any((place / "state").is_dir() for place in (folder, folder.parent)):
        raise PsofedError(f"{folder}: not the folder of a client, which is psofed-NODE on the node's machine")
    folder, client = (folder, "") if (folder / "state").is_dir() else (folder.parent, folder.name)
    memory = read_memory(folder)
    if client not in memory.clients:
        there = sorted(memory.clients)
        problem = f"holds no state of a client {client}" if client else "is the folder of a gateway"
        raise PsofedError(
            f"{folder} {problem}; name one of its clients ({listed(there)}): {folder / there[0]}"
        )
    return model_of(memory, client, str(folder / client))


def read_memory(folder: Path) -> NodeMemory:
    """Return what the node that works in `folder` has saved last."""
    files = sorted((folder / "state").glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise PsofedError(f"{folder} holds no client state")
    return NodeMemory.load(files[-1])


def model_of(memory: NodeMemory, client: str, where: str) -> ExportedModel:
    """Return the own model and scaling of a client of a node; an error names `where` it should be."""
    kept = memory.of(client)
    if (state := kept.state) is None:
        raise PsofedError(f"{where} holds no model yet")
    arrays = {name: a.numpy() for name, a in state.layout.restore(state.model, state.kept).items()}
    scaling = read_stream(kept.records).scaling
    return ExportedModel(arrays, state.round_number, memory.session, scaling, state.layout.columns)


def save_model(model: ExportedModel, path: Path) -> None:
    """Write a model to a ``.npz``, ``.json`` or (if it is linear) ``.onnx`` file, atomically."""
    document: dict[str, Any] = {
        KIND: FORMAT,
        "psofed": __version__,
        "round": model.round_number,
        "session": model.session,
        "arrays": [[name, list(a.shape), str(a.dtype)] for name, a in model.arrays.items()],
        "columns": None if model.columns is None else model.columns.to_mapping(),
        "scaling": None if model.scaling is None else model.scaling.to_mapping(),
    }
    if path.suffix == ".npz":
        write_archive(path, document, model.arrays)
    elif path.suffix == ".json":
        write_json(path, {**document, "values": {name: a.tolist() for name, a in model.arrays.items()}})
    elif path.suffix == ".onnx":
        from psofed.federation.deploy.onnx import save_onnx

        about = {"psofed": __version__, "round": str(model.round_number), "session": model.session}
        save_onnx(path, model.weights(), model.scaling, model.columns, about)
    else:
        raise PsofedError(f"--out {path}: must end with .npz, .json or .onnx")


def load_model(path: Path) -> ExportedModel:
    """Read what :func:`save_model` wrote, or the model of the client whose folder `path` is."""
    if path.is_dir() or (not path.exists() and (path.parent / "state").is_dir()):
        return from_client(path)
    if path.suffix == ".onnx":
        raise PsofedError(
            f"--model {path}: ONNX files are for other programs; export a .json or .npz file too"
        )
    if path.suffix not in (".json", ".npz") and path.exists():
        raise PsofedError(
            f"--model {path}: not a model; give a .json or .npz file written by `psofed federation export`, "
            "or the folder of a client"
        )
    try:
        if path.suffix == ".json":
            document = read_json(path)
            if document[KIND] != FORMAT:
                raise PsofedError(f"{path} has format {document[KIND]}; this psofed reads {FORMAT}")
            arrays = {
                name: np.array(document["values"][name], dtype=dtype).reshape(shape)
                for name, shape, dtype in document["arrays"]
            }
        else:
            document, arrays = read_archive(path, KIND, FORMAT)
        scaling = None if document["scaling"] is None else Standardiser.from_mapping(document["scaling"])
        named = document.get("columns")
        columns = None if named is None else ColumnNames.from_mapping(named)
        return ExportedModel(arrays, int(document["round"]), str(document["session"]), scaling, columns)
    except (KeyError, TypeError, ValueError) as error:
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
            columns.check_same(ColumnNames(features, columns.target), "--features")
        features = columns.features
    found = TableSource(path, model.weights().size, "", features, growing=False).read(Position(), 1 << 62)
    if skipped := found.end_after(Position()).skipped:
        raise PsofedError(f"{path}: {skipped} rows cannot be read (the last: {found.problem})")
    yield from predict_inputs(model, found.inputs, str(path))


def predict_inputs(model: ExportedModel, inputs: FloatArray, where: str) -> Iterator[float]:
    """Yield a prediction for every row of `inputs` (rows, D), NaN where a value is missing."""
    weights, scaling = model.weights(), model.scaling
    if scaling is not None and scaling.width != weights.size:
        raise PsofedError(f"the scaling is for {scaling.width} features, the model for {weights.size}")
    if scaling is None and np.isnan(inputs).any():
        raise PsofedError(f"{where}: values are missing, which needs a model with a scaling")
    for x in inputs:
        scaled = x if scaling is None else scaling.scale(x)
        prediction = float(weights @ scaled)
        yield prediction if scaling is None else scaling.restore(prediction)


def describe(model: ExportedModel) -> str:
    """Describe a model in one line."""
    size = sum(a.size for a in model.arrays.values())
    scaled = "with a scaling" if model.scaling is not None else "without a scaling"
    takes = "columns without names" if model.columns is None else str(model.columns)
    arrays = f"{len(model.arrays)} array{'s' if len(model.arrays) > 1 else ''}"
    return f"{size} parameters in {arrays}, after round {model.round_number}, {scaled}; {takes}"
