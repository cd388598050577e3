"""Rules that shorten updates."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import TINY, add_scaled, distance, middle, part_of, scale


def move_centre(
    vectors: FloatArray, radius: float, factor: float, iterations: int, scratch: FloatArray, out: FloatArray
) -> None:
    """Move the centre ``out`` (E,) by the mean of the clipped differences of `vectors` (count, E) to it.

    The radius is `factor` times the median distance from the centre, or `radius` if `factor` is 0. ``scratch`` holds
    at least 2 · count numbers.

    Examples
    --------
    >>> import numpy as np
    >>> centre = np.zeros(1)
    >>> move_centre(np.array([[1.0], [2.0], [30.0]]), 0.0, 1.0, 1, np.empty(6), centre)
    >>> centre.round(3)
    array([1.667])
    """
    count = vectors.shape[0]
    # What a median is taken of may be reordered.
    weights, ordered = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
    for _ in range(iterations):
        for p in range(count):
            weights[p] = ordered[p] = distance(vectors[p], out)
        if factor > 0.0:
            radius = factor * middle(ordered)
        total = 0.0
        for p in range(count):
            weights[p] = radius / count / max(radius, weights[p], TINY)
            total += weights[p]
        scale(1.0 - total, out)
        for p in range(count):
            add_scaled(weights[p], vectors[p], out)


class NormClipping(Aggregation):
    """Norm clipping: a mean of updates, none longer than a multiple of the participants' median update.

    With norms ‖u_k‖ of the P' participants who answered and c = factor · median_k ‖u_k‖, the server moves by

        P'/|S_n| · 1/P' Σ_k u_k · min(1, c / ‖u_k‖)

    Clipping at the median adapts to how far the learning has come, where a fixed radius would not. A large factor
    gives the mean.

    References
    ----------
    Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022 (without its clustering and
    noise).

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[3.0, 0.0], [0.0, 6.0], [0.0, -150.0]])
    >>> combine_uploads(NormClipping(), changes, np.zeros(2))
    array([1., 0.])
    """

    over = "vectors"

    factor: float = option(default=1.0, low=0.0, open_low=True, text="longest update, in median lengths")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Average the clipped updates: move the centre once, from the server's own model."""
        move_centre(updates.changes, 0.0, self.factor, 1, updates.scratch, out)


class CentredClipping(Aggregation):
    """Centred clipping: a mean of updates, each clipped to a radius around the running estimate.

    From the server's own model, v = 0, on the updates u_k of the P' participants who answered:

        v ← v + 1/P' Σ_k (u_k − v) · min(1, radius / ‖u_k − v‖)          `iterations` times

    The server moves by P'/|S_n| · v. An infinite radius would give the mean.

    The radius is fixed, as in the paper, and must fit the lengths of honest updates: far above them it clips a
    Byzantine client to something that still outweighs everybody. With a `factor` the radius follows the updates
    instead: in each iteration it is that many times their median distance from v, as in Huber's location estimate with
    an estimated scale.

    References
    ----------
    Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021. On radii that follow
    from the distances: He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022 (there
    for each client); Huber, "Robust statistics", 1981, ch. 6.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[0.5, 0.0], [0.0, 40.0]])
    >>> combine_uploads(CentredClipping(radius=1.0, iterations=1), changes, np.zeros(2))
    array([0.25, 0.5 ])
    >>> changes = np.array([[0.5], [0.5], [0.5], [0.5], [-40.0]])
    >>> combine_uploads(CentredClipping(factor=1.0), changes, np.zeros(1)).round(2)
    array([0.47])
    """

    over = "vectors"

    radius: float = option(default=0.1, low=0.0, open_low=True, text="largest distance of an update from the centre")
    iterations: int = option(default=3, low=1, text="number of times the centre is moved")
    factor: float = option(default=0.0, low=0.0, text="radius in median distances from the centre; 0: use radius")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Move the centre by the mean of the clipped differences to it."""
        move_centre(updates.changes, self.radius, self.factor, self.iterations, updates.scratch, out)


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
    factor: float = option(default=0.5, low=0.0, open_low=True, text="radius in median distances from the centre")
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
