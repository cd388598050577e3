"""QS-Fed."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts import Algorithm, option
from psofed.parts.contexts import Message, Received
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Traffic, spend_budget
from psofed.parts.vectors import middle

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class QSFed(Algorithm):
    """QS-Fed: participants send a count sketch of their update; the server estimates it from the mean sketch.

    In an iteration with an exchange, with hashes h_r(j) ∈ {0 … c − 1} and signs s_r(j) = ±1 for rows r:

        client   T_k[r, h_r(j)] += s_r(j) u_{k,j}
        server   T = 1/|S_n| Σ_k (T_k + δ_k),   û_j = median over r of s_r(j) T[r, h_r(j)]
                 w_{n+1} = w_n + top-k(û)

    where top-k keeps the k entries of largest magnitude (all of them if k ≥ D) and δ_k is the attack, on every
    cell. As in FetchSGD the hashes may be fixed, and the server may then keep sketches of momentum and error:

        T_u ← ρ T_u + T,   T_e ← T_e + T_u,   Δ = top-k(medians of T_e),   T_e ← T_e − sketch(Δ),   w_{n+1} = w_n + Δ

    (without error feedback Δ is taken from T_u). Up go r·c numbers, down D, so there is an exchange every
    max(D, rc)/M iterations.

    *Chosen*: r = 5, c = 1, k = 5 with fresh hashes come closest to the paper's Fig. 1. The paper states none of
    it, and no variant we tried follows its super-linear growth with the number of Byzantine clients.

    References
    ----------
    Rothchild, Panda, Ullah, Ivkin, Stoica, Braverman, Gonzalez, Arora, "FetchSGD: Communication-efficient
    federated learning with sketching", ICML 2020.
    """

    kind = "qs-fed"

    rows: int = option(default=5, low=1, text="number of rows of the sketch (r)")
    columns: int = option(default=1, low=1, text="number of columns of the sketch (c)")
    top: int = option(default=5, low=1, text="largest number of entries changed in an exchange (k)")
    hashes: str = option(
        default="fresh", choices=("fresh", "fixed"), text="hashes drawn in each exchange, or once per run"
    )
    momentum: float = option(default=0.0, low=0.0, high=1.0, open_high=True, text="momentum (ρ); needs fixed hashes")
    error_feedback: bool = option(default=False, text="carry over what top-k left out; needs fixed hashes")

    def __post_init__(self) -> None:
        super().__post_init__()
        # Sketches under different hashes do not add up.
        if self.hashes == "fresh" and self.momentum:
            allowed = '0 unless algorithm_options.hashes = "fixed"'
            raise InvalidValueError("algorithm_options.momentum", self.momentum, allowed)
        if self.hashes == "fresh" and self.error_feedback:
            allowed = 'false unless algorithm_options.hashes = "fixed"'
            raise InvalidValueError("algorithm_options.error_feedback", self.error_feedback, allowed)

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count r·c numbers up, D down."""
        return spend_budget(
            scenario, bits_up=BITS_PER_NUMBER * self.rows * self.columns, bits_down=BITS_PER_NUMBER * scenario.dimension
        )

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send the cells of a sketch; entry (r, j) has two shared uniforms, for its column and its sign."""
        cells = self.rows * self.columns
        return Exchange(
            numbers=cells, uniforms=2 * self.rows * scenario.dimension, fresh=self.hashes == "fresh", memory=2 * cells
        )

    def encode(self, message: Message, out: FloatArray) -> None:
        """Send the sketch, cell (r, column) at place rc + column."""
        dimension = message.update.size
        out[:] = 0.0
        for r in range(self.rows):
            for i in range(dimension):
                cell, sign = _find_cell(message.uniforms, r, i, dimension, self.columns)
                out[cell] += sign * message.update[i]

    def apply(self, received: Received, memory: FloatArray, out: FloatArray) -> None:
        """Estimate the update from the mean sketch and keep its top k; ``memory`` holds T_u, then T_e."""
        dimension, cells, base = out.size, received.numbers.size, 0
        uniforms, top = received.uniforms, min(self.top, out.size)
        readings, magnitudes = np.empty(self.rows), np.empty(dimension)
        for cell in range(cells):
            memory[cell] = self.momentum * memory[cell] + received.numbers[cell]
        if self.error_feedback:
            base = cells
            for cell in range(cells):
                memory[cells + cell] += memory[cell]
        for i in range(dimension):
            for r in range(self.rows):
                cell, sign = _find_cell(uniforms, r, i, dimension, self.columns)
                readings[r] = sign * memory[base + cell]
            out[i] = middle(readings)
        if top < dimension:
            for i in range(dimension):
                magnitudes[i] = abs(out[i])
            # Entries above the threshold stay, and of those on it the first, until there are k.
            threshold = np.sort(magnitudes)[dimension - top]
            places = top
            for i in range(dimension):
                places -= magnitudes[i] > threshold
            for i in range(dimension):
                if magnitudes[i] == threshold and places > 0:
                    places -= 1
                elif not magnitudes[i] > threshold:
                    out[i] = 0.0
        if self.error_feedback:
            for r in range(self.rows):
                for i in range(dimension):
                    cell, sign = _find_cell(uniforms, r, i, dimension, self.columns)
                    memory[cells + cell] -= sign * out[i]


def _find_cell(uniforms: FloatArray, row: int, entry: int, dimension: int, columns: int) -> tuple[int, float]:
    """Return the cell of the sketch that an entry is hashed to in a row, and its sign."""
    place = 2 * (row * dimension + entry)
    return row * columns + int(uniforms[place] * columns), 1.0 if uniforms[place + 1] < 0.5 else -1.0
