"""Participants of a round, derived from (run seed, round), the same after a resume."""

from collections.abc import Collection

from psofed.federation.protocol.masks import PARTICIPANTS, derive_words


def draw_participants(seed: int, round_number: int, clients: Collection[int], count: int) -> tuple[int, ...]:
    """Return S_n: the `count` clients with the smallest words of the stream (seed, client, round), in ascending order.

    A client's word does not depend on the others, so one that joins or leaves changes at most one other participant.

    Examples
    --------
    >>> draw_participants(1, 1, clients=[10, 20, 30, 40], count=2)
    (20, 30)
    """

    def word(client: int) -> tuple[int, int]:
        return int(derive_words(seed, client, round_number, PARTICIPANTS, 1)[0]), client

    return tuple(sorted(sorted(clients, key=word)[:count]))
