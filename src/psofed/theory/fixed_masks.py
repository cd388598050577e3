"""Upload and next download with masks that are known: round-robin windows, given the clients' offsets."""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.first import FirstMoments
from psofed.theory.moments import ClientMoments, Entries, PairMoments, Participation, UploadSums
from psofed.theory.uploads import UploadLaw, Uploads


@dataclass(frozen=True, eq=False)
class FixedMasks:
    """Known masks, one for each client: round-robin with an offset each, given the offsets.

    Not separable: what happens to a pair depends on both clients' masks.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
    row, column : array (K, E)
        S_k(i) and S_k(j) on the tracked entries.
    """

    drawn: Participation
    entries: Entries
    row: FloatArray
    column: FloatArray

    def __call__(
        self,
        law: UploadLaw,
        z: ClientMoments,
        pairs: PairMoments,
        first: FirstMoments | None = None,
        attack: float = 1.0,
    ) -> tuple[ClientMoments, PairMoments]:
        """Exchange all moments."""
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        row, column = self.row, self.column
        nothing = np.zeros_like(z.own1)
        sent = law.uploads(z, UploadSums(nothing, nothing), first, attack)
        pulls, pull_pairs = law.weighted(z, pairs, first)
        diagonal = np.arange(drawn.clients)
        pulls[diagonal, diagonal] = sent.upload_own - drawn.single * z.cross1
        # E[g' z_lᵀ]
        client = sent.cross + np.einsum("me,mle->le", row, pulls) / s
        server = self._server(law, z, sent, pull_pairs, attack)
        cross1 = (1 - column) * client + column * server
        own_client = row * (1 - column) * client
        own1 = (1 - row) * (1 - column) * sent.own + own_client + flip(own_client) + row * column * server
        average = pairs.average(drawn, self.entries)
        keep_row, keep_column = (1 - row)[:, None], (1 - column)[None, :]
        row_, column_ = row[:, None], column[None, :]
        both = keep_row * (keep_column * average + column_ * flip(client)[:, None])
        both += row_ * (keep_column * client[None, :] + column_ * server)
        one = keep_row * average + row_ * client[None, :]
        for array in (both, one):
            array[diagonal, diagonal] = 0.0
        return ClientMoments(server, cross1, client, own1, sent.own), PairMoments(both, one, average)

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        mask = self.entries.first_mask(self.row)
        pulled = mask * (law.means(z) - self.drawn.single * z.server)
        server = z.server + pulled.sum(axis=0) / self.drawn.participants
        kept = z.average(self.drawn)
        return FirstMoments(server, (1 - mask) * kept + mask * server, kept)

    def _server(
        self, law: UploadLaw, z: ClientMoments, sent: Uploads, pull_pairs: FloatArray, attack: float
    ) -> FloatArray:
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        row, column = self.row, self.column
        toward = (row * (sent.upload_server - drawn.single * z.server)).sum(axis=0) / s
        turned = flip(sent.upload_server)
        pulls = sent.upload_upload - sent.upload_server - turned + drawn.single * z.server
        diagonal = np.arange(drawn.clients)
        pull_pairs[diagonal, diagonal] = pulls
        second = np.einsum("ke,kle,le->e", row, pull_pairs, column)
        chance = law.corruption.attackers.chance[:, None]
        rows, columns = row * chance, column * chance
        together = rows.sum(axis=0) * columns.sum(axis=0) - (rows * columns).sum(axis=0)
        second += attack * drawn.pair * together * law.common_noise
        return np.asarray(z.server + toward + flip(toward) + second / s**2)
