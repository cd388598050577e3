"""How well a moving target was followed: what a simulation with drift says about lag and recovery."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psofed.results import SimulationResult
from psofed.scenario.drift import Drift

# A server has recovered from a jump when its MSD is within this factor of the level before it.
RECOVERED = 1.1


@dataclass(frozen=True)
class Tracking:
    """How well the server followed its target.

    Attributes
    ----------
    kind : str
        The drift's kind.
    msd, msd_standard_error : float
        Steady-state server MSD against the moving target.
    lag : float or None
        Random walk: how many iterations old the server's knowledge seems, MSD/(D·q), since w* is D·q·τ away (squared)
        from where it was τ iterations ago. Noise and attack count as lag,
        too; :func:`psofed.simulation.lag.measure_lag` takes them out.
    untracked : float or None
        Sinusoid: MSD over the mean square A²/2 of the motion; 1 for a server that stands still at the centre.
    recovery : int or None
        Jump: iterations until the mean MSD is back within 10 % of its level before the jump; None if it never was.
    recovery_standard_error : float or None
        Jackknife over trials, if their curves were kept.
    """

    kind: str
    msd: float
    msd_standard_error: float
    lag: float | None = None
    untracked: float | None = None
    recovery: int | None = None
    recovery_standard_error: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what does not apply to the kind of drift is left out."""
        applies = {"random-walk": ("lag",), "sinusoid": ("untracked",), "jump": _RECOVERY}[self.kind]
        return {k: v for k, v in asdict(self).items() if k in ("kind", "msd", "msd_standard_error", *applies)}

    def describe(self) -> str:
        """Return one sentence."""
        if self.kind == "random-walk":
            return (
                f"The server knows the target as if it were {self.lag:.0f} iterations late "
                "(noise and attack included)."
            )
        if self.kind == "sinusoid":
            return f"{self.untracked:.1%} of the motion's power is not followed (noise and attack included)."
        if self.recovery is None:
            return "The server did not recover from the jump before the run ended."
        return f"{self.recovery} iterations after the jump the server's MSD was back within 10 % of its level before."


_RECOVERY = ("recovery", "recovery_standard_error")


def measure_tracking(result: SimulationResult) -> Tracking:
    """Say how well the server of a simulation with drift followed its target."""
    scenario, drift, msd = result.scenario, result.scenario.drift, result.server_msd
    assert drift is not None
    known = (drift.kind, msd.mean, msd.standard_error)
    if drift.kind == "random-walk":
        power = scenario.dimension * (drift.variance or 0.0)
        return Tracking(*known, lag=msd.mean / power if power > 0 else math.inf)
    if drift.kind == "sinusoid":
        power = (drift.amplitude or 0.0) ** 2 / 2
        return Tracking(*known, untracked=msd.mean / power if power > 0 else math.inf)
    recovery = _recovery(result.curve["server_msd"], drift, result.bin_width)
    return Tracking(*known, recovery=recovery, recovery_standard_error=_jackknife(result, drift))


def _recovery(curve: np.ndarray[Any, Any], drift: Drift, bin_width: int) -> int | None:
    """First iteration after the jump from which on, smoothed over 20 points, the curve is back at its old level."""
    jump = (drift.at or 0) // bin_width
    before = curve[jump // 2 : jump]
    after = curve[jump:]
    if before.size == 0 or not np.isfinite(after).all():
        return None
    width = min(20, after.size)
    smooth = np.convolve(after, np.full(width, 1.0 / width), mode="valid")
    back = np.flatnonzero(smooth <= RECOVERED * before.mean())
    return int(back[0]) * bin_width if back.size else None


def _jackknife(result: SimulationResult, drift: Drift) -> float | None:
    if result.trial_curves is None or result.trials < 3:
        return None
    curves = result.trial_curves["server_msd"]
    total, count = curves.sum(axis=0), len(curves)
    found = [_recovery((total - curve) / (count - 1), drift, result.bin_width) for curve in curves]
    if any(value is None for value in found):
        return None
    values = np.array(found, dtype=np.float64)
    return float(np.sqrt((count - 1) * np.mean((values - values.mean()) ** 2)))
