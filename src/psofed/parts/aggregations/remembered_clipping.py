"""Centred clipping of what the server remembers of each client."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._clipping import move_centre
from psofed.parts.contexts import Updates
from psofed.parts.vectors import part_of


class RememberedClipping(Aggregation):
    """Remembered clipping: the server averages each client's updates over time, then clips the averages.

    One LMS update is mostly noise, so Byzantine updates of an honest length, all in one direction, outweigh honest
    ones under every rule that looks at one iteration only. Averages over time are mostly signal, and there a Byzantine
    client stands out. With u_k the update of client k (its upload minus the server's model), the server remembers

        m_k,i ← β m_k,i + (1 − β) u_k,i,    β = decay^(D/M)

    for each of the M entries i that client k sent; other entries, and clients that did not send, keep their memory. The
    exponent makes a memory equally long in iterations for every M. Then the memories of all K' clients that the server
    has ever heard from are clipped around their centre, from v = 0:

        v ← v + 1/K' Σ_k (m_k − v) · min(1, radius / ‖m_k − v‖)          `iterations` times

    where the radius is `factor` times the median distance from v. Entry i moves by q_i/P · v_i, where q_i of the P
    participants sent it.

    Distances are over all D entries, whatever was sent, so that a Byzantine client cannot spend its whole radius on the
    entries of one iteration. Only new uploads change a memory:

    - Nothing drops old memories. Otherwise Byzantine clients that are always present would become the majority whenever
      many honest clients are away.
    - Nothing shortens long memories. Otherwise one huge entry would clear a client's other entries. A client that once
      sent a number 10^s times too large is clipped for about 22 s further iterations (at a decay of 0.9).

    References
    ----------
    Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021 (there each client
    sends its own average, and the radius is fixed).

    Examples
    --------
    Two of three clients have sent their only entry; the server remembers a tenth of these updates.

    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> memory, updates = np.zeros(3), np.array([[2.0], [4.0], [np.nan]])
    >>> moved = combine_uploads(RememberedClipping(factor=1.0, iterations=1), updates, np.zeros(1), memory=memory)
    >>> memory.round(3), moved.round(3)
    (array([0.2, 0.4, 0. ]), array([0.167]))
    """

    over = "vectors"

    decay: float = option(default=0.9, low=0.0, high=1.0, open_high=True, text="memory kept per D entries sent")
    factor: float = option(
        default=0.5, low=0.0, open_low=True, text="radius as a multiple of the median distance from the centre"
    )
    iterations: int = option(default=5, low=1, text="number of times the centre is moved")

    def memory_size(self, num_clients: int, dimension: int) -> int:
        """Return K · D: the average of every client's updates."""
        return num_clients * dimension

    def combine(self, updates: Updates, memory: FloatArray, out: FloatArray) -> None:
        """Remember the updates, then clip all memories; a client whose memory is zero was never heard from."""
        clients, entries, shared = updates.num_clients, updates.entries, updates.shared
        answered, size = shared.shape[0], memory.size // clients
        memories = part_of(memory, 0, (clients, size))
        for p in range(answered):
            kept = self.decay ** (size / np.sum(shared[p]))
            own = memories[updates.clients[p]]
            for place in np.flatnonzero(shared[p]):
                i = entries[place]
                own[i] = kept * own[i] + (1.0 - kept) * updates.changes[p, place]
        known = np.zeros(clients, np.bool_)
        for client in range(clients):
            known[client] = np.any(memories[client] != 0.0)
        heard, centre = memories[np.flatnonzero(known)], np.zeros(size)
        if heard.shape[0] > 0:
            move_centre(heard, 0.0, self.factor, self.iterations, np.empty(2 * heard.shape[0]), centre)
        for j in range(out.size):
            out[j] = np.sum(shared[:, j]) / answered * centre[entries[j]]
