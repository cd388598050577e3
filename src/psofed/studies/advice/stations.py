"""How each station fares, and which stand out."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from psofed.results.outliers import robust_scores, stands_out
from psofed.studies.advice.judging import Gain, Judge, Judged

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData


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
