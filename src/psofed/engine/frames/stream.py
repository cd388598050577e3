"""Frame of streams: one call of the body for each input of each trial."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.bodies import NO_HOOK, Body, Frame, Hook, Unpack, make_hook
from psofed.engine.compiling import kernel_part
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
    scratch : array (d,)
        One trial's random numbers.
    """

    is_independent: bool
    hook: Hook
    memory: FloatArray
    scratch: FloatArray


def make_inputs(scenario: "Scenario", lanes: int) -> Inputs:
    """Return the stream of several trials, before its first iteration."""
    stream = scenario.data.stream
    if stream.is_independent:
        return Inputs(True, NO_HOOK, np.zeros((0, 0, 0)), np.zeros(0))
    size = scenario.input_dimension
    return Inputs(
        is_independent=False,
        hook=make_hook(stream, "draw", DRAW, _make_frame),
        memory=np.zeros((scenario.num_clients, lanes, stream.memory_size(size))),
        scratch=np.empty(size),
    )


@kernel_part(inline=True)
def draw_input(
    stream: Inputs, model: InputModel, n: int, k: int, normals: NDArray[np.float32], out: FloatArray
) -> None:
    """Write the inputs of client `k` in iteration n into ``out`` (d, lanes), from ``normals`` (at least d, lanes)."""
    if stream.is_independent:
        colour(model, k, normals, out)
    else:
        take_draw(stream.hook.address)(
            stream.hook.token, n, k, model.scale[k], stream.hook.options, normals, stream.memory[k], stream.scratch,
            out,
        )  # fmt: skip


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, n: int, k: int, deviation: float, options: FloatArray, normals: NDArray[np.float32],
        memory: FloatArray, scratch: FloatArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        dimension, lanes = out.shape
        for lane in range(lanes):
            for i in range(dimension):
                scratch[i] = normals[i, lane]
            body(self, Innovation(scratch, deviation, k, n), memory[lane], out[:, lane])

    return frame
