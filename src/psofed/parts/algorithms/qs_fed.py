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

*Chosen*: r = 5, c = 1, k = 5 with fresh hashes come closest to the paper's Fig. 1. The paper gives none of
it, and no variant we tried follows its super-linear growth with the number of Byzantine clients.

References
----------
Rothchild, Panda, Ullah, Ivkin, Stoica, Braverman, Gonzalez, Arora, "FetchSGD: Communication-efficient
federated learning with sketching", ICML 2020.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number
from psofed.parts.algorithms._exchange import Exchange, refuse_redrawn_uplink
from psofed.results.traffic import BITS_PER_NUMBER, Traffic, spend_budget
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.common.types import FloatArray
    from psofed.engine.blocks import Run
    from psofed.fleet import Fleet
    from psofed.reference.block_form import ReferenceRun

HASHES = ("fresh", "fixed")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of QS-Fed.

    Parameters
    ----------
    rows, columns : int
        r and c, the size of the sketch.
    top : int
        k, how many entries the server changes at most in an exchange.
    hashes : str
        ``"fresh"`` in each exchange, or ``"fixed"`` for the whole run.
    momentum : float
        ρ, from 0 to below 1; needs fixed hashes, since sketches under different hashes do not add up.
    error_feedback : bool
        Keep what top-k left out for later; needs fixed hashes.
    """

    rows: int = 5
    columns: int = 1
    top: int = 5
    hashes: str = "fresh"
    momentum: float = 0.0
    error_feedback: bool = False

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name in ("rows", "columns", "top"):
            set_(self, name, check_integer(f"algorithm_options.{name}", getattr(self, name), 1))
        check_choice("algorithm_options.hashes", self.hashes, HASHES)
        set_(
            self, "momentum", check_number("algorithm_options.momentum", self.momentum, 0, 1, open_high=True)
        )
        check_boolean("algorithm_options.error_feedback", self.error_feedback)
        if self.hashes == "fresh" and self.momentum:
            allowed = '0 unless algorithm_options.hashes = "fixed"'
            raise InvalidValueError("algorithm_options.momentum", self.momentum, allowed)
        if self.hashes == "fresh" and self.error_feedback:
            allowed = 'false unless algorithm_options.hashes = "fixed"'
            raise InvalidValueError("algorithm_options.error_feedback", self.error_feedback, allowed)


def check(scenario: Scenario) -> None:
    """Refuse a redrawn uplink; masks (``[selection]``) play no part."""
    refuse_redrawn_uplink(scenario)


def traffic(scenario: Scenario) -> Traffic:
    """Count r·c numbers up, D down."""
    cells = scenario.algorithm_options.rows * scenario.algorithm_options.columns
    return spend_budget(
        scenario, bits_up=BITS_PER_NUMBER * cells, bits_down=BITS_PER_NUMBER * scenario.dimension
    )


def make_exchange(scenario: Scenario) -> Exchange:
    """Describe one exchange."""
    options = scenario.algorithm_options
    cells = options.rows * options.columns
    return Exchange(
        encode=encode,
        apply=apply,
        numbers=cells,
        options=(options.rows, options.columns, options.top, options.momentum, options.error_feedback),
        uniforms=2 * options.rows * scenario.dimension,
        fresh=options.hashes == "fresh",
        memory=2 * cells,
    )


def start(scenario: Scenario, fleet: "Fleet", seed: int, trials: range) -> "Run":
    """Set up the given trials of a scenario at iteration 0, the server's model zero."""
    from psofed.engine.server_model import ServerModelRun

    return ServerModelRun(scenario, fleet, seed, trials, make_exchange(scenario), traffic(scenario))


def reference(scenario: Scenario, seed: int, trial: int) -> "ReferenceRun":
    """Run one trial literally."""
    from psofed.reference.server_model import run_server_model_reference

    return run_server_model_reference(
        scenario, seed, trial, make_exchange(scenario), traffic(scenario), reference_step
    )


def encode(updates, normals, uniforms, client_uniforms, options, sent):
    """Send the sketch, cell (r, column) at place rc + column.

    Entry (r, j) has two of the ``uniforms``: one says its column, the other its sign.
    """
    participants, dimension, lanes = updates.shape
    rows, columns = int(options[0]), int(options[1])
    sent[:] = 0.0
    for r in range(rows):
        for i in range(dimension):
            place = 2 * (r * dimension + i)
            for lane in range(lanes):
                cell = r * columns + int(uniforms[place, lane] * columns)
                sign = 1.0 if uniforms[place + 1, lane] < 0.5 else -1.0
                for p in range(participants):
                    sent[p, cell, lane] += sign * updates[p, i, lane]


def apply(joined, participants, normals, uniforms, options, memory, change):
    """Estimate the update from the mean sketch and keep its top k; ``memory`` holds T_u, then T_e."""
    dimension, lanes = change.shape
    cells = joined.shape[0]
    rows, columns, top = int(options[0]), int(options[1]), min(int(options[2]), dimension)
    momentum, feedback = options[3], options[4] != 0.0
    readings = np.empty(rows)
    magnitudes = np.empty(dimension)
    for lane in range(lanes):
        base = 0
        for cell in range(cells):
            memory[cell, lane] = momentum * memory[cell, lane] + joined[cell, lane]
        if feedback:
            base = cells
            for cell in range(cells):
                memory[cells + cell, lane] += memory[cell, lane]
        for i in range(dimension):
            # The rows' readings, kept in order as they come.
            for r in range(rows):
                place = 2 * (r * dimension + i)
                sign = 1.0 if uniforms[place + 1, lane] < 0.5 else -1.0
                value = sign * memory[base + r * columns + int(uniforms[place, lane] * columns), lane]
                at = r
                while at > 0 and readings[at - 1] > value:
                    readings[at] = readings[at - 1]
                    at -= 1
                readings[at] = value
            change[i, lane] = 0.5 * (readings[(rows - 1) // 2] + readings[rows // 2])
        if top < dimension:
            for i in range(dimension):
                magnitudes[i] = abs(change[i, lane])
            # Entries above the threshold stay, and of those on it the first, until there are k.
            threshold = np.sort(magnitudes)[dimension - top]
            room = top
            for i in range(dimension):
                room -= magnitudes[i] > threshold
            for i in range(dimension):
                if magnitudes[i] == threshold and room > 0:
                    room -= 1
                elif not magnitudes[i] > threshold:
                    change[i, lane] = 0.0
        if feedback:
            for r in range(rows):
                for i in range(dimension):
                    place = 2 * (r * dimension + i)
                    sign = 1.0 if uniforms[place + 1, lane] < 0.5 else -1.0
                    cell = r * columns + int(uniforms[place, lane] * columns)
                    memory[cells + cell, lane] -= sign * change[i, lane]


def reference_step(
    scenario: Scenario,
    updates: "FloatArray",
    perturbations: "FloatArray",
    uniforms: "FloatArray",
    memory: "dict[str, FloatArray]",
    **_: object,
) -> "FloatArray":
    """Return w_{n+1} − w_n, literally, from u_k (participants, D) and δ_k (participants, r·c).

    ``memory`` is kept from one exchange to the next and holds T_u and T_e.
    """
    options, dimension = scenario.algorithm_options, scenario.dimension
    draws = uniforms.reshape(options.rows, dimension, 2)
    columns, signs = (draws[..., 0] * options.columns).astype(int), np.where(draws[..., 1] < 0.5, 1.0, -1.0)

    def sketch(vector: "FloatArray") -> "FloatArray":
        table = np.zeros((options.rows, options.columns))
        for r in range(options.rows):
            for j in range(dimension):
                table[r, columns[r, j]] += signs[r, j] * vector[j]
        return table

    attacks = perturbations.reshape(len(updates), options.rows, options.columns)
    table = np.mean([sketch(u) for u in updates] + attacks, axis=0)
    table = memory["momentum"] = options.momentum * memory.get("momentum", np.zeros_like(table)) + table
    if options.error_feedback:
        table = memory["error"] = memory.get("error", np.zeros_like(table)) + table
    readings = signs * np.take_along_axis(table, columns, axis=1)
    change: FloatArray = np.median(readings, axis=0)
    left_out = np.argsort(-np.abs(change), kind="stable")[options.top :]
    change[left_out] = 0.0
    if options.error_feedback:
        memory["error"] = memory["error"] - sketch(change)
    return change
