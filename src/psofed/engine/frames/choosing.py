"""Frames of patterns with a memory: masks that depend on the clients' models and on what they shared before."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import CHOOSE, NOTE, Uploads, take_choose, take_note
from psofed.engine.normals import half_uniform_at
from psofed.engine.streams import Stream
from psofed.parts.contexts import Mask, Shared
from psofed.parts.plain import check_size

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class ChoosingSide(NamedTuple):
    """A pattern with a memory, and the current masks; for other patterns kernels take None.

    Attributes
    ----------
    choose, note : Hook
        Hooks of ``select`` and ``remember``.
    stream : Stream
        Randomness of the masks.
    memory : array (lanes, K, any)
        What is kept of each client.
    masks : int array (K, M, lanes)
        S_{k,n}: the entries that each client shares next.
    taken : array (P, M, lanes)
        Scratch: values that were downloaded, as errors; NaN where none was.
    wrong : int array (1,)
        1 if a mask had other than M distinct entries.
    """

    choose: Hook
    note: Hook
    stream: Stream
    memory: FloatArray
    masks: IndexArray
    taken: FloatArray
    wrong: IntArray


def make_choosing(scenario: "Scenario", stream: Stream) -> ChoosingSide | None:
    """Return the pattern of several trials if it has a memory and anything is to be chosen."""
    pattern, lanes = scenario.selection.pattern, stream.key.size
    if not pattern.has_memory() or scenario.num_shared == scenario.dimension:
        return None
    size = pattern.memory_size(scenario.dimension)
    check_size(f'selection.pattern = "{pattern.kind}"', scenario.num_clients * size)
    return ChoosingSide(
        choose=make_hook(pattern, "select", CHOOSE, _make_choosing_frame),
        note=make_hook(pattern, "remember", NOTE, _make_noting_frame),
        stream=stream,
        memory=np.zeros((lanes, scenario.num_clients, size)),
        masks=np.zeros((scenario.num_clients, scenario.num_shared, lanes), np.int32),
        taken=np.empty((scenario.num_participants, scenario.num_shared, lanes)),
        wrong=np.zeros(1, np.int64),
    )


def check_choosing(side: ChoosingSide, scenario: "Scenario") -> None:
    """Refuse masks that are wrong."""
    if side.wrong[0]:
        raise PsofedError(
            f'pattern "{scenario.selection.pattern.kind}" must choose {scenario.num_shared} distinct entries '
            f"between 0 and {scenario.dimension - 1}"
        )


@compiled(allocates=False)
def choose_masks(side: ChoosingSide, n: int, target: FloatArray, clients: FloatArray) -> None:
    """Choose the masks of iteration n for all clients."""
    hook = side.choose
    take_choose(hook.address)(
        hook.token, hook.options, n, side.stream, target, clients, side.memory, side.wrong, side.masks
    )


@kernel_part
def copy_masks(side: ChoosingSide, clients: IndexArray, entries: IndexArray) -> None:
    """Write the current masks of ``clients`` (P, lanes) into ``entries`` (P, M, lanes)."""
    participants, shared, lanes = entries.shape
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                entries[p, m, lane] = side.masks[clients[p, lane], m, lane]


@kernel_part
def note_shared(side: ChoosingSide, n: int, is_upload: bool, target: FloatArray, shared: Uploads) -> None:
    """Let the pattern remember values that clients have downloaded or upload; NaN where none is."""
    hook = side.note
    take_note(hook.address)(hook.token, hook.options, n, is_upload, target, shared, side.memory)


def _make_choosing_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, options: FloatArray, n: int, stream: Stream, target: FloatArray, clients: FloatArray,
        memory: FloatArray, wrong: IntArray, out: IndexArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        num_clients, dimension, lanes = clients.shape
        shared = out.shape[1]
        uniforms, model, chosen = np.empty(shared), np.empty(dimension), np.zeros(shared, np.int64)
        for k in range(num_clients):
            for lane in range(lanes):
                key, gamma = stream.key[lane], stream.gamma[lane]
                for m in range(shared):
                    uniforms[m] = half_uniform_at(key, gamma, (n * num_clients + k) * shared + m)
                for i in range(dimension):
                    model[i] = target[i] - clients[k, i, lane]
                own = half_uniform_at(key, gamma, k)
                body(self, Mask(n, k, dimension, shared, uniforms, own, model), memory[lane, k], chosen)
                for m in range(shared):
                    is_right = 0 <= chosen[m] < dimension
                    for other in range(m):
                        is_right = is_right and chosen[other] != chosen[m]
                    if not is_right:
                        wrong[0] = 1
                        chosen[m] = m  # an entry that exists; the run ends with an error
                    out[k, m, lane] = chosen[m]

    return frame


def _make_noting_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, options: FloatArray, n: int, is_upload: bool, target: FloatArray, shared: Uploads,
        memory: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        participants, size, lanes = shared.sent.shape
        entries, values = np.empty(size, np.int64), np.empty(size)
        for p in range(participants):
            for lane in range(lanes):
                count = 0
                for m in range(size):
                    value = shared.sent[p, m, lane]
                    if value == value:
                        entries[count] = shared.entries[p, m, lane]
                        values[count] = target[entries[count]] - value
                        count += 1
                if count > 0:
                    k: Any = np.int64(shared.clients[p, lane])
                    body(self, Shared(entries[:count], values[:count], k, n, is_upload), memory[lane, k])

    return frame
