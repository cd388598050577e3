"""Apply a compiled attack to one server's uploads, for models too large for plain Python."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.frames.attack import corrupt_function
from psofed.parts.base import Attack
from psofed.parts.plain import corrupt_uploads


def corrupt_compiled(
    attack: Attack,
    uploads: FloatArray,
    attacking: NDArray[np.bool_],
    *,
    server: FloatArray,
    clients: NDArray[Any],
    iteration: int,
    normals: FloatArray,
    common_normals: FloatArray,
    group: NDArray[Any] | None = None,
    **known: Any,
) -> FloatArray:
    """Return the uploads as the server receives them, as :func:`psofed.parts.plain.corrupt_uploads` does.

    Examples
    --------
    >>> from psofed.parts.attacks import ConstantBias
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, False])
    >>> nothing = np.zeros((2, 2))
    >>> corrupt_compiled(ConstantBias(num_byzantine=1, bias=2.0), uploads, attacking, server=nothing[0],
    ...                  clients=np.arange(2), iteration=0, normals=nothing, common_normals=nothing[0])
    array([[ 3., nan],
           [ 2.,  3.]])
    """
    if attack.crafts_vectors():
        # Such an attack works on whole vectors already.
        return corrupt_uploads(
            attack, uploads, attacking, server=server, clients=clients, iteration=iteration, normals=normals,
            common_normals=common_normals, group=group, **known,
        )  # fmt: skip
    received = uploads.copy()
    arrays = [np.ascontiguousarray(array, np.float64) for array in (server, uploads, normals, common_normals)]
    corrupt = corrupt_function(attack)
    those = np.asarray(clients, np.int64)
    group = those[attacking] if group is None else np.asarray(group, np.int64)
    corrupt(iteration, those, np.ascontiguousarray(attacking), group, *arrays, received)
    return received
