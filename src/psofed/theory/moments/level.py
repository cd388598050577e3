"""Sources that drive the moments, and the two levels that every answer is made of.

A steady state is x = F x + s. F is linear in the moments, and s is the sum of what drives them: observation noise,
variance that attackers add, the target's walk, and everything that has a direction. Solving with one source alone gives
its term; none of them (:data:`NO_SOURCES`) leaves F itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sources:
    """How much of each source drives the moments: all for the truth, one alone for its term, none for 𝓕.

    Attributes
    ----------
    noise : float
        Observation noise.
    attack : float
        The variance that attackers add, to uploads or through poisoned samples.
    drift : float
        The target's walk.
    direction : bool
        Whatever has a direction and needs first moments: offsets of attacks, displaced targets.
    """

    noise: float = 1.0
    attack: float = 1.0
    drift: float = 1.0
    direction: bool = True


NO_SOURCES = Sources(0.0, 0.0, 0.0, direction=False)


@dataclass(frozen=True)
class Level:
    """Excess network MSE (without the clients' own noise) and server MSD."""

    excess: float
    server: float

    def __post_init__(self) -> None:
        # Plain floats, so that nothing printed or written as JSON shows NumPy's types
        object.__setattr__(self, "excess", float(self.excess))
        object.__setattr__(self, "server", float(self.server))

    def __add__(self, other: "Level") -> "Level":
        return Level(self.excess + other.excess, self.server + other.server)

    def scaled(self, factor: float) -> "Level":
        """Return both numbers times `factor`."""
        return Level(self.excess * factor, self.server * factor)


NOTHING = Level(0.0, 0.0)
