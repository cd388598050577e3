"""Predicts the recovery after Byzantine clients are excluded: the exact learning curve from the poisoned state on.

Until then the moments follow x' = F x + s of the attacked fleet, after that x' = F₀ x + s₀ of the same fleet whose
excluded clients upload nothing. The start is the state of iteration ``at``, or the steady state x = F x + s; the end
is x = F₀ x + s₀, approached as ρ(F₀)ⁿ (``rate``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer, check_number
from psofed.parts.attacks.drop_out import DropOut
from psofed.render import Report, Reported
from psofed.render.charts import Chart
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.coverage import check_paper_iteration
from psofed.theory.maps.general import Recursion
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import MomentState


@dataclass(frozen=True, eq=False, repr=False)
class Recovery(Reported):
    """The errors after clients are excluded in one iteration.

    Attributes
    ----------
    network_mse, server_msd : array (n,)
        From the iteration of the exclusion on.
    poisoned, recovered : Level
        Excess network MSE and server MSD in that iteration, and in the end.
    noise : float
        The irreducible observation noise, which is in every network MSE.
    rate : float
        Factor by which the remaining poison shrinks per iteration, in the end.
    """

    network_mse: FloatArray
    server_msd: FloatArray
    poisoned: Level
    recovered: Level
    noise: float
    rate: float

    def iterations(self, within: float = 0.1, metric: str = "network_mse") -> float:
        """Return after how many iterations a metric stays within `within` dB of its recovered level.

        Infinite if the curve ends before.
        """
        within = check_number("within", within, 0.0, open_low=True)
        if metric not in ("network_mse", "server_msd"):
            raise InvalidValueError("metric", metric, '"network_mse" or "server_msd"')
        curve: FloatArray = getattr(self, metric)
        end = self.ends(metric)[1]
        above = np.flatnonzero(curve > end * 10 ** (within / 10))
        if not above.size:
            return 0.0
        return math.inf if above[-1] == curve.size - 1 else float(above[-1] + 1)

    def ends(self, metric: str) -> tuple[float, float]:
        """Return a metric in the iteration of the exclusion, and when it has recovered."""
        if metric == "server_msd":
            return self.poisoned.server, self.recovered.server
        return self.poisoned.excess + self.noise, self.recovered.excess + self.noise

    def report(self) -> Report:
        """Return how soon the errors recover."""
        from psofed.theory.tuning_reports import recovery_report

        return recovery_report(self)

    def chart(self) -> Chart:
        """Return both errors from the exclusion on, as a value."""
        from psofed.theory.tuning_reports import recovery_chart

        return recovery_chart(self)


def predict_recovery(
    scenario: Scenario | str | Path,
    *,
    at: int | None = None,
    clients: Sequence[int | str] | None = None,
    iterations: int = 500,
) -> Recovery:
    """Predict the recovery after an exclusion, exactly.

    It starts from the state that the attack has brought about. From then on the server ignores the excluded clients'
    uploads; they still download.

    Parameters
    ----------
    scenario : Scenario or path
        With the attack; a defence in it is ignored.
    at : int, optional
        The iteration of the exclusion; the poisoned steady state by default.
    clients : sequence of int or str, optional
        The excluded clients, by number or by their names in your own data; all Byzantine clients by default.
    iterations : int
        Length of the curve.

    Raises
    ------
    NotCoveredError
        Where theory does not cover the scenario, by name.

    Examples
    --------
    >>> from psofed.attacks import Gaussian
    >>> attack = Gaussian(num_byzantine=3, variance=0.5)
    >>> scenario = Scenario(num_clients=10, dimension=3, num_shared=3, attack=attack)
    >>> predict_recovery(scenario).iterations(within=0.1)
    39.0
    """
    iterations = check_integer("iterations", iterations, 1)
    scenario = as_scenario(scenario)
    if scenario.defence is not None and not scenario.defence.excluded_download:
        raise NotCoveredError(
            "Recovery is predicted where excluded clients still download, not with defence.excluded_download = false."
        )
    scenario = scenario.replace(defence=None)
    check_paper_iteration(scenario, "Recovery")
    before = TheoryModel(scenario)
    attack = scenario.attack
    if attack is None or before.statement is None:
        raise NotCoveredError("There is nothing to recover from: the scenario has no attack.")
    if attack.byzantine_set == "redrawn":
        raise NotCoveredError(
            "Recovery is predicted where all Byzantine clients are excluded; with attack.byzantine_set = "
            '"redrawn" every client may be one.'
        )
    byzantine = before.fleet.byzantine_mask(attack)
    named = np.flatnonzero(byzantine).tolist() if clients is None else clients
    try:
        excluded = DropOut(clients=named, probability=1.0) if np.size(named) else DropOut(num_byzantine=0)
        is_excluded = before.fleet.byzantine_mask(excluded)
    except InvalidValueError as error:
        raise error.renamed(error.field.removeprefix("attack.")) from None
    if np.any(byzantine & ~is_excluded):
        raise NotCoveredError("Recovery is predicted where all Byzantine clients are excluded; some are not.")
    after = TheoryModel(scenario.replace(attack=excluded))
    if len(before.branches) != 1 or len(before.branches[0].exchanges) != 1:
        raise NotCoveredError("Recovery is predicted where masks are alike in all iterations.")
    if before.has_direction or after.has_direction:
        raise NotCoveredError(
            f'Recovery is predicted from attacks of mean zero on clients with one target, not from "{attack.kind}".'
        )
    poisoned, healing = (
        m.recursion(scenario.common_stepsize, m.branches[0], lumped=False) for m in (before, after)
    )
    v = _state_at(poisoned, at)
    ended, _ = healing.steady_state(Sources())
    levels = []
    for _ in range(iterations):
        levels.append(healing.level(v.clients))
        v = healing.step(v)
    noise = float(before.fleet.noise_variance.mean())
    return Recovery(
        np.array([level.excess for level in levels]) + noise,
        np.array([level.server for level in levels]),
        levels[0],
        ended,
        noise,
        healing.spectral_radius(),
    )


def _state_at(recursion: Recursion, at: int | None) -> MomentState:
    if at is None:
        if recursion.spectral_radius() >= 1.0:
            raise NotCoveredError(
                "Under this attack the models diverge, so there is no steady state to start from; give `at`, the "
                "iteration of the exclusion."
            )
        return recursion.steady_state(Sources())[1]
    v = recursion.initial
    for n in range(check_integer("at", at, 0)):
        v = recursion.step(v, n)
    return v
