"""Parts that the paper's iteration has not: all moments are kept, and fixed points found by GMRES.

Moves of the moments are those of :mod:`psofed.theory.maps.opened`. ρ(𝓕) is computed, since no bound on the stepsize is
known beforehand. Round-robin with an offset per client is averaged over offsets, all of them or a sample.
"""

from typing import ClassVar

from psofed.common.errors import NotCoveredError
from psofed.theory.clipping import check_reach, clips
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import Sources
from psofed.theory.solve.full import Full

_MOST_MOMENTS = 2_000_000  # beyond, an iteration takes a second and a steady state minutes


class Opened(Full):
    """Availability, noisy and lossy links, groups of attackers, other learners, stepsizes per client."""

    needs: ClassVar[frozenset[str]] = frozenset({"opened"})

    def __init__(self, model: TheoryModel) -> None:
        super().__init__(model)
        clients = model.scenario.num_clients
        if self.num_moments(0.0) > _MOST_MOMENTS:
            most = int(clients * (_MOST_MOMENTS / self.num_moments(0.0)) ** 0.5)
            raise NotCoveredError(
                "With availability, channels, delays, groups of attackers or other learners the theory keeps the "
                f"moments of all pairs of clients, too many for num_clients = {clients}; use at most {most}."
            )

    def check_answer(self, stepsize: float) -> None:
        """Refuse links that clip values."""
        if clips(self.model.scenario):
            recursion = self.model.open_parts.recursion(stepsize, self._branches(1)[0])
            _, steady = recursion.steady_state(Sources())
            check_reach(self.model, steady.clients, stepsize)

    def num_moments(self, stepsize: float) -> int:
        """Count the numbers that one iteration of a curve computes."""
        return 3 * self.model.scenario.num_clients**2 * self.model.entries.size
