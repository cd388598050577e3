"""Frame of streams: one call of the body for each input of each trial."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.bodies import NO_HOOK, Body, Frame, Hook, Unpack, make_hook
from psofed.engine.compiling import compiled
from psofed.engine.hooks import DRAW, take_draw
from psofed.engine.inputs import InputModel, colour
from psofed.parts.contexts import Innovation

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class Inputs(NamedTuple):
    """Where inputs come from, in the form that kernels take.

    Attributes
    ----------
    is_independent : bool
        Whether they are independent over time; else the hook makes them.
    hook : Hook
        The stream's method.
    memory : array (K, lanes, any)
        What it remembers of each client. It is carried from chunk to chunk, so chunks are asked for in order.
    """

    is_independent: bool
    hook: Hook
    memory: FloatArray


def make_inputs(scenario: "Scenario", lanes: int) -> Inputs:
    """Return the stream of several trials, before its first iteration."""
    stream = scenario.data.stream
    if stream.is_independent:
        return Inputs(True, NO_HOOK, np.zeros((0, 0, 0)))
    size = stream.memory_size(scenario.input_dimension)
    return Inputs(
        False, make_hook(stream, "draw", DRAW, _make_frame), np.zeros((scenario.num_clients, lanes, size))
    )


@compiled(inline=True)
def draw_input(
    stream: Inputs, model: InputModel, n: int, k: int, normals: NDArray[np.float32], out: FloatArray
) -> None:
    """Write the inputs of client `k` in iteration n into ``out`` (d, lanes), from ``normals`` (at least d, lanes)."""
    if stream.is_independent:
        colour(model, k, normals, out)
    else:
        take_draw(stream.hook.address)(
            stream.hook.token, n, k, model.scale[k], stream.hook.options, normals, stream.memory[k], out
        )


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, n: int, k: int, deviation: float, options: FloatArray, normals: NDArray[np.float32],
        memory: FloatArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        dimension, lanes = out.shape
        fresh, inputs = np.empty(dimension), np.empty(dimension)
        for lane in range(lanes):
            for i in range(dimension):
                fresh[i] = normals[i, lane]
                inputs[i] = 0.0
            body(self, Innovation(fresh, deviation, k, n), memory[lane], inputs)
            for i in range(dimension):
                out[i, lane] = inputs[i]

    return frame
