"""A model's fleet lumped together: samples and uploads of a few nodes in the place of all clients.

The number of nodes is the smallest of :data:`NODES` at which sums over clients are exact to 1e-10
(:mod:`psofed.theory.maps.lumps`), which depends on the stepsize: near the largest stable one moments are less smooth.
A client's own moment has a pole at the input variance at which it would diverge on its own: with R_k = ς_k² T, and B
the contraction bound of the fleet,

    ς² = (B/μ) max_k ς_k²,    lower by max ς²/(max ς² + v) if inputs are poisoned by noise of variance v.

With correlated inputs a fleet can be stable with clients at and beyond that pole: those near it are not lumped.
μ = ``stepsize``, B = :func:`psofed.theory.stability.contraction_bound`.
"""

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from psofed.theory.maps.lumps import NODES, Lumps, lumped_up_to
from psofed.theory.stability import contraction_bound
from psofed.theory.steps.corruption import AttackChances
from psofed.theory.steps.samples import Mixture
from psofed.theory.steps.uploads import UploadLaw

if TYPE_CHECKING:
    from psofed.theory.model import TheoryModel


class LumpedFleet:
    """The lumped fleet of a model, computed once for each number of nodes.

    Parameters
    ----------
    model : TheoryModel
        With separable masks; its clients differ in variances and chances only.
    """

    def __init__(self, model: "TheoryModel") -> None:
        self._model = model
        self._rows = lru_cache(2 * len(NODES))(self._lump)

    def at(self, stepsize: float) -> tuple[Mixture, UploadLaw] | None:
        """Return samples and uploads of the nodes; None where all clients must be, or may as well be, kept."""
        variance = self._model.fleet.input_variance
        pole = self._stable_up_to / stepsize
        for nodes, limit in self._choices(pole):
            lumps, mixture, law = self._rows(nodes, limit)
            if 2 * lumps.copies.size >= variance.size:
                return None
            if lumps.is_precise(variance, pole, self._condition):
                return mixture, law
        return None

    def _choices(self, pole: float) -> list[tuple[int, float]]:
        """Numbers of nodes and the largest variances to lump, the fewest rows first."""
        fleet = self._model.fleet
        if fleet.is_white:
            return [(nodes, np.inf) for nodes in NODES]
        low, high = float(fleet.input_variance.min()), float(fleet.input_variance.max())
        limits = {nodes: lumped_up_to(nodes, low, pole) for nodes in NODES}
        apart = {nodes: int((fleet.input_variance > limits[nodes]).sum()) for nodes in NODES}
        groups = len(np.unique(self._model.attackers.chance))
        order = sorted(NODES, key=lambda nodes: groups * nodes + apart[nodes])
        return [(nodes, limits[nodes] if limits[nodes] < high else np.inf) for nodes in order]

    @cached_property
    def _stable_up_to(self) -> float:
        """B max_k ς_k², so that a client is sure not to diverge on its own if μς² is below."""
        fleet = self._model.fleet
        # Poisoned inputs have a larger variance, so that clients diverge at a smaller stepsize: at most by this factor.
        widest = np.max([samples.covariance.max() for _, samples in self._model.mixture.branches])
        return contraction_bound(fleet) * float(fleet.input_variance.max()) ** 2 / float(widest)

    @cached_property
    def _condition(self) -> float:
        """Smallest over largest eigenvalue of a client's covariance."""
        fleet = self._model.fleet
        values = [1.0] if fleet.is_white else np.linalg.eigvalsh(fleet.covariances()[0])
        return float(values[0] / values[-1])

    def _lump(self, nodes: int, limit: float) -> tuple[Lumps, Mixture, UploadLaw]:
        model = self._model
        fleet, corruption, chance = model.fleet, model.law.corruption, model.attackers.chance
        if model.is_additive and model.scenario.selection.coordinated:
            # With one mask for all, noise that is added counts by its sum alone.
            chance = np.full_like(chance, chance.mean())
        lumps = Lumps.of(fleet.input_variance, fleet.noise_variance, chance, nodes, limit)
        fleet = replace(fleet, input_variance=lumps.input_variance, noise_variance=lumps.noise_variance)
        attackers = AttackChances(lumps.chance, model.attackers.pair_factor)
        honest = not np.any(corruption.attackers.chance)
        uploading = AttackChances(np.zeros_like(lumps.chance)) if honest else attackers
        law = replace(model.law, corruption=replace(corruption, attackers=uploading), copies=lumps.copies)
        return lumps, model.mixture_of(fleet, attackers), law
