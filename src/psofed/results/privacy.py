"""Differential privacy that a run has spent: ε at a given δ, exactly, for the Gaussian mechanism."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psofed.scenario import Scenario


def privacy_spent(scenario: "Scenario", uploads: int) -> dict[str, Any] | None:
    """Return the (ε, δ) of a client that has uploaded `uploads` times; None unless a channel is private.

    Of several private channels in series the one with the smallest ε counts; the others can only add to it.
    """
    channels: Any = () if scenario.channel is None else scenario.channel.up
    spent = [
        {
            "epsilon": gaussian_epsilon(channel.multiplier, uploads, channel.delta),
            "delta": channel.delta,
            "uploads": uploads,
            "clip": channel.clip,
            "multiplier": channel.multiplier,
        }
        for channel in channels
        if channel.kind == "private"
    ]
    return min(spent, key=lambda each: each["epsilon"], default=None)


def gaussian_epsilon(multiplier: float, uploads: int, delta: float) -> float:
    """Return ε of `uploads` Gaussian mechanisms with noise of `multiplier` times their sensitivity.

    Their composition is one Gaussian mechanism with μ = √uploads / multiplier, for which exactly
    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ); ε is its root.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8; Dong, Roth and
    Su, "Gaussian differential privacy", JRSS B 2022, corollaries 2 and 3.

    Examples
    --------
    >>> round(gaussian_epsilon(multiplier=1.0, uploads=1, delta=1e-5), 3)
    4.377
    >>> gaussian_epsilon(multiplier=1.0, uploads=0, delta=1e-5)
    0.0
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    mu = math.sqrt(uploads) / multiplier

    def excess(epsilon: float) -> float:
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(first) * -math.expm1(min(second - first, 0.0)) - delta

    if mu == 0.0 or excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-14))
