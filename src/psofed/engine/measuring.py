"""A user's own metric: one call of its method for each trial."""

from collections.abc import Callable

from psofed.common.types import BoolArray, FloatArray
from psofed.engine.hooks import Body, Frame, make_function
from psofed.parts.metric import Metric, TrialState


def make_measurement(metric: Metric) -> Callable[..., None]:
    """Return what writes the metric of L trials: ``(n, target, server, models, errors, is_byzantine, out)``."""
    return make_function(metric, "measure", _make_frame)


def _make_frame(unpack: Body, body: Body) -> Frame:
    def frame(
        options: FloatArray, n: int, target: FloatArray, server: FloatArray, models: FloatArray,
        errors: FloatArray, is_byzantine: BoolArray, out: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        for trial in range(out.size):
            state = TrialState(
                n, target[trial], server[trial], models[trial], errors[trial], is_byzantine[trial]
            )
            out[trial] = body(self, state)

    return frame
