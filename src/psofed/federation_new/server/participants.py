"""Participants of a round, derived from (run seed, round), the same after a resume."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from psofed.federation_new.protocol.masks import PARTICIPANTS, derive_words


@runtime_checkable
class ParticipantSource(Protocol):
    """Draws the set S_n of a round's participants."""

    def draw(self, round_number: int, nodes: Collection[int], count: int) -> tuple[int, ...]:
        """Return at most `count` of `nodes`, in ascending order."""
        ...


@dataclass(frozen=True)
class DerivedParticipants:
    """The `count` nodes with the smallest words of the stream (seed, node, round).

    A node's word does not depend on the others, so a node that joins or leaves changes at most one other
    participant.

    Examples
    --------
    >>> DerivedParticipants(seed=1).draw(1, nodes=[10, 20, 30, 40], count=2)
    (20, 30)
    """

    seed: int

    def draw(self, round_number: int, nodes: Collection[int], count: int) -> tuple[int, ...]:
        """Return the `count` nodes with the smallest words."""
        ranked = sorted(
            nodes,
            key=lambda node: (int(derive_words(self.seed, node, round_number, PARTICIPANTS, 1)[0]), node),
        )
        return tuple(sorted(ranked[:count]))


@dataclass(frozen=True)
class SuppliedParticipants:
    """Participants given round by round, for checks against other implementations on the same draws."""

    rounds: Mapping[int, Collection[int]]

    def draw(self, round_number: int, nodes: Collection[int], count: int) -> tuple[int, ...]:
        """Return the nodes given for `round_number` that are among `nodes`."""
        return tuple(sorted(set(self.rounds[round_number]) & set(nodes)))
