"""The frame of functions to be learned: one call of the body for each input."""

from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_function, make_hook
from psofed.engine.compiling import compiled
from psofed.engine.hooks import FUNCTION, take_function
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
    out = np.empty(columns.shape[1])
    make_function(function, "value", FUNCTION, _make_frame, _call)(columns, out)
    return out.reshape(inputs.shape[:-1])


def function_hook(function: Function) -> Hook:
    """Return the hook of a function, for kernels."""
    return make_hook(function, "value", FUNCTION, _make_frame)


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(token: int, options: FloatArray, inputs: FloatArray, out: FloatArray) -> None:
        self = unpack(options)
        x = np.empty(inputs.shape[0])
        for j in range(inputs.shape[1]):
            for i in range(x.size):
                x[i] = inputs[i, j]
            out[j] = body(self, x)

    return frame


@compiled
def _call(address: int, *arguments: Any) -> None:
    take_function(address)(0, *arguments)
