"""A target that moves: the ``[drift]`` table of a scenario."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_choice, check_integer, check_number
from psofed.parts.registry import load_part, part_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from psofed.engine.streams import Stream


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How the target vector w* moves. Each kind takes the fields named after it, and no others.

    Parameters
    ----------
    kind : str
        ``"random-walk"`` (variance), ``"jump"`` (size, at) or ``"sinusoid"`` (amplitude, period).
    variance : float
        q: variance of the step that each entry of w* takes in each iteration.
    size : float
        Euclidean length of the jump; its direction is drawn per trial. w* itself has length 1.
    at : int
        The first iteration whose labels come from the new target.
    amplitude : float
        A: w* swings by A sin(2πn/period) along a direction drawn per trial.
    period : int
        Iterations of one swing.

    Examples
    --------
    >>> Drift(kind="random-walk", variance=1e-5).variance
    1e-05
    >>> Drift(kind="jump", size=1.0)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: drift.at = None is not allowed; allowed: an integer, at least 0
    >>> Drift(kind="random-walk", variance=1e-5, period=100)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: drift.period = 100 is not allowed; allowed: only variance with \
drift.kind = "random-walk"
    """

    kind: str
    variance: float | None = None
    size: float | None = None
    at: int | None = None
    amplitude: float | None = None
    period: int | None = None

    def __post_init__(self) -> None:
        check_choice("drift.kind", self.kind, part_names("drifts"))
        wanted = load_part("drifts", self.kind).FIELDS
        for name in (f.name for f in fields(self) if f.name != "kind"):
            value = getattr(self, name)
            if name in wanted:
                object.__setattr__(self, name, _check_field(name, value))
            elif value is not None:
                allowed = f'only {", ".join(wanted)} with drift.kind = "{self.kind}"'
                raise InvalidValueError(f"drift.{name}", value, allowed)


def draw_direction(stream: "Stream", dimension: int) -> "NDArray[np.float64]":
    """Draw a unit vector for each trial, uniform over the sphere, shape (D, lanes)."""
    import numpy as np

    from psofed.engine.normals import fill_standard_normal

    normals = np.empty((2 * ((dimension + 1) // 2), stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    vectors = normals[:dimension].astype(np.float64)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=0))


def _check_field(name: str, value: Any) -> float | int:
    if name == "at":
        return check_integer("drift.at", value, 0)
    if name == "period":
        return check_integer("drift.period", value, 2)
    return check_number(f"drift.{name}", value, 0)
