"""How each station fares, and which stand out."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.advice.judging import Gain, Judge, Judged
from psofed.common.types import FloatArray

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData

# A station stands out if its error is this many robust deviations from the others', and at least this factor.
_DEVIATIONS, _FACTOR = 3.0, 1.5
_FEWEST = 5


@dataclass(frozen=True)
class Station:
    """One client of the table.

    Attributes
    ----------
    name : str
    rows : int
        With a target.
    alone, federation : float
        Mean squared errors over its judged rows; NaN if it has none.
    gain : Gain
        Of the federation; the intervals of all stations hold together (95 %).
    score : float
        How far the logarithm of its error alone is from the stations' median, in robust deviations (1.4826 MAD).
    stands_out : bool
    """

    name: str
    rows: int
    alone: float
    federation: float
    gain: Gain
    score: float
    stands_out: bool
    times_median: float

    @property
    def note(self) -> str:
        """Remark on the station, or an empty string."""
        parts = []
        if self.stands_out:
            digits = 1 if self.times_median > 1 else 2
            parts.append(f"stands out: {self.times_median:.{digits}f} × median")
        if self.gain.is_clear and self.gain.value < 0:
            parts.append("better alone")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gain": self.gain.to_json(), "note": self.note}


def describe_stations(
    data: "OwnData", judge: Judge, alone: Judged, federation: Judged
) -> tuple[Station, ...]:
    """Return all stations in the order of the table."""
    own, joined = judge.client_errors(alone), judge.client_errors(federation)
    gains = judge.client_gains(federation, alone)
    scores, times = robust_scores(own)
    flags = stands_out(scores, times)
    return tuple(
        Station(
            name=name,
            rows=len(data.table.targets[k]),
            alone=float(own[k]),
            federation=float(joined[k]),
            gain=gains[k],
            score=float(scores[k]),
            stands_out=bool(flags[k]),
            times_median=float(times[k]),
        )
        for k, name in enumerate(data.table.clients)
    )


def stands_out(scores: FloatArray, times: FloatArray) -> NDArray[np.bool_]:
    """Return which stations stand out: three robust deviations from the median, and a factor of 1.5."""
    return np.asarray((np.abs(scores) > _DEVIATIONS) & (np.abs(np.log(times)) > np.log(_FACTOR)))


def robust_scores(errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how far each error is from the others' in robust deviations of its logarithm, and its ratio to the median.

    Examples
    --------
    >>> scores, times = robust_scores(np.array([0.40, 0.42, 0.38, 0.41, 0.39, 1.56]))
    >>> bool(scores[-1] > 10), round(float(times[-1]), 1), bool(abs(scores[:-1]).max() < 3)
    (True, 3.9, True)
    """
    fit = np.isfinite(errors) & (errors > 0)
    scores, times = np.zeros(errors.shape), np.ones(errors.shape)
    if fit.sum() < _FEWEST:
        return scores, times
    logs = np.log(errors[fit])
    middle = np.median(logs)
    spread = 1.4826 * np.median(np.abs(logs - middle))
    # Errors that agree to the last digit would make any other stand out; a hundredth is a difference of no interest.
    scores[fit] = (logs - middle) / max(spread, 0.01)
    times[fit] = np.exp(logs - middle)
    return scores, times
