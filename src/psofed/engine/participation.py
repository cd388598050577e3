"""Participants: in each iteration |S_n| of the K clients, drawn uniformly without replacement."""

import numpy as np

from psofed.common.types import IndexArray
from psofed.engine.choice import choose, make_choice_scratch
from psofed.engine.compiling import compiled
from psofed.engine.streams import WordArray


@compiled
def draw_participants(
    key: WordArray, gamma: WordArray, first: int, num_clients: int, out: IndexArray
) -> None:
    """Fill ``out[t, :, lane]`` with the participants of iteration ``first + t``, all different."""
    iterations, participants, lanes = out.shape
    scratch = make_choice_scratch(num_clients, participants, lanes)
    rows = out.reshape((iterations * participants, lanes))
    for t in range(iterations):
        for lane in range(lanes):
            scratch.first[lane] = np.uint64((first + t) * participants)
        choose(key, gamma, participants, scratch, rows, t * participants)
