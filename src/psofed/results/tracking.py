"""How well a moving target was followed: what a simulation with drift says about lag and recovery."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psofed.common.numbers import json_object
from psofed.render.numbers import decibels, percent
from psofed.results import SimulationResult

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
        too; ``measure_lag`` in ``examples/lag.py`` takes them out.
    untracked : float or None
        Sinusoid: MSD over the mean square A²/2 of the motion; 1 for a server that stands still at the centre.
    recovery : int or None
        Jump: iterations until the mean MSD is back within 10 % of its level before the jump; None if it never was.
    recovery_standard_error : float or None
        Jackknife over trials, if their curves were kept.
    jumped : bool
        Whether it was a jump, so that the last two apply.
    """

    kind: str
    msd: float
    msd_standard_error: float
    lag: float | None = None
    untracked: float | None = None
    recovery: int | None = None
    recovery_standard_error: float | None = None
    jumped: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what does not apply to the drift is left out."""
        plain = asdict(self)
        jumped = plain.pop("jumped")  # without a recovery, None says so
        applies = {name for name in plain if plain[name] is not None or (jumped and "recovery" in name)}
        return json_object({name: value for name, value in plain.items() if name in applies})

    def describe(self) -> str:
        """Return one sentence."""
        if self.lag is not None:
            return (
                f"The server knows the target as if it were {self.lag:.0f} iterations late (noise and attack included)."
            )
        if self.untracked is not None:
            untracked = percent(self.untracked, 1)
            return f"The server does not follow {untracked} of the motion's power (noise and attack included)."
        if not self.jumped:
            return f"The server's MSD against the moving target is {decibels(self.msd)}."
        if self.recovery is None:
            return "The server did not recover from the jump before the run ended."
        return f"{self.recovery} iterations after the jump the server's MSD was back within 10 % of its level before."


def measure_tracking(result: SimulationResult) -> Tracking:
    """Say how well the server of a simulation with drift followed its target."""
    scenario, drift, msd = result.scenario, result.scenario.drift, result.server_msd
    assert drift is not None
    known = (drift.kind, msd.mean, msd.standard_error)
    variance, swing, jump = drift.increment_variance(), drift.mean_square(), drift.jump_iteration()
    if variance is not None:
        power = scenario.dimension * variance
        return Tracking(*known, lag=msd.mean / power if power > 0 else math.inf)
    if swing is not None:
        return Tracking(*known, untracked=msd.mean / swing if swing > 0 else math.inf)
    if jump is None:
        return Tracking(*known)
    recovery = _recovery(result.curve["server_msd"], jump, result.bin_width)
    error = None if recovery is None else _jackknife(result, jump)
    return Tracking(*known, recovery=recovery, recovery_standard_error=error, jumped=True)


def _recovery(curve: np.ndarray[Any, Any], at: int, bin_width: int) -> int | None:
    """First iteration after the jump from which on, smoothed over 20 points, the curve is back at its old level."""
    jump = at // bin_width
    before = curve[jump // 2 : jump]
    after = curve[jump:]
    if before.size == 0 or not np.isfinite(after).all():
        return None
    width = min(20, after.size)
    smooth = np.convolve(after, np.full(width, 1.0 / width), mode="valid")
    back = np.flatnonzero(smooth <= RECOVERED * before.mean())
    return int(back[0]) * bin_width if back.size else None


def _jackknife(result: SimulationResult, at: int) -> float | None:
    if result.trial_curves is None or result.trials < 3:
        return None
    curves = result.trial_curves["server_msd"]
    total, count = curves.sum(axis=0), len(curves)
    found = [_recovery((total - curve) / (count - 1), at, result.bin_width) for curve in curves]
    if any(value is None for value in found):
        return None
    values = np.array(found, dtype=np.float64)
    return float(np.sqrt((count - 1) * np.mean((values - values.mean()) ** 2)))
