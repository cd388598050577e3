"""Apply a compiled aggregation rule to one server's uploads, for models too large for plain Python."""

from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import raise_python_error, release
from psofed.engine.compiling import compiled
from psofed.engine.frames.aggregation import aggregation_hook, make_memory
from psofed.engine.hooks import Uploads, take_aggregation
from psofed.parts.base import Aggregation


def combine_compiled(rule: Aggregation, uploads: FloatArray, server: FloatArray) -> FloatArray:
    """Return the server's next model, as :func:`psofed.parts.plain.combine_uploads` does.

    Examples
    --------
    >>> from psofed.parts.aggregations import Median
    >>> combine_compiled(Median(), np.array([[1.0, np.nan], [3.0, 2.0], [9.0, 4.0]]), np.array([0.0, 1.0]))
    array([3.        , 1.66666667])
    """
    participants, size = uploads.shape
    hook = aggregation_hook(rule)
    # Kernels hold errors; counted from a target of zero an error is the model with the other sign.
    entries = np.broadcast_to(np.arange(size, dtype=np.int32)[:, None], (participants, size, 1)).copy()
    clients = np.zeros((participants, 1), np.int32)
    given = Uploads(clients, entries, np.ascontiguousarray(-uploads[:, :, None]), np.full(1, participants))
    error, nothing = -server.astype(np.float64)[:, None], np.zeros((size, 1))
    try:
        memory = make_memory(participants, size, size)
        _call(hook.address, hook.token, np.zeros(size), given, hook.options, nothing, memory, error)
        raise_python_error(hook)
    finally:
        release(hook)
    return np.asarray(-error[:, 0])


@compiled
def _call(address: int, *arguments: Any) -> None:
    take_aggregation(address)(*arguments)
