"""Learners and streams in the form that the step takes, and the frames around their methods."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.hooks import NO_HOOK, Body, Frame, Hook, make_hook
from psofed.engine.lanes import WIDTH, zero_lanes
from psofed.engine.signatures import DRAW, GAIN, LEARN
from psofed.parts.contexts import Innovation, Observation, Residual

if TYPE_CHECKING:
    from psofed.scenario import Scenario

# The engine's own step; a step along the input, v ← a v + g x; any change.
LMS, ALONG_INPUT, ANY = 0, 1, 2


class Learning(NamedTuple):
    """The learner in the form that the step takes.

    Attributes
    ----------
    shape : int
        LMS, ALONG_INPUT or ANY.
    hook : Hook
        Of the learner's method; none for LMS.
    stepsizes, keep : arrays (K,)
        μ_k, and a.
    memory : array (K, L, any)
        Of each client.
    numbers : array (3, D)
        Scratch: one trial's input, model and change.
    """

    shape: int
    hook: Hook
    stepsizes: FloatArray
    keep: FloatArray
    memory: FloatArray
    numbers: FloatArray


class Sampling(NamedTuple):
    """Where samples come from, unless they are white, and the samples on their way.

    Attributes
    ----------
    has_samples, tests_on_next : bool
        Whether samples are given, else drawn; whether the test MSE is that on the clients' next samples.
    inputs, residuals : arrays (T, K, D, L, 16 or 1) and (T, K, L, 16 or 1), or empty
        Given samples, see :class:`psofed.engine.samples.Chunk`.
    moves : array (T, D, 16), or empty
        w*_n − w*_0.
    offsets : array (K, D, 16), or empty
        d_k: how far each client's own target lies from the common one.
    draw : Hook
        Of a stream that remembers; none for independent inputs.
    memory : array (K, L, any)
        What the stream remembers of each client.
    numbers : array (2, d)
        Scratch of its frame.
    sample, residual : arrays (S, D, 16) and (S, 16)
        Samples of an iteration: of all K clients where they hold no model, else of one.
    """

    has_samples: bool
    tests_on_next: bool
    inputs: FloatArray
    residuals: FloatArray
    moves: FloatArray
    offsets: FloatArray
    draw: Hook
    memory: FloatArray
    numbers: FloatArray
    sample: FloatArray
    residual: FloatArray


def make_learning(scenario: "Scenario", trials: int) -> Learning:
    """Return the learner, with every client's memory as it is at first."""
    learner, stepsizes = scenario.learner, scenario.draw_stepsizes()
    shape, hook, first, keep = LMS, NO_HOOK, np.zeros(0), np.ones(stepsizes.size)
    if learner.kind != "lms":
        first = np.asarray(learner.initial_memory(scenario.dimension), np.float64)
        if learner.steps_along_input():
            shape, hook = ALONG_INPUT, make_hook(learner, "gain", GAIN, _make_gain_frame)
            distinct, place = np.unique(stepsizes, return_inverse=True)
            keep = np.array([learner.keep(float(stepsize)) for stepsize in distinct])[place]
        else:
            shape, hook = ANY, make_hook(learner, "learn", LEARN, _make_learn_frame)
    memory = np.broadcast_to(first, (scenario.num_clients if first.size else 1, trials, first.size)).copy()
    numbers = np.empty((3, scenario.dimension))
    return Learning(shape, hook, stepsizes, keep, memory, numbers)


def stream_hook(scenario: "Scenario", trials: int) -> tuple[Hook, FloatArray]:
    """Return the hook of a stream that remembers, and its memory (K, L, any); no hook for independent inputs."""
    stream = scenario.data.stream
    if stream.is_independent:
        return NO_HOOK, np.zeros((1, trials, 0))
    size = stream.memory_size(scenario.input_dimension)
    return make_hook(stream, "draw", DRAW, _make_draw_frame), np.zeros((scenario.num_clients, trials, size))


def make_sampling(
    scenario: "Scenario",
    trials: int,
    tests_on_next: bool,
    has_samples: bool,
    target_offsets: FloatArray | None,
) -> Sampling:
    """Return where samples come from; given samples and moves are filled in chunk by chunk."""
    hook, memory = (NO_HOOK, np.zeros((1, trials, 0))) if has_samples else stream_hook(scenario, trials)
    rows = 1 if scenario.algorithm.holds_models else scenario.num_clients
    offsets = np.zeros((0, 0, 0))
    if target_offsets is not None:
        offsets = np.repeat(target_offsets[:, :, None], WIDTH, axis=2)
    return Sampling(
        has_samples=has_samples,
        tests_on_next=tests_on_next,
        inputs=np.zeros((0, 0, 0, 0)),
        residuals=np.zeros((0, 0, 0)),
        moves=np.zeros((0, 0, 0)),
        offsets=offsets,
        draw=hook,
        memory=memory,
        numbers=np.empty((2, scenario.input_dimension)),
        sample=zero_lanes(rows, scenario.dimension, WIDTH),
        residual=zero_lanes(rows, WIDTH),
    )


def _make_gain_frame(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, n: int, k: int, stepsize: float, trials: int, error: FloatArray, power: FloatArray,
        out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for lane in range(trials):
            out[lane] = body(self, Residual(error[lane], power[lane], stepsize, k, n))

    return frame


def _make_learn_frame(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, n: int, k: int, stepsize: float, target: FloatArray, sample: FloatArray,
        error: FloatArray, learns: NDArray[np.uint8], memory: FloatArray, numbers: FloatArray, models: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        x, model, change = numbers[0], numbers[1], numbers[2]
        for lane in range(memory.shape[1]):
            if learns.size and not learns[k, lane]:
                continue
            for i in range(x.size):
                x[i] = sample[0, i, lane]
                model[i] = target[i] - models[k, i, lane]
                change[i] = 0.0
            own = memory[k if memory.shape[0] > 1 else 0, lane]
            body(self, Observation(x, error[lane], model, stepsize, k, n), own, change)
            for i in range(x.size):
                models[k, i, lane] -= change[i]

    return frame


def _make_draw_frame(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, n: int, k: int, deviation: float, normals: NDArray[np.float32], memory: FloatArray,
        numbers: FloatArray, s: int, sample: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        drawn, out = numbers[0], numbers[1]
        for lane in range(memory.shape[1]):
            for i in range(drawn.size):
                drawn[i] = normals[i, lane]
            body(self, Innovation(drawn, deviation, k, n), memory[k, lane], out)
            for i in range(drawn.size):
                sample[s, i, lane] = out[i]

    return frame
