"""Linear recursions of moments: learning curve, steady state and spectral radius of any that repeats itself.

With x the second moments and m the first ones, an iteration is

    x_{n+1} = F_n x_n + s_n(m_n),    m_{n+1} = M_n m_n + r_n,

with F_n, s_n, M_n and r_n of period T (``period``). The steady state averages a level over one period of the solution
with x_T = x_0 and m_T = m_0; ρ(𝓕) is the spectral radius of F_{T−1} … F_0 to the power 1/T, that of one iteration; and
the learning curve iterates from x₀ (``initial``) and m₀ (``initial_first``).
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.moments.level import NO_SOURCES, NOTHING, Level, Sources
from psofed.theory.moments.second import pack, unpack

State = TypeVar("State", bound=tuple[Any, ...])
First = TypeVar("First", bound=tuple[Any, ...])


class PeriodicRecursion(ABC, Generic[State, First]):
    """A recursion of second moments (State) and first moments (First), named tuples of arrays.

    Attributes
    ----------
    period : int
        T.
    has_direction : bool
        Whether first moments are needed at all.
    initial, initial_first : State, First
        x₀ and m₀, when all models are 0.
    """

    period: Any
    has_direction: Any
    initial: Any
    initial_first: Any

    @abstractmethod
    def step(self, v: State, n: int = 0, sources: Sources | None = None, first: First | None = None) -> State:
        """Take the state of iteration n to that of iteration n + 1.

        `first` are the first moments of iteration n, None to leave out what has a direction.
        """

    @abstractmethod
    def step_first(self, v: First, n: int = 0) -> First:
        """Take first moments of iteration n to those of iteration n + 1."""

    @abstractmethod
    def level_of(self, v: State, first: First | None = None) -> Level:
        """Excess network MSE and server MSD of a state."""

    def start(self, n: int) -> State:
        """Return the state of iteration n, if all models are 0 before it."""
        state: State = self.initial
        return state

    def curve(self, iterations: int, start: int = 0) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD at iterations 0 … `iterations` − 1, beginning at phase `start`."""
        excess, server = np.empty(iterations), np.empty(iterations)
        v = self.start(start)
        first = self.initial_first if self.has_direction else None
        # A diverging recursion grows to infinity, which is its result.
        with np.errstate(over="ignore", invalid="ignore"):
            for n in range(iterations):
                level = self.level_of(v, first)
                excess[n], server[n] = level.excess, level.server
                v = self.step(v, start + n, first=first)
                if first is not None:
                    first = self.step_first(first, start + n)
        return excess, server

    def steady_first(self) -> tuple[First, ...]:
        """Find the fixed point of the first moments over one period: their values at each of its iterations."""

        def over_period(x: FloatArray) -> FloatArray:
            v = unpack(x, self.initial_first)
            for n in range(self.period):
                v = self.step_first(v, n)
            return pack(v)

        source = over_period(np.zeros_like(pack(self.initial_first)))
        vector = solve_fixed_point(lambda x: over_period(x) - source, source)
        firsts: list[First] = [unpack(vector, self.initial_first)]
        for n in range(self.period - 1):
            firsts.append(self.step_first(firsts[-1], n))
        return tuple(firsts)

    def steady_state(self, sources: Sources, tolerance: float | None = None) -> tuple[Level, State]:
        """Find the fixed point of one period: its level, averaged over the period, and the state at its start.

        `tolerance` is that of :func:`~psofed.theory.maps.krylov.solve_fixed_point`.
        """
        firsts: tuple[First | None, ...] = (None,) * self.period
        if sources.direction and self.has_direction:
            firsts = self.steady_first()
        source = self._over_period(np.zeros_like(pack(self.initial)), sources, firsts)
        v = beginning = unpack(solve_fixed_point(self._over_period, source, tolerance), self.initial)
        total = NOTHING
        for n, first in enumerate(firsts):
            total += self.level_of(v, first)
            v = self.step(v, n, sources, first)
        return total.scaled(1.0 / self.period), beginning

    def spectral_radius(self) -> float:
        """ρ(𝓕), per iteration."""
        radius = dominant_eigenvalue(self._over_period, pack(self.initial))
        return float(max(radius, 0.0) ** (1.0 / self.period))

    def _over_period(
        self,
        vector: FloatArray,
        sources: Sources = NO_SOURCES,
        firsts: tuple[First | None, ...] | None = None,
    ) -> FloatArray:
        v: State = unpack(vector, self.initial)
        for n in range(self.period):
            v = self.step(v, n, sources, firsts[n] if firsts else None)
        return pack(v)
