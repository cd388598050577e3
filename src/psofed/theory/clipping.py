"""Whether a dithered link of few bits clips values, which its theory (noise of variance Δ²/12) leaves out.

A value v on the link [−reach, reach] with 2^bits levels is not clipped if |v| ≤ reach − Δ/2 = reach (1 − 2^−bits). In
the steady state the errors of the server's model and of client k's before the upload have the second moments E[g gᵀ]
and E[z_k z_kᵀ], so that with m = ``_DEVIATIONS``, entry by entry,

    |g| ≤ |w*| + m √E[g²],    |u_k| ≤ |w*| + m √E[z_k²],

but for a share of values far below 1e-6. Normalised LMS has heavier tails: a step moves a model by μ |x ν|/(ε + ‖x‖²),
most for short inputs, so that both bounds gain m μ σ_ν times the largest ‖x‖/(ε + ‖x‖²) of all but the shortest 1e-7 of
the inputs (``_kick``). An attack sends α u + γ g + offset + noise, and links before this one add their noise; both
widen the range in the same way.
"""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.channels.built_in import Quantised
from psofed.scenario import Scenario
from psofed.theory.presence import KEPT

if TYPE_CHECKING:
    from psofed.theory.iteration import Moments
    from psofed.theory.model import TheoryModel

# Errors of LMS have heavier tails than a normal distribution, of which 5 deviations leave out 6e-7.
_DEVIATIONS = 7.0
_SHORTEST = 1e-7


def clips(scenario: Scenario) -> bool:
    """Whether some link clips values that are too large."""
    channel = scenario.channel
    return channel is not None and any(isinstance(part, Quantised) for part in (*channel.up, *channel.down))


def check_reach(model: "TheoryModel", steady: "Moments", stepsize: float) -> None:
    """Refuse links whose reach is exceeded in the steady state `steady` at a stepsize.

    Raises
    ------
    NotCoveredError
        With the field, its value, and a value that would do.
    """
    channel = model.scenario.channel
    assert channel is not None
    kick = _kick(model, stepsize)
    server = kick + _largest_model(model, steady.second[:, 0, :, 0])
    client = kick + _largest_model(model, steady.own[:, KEPT])
    ranges = {"up": _largest_upload(model, server, client), "down": server}
    for direction, largest in ranges.items():
        variance = 0.0
        for part in getattr(channel, direction):
            needed = largest + _DEVIATIONS * variance**0.5
            if isinstance(part, Quantised):
                needed /= 1.0 - 2.0**-part.bits
                if part.reach < needed:
                    raise NotCoveredError(
                        "the theory covers links that clip no value; here values are as large as "
                        f"{needed:.3g}, and channel.{direction}.reach = {part.reach:g}: set it to {needed:.3g} (with "
                        "more bits, so that its steps stay as fine)"
                    )
            variance += part.added_variance() or 0.0


def _largest_model(model: "TheoryModel", moments: FloatArray) -> float:
    """Largest value that an entry takes, given the second moments (…, d, d) of its error."""
    square = float(np.max(np.diagonal(moments, axis1=-2, axis2=-1), initial=0.0))
    return float(np.abs(model.fleet.target).max() + _DEVIATIONS * np.sqrt(max(square, 0.0)))


def _kick(model: "TheoryModel", stepsize: float) -> float:
    """Most that a step of normalised LMS moves a model; 0 for other learners."""
    step = model.scenario.learner.linear()
    if step is None or step.regularisation is None:
        return 0.0
    from scipy.special import gammaincinv

    fleet, half = model.fleet, 0.5 * model.scenario.dimension
    length = np.maximum(2.0 * fleet.input_variance * gammaincinv(half, _SHORTEST), step.regularisation)  # of x, squared
    gain = length**0.5 / (step.regularisation + length)
    return float(_DEVIATIONS * np.max(model.stepsizes(stepsize) * fleet.noise_variance**0.5 * gain))


def _largest_upload(model: "TheoryModel", server: float, client: float) -> float:
    largest = client
    for statement in (attack.upload for attack in model.attacks):
        if not statement.is_lost:
            deviation = (np.max(statement.variance) + np.max(statement.common_variance)) ** 0.5
            attacked = abs(statement.own) * client + abs(statement.server) * server
            attacked += float(np.abs(statement.offset).max()) + _DEVIATIONS * deviation
            largest = max(largest, attacked)
    return largest
