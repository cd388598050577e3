"""Frames of learners: gains of all trials at once, or any change of the model trial by trial."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import NO_HOOK, Body, Frame, Hook, Unpack, make_hook
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import GAIN, LEARN, take_gain, take_learn
from psofed.engine.lanes import WIDTH, empty_lanes, fma, load, store
from psofed.engine.lms import add_squares, fill_row, step_against
from psofed.parts.base import Learner
from psofed.parts.contexts import Observation, Residual

if TYPE_CHECKING:
    from psofed.scenario import Scenario

_LMS, _GAIN, _ANY = 0, 1, 2


class Learning(NamedTuple):
    """The learner in the form that the kernel takes.

    Attributes
    ----------
    shape : int
        _LMS: the engine's own step. _GAIN: a step along the input, v ← a v + g x. _ANY: any change.
    hook : Hook
        The learner's method; none for LMS.
    stepsizes, keep : arrays (K,)
        μ_k, and a.
    memory : array (K, lanes, any)
        Of each client.
    gains, scratch : arrays (2, lanes) and (3, D)
        Scratch: ‖x‖² and g; one trial's input, model and change.
    """

    shape: int
    hook: Hook
    stepsizes: FloatArray
    keep: FloatArray
    memory: FloatArray
    gains: FloatArray
    scratch: FloatArray


def make_learning(scenario: "Scenario", lanes: int) -> Learning:
    """Return the learner of several trials, with every client's memory as it is at first."""
    learner, stepsizes = scenario.learner, scenario.draw_stepsizes()
    shape, hook, first = _LMS, NO_HOOK, np.zeros(0)
    if learner.kind != "lms":
        shape, hook = (
            (_GAIN, _gain_hook(learner)) if learner.steps_along_input() else (_ANY, _learn_hook(learner))
        )
        first = np.asarray(learner.initial_memory(scenario.dimension), np.float64)
    return Learning(
        shape=shape,
        hook=hook,
        stepsizes=stepsizes,
        keep=_keep_of(learner, stepsizes) if shape == _GAIN else np.zeros(0),
        memory=np.broadcast_to(first, (scenario.num_clients, lanes, first.size)).copy(),
        gains=empty_lanes(2, lanes),
        scratch=np.empty((3, scenario.dimension)),
    )


def _keep_of(learner: Learner, stepsizes: FloatArray) -> FloatArray:
    """Return a of each client, asked once for each stepsize."""
    distinct, place = np.unique(stepsizes, return_inverse=True)
    return np.array([learner.keep(float(stepsize)) for stepsize in distinct])[place]


@kernel_part(inline=True)
def step_client(
    learning: Learning,
    n: int,
    k: int,
    target: FloatArray,
    sample: FloatArray,
    error: FloatArray,
    clients: FloatArray,
) -> None:
    """Let client k learn in iteration n from ``sample`` (D, lanes) with prediction errors ``error`` (lanes,)."""
    dimension, lanes = sample.shape
    hook, mu = learning.hook, learning.stepsizes[k]
    if learning.shape == _LMS:
        step_against(error, mu, sample, clients, k * dimension, dimension)
    elif learning.shape == _GAIN:
        power, gain = learning.gains[0], learning.gains[1]
        fill_row(power, 0, lanes, 0.0)
        add_squares(power, 0, sample, 0, dimension)
        take_gain(hook.address)(hook.token, n, k, mu, hook.options, error, power, gain)
        keep = learning.keep[k]
        for lane in range(0, lanes, WIDTH):
            against = -1.0 * load(gain, lane)
            first = k * dimension * lanes + lane
            for i in range(dimension):
                entry = keep * load(clients, first + i * lanes) + (1.0 - keep) * target[i]
                store(clients, first + i * lanes, fma(load(sample, i * lanes + lane), against, entry))
    else:
        take_learn(hook.address)(
            hook.token,
            n,
            k,
            mu,
            hook.options,
            target,
            sample,
            error,
            learning.memory[k],
            learning.scratch,
            clients[k],
        )


def _gain_hook(learner: Learner) -> Hook:
    return make_hook(learner, "gain", GAIN, _make_gain_frame)


def _learn_hook(learner: Learner) -> Hook:
    return make_hook(learner, "learn", LEARN, _make_learn_frame)


def _make_gain_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, n: int, k: int, stepsize: float, options: FloatArray, error: FloatArray, power: FloatArray,
        out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for lane in range(out.size):
            out[lane] = body(self, Residual(error[lane], power[lane], stepsize, k, n))

    return frame


def _make_learn_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, n: int, k: int, stepsize: float, options: FloatArray, target: FloatArray, inputs: FloatArray,
        error: FloatArray, memory: FloatArray, scratch: FloatArray, errors: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        dimension, lanes = inputs.shape
        x, model, change = scratch[0], scratch[1], scratch[2]
        for lane in range(lanes):
            for i in range(dimension):
                x[i] = inputs[i, lane]
                model[i] = target[i] - errors[i, lane]
                change[i] = 0.0
            body(self, Observation(x, error[lane], model, stepsize, k, n), memory[lane], change)
            for i in range(dimension):
                errors[i, lane] -= change[i]

    return frame
