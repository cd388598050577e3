"""Learners and streams in the form that the step takes, and the frames around their methods."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.hooks import Body, Hooks, options_of
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.tables import Stage
from psofed.parts.contexts import Innovation, Observation, Residual

if TYPE_CHECKING:
    from psofed.engine.state import Setup
    from psofed.scenario import Scenario

# The engine's own step; a step along the input, v ← a v + g x; any change.
LMS, ALONG_INPUT, ANY = 0, 1, 2


class Sampling(NamedTuple):
    """Where samples come from, unless they are white, and the samples on their way.

    Attributes
    ----------
    has_samples, tests_on_next : bool
        Whether samples are given, else drawn; whether the test MSE is that on the clients' next samples.
    address : int array (1,)
        Of the method of a stream that remembers; 0 for independent inputs.
    options : array (any,)
        Its options.
    memory : array (K, L, any)
        What the stream remembers of each client.
    inputs : InputModel
        Covariances of the inputs.
    normals : array (2J, 16)
        Standard normals of a client in an iteration.
    numbers : array (2, d)
        Scratch: those of one trial, and the input made of them.
    offsets : array (K, D, 16), or empty
        d_k: how far each client's own target lies from the common one.
    sample, residual : arrays (S, D, 16) and (S, 16)
        Samples of an iteration: of all K clients where they hold no model, else of one.
    """

    has_samples: bool
    tests_on_next: bool
    address: IntArray
    options: FloatArray
    memory: FloatArray
    inputs: InputModel
    normals: NDArray[np.float32]
    numbers: FloatArray
    offsets: FloatArray
    sample: FloatArray
    residual: FloatArray


class Learning(NamedTuple):
    """The learner in the form that the step takes.

    Attributes
    ----------
    shape : int
        LMS, ALONG_INPUT or ANY.
    address : int array (1,)
        Of the learner's method; 0 for LMS.
    options : array (any,)
        Its options.
    stepsizes, keep : arrays (K,)
        μ_k, and a.
    memory : array (K or 1, L, any)
        Of each client.
    numbers : array (3, D)
        Scratch: one trial's input, model and change.
    lanes : array (3, 16)
        Scratch: errors, powers and gains of one client.
    learns : uint8 array (V, 16)
        Which columns learn.
    target, models, sample
        w, the clients' errors, and the sample that is learned from.
    """

    shape: int
    address: IntArray
    options: FloatArray
    stepsizes: FloatArray
    keep: FloatArray
    memory: FloatArray
    numbers: FloatArray
    lanes: FloatArray
    learns: NDArray[np.uint8]
    target: FloatArray
    models: FloatArray
    sample: FloatArray


def make_sampling(
    scenario: "Scenario", trials: int, inputs: InputModel, hooks: Hooks, entries: int, draws: bool = True
) -> Sampling:
    """Return where samples of some entries come from; given ones arrive chunk by chunk."""
    stream, size = scenario.data.stream, scenario.input_dimension
    rows = 1 if scenario.algorithm.holds_models else scenario.num_clients
    remembers = draws and not stream.is_independent
    shape = (scenario.num_clients, trials, stream.memory_size(size)) if remembers else (1, trials, 0)
    sampling = Sampling(
        has_samples=not draws,
        tests_on_next=False,
        address=np.zeros(1, np.int64),
        options=options_of(stream),
        memory=np.zeros(shape),
        inputs=inputs,
        normals=empty_lanes(2 * ((entries + 2) // 2), WIDTH, dtype=np.float32),
        numbers=np.empty((2, size)),
        offsets=np.zeros((0, 0, 0)),
        sample=filled(0.0, rows, entries, WIDTH),
        residual=filled(0.0, rows, WIDTH),
    )
    if remembers:
        sampling.address[0] = hooks.add(stream, "draw", _make_draw_frame, sampling)
    return sampling


def make_learning(setup: "Setup", sample: FloatArray) -> Learning:
    """Return the learner, with every client's memory as it is at first."""
    scenario, learner, stepsizes = setup.scenario, setup.scenario.learner, setup.scenario.draw_stepsizes()
    shape, first, keep, dimension = LMS, np.zeros(0), np.ones(stepsizes.size), scenario.dimension
    if learner.kind != "lms":
        first = np.asarray(learner.initial_memory(dimension), np.float64)
        shape = ALONG_INPUT if learner.steps_along_input() else ANY
    if shape == ALONG_INPUT:
        distinct, place = np.unique(stepsizes, return_inverse=True)
        keep = np.array([learner.keep(float(stepsize)) for stepsize in distinct])[place]
    memory = (scenario.num_clients if first.size else 1, len(setup.trials), first.size)
    learning = Learning(
        shape, np.zeros(1, np.int64), options_of(learner), stepsizes, keep, np.broadcast_to(first, memory).copy(),
        np.empty((3, dimension)), empty_lanes(3, WIDTH), setup.state.learns, setup.state.target, setup.state.models,
        sample,
    )  # fmt: skip
    if shape == ALONG_INPUT:
        learning.address[0] = setup.hooks.add(learner, "gain", _make_gain_frame, learning)
    elif shape == ANY:
        learning.address[0] = setup.hooks.add(learner, "learn", _make_learn_frame, learning)
    return learning


def _make_gain_frame(unpack: Body, body: Body) -> Stage:
    def frame(n: int, k: int, g: int, learning: Learning) -> None:
        self, lanes, stepsize = unpack(learning.options), learning.lanes, learning.stepsizes[k]
        for lane in range(learning.memory.shape[1]):
            lanes[2, lane] = body(self, Residual(lanes[0, lane], lanes[1, lane], stepsize, k, n))

    return frame


def _make_learn_frame(unpack: Body, body: Body) -> Stage:
    def frame(n: int, k: int, g: int, learning: Learning) -> None:
        self, target = unpack(learning.options), learning.target
        models, memory = learning.models, learning.memory
        sample, learns = learning.sample, learning.learns
        errors, stepsize = learning.lanes, learning.stepsizes[k]
        x, model, change = learning.numbers[0], learning.numbers[1], learning.numbers[2]
        for lane in range(memory.shape[1]):
            if not learns[k, lane]:
                continue
            for i in range(x.size):
                x[i] = sample[0, i, lane]
                model[i] = target[i] - models[k, i, lane]
                change[i] = 0.0
            own = memory[k if memory.shape[0] > 1 else 0, lane]
            body(self, Observation(x, errors[0, lane], model, stepsize, k, n), own, change)
            for i in range(x.size):
                models[k, i, lane] -= change[i]

    return frame


def _make_draw_frame(unpack: Body, body: Body) -> Stage:
    def frame(n: int, k: int, s: int, sampling: Sampling) -> None:
        self, normals = unpack(sampling.options), sampling.normals
        memory, sample = sampling.memory, sampling.sample
        drawn, out, deviation = sampling.numbers[0], sampling.numbers[1], sampling.inputs.scale[k]
        for lane in range(memory.shape[1]):
            for i in range(drawn.size):
                drawn[i] = normals[i, lane]
            body(self, Innovation(drawn, deviation, k, n), memory[k, lane], out)
            for i in range(drawn.size):
                sample[s, i, lane] = out[i]

    return frame
