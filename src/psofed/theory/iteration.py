"""One iteration on second moments: learn, corrupt, select, exchange.

The state holds, for errors w̃ = w* − w, the moments of these blocks of d entries: the server's models G_0 … G_L (now,
and L = ``delay`` iterations ahead), and for each group of clients one client that has *kept* its model and one that has
*taken* what it downloaded. Two blocks of one group belong to two different clients. A client's moments with itself
are in ``own``. White inputs need one entry per block (d = 1), times E entries that masks tell apart; correlated inputs
need all (d = D, E = 1).

Given who participates, who attacks and who poisons, all blocks change linearly, M → X M Xᵀ. Averaged over these draws,

    N = Σ_q λ_q X_q M X_qᵀ,    rows of X: G, z_k (after learning), δ_k (change of the server's model by the upload),

where q runs over means (λ = 1) and over the few directions in which two clients are correlated
(:mod:`psofed.theory.presence`, :mod:`psofed.theory.law`). A client's own moments follow from fourth moments of its
input, E[z zᵀ] = E[y yᵀ] − S E[r yᵀ] − E[y rᵀ] S + E[S̃ r rᵀ S̃] + noise with y = a v + b, r = v + e. Masks then mix
blocks (:mod:`psofed.theory.masks`).

Everything that drives the moments is a source: noise, the variance that attacks add, the walk of the target, and
constants. Without sources the iteration is the linear map 𝓕.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from psofed.common.types import FloatArray
from psofed.theory.law import Law
from psofed.theory.masks import MaskLaw, UploadMoments
from psofed.theory.model import Entries
from psofed.theory.presence import AWAY, KEPT, TAKEN

_DENSE = 70  # rows up to which a matrix is not stored as a sparse one


@dataclass(frozen=True)
class Sources:
    """How much of each source drives the moments: all for the truth, one alone for its term, none for 𝓕.

    Attributes
    ----------
    noise : float
        Observation noise, and noise of the links.
    attack : float
        The variance that attackers add, to uploads or through poisoned samples.
    drift : float
        The target's walk.
    direction : bool
        Constants: offsets of attacks, displaced targets.
    """

    noise: float = 1.0
    attack: float = 1.0
    drift: float = 1.0
    direction: bool = True


NO_SOURCES = Sources(0.0, 0.0, 0.0, direction=False)


@dataclass(frozen=True, eq=False)
class Moments:
    """The state.

    Attributes
    ----------
    second : array (E, blocks, d, blocks, d)
        Over the blocks (G_0 … G_L, kept_1 … kept_n, taken_1 … taken_n).
    means : array (E, blocks, d, C)
        Their products with the constants.
    own : array (E, 2, n, d, d)
        A client's moments with itself, kept and taken.
    """

    second: FloatArray
    means: FloatArray
    own: FloatArray

    def pack(self, sets: int = 1) -> FloatArray:
        """Return a vector for each set, (sets, unknowns)."""
        return np.concatenate([part.reshape(sets, -1) for part in (self.second, self.means, self.own)], axis=1)


class Iteration:
    """One iteration of a law under masks.

    Parameters
    ----------
    law : Law
    masks : tuple of MaskLaw
        Those of one period.
    sets : int
        Several sets of masks side by side, each with its own moments: leading axes E are then sets · E.
    """

    def __init__(self, law: Law, masks: tuple[MaskLaw, ...], sets: int = 1) -> None:
        self.law: Law = law
        self.masks: tuple[MaskLaw, ...] = masks
        self.sets: int = sets
        self.entries: Entries = law.model.entries
        self._models, self._groups, self._block = law.delay + 1, law.groups.size, law.block
        self._constants = len(law.products)
        self._terms = self._make_terms()

    # The state

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self._models + 2 * self._groups

    @property
    def size(self) -> int:
        """Number of unknowns of each set."""
        return (
            self.entries.size
            * self._block
            * (self.blocks * (self.blocks * self._block + self._constants) + 2 * self._groups * self._block)
        )

    def unpack(self, x: FloatArray) -> Moments:
        """Return the moments in vectors (sets, unknowns)."""
        entries, blocks, d = self.entries.size, self.blocks, self._block
        ends = np.cumsum([entries * (blocks * d) ** 2, entries * blocks * d * self._constants])
        second, means, own = x[:, : ends[0]], x[:, ends[0] : ends[1]], x[:, ends[1] :]
        return Moments(
            second.reshape(-1, blocks, d, blocks, d),
            means.reshape(self._rows, blocks, d, self._constants),
            own.reshape(-1, 2, self._groups, d, d),
        )

    @property
    def _rows(self) -> int:
        """Length of the leading axes."""
        return self.sets * self.entries.size

    @cached_property
    def initial(self) -> Moments:
        """The state when all models are 0, so that all errors are w*."""
        law, entries, blocks, d = self.law, self._rows, self.blocks, self._block
        target = law.model.fleet.target
        square = np.outer(target, target) if d > 1 else np.full((1, 1), np.mean(target**2))
        second = np.broadcast_to(square[:, None], (entries, blocks, d, blocks, d)).copy()
        mean = law.pull(0) @ law.products
        own = np.broadcast_to(square, (entries, 2, self._groups, d, d)).copy()
        own[:, TAKEN] += law.down_variance * self._on_diagonal(self.masks[-1].shared)
        return Moments(second, np.broadcast_to(mean, (entries, blocks, d, self._constants)).copy(), own)

    # The iteration

    def step(self, moments: Moments, n: int = 0, sources: Sources | None = None) -> Moments:
        """Take the moments through iteration n."""
        sources = sources or Sources()
        mask = self.masks[n % len(self.masks)]
        exchanged = mask.exchange(self.uploads(moments, sources))
        # Rounding is not symmetric, and the formulas let what is not symmetric grow.
        own = 0.5 * (exchanged.own + exchanged.own.swapaxes(-1, -2))
        second = 0.5 * (exchanged.second + exchanged.second.transpose(0, 3, 4, 1, 2))
        if sources.noise and self.law.down_variance:
            own[:, TAKEN] += sources.noise * self.law.down_variance * self._on_diagonal(mask.shared)
        walk = sources.drift * self.law.model.walk
        if walk:
            i = np.arange(self._block)
            second[:, :, i, :, i] += walk
            own[..., i, i] += walk
        return Moments(second, exchanged.means, own)

    def uploads(self, moments: Moments, sources: Sources) -> UploadMoments:
        """Return the moments after learning and selection, before the exchange."""
        products = float(sources.direction) * self.law.products
        second, means = self._different_clients(moments, products)
        learned, cross = self._learn(moments, products, sources), self._met(moments, products)
        if self.entries.shift:  # entries are named by their place in the moving window
            second, means, learned, cross = map(self._moved, (second, means, learned, cross))
        zz, dz, dd = self._select(second, means, products, learned, cross, sources)
        self._add_common_noise(second, sources.attack)
        return UploadMoments(second, means, zz, dz, dd, self.law.groups.copies)

    def _moved(self, array: FloatArray) -> FloatArray:
        apart = array.reshape(self.sets, self.entries.size, *array.shape[1:])
        return np.roll(apart, -self.entries.shift, axis=1).reshape(array.shape)

    def upload_distance(self, moments: Moments, n: int = 0) -> FloatArray:
        """Return E[(u − g)²] of an honest client that uploads, averaged over the entries it sends, (n,)."""
        presence, products, d = self.law.presence, self.law.products, self._block
        shared = self.masks[n % len(self.masks)].shared
        learned, met = self._learn(moments, products, Sources()), self._met(moments, products)
        distance = np.zeros(())
        for state in (KEPT, TAKEN):
            weight = presence.mean[3 + state] / presence.mean[3:].sum(axis=0)
            both = learned[:, state] + moments.second[:, :1, :, 0] - 2.0 * met[:, state, :, :d]
            distance = distance + weight[:, None] * np.diagonal(both, axis1=-2, axis2=-1)
        distance = self._moved(distance) if self.entries.shift else distance
        return np.asarray((distance * shared).sum(axis=(0, 2)) / shared.sum(axis=(0, 2)))

    def _different_clients(self, moments: Moments, products: FloatArray) -> tuple[FloatArray, FloatArray]:
        """N = Σ_q λ_q X_q M X_qᵀ over the blocks (G, z, δ), and its products with the constants."""
        entries, wide, count = self._rows, self.blocks * self._block, self._constants
        flat = moments.second.reshape(entries, wide, wide)
        if count:
            extended = np.empty((entries, wide + count, wide + count))
            extended[:, :wide, :wide] = flat
            extended[:, :wide, wide:] = moments.means.reshape(entries, wide, count)
            extended[:, wide:, :wide] = extended[:, :wide, wide:].swapaxes(1, 2)
            extended[:, wide:, wide:] = products
            flat = extended
        total = np.zeros_like(flat)
        for weight, matrix in self._terms:
            total += weight * _both_sides(matrix, flat)
        shape = (entries, self.blocks, self._block)
        return (
            np.ascontiguousarray(total[:, :wide, :wide]).reshape(*shape, *shape[1:]),
            total[:, :wide, wide:].reshape(*shape, count),
        )

    def _learn(self, moments: Moments, products: FloatArray, sources: Sources) -> FloatArray:
        """E[z zᵀ] of one client that has kept, taken, or stands still: (E, 3, n, d, d)."""
        law, own = self.law, moments.own
        total = np.zeros_like(own)
        clients = moments.means[:, self._models :]
        mean = clients.reshape(len(own), 2, self._groups, self._block, self._constants)  # E[v constantᵀ]
        keep, push = law.keep, law.push
        for sample in law.samples:
            pulled = mean @ sample.displacement.mT  # E[v eᵀ]
            constant = sample.displacement @ products
            rr = own + pulled + pulled.mT + constant @ sample.displacement.mT
            yr = keep * (own + pulled) + push @ (mean.mT + products @ sample.displacement.mT)
            half = keep * mean @ push.mT
            yy = keep**2 * own + half + half.mT + push @ products @ push.mT
            left = yr @ sample.step
            noise = sources.noise * sample.noise + sources.attack * sample.residual
            z = yy - left - left.mT + law.fourth(sample, rr, self.sets) + noise
            total += sample.chance[:, None, None] * z
        return np.concatenate([total, own[:, :1]], axis=1)

    def _met(self, moments: Moments, products: FloatArray) -> FloatArray:
        """E[y zᵀ] of y = (G, constants) and one client that has kept or taken: (E, 2, n, models·d + C, d)."""
        _, step, push = self.law.learning[0]
        entries, models, d = self._rows, self._models, self._block
        shape = (entries, models * d, 2, self._groups, d)
        server = moments.second[:, :models, :, models:].reshape(shape).transpose(0, 2, 3, 1, 4)
        server_means = moments.means[:, :models].reshape(entries, 1, 1, models * d, self._constants)
        clients = moments.means[:, models:].reshape(entries, 2, self._groups, d, self._constants)
        met = server @ step.mT + server_means @ push.mT
        fixed = clients.mT @ step.mT + products @ push.mT
        return np.concatenate([met, np.broadcast_to(fixed, (*met.shape[:3], self._constants, d))], axis=3)

    def _select(
        self,
        second: FloatArray,
        means: FloatArray,
        products: FloatArray,
        learned: FloatArray,
        cross: FloatArray,
        sources: Sources,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[z zᵀ], E[δ zᵀ] and E[δ δᵀ] of one client, (E, n, d, d) each, averaged over its state."""
        presence, wide = self.law.presence, self._models * self._block
        factor = [weight[:, None, None] for weight in presence.mean]
        zz = factor[KEPT] * learned[:, KEPT] + factor[TAKEN] * learned[:, TAKEN] + factor[AWAY] * learned[:, AWAY]
        shared = np.empty((len(second), wide + self._constants, wide + self._constants))  # E[y yᵀ]
        shared[:, :wide, :wide] = second[:, : self._models, :, : self._models].reshape(len(second), wide, wide)
        shared[:, :wide, wide:] = means[:, : self._models].reshape(len(second), wide, self._constants)
        shared[:, wide:, :wide] = shared[:, :wide, wide:].mT
        shared[:, wide:, wide:] = products
        chances, matrices, live = self._upload_matrices
        shared, cross = shared[:, live][:, :, live], cross[..., live, :]
        dz: FloatArray | float = 0.0
        dd: FloatArray | float = 0.0
        for state in (KEPT, TAKEN):
            if not np.any(presence.mean[3 + state]):
                continue
            z, met = learned[:, state], cross[:, state]
            for chance, (own, others) in zip(chances, matrices, strict=True):
                if not np.any(chance):
                    continue
                with_z = own * z + others @ met  # E[u zᵀ], u the upload less the server's model
                half = others @ met * own
                square = own**2 * z + half + half.mT + others @ shared[:, None] @ others.mT
                dz = dz + (presence.mean[3 + state] * chance)[:, None, None] * with_z
                dd = dd + (presence.square[state] * chance)[:, None, None] * square
        weight = self.law.delay_weight
        added = self.law.upload_noise(sources.noise, sources.attack) * presence.square.sum(axis=0)[:, None, None]
        square = dd + added
        return zz, np.asarray(weight * dz), np.asarray(weight**2 * square)

    @cached_property
    def _upload_matrices(self) -> tuple[FloatArray, list[tuple[FloatArray, FloatArray]], NDArray[np.intp]]:
        """Chances (2, n), A (n, 1, 1) and the matrix of y = (G, constants) (n, d, ·) of honest and attacked uploads.

        Only the rows of y that any upload depends on are kept: their indices are returned, too.
        """
        own, server, constant = self.law.upload
        d, wide = self._block, self._models * self._block
        eye, matrices = np.eye(d), []
        for t in (0, 1):
            matrix = np.zeros((self._groups, d, wide + self._constants))
            matrix[:, :, wide - d : wide] -= eye
            matrix[:, :, :d] += server[t][:, None, None] * eye
            matrix[:, :, wide:] = constant[t]
            matrices.append(matrix)
        live = np.flatnonzero(np.any(np.stack(matrices), axis=(0, 1, 2)))
        kept = [(own[t][:, None, None], matrices[t][:, :, live]) for t in (0, 1)]
        return self.law.attacking, kept, live

    def _add_common_noise(self, second: FloatArray, attack: float) -> None:
        """Add the noise that attackers share to E[δ_k δ_lᵀ] of two of them."""
        presence, first = self.law.presence, self._models + self._groups
        sent = sum(
            strength * np.outer(weight, weight)
            for strength, vector in ((1.0, presence.mean), *presence.swings)
            for weight in [vector[3] + vector[4]]
        )
        for covariance, both in self.law.common_noise:
            scale = attack * self.law.delay_weight**2 * both * sent
            second[:, first:, :, first:] += scale[:, None, :, None] * covariance[:, None]

    # The matrices X_q

    def _make_terms(self) -> list[tuple[float, FloatArray | sparse.csr_array]]:
        law = self.law
        own, server, constant = law.upload
        chances = law.attacking
        uploads = [(1.0, *((_per_state(chances, part) * part).sum(axis=0) for part in (own, server, constant)))]
        if law.attack_covariance:
            uploads.append((law.attack_covariance, *(part[1] - part[0] for part in (own, server, constant))))
        presences = [(1.0, law.presence.mean), *law.presence.swings]
        terms = []
        for (p, presence), (s, learning), (u, upload) in itertools.product(
            enumerate(presences), enumerate(law.learning), enumerate(uploads)
        ):
            if s and u:  # an attack poisons samples or changes uploads, never both
                continue
            matrix = self._matrix(presence[1], learning[1:], upload[1:], p + s + u == 0, s == 0, u == 0)
            terms.append((presence[0] * learning[0] * upload[0], matrix))
        return terms

    def _matrix(
        self,
        presence: FloatArray,
        learning: tuple[FloatArray, ...],
        upload: tuple[FloatArray, ...],
        is_mean: bool,
        learns_on_average: bool,
        uploads_on_average: bool,
    ) -> FloatArray | sparse.csr_array:
        """Return X for given moments of presence, learning and upload: rows (G, z, δ, constants).

        A deviation of learning from its mean leaves out what does not learn, one of uploads what is not uploaded.
        """
        (step, push), (own, server, constant) = learning, upload
        models, n, d, count, beta = (self._models, self._groups, self._block, self._constants, self.law.delay_weight)
        eye, k = np.eye(d), np.arange(n)
        blocks = np.zeros((self.blocks, d, self.blocks, d))
        fixed = np.zeros((self.blocks, d, count))
        z, delta, last = models + k, models + n + k, models - 1
        for state in (KEPT, TAKEN):
            column = models + state * n + k
            if uploads_on_average:
                blocks[z, :, column] += presence[state][:, None, None] * step
                fixed[z] += presence[state][:, None, None] * push
            weight = (beta * own * presence[3 + state])[:, None, None]
            blocks[delta, :, column] += weight * step
            fixed[delta] += weight * push
        if learns_on_average:
            if uploads_on_average:
                blocks[z, :, models + k] += presence[AWAY][:, None, None] * eye
                blocks[delta, :, last] -= (beta * (presence[3] + presence[4]))[:, None, None] * eye
            weight = beta * (presence[3] + presence[4])
            blocks[delta, :, 0] += (weight * server)[:, None, None] * eye
            fixed[delta] += weight[:, None, None] * constant
        if is_mean:
            for model in range(models):
                blocks[model, :, model] = eye
        wide = self.blocks * d
        matrix = np.zeros((wide + count, wide + count))
        matrix[:wide, :wide], matrix[:wide, wide:] = blocks.reshape(wide, wide), fixed.reshape(wide, count)
        if is_mean:
            matrix[wide:, wide:] = np.eye(count)
        return sparse.csr_array(matrix) if len(matrix) > _DENSE else matrix

    # Answers

    def levels(self, moments: Moments, direction: bool = True) -> FloatArray:
        """Return excess network MSE, server's MSD and honest clients' excess of each set, (sets, 3).

        The last is NaN where groups mix honest and Byzantine clients.
        """
        law, groups, model = self.law, self.law.groups, self.law.model
        taken = law.presence.mean[TAKEN][:, None, None]
        own = taken * moments.own[:, TAKEN] + (1.0 - taken) * moments.own[:, KEPT]
        if direction and groups.target_offsets is not None and self._constants:
            clients = moments.means[:, self._models :]
            clients = clients.reshape(len(own), 2, self._groups, self._block, self._constants)
            mean = taken * clients[:, TAKEN] + (1.0 - taken) * clients[:, KEPT]
            pulled = mean @ law.targets.mT
            own = own + pulled + pulled.mT + law.targets @ law.products @ law.targets.mT
        each_client = np.einsum("kij,ekji->ek", groups.covariance, own)
        excess = each_client @ groups.copies / model.scenario.num_clients
        honest = each_client @ (groups.copies * groups.honest) if model.tells_honest else np.full_like(excess, np.nan)
        server = np.einsum("eii->e", moments.second[:, 0, :, 0])
        each = np.stack([excess, server, honest], axis=1).reshape(self.sets, self.entries.size, 3)
        return np.asarray(each.sum(axis=1) * self.entries.multiplicity)

    def _on_diagonal(self, shared: FloatArray) -> FloatArray:
        """Spread numbers (E, n or 1, d) on diagonals (E, n or 1, d, d)."""
        return np.asarray(shared[..., None] * np.eye(self._block))


def _both_sides(matrix: FloatArray | sparse.csr_array, moments: FloatArray) -> FloatArray:
    """X M Xᵀ of symmetric moments M (E, size, size)."""
    if not sparse.issparse(matrix):
        return np.asarray(matrix @ moments @ matrix.T)
    return np.stack([(matrix @ np.ascontiguousarray((matrix @ one).T)).T for one in moments])


def _per_state(chances: FloatArray, part: FloatArray) -> FloatArray:
    """Shape chances (2, n) so that they multiply (2, n, …)."""
    return chances.reshape(*chances.shape, *(1 for _ in part.shape[2:]))
