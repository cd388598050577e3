"""Functions to be learned: one call of the function's method for each input."""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.tables import Stage
from psofed.parts.base import Function


class Evaluation(NamedTuple):
    """Inputs (T, K, d, N), and values (T, K, N) that the function's are added to."""

    options: FloatArray
    inputs: FloatArray
    values: FloatArray


def evaluate(function: Function, inputs: FloatArray) -> FloatArray:
    """Return f of inputs (…, d), shape (…,).

    Examples
    --------
    >>> from psofed.parts.functions import Sinc
    >>> evaluate(Sinc(), np.zeros((2, 3, 4)))
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    columns = np.ascontiguousarray(np.reshape(inputs, (-1, inputs.shape[-1])).T)
    values = np.zeros((1, 1, columns.shape[1]))
    add_values(function, columns[None, None], values)
    return values.reshape(inputs.shape[:-1])


def add_values(function: Function, inputs: FloatArray, values: FloatArray) -> None:
    """Add f of inputs (T, K, d, N) to ``values`` (T, K, N)."""
    run_method(function, "value", _make_frame, Evaluation(options_of(function), inputs, values))


def _make_frame(unpack: Body, body: Body) -> Stage:
    def frame(n: int, k: int, g: int, table: Evaluation) -> None:
        self, inputs, values = unpack(table.options), table.inputs, table.values
        iterations, clients, size, count = inputs.shape
        x = np.empty(size)
        for t in range(iterations):
            for client in range(clients):
                for j in range(count):
                    for i in range(size):
                        x[i] = inputs[t, client, i, j]
                    values[t, client, j] = body(self, x) + values[t, client, j]

    return frame
