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
        pairs, learned = self._different_clients(moments, products), self._learn(moments, products, sources)
        cross = self._met(moments, products)
        if self.entries.shift:  # entries are named by their place in the moving window
            pairs, learned, cross = map(self._moved, (pairs, learned, cross))
        wide, shape = self.blocks * self._block, (self._rows, self.blocks, self._block)
        second = np.ascontiguousarray(pairs[:, :wide, :wide]).reshape(*shape, *shape[1:])
        self._add_common_noise(second, sources.attack)
        means = pairs[:, :wide, wide:].reshape(*shape, self._constants)
        return UploadMoments(second, means, *self._select(pairs, learned, cross, sources), self.law.groups.copies)

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

    def _different_clients(self, moments: Moments, products: FloatArray) -> FloatArray:
        """N = Σ_q λ_q X_q M X_qᵀ over the rows of (G, z, δ, constants), (E, rows, rows)."""
        wide = self.blocks * self._block
        pairs = np.empty((self._rows, wide + self._constants, wide + self._constants))
        pairs[:, :wide, :wide] = moments.second.reshape(self._rows, wide, wide)
        pairs[:, :wide, wide:] = moments.means.reshape(self._rows, wide, self._constants)
        pairs[:, wide:, :wide] = pairs[:, :wide, wide:].mT
        pairs[:, wide:, wide:] = products
        total = np.zeros_like(pairs)
        for weight, matrix in self._terms:
            total += weight * _both_sides(matrix, pairs)
        return total

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
        self, pairs: FloatArray, learned: FloatArray, cross: FloatArray, sources: Sources
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[z zᵀ], E[δ zᵀ] and E[δ δᵀ] of one client, (E, n, d, d) each, averaged over its state."""
        presence, chances = self.law.presence, self.law.attacking
        factor = [weight[:, None, None] for weight in presence.mean]
        zz = factor[KEPT] * learned[:, KEPT] + factor[TAKEN] * learned[:, TAKEN] + factor[AWAY] * learned[:, AWAY]
        matrices, used = self._upload_matrices
        fixed = np.r_[: self._models * self._block, self.blocks * self._block : pairs.shape[1]][used]  # rows of pairs
        shared, cross = pairs[:, fixed][:, :, fixed], cross[..., used, :]  # E[y yᵀ] and E[y zᵀ]
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
    def _upload_matrices(self) -> tuple[list[tuple[FloatArray, FloatArray]], NDArray[np.intp]]:
        """A (n, 1, 1) and the matrix of y = (G, constants) (n, d, ·) of honest and attacked uploads.

        Only the rows of y that any upload depends on are kept: their indices are returned, too.
        """
        own, server, constant = self.law.upload
        d, wide = self._block, self._models * self._block
        eye = np.eye(d)
        matrices = np.zeros((2, self._groups, d, wide + self._constants))
        matrices[..., wide - d : wide] -= eye
        matrices[..., :d] += server[..., None, None] * eye
        matrices[..., wide:] = constant
        used = np.flatnonzero(np.any(matrices, axis=(0, 1, 2)))
        return [(own[t][:, None, None], matrices[t][:, :, used]) for t in (0, 1)], used

    def _add_common_noise(self, second: FloatArray, attack: float) -> None:
        """Add the noise that attackers share to E[δ_k δ_lᵀ] of two of them."""
        presence, first = self.law.presence, self._models + self._groups
        sent = np.zeros((self._groups, self._groups))
        for strength, vector in ((1.0, presence.mean), *presence.swings):
            weight = vector[3] + vector[4]
            sent += strength * np.outer(weight, weight)
        for covariance, both in self.law.common_noise:
            scale = attack * self.law.delay_weight**2 * both * sent
            second[:, first:, :, first:] += scale[:, None, :, None] * covariance[:, None]

    # The matrices X_q

    def _make_terms(self) -> list[tuple[float, FloatArray | sparse.csr_array]]:
        law, parts = self.law, self.law.upload
        uploads = [(1.0, *((_per_state(law.attacking, part) * part).sum(axis=0) for part in parts), 1.0)]
        if law.attack_covariance:
            uploads.append((law.attack_covariance, *(part[1] - part[0] for part in parts), 0.0))
        learnings = [(*term, float(index == 0)) for index, term in enumerate(law.learning)]
        terms: list[tuple[float, FloatArray | sparse.csr_array]] = []
        for presence, learning, upload in itertools.product(
            [(1.0, law.presence.mean), *law.presence.swings], learnings, uploads
        ):
            if learning[-1] or upload[-1]:  # an attack poisons samples or changes uploads, never both
                matrix = self._matrix(presence[1], learning[1:], upload[1:])
                if not terms:  # the mean leaves server models and constants as they are
                    fixed = np.r_[: self._models * self._block, self.blocks * self._block : len(matrix)]
                    matrix[fixed, fixed] = 1.0
                matrix = sparse.csr_array(matrix) if len(matrix) > _DENSE else matrix
                terms.append((presence[0] * learning[0] * upload[0], matrix))
        return terms

    def _matrix(
        self,
        presence: FloatArray,
        learning: tuple[FloatArray, FloatArray, float],
        upload: tuple[FloatArray, FloatArray, FloatArray, float],
    ) -> FloatArray:
        """Return the rows z and δ of X for given moments of presence, learning and upload.

        The last number of learning and of upload is 1 for means and 0 for deviations from them, which leave out
        what does not learn and what is not uploaded.
        """
        (step, push, learns), (own, server, constant, sends) = learning, upload
        models, n, d, count, beta = (self._models, self._groups, self._block, self._constants, self.law.delay_weight)
        eye, k = np.eye(d), np.arange(n)
        blocks = np.zeros((self.blocks, d, self.blocks, d))
        fixed = np.zeros((self.blocks, d, count))
        z, delta, last = models + k, models + n + k, models - 1
        for state in (KEPT, TAKEN):
            column = models + state * n + k
            learned = (sends * presence[state])[:, None, None]
            blocks[z, :, column] += learned * step
            fixed[z] += learned * push
            weight = (beta * own * presence[3 + state])[:, None, None]
            blocks[delta, :, column] += weight * step
            fixed[delta] += weight * push
        blocks[z, :, models + k] += (sends * learns * presence[AWAY])[:, None, None] * eye
        weight = (learns * beta * (presence[3] + presence[4]))[:, None, None]
        blocks[delta, :, last] -= sends * weight * eye
        blocks[delta, :, 0] += weight * server[:, None, None] * eye
        fixed[delta] += weight * constant
        wide = self.blocks * d
        matrix = np.zeros((wide + count, wide + count))
        matrix[:wide, :wide], matrix[:wide, wide:] = blocks.reshape(wide, wide), fixed.reshape(wide, count)
        return matrix

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
