"""Attacks that see the uploads of all honest participants."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Attack, option
from psofed.parts.contexts import Conspiracy, Upload
from psofed.parts.vectors import add_scaled, clear, inner, part_of, squared_distance


class InnerProduct(Attack):
    """Inner-product manipulation: all attackers send the reversed mean of the honest updates.

    In each entry i an attacker sends  w'_i = w_{n,i} − scale · (m_i − w_{n,i}),  with w_n the server's model before the
    upload and m_i the mean of the clean uploads of that entry in this iteration, which the attackers see. The inner
    product of true and aggregated update becomes negative once scale · attackers > honest ones. Where no clean upload
    holds the entry, the attacker sends its own value.

    References
    ----------
    Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI 2020.
    """

    knows = "everyone"
    not_affine_because = "what an attacker sends depends on how many others attack in the same entry and iteration"

    scale: float = option(default=2.0, low=0.0, text="length of the reversed mean update (ε)", strength=True)

    def corrupt(self, upload: Upload) -> float:
        """Turn the clean mean round, seen from the server's model."""
        if upload.honest.size == 0:
            return upload.value
        return float(upload.server - self.scale * (np.mean(upload.honest) - upload.server))


def normal_quantile(probability: float) -> float:
    """Return the z with Φ(z) = probability, for probabilities from 1e-6 to 1 − 1e-6.

    Newton's steps from 0 approach z from one side, since Φ is concave above 0 and convex below.

    Examples
    --------
    >>> round(normal_quantile(0.975), 6), round(normal_quantile(0.4), 4)
    (1.959964, -0.2533)
    """
    z = 0.0
    for _ in range(60):
        missing = probability - 0.5 * math.erfc(-z / math.sqrt(2.0))
        step = missing * math.sqrt(2.0 * math.pi) * math.exp(0.5 * z * z)
        z += step
        if abs(step) < 1e-14:
            break
    return z


class LittleIsEnough(Attack):
    """A little is enough (ALIE): all attackers deviate slightly from the mean, to the same side.

    In each entry an attacker sends  m + z s,  with m and s the mean and (sample) standard deviation of what the
    attackers of this iteration would honestly send for it. They need see nobody else's: honest clients are much alike.
    z follows from how many numbers n are sent for the entry, and how many of them, a, by attackers:

        z = Φ⁻¹((n − a − s') / (n − a)),    s' = ⌊n/2 + 1⌋ − a,

    so that s' honest ones, with the attackers a majority, stand farther out than they do (probabilities nearer to 0
    or 1 than 1/(2 (n − a)) count as that). One attacker alone has no deviation to go by and sends its own number, as
    all do where nobody is honest.

    Stronger forms: ``deviations`` fixes z. With ``statistics = "honest"`` attackers are omniscient: m and s are of the
    clean uploads of all others (s is 0 where there is but one).

    References
    ----------
    Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019.
    """

    knows = "everyone"
    not_affine_because = "a standard deviation is not affine in the models"

    deviations: float = option(
        default=0.0, text="distance from the mean in standard deviations (z); 0: derived from n and a", strength=True
    )
    statistics: str = option(
        default="accomplices", choices=("accomplices", "honest"), text="whose uploads define the mean and the deviation"
    )

    def corrupt(self, upload: Upload) -> float:
        """Stand z deviations beside the mean."""
        honest, attackers = upload.honest.size, upload.accomplices.size
        values = upload.honest if self.statistics == "honest" else upload.accomplices
        if honest == 0:
            return upload.value
        mean, z = np.mean(values), self.deviations
        if values.size == 1:
            return float(mean)
        if z == 0.0:
            needed = (honest + attackers) // 2 + 1 - attackers
            edge = 0.5 / honest
            z = normal_quantile(min(max((honest - needed) / honest, edge), 1.0 - edge))
        return float(mean + z * math.sqrt(np.sum((values - mean) ** 2) / (values.size - 1)))


class _Hiding(Attack):
    """Knowledge and option that Min-Max and Min-Sum share."""

    knows = "everyone"
    not_affine_because = "distances between uploads are not affine in the models"

    scale: float = option(default=1.0, low=0.0, text="fraction of the largest undetected distance", strength=True)


def take_aim(honest: FloatArray, scratch: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and negative standard deviation of the honest updates, (E,) each; both lie in ``scratch``.

    Examples
    --------
    >>> take_aim(np.array([[3.0, 0.0], [3.0, 8.0]]), np.empty(4))[1].round(3)
    array([-0.   , -5.657])
    """
    count, size = honest.shape
    mean, away = part_of(scratch, 0, (size,)), part_of(scratch, size, (size,))
    clear(mean)
    for h in range(count):
        add_scaled(1.0 / count, honest[h], mean)
    for i in range(size):
        total = 0.0
        for h in range(count):
            total += (honest[h, i] - mean[i]) ** 2
        away[i] = -math.sqrt(total / max(count - 1, 1))
    return mean, away


def send_alike(mean: FloatArray, reach: float, away: FloatArray, out: FloatArray) -> None:
    """Let all attackers send  mean + reach · away,  a row of ``out`` each.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.empty((2, 1))
    >>> send_alike(np.array([2.0]), 0.5, np.array([-1.0]), out)
    >>> out.ravel()
    array([1.5, 1.5])
    """
    for a in range(out.shape[0]):
        for i in range(mean.size):
            out[a, i] = mean[i] + reach * away[i]


class MinMax(_Hiding):
    """Min-Max: all attackers deviate as far as the largest distance between two honest updates allows.

    All send the update  m + γ p,  with m the mean of the clean updates of this iteration, which the attackers see, and
    p their negative standard deviations. γ is the largest for which the largest distance to a clean update is no larger
    than the largest distance between two of them; `scale` takes a part of it. Where nobody is honest, attackers send
    their own updates.

    Notes
    -----
    The paper finds γ by halving steps. The condition is quadratic in γ for each clean update, so it is solved here.

    References
    ----------
    Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for federated
    learning", NDSS 2021.

    Examples
    --------
    Between the honest updates 1 and 3 lie 2; from 2, down to 1, the farther one of them is 2 away.

    >>> import numpy as np
    >>> from psofed.parts.plain import corrupt_uploads
    >>> uploads, nothing = np.array([[0.0], [1.0], [3.0]]), np.zeros((3, 1))
    >>> corrupt_uploads(MinMax(num_byzantine=1), uploads, np.array([True, False, False]), server=nothing[0],
    ...                 clients=np.arange(3), iteration=0, normals=nothing, common_normals=nothing[0]).ravel()
    array([1., 1., 3.])
    """

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Go as far as the farthest honest pair allows."""
        honest = conspiracy.honest
        count = honest.shape[0]
        if count == 0:
            return
        mean, direction = take_aim(honest, conspiracy.scratch)
        widest = 0.0
        for h in range(count):
            for other in range(h):
                widest = max(widest, squared_distance(honest[h], honest[other]))
        steepness = inner(direction, direction)
        farthest = math.inf if steepness > 0.0 else 0.0
        for h in range(count):
            # ‖m + γp − u‖² ≤ widest, quadratic in γ.
            slope = inner(direction, mean) - inner(direction, honest[h])
            left = max(0.0, widest - squared_distance(mean, honest[h]))
            if steepness > 0.0:
                farthest = min(farthest, (math.sqrt(slope * slope + steepness * left) - slope) / steepness)
        send_alike(mean, self.scale * farthest, direction, out)


class MinSum(_Hiding):
    """Min-Sum: all attackers deviate as far as the largest sum of an honest update's squared distances allows.

    All send the update  m + γ p,  with m the mean of the clean updates of this iteration, which the attackers see, and
    p their negative standard deviations. γ is the largest for which the sum of squared distances to all clean updates
    is no larger than the largest such sum from one of them; `scale` takes a part of it. Where nobody is honest,
    attackers send their own updates.

    Notes
    -----
    The paper finds γ by halving steps. With H honest ones the condition is Σ ‖m − u‖² + H γ² ‖p‖² ≤ the largest sum,
    and is solved here.

    References
    ----------
    Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for federated
    learning", NDSS 2021.

    Examples
    --------
    From the honest updates 1 and 3 the sum is 4; from 2 − γ√2 it is 2 + 4 γ².

    >>> import numpy as np
    >>> from psofed.parts.plain import corrupt_uploads
    >>> uploads, nothing = np.array([[0.0], [1.0], [3.0]]), np.zeros((3, 1))
    >>> corrupt_uploads(MinSum(num_byzantine=1), uploads, np.array([True, False, False]), server=nothing[0],
    ...                 clients=np.arange(3), iteration=0, normals=nothing, common_normals=nothing[0]).ravel()
    array([1., 1., 3.])
    """

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Go as far as the largest honest sum of distances allows."""
        honest = conspiracy.honest
        count = honest.shape[0]
        if count == 0:
            return
        mean, direction = take_aim(honest, conspiracy.scratch)
        largest = spread = 0.0
        for h in range(count):
            total = 0.0
            for other in range(count):
                total += squared_distance(honest[h], honest[other])
            largest = max(largest, total)
            spread += squared_distance(mean, honest[h])
        steepness, farthest = count * inner(direction, direction), 0.0
        if steepness > 0.0:
            farthest = math.sqrt(max(0.0, largest - spread) / steepness)
        send_alike(mean, self.scale * farthest, direction, out)


class Mimic(Attack):
    """All attackers copy one honest client, whose upload then counts too often.

    Nothing they send is out of the ordinary, so no rule can tell them from honest clients; siding with the same client
    all the time, they bias the model towards its data. The victim is chosen to bias most. In the first `warm_up`
    iterations attackers watch all clean updates u_k and estimate the direction z in which these vary most; the client
    with the largest |Σ_n zᵀu_k,n| ranks first. After that the ranking stands, and in each iteration the client is
    copied that ranks first of those who participate and do not attack (during the warm-up, by what is known so far).
    Where all participate, that is one fixed victim. An entry that the victim does not share is sent honestly. Its
    strength is how often it does so.

    Notes
    -----
    The paper follows z by Oja's rule. Here the second moments of u_k around their running mean are kept, and z makes a
    step of the power method on them in each iteration of the warm-up, which does not depend on the updates' scale.

    References
    ----------
    Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    knows = "everyone"
    not_affine_because = "which client is copied depends on who participates and who attacks, so the copy is not affine"

    warm_up: int = option(default=200, low=1, text="iterations until the choice of the victim is final")

    def group_memory_size(self, num_clients: int, dimension: int) -> int:
        """Return memory for what is known of the updates: second moments, mean, z, and a sum for each client."""
        return 1 + dimension * (dimension + 3 + num_clients)

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Copy the victim."""
        honest, dimension = conspiracy.honest, conspiracy.dimension
        # Rows of D numbers: second moments, mean, z and scratch; then each client's sum, since clients may join.
        table = part_of(conspiracy.memory, 1, (dimension + 3 + conspiracy.num_clients, dimension))
        if conspiracy.memory[0] < self.warm_up:
            _watch(conspiracy, table)
            conspiracy.memory[0] += 1.0
        best, victim = -1.0, -1
        for h in range(honest.shape[0]):
            score = abs(inner(table[dimension + 1], table[dimension + 3 + conspiracy.honest_clients[h]]))
            if score > best * (1.0 + 1e-9):
                best, victim = score, h
        for a in range(out.shape[0]):
            for i in range(honest.shape[1]):
                if victim >= 0 and conspiracy.honest_shared[victim, i]:
                    out[a, i] = honest[victim, i]


def _watch(conspiracy: Conspiracy, table: FloatArray) -> None:
    """Take in the clean updates of an iteration, and turn the axis towards where they vary most."""
    honest, entries, dimension = conspiracy.honest, conspiracy.entries, conspiracy.dimension
    mean, axis, scratch = table[dimension], table[dimension + 1], table[dimension + 2]
    count, size = honest.shape
    for i in range(size):
        if count > 0:
            mean[entries[i]] += (np.sum(honest[:, i]) / count - mean[entries[i]]) / (1.0 + conspiracy.memory[0])
        if axis[entries[i]] == 0.0:
            axis[entries[i]] = 1.0 / (1.0 + entries[i])  # anything but perpendicular to what is sought
    for h in range(count):
        for i in range(size):
            table[dimension + 3 + conspiracy.honest_clients[h], entries[i]] += honest[h, i]
            deviation = honest[h, i] - mean[entries[i]]
            for j in range(size):
                table[entries[i], entries[j]] += deviation * (honest[h, j] - mean[entries[j]])
    total = 0.0
    for i in range(dimension):
        scratch[i] = inner(table[i], axis)
        total += scratch[i] * scratch[i]
    if total > 0.0:
        for i in range(dimension):
            axis[i] = scratch[i] / math.sqrt(total)
