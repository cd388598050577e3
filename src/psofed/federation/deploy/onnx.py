"""The linear model as an ONNX graph, which other programs run without psofed.

One input ``features`` (rows × d, float64, NaN where a value is missing, columns in the order that the metadata names),
one output ``prediction`` (rows). With a scaling the graph does what :meth:`Standardiser.scale` does: a row counts as
the next one of the client's stream, so the running mean and variance include it. With n values of an input before,
mean m and sum of squares s,

    m' = m + (x − m)/(n + 1),    s' = s + (x − m)(x − m'),    z = (x − m')/√(s'/(n + 1)),

z clipped, and 0 where x is missing or has never varied; the prediction is ȳ + σ_y wᵀz.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import missing_package
from psofed.common.files import write_atomically
from psofed.common.types import FloatArray
from psofed.data.standardise import Standardiser
from psofed.federation.protocol.column_names import ColumnNames


def save_onnx(
    path: Path,
    weights: FloatArray,
    scaling: Standardiser | None,
    columns: ColumnNames | None,
    about: dict[str, str],
) -> None:
    """Write y = wᵀx, with its scaling if there is one, atomically; `about` becomes the file's metadata."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise missing_package(f"--out {path}", "the onnx package", "onnx") from None
    graph = _Graph(helper)
    scaled = "features" if scaling is None else _scale(graph, scaling)
    offset, factor = (0.0, 1.0) if scaling is None else (scaling.target_mean, scaling.target_deviation)
    # A factor after the product would be fused into it by onnxruntime, in single precision.
    graph.add("MatMul", [scaled, graph.constant(factor * weights)], "deviation")
    graph.add("Add", ["deviation", graph.constant(offset)], "prediction")
    made = helper.make_graph(
        graph.nodes,
        "psofed",
        [helper.make_tensor_value_info("features", TensorProto.DOUBLE, ["rows", weights.size])],
        [helper.make_tensor_value_info("prediction", TensorProto.DOUBLE, ["rows"])],
        graph.constants,
    )
    model = helper.make_model(
        made, producer_name="psofed", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    if columns is not None:
        about = {**about, "columns": json.dumps(columns.to_mapping())}
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString())


class _Graph:
    """Nodes and constants of a graph in the order in which they are made."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float64), name))
        return name

    def add(self, operation: str, inputs: list[str], output: str) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(self._helper.make_node(operation, inputs, [output]))
        return output


def _scale(graph: _Graph, scaling: Standardiser) -> str:
    """Add the scaling of ``features`` and return the name of z."""
    zero, one = graph.constant(0.0), graph.constant(1.0)
    graph.add("IsNaN", ["features"], "missing")
    step = graph.add("Sub", ["features", graph.constant(scaling.means)], "step")
    move = graph.add("Div", [step, graph.constant(scaling.counts + 1.0)], "move")
    rest = graph.add("Sub", [step, move], "rest")  # x − m'
    growth = graph.add("Mul", [step, rest], "growth")
    squares = graph.add("Add", [growth, graph.constant(scaling.squares)], "squares")
    graph.add("Greater", [squares, zero], "varies")
    graph.add("Not", ["missing"], "there")
    graph.add("And", ["there", "varies"], "usable")
    safe = graph.add("Where", ["usable", squares, one], "safe_squares")
    variance = graph.add("Div", [safe, graph.constant(scaling.counts + 1.0)], "variance")
    deviation = graph.add("Sqrt", [variance], "standard_deviation")
    score = graph.add("Div", [rest, deviation], "score")
    chosen = graph.add("Where", ["usable", score, zero], "usable_score")
    limits = [graph.constant(-scaling.clip), graph.constant(scaling.clip)]
    return graph.add("Clip", [chosen, *limits], "scaled")
