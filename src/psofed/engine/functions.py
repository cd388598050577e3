"""Functions to be learned: one call of the function's method for each input."""

from collections.abc import Callable

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.hooks import Body, Frame, make_function
from psofed.parts.base import Function


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
    out = np.zeros((1, 1, columns.shape[1]))
    make_evaluation(function)(columns[None, None], out)
    return out.reshape(inputs.shape[:-1])


def make_evaluation(function: Function) -> Callable[[FloatArray, FloatArray], None]:
    """Return what adds f of inputs (T, K, d, N) to an array (T, K, N)."""
    return make_function(function, "value", _make_frame)


def _make_frame(unpack: Body, body: Body) -> Frame:
    def frame(options: FloatArray, inputs: FloatArray, out: FloatArray) -> None:
        self = unpack(options)
        iterations, clients, size, count = inputs.shape
        x = np.empty(size)
        for t in range(iterations):
            for k in range(clients):
                for j in range(count):
                    for i in range(size):
                        x[i] = inputs[t, k, i, j]
                    out[t, k, j] = body(self, x) + out[t, k, j]

    return frame
