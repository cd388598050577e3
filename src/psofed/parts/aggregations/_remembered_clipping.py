"""Centred clipping of what the server remembers of each client."""

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._clipping import move_centre


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
    Two clients have sent entry 0 and a third is silent; the server remembers a tenth of the first updates.

    >>> import numpy as np
    >>> memory, change = np.zeros((3, 1)), np.zeros(1)
    >>> updates = np.array([[2.0], [4.0], [np.nan]])
    >>> RememberedClipping(factor=1.0, iterations=1).combine(updates, np.arange(3), memory, change)
    >>> memory.ravel().round(3), change.round(3)
    (array([0.2, 0.4, 0. ]), array([0.167]))
    """

    decay: float = option(
        default=0.9, low=0.0, high=1.0, open_high=True, text="memory kept per D entries sent"
    )
    factor: float = option(
        default=0.5,
        low=0.0,
        open_low=True,
        text="radius as a multiple of the median distance from the centre",
    )
    iterations: int = option(default=5, low=1, text="number of times the centre is moved")

    def combine(self, updates: FloatArray, clients: IntArray, memory: FloatArray, out: FloatArray) -> None:
        """Remember the updates and write the server's change into ``out``.

        Parameters
        ----------
        updates : array (P, D)
            The participants' uploads minus the server's model; NaN in entries that were not sent.
        clients : int array (P,)
            Whose they are: rows of `memory`.
        memory : array (K, D)
            Memories of all clients, changed in place. A row of zeros is a client that was never heard from.
        out : array (D,)
            The change of the server's model; zeros at first.
        """
        participants, size = updates.shape
        senders = np.zeros(size)
        for p in range(participants):
            sent = ~np.isnan(updates[p])
            number = np.sum(sent)
            if number > 0:
                kept = self.decay ** (size / number)
                own = memory[clients[p]]
                own[:] = np.where(sent, kept * own + (1.0 - kept) * updates[p], own)
                senders += sent
        known = np.zeros(memory.shape[0], np.bool_)
        for k in range(memory.shape[0]):
            known[k] = np.any(memory[k] != 0.0)
        clients_known = np.flatnonzero(known)
        count = clients_known.size
        if count == 0:
            return
        memories, scratch = memory[clients_known], np.empty(2 * count)
        move_centre(memories, 0.0, self.factor, self.iterations, scratch, out)
        out *= senders / participants
