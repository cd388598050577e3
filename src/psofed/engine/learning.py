"""Learners and streams in the form that the step takes, and the frames around their methods."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.hooks import Hooks, Method, options_of
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.tables import TableData
from psofed.parts.contexts import Innovation, Observation, Residual

if TYPE_CHECKING:
    from psofed.engine.state import Setup
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# Words that are hashed ahead of the normals made of them: one loop for both would run out of registers.
AHEAD = 8

# The engine's own step; a step along the input, v ← a v + g x; any change.
LMS, ALONG_INPUT, ANY = 0, 1, 2


class InputModel(TableData):
    """Factors of the covariances R_k of inputs x ~ N(0, R_k).

    With factors, x = C_k z with R_k = C_k C_kᵀ, C_k lower triangular. Without, x_i = ρ x_{i−1} + ς_k √(1−ρ²) z_i, so
    R_k = ς_k² ρ^|i−j|; white inputs are the case ρ = 0.

    Attributes
    ----------
    scale : array (K,)
        ς_k.
    correlation : float
        ρ.
    factors : array (K, D, D), or empty
        C_k.
    noise_deviation : array (K,)
        Standard deviations of the noise ν_k.
    """

    def __init__(self, fleet: "Fleet", draws: bool = True) -> None:
        covariances = fleet.explicit_covariances
        self.scale: FloatArray = np.sqrt(fleet.input_variance)
        self.correlation = 0.0 if covariances is not None else float(fleet.correlation)
        # Skipped where no inputs are drawn.
        self.factors = np.zeros((0, 0, 0)) if covariances is None or not draws else _lower_factors(covariances)
        self.noise_deviation: FloatArray = np.sqrt(fleet.noise_variance)


def _lower_factors(covariances: FloatArray) -> FloatArray:
    # QR of the symmetric root exists also where a measured covariance is singular and Cholesky fails.
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    upper = np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r")
    return np.ascontiguousarray(np.swapaxes(upper, 1, 2))


class Sampling(TableData):
    """Where samples come from, unless they are white, and the samples on their way.

    Attributes
    ----------
    has_samples, tests_on_next : bool
        Whether samples are given, else drawn; whether the test MSE is that on the clients' next samples.
    address : int
        Of the method of a stream that remembers; 0 for independent inputs.
    options : array (any,)
        Its options.
    memory : array (K, L, any)
        What the stream remembers of each client.
    inputs : InputModel
        Covariances of the inputs.
    hashed, normals : arrays (any, 16), (2J, 16)
        Hashed words, and the standard normals of a client in an iteration.
    numbers : array (2, d)
        Scratch: those of one trial, and the input made of them.
    offsets : array (K, D, 16), or empty
        d_k: how far each client's own target lies from the common one.
    sample, residual : arrays (S, D, 16) and (S, 16)
        Samples of an iteration: of all K clients where they hold no model, else of one.
    """

    def __init__(
        self, scenario: "Scenario", trials: int, inputs: InputModel, hooks: Hooks, entries: int, draws: bool = True
    ) -> None:
        stream, size = scenario.data.stream, scenario.input_dimension
        rows = 1 if scenario.algorithm.holds_models else scenario.num_clients
        remembers = draws and not stream.is_independent
        shape = (scenario.num_clients, trials, stream.memory_size(size)) if remembers else (1, trials, 0)
        self.has_samples, self.tests_on_next = not draws, False
        self.address, self.options = 0, options_of(stream)
        self.memory = np.zeros(shape)
        self.inputs = inputs
        self.hashed: NDArray[np.uint64] = empty_lanes(AHEAD, WIDTH, dtype=np.uint64)
        self.normals: NDArray[np.float32] = empty_lanes(2 * ((entries + 2) // 2), WIDTH, dtype=np.float32)
        self.numbers = np.empty((2, size))
        self.offsets = np.zeros((0, 0, 0))
        self.sample: FloatArray = filled(0.0, rows, entries, WIDTH)
        self.residual: FloatArray = filled(0.0, rows, WIDTH)
        if remembers:
            self.address = hooks.add(stream, "draw", _draw, self)


def _draw(method: Method, n: int, k: int, s: int, sampling: Sampling) -> None:
    """Frame of a stream that remembers: draw the inputs of client k into row s of the samples."""
    normals, memory, sample = sampling.normals, sampling.memory, sampling.sample
    drawn, out, deviation = sampling.numbers[0], sampling.numbers[1], sampling.inputs.scale[k]
    for lane in range(memory.shape[1]):
        for i in range(drawn.size):
            drawn[i] = normals[i, lane]
        method(sampling.options, memory[k, lane], Innovation(drawn, deviation, k, n), out)
        for i in range(drawn.size):
            sample[s, i, lane] = out[i]


class Learning(TableData):
    """The learner in the form that the step takes, with every client's memory as it is at first.

    Attributes
    ----------
    shape : int
        LMS, ALONG_INPUT or ANY.
    address : int
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

    def __init__(self, setup: "Setup", sample: FloatArray) -> None:
        scenario, learner, stepsizes = setup.scenario, setup.scenario.learner, setup.scenario.draw_stepsizes()
        shape, first, keep, dimension = LMS, np.zeros(0), np.ones(stepsizes.size), scenario.dimension
        if learner.kind != "lms":
            first = np.asarray(learner.initial_memory(dimension), np.float64)
            shape = ALONG_INPUT if learner.defines("gain") else ANY
        if shape == ALONG_INPUT:
            distinct, place = np.unique(stepsizes, return_inverse=True)
            keep = np.array([learner.keep(float(stepsize)) for stepsize in distinct])[place]
        memory = (scenario.num_clients if first.size else 1, len(setup.trials), first.size)
        self.shape, self.address, self.options = shape, 0, options_of(learner)
        self.stepsizes, self.keep = stepsizes, keep
        self.memory: FloatArray = np.broadcast_to(first, memory).copy()
        self.numbers = np.empty((3, dimension))
        self.lanes: FloatArray = empty_lanes(3, WIDTH)
        self.learns, self.target, self.models = setup.state.learns, setup.state.target, setup.state.models
        self.sample = sample
        if shape == ALONG_INPUT:
            self.address = setup.hooks.add(learner, "gain", _find_gains, self)
        elif shape == ANY:
            self.address = setup.hooks.add(learner, "learn", _learn, self)


def _find_gains(method: Method, n: int, k: int, g: int, learning: Learning) -> None:
    lanes, stepsize = learning.lanes, learning.stepsizes[k]
    for lane in range(learning.memory.shape[1]):
        lanes[2, lane] = method(learning.options, None, Residual(lanes[0, lane], lanes[1, lane], stepsize, k, n))


def _learn(method: Method, n: int, k: int, g: int, learning: Learning) -> None:
    target, models, memory = learning.target, learning.models, learning.memory
    sample, learns, errors, stepsize = learning.sample, learning.learns, learning.lanes, learning.stepsizes[k]
    x, model, change = learning.numbers[0], learning.numbers[1], learning.numbers[2]
    for lane in range(memory.shape[1]):
        if not learns[k, lane]:
            continue
        for i in range(x.size):
            x[i] = sample[0, i, lane]
            model[i] = target[i] - models[k, i, lane]
            change[i] = 0.0
        own = memory[k if memory.shape[0] > 1 else 0, lane]
        method(learning.options, own, Observation(x, errors[0, lane], model, stepsize, k, n), change)
        for i in range(x.size):
            models[k, i, lane] -= change[i]
