"""The statement by which an attack is open to exact theory: what arrives is affine in what it knows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Affine:
    """An attacked number is own · value + server · (the server's number) + offset + noise.

    Attributes
    ----------
    own, server, offset : float
        Coefficients of the clean number and of the server's, and what is added.
    variance : float
        Of noise that is independent between clients, entries and iterations.
    common_variance : float
        Of noise that all who attack in an iteration have in common.
    """

    own: float = 1.0
    server: float = 0.0
    offset: float = 0.0
    variance: float = 0.0
    common_variance: float = 0.0
