"""Predicts one scenario at many stepsizes μ: the steady state x = F(μ) x + s(μ) at each.

Everything that does not depend on μ is computed once.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.numbers import finite_or_none
from psofed.common.types import FloatArray, ProgressCallback
from psofed.common.validation import check_number
from psofed.render import Report, Reported
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.coverage import check_stepsize
from psofed.theory.metrics import TERMS
from psofed.theory.prediction import Prediction

_LEVELS = ("network_mse", "server_msd", "test_mse")

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart


@dataclass(frozen=True, eq=False, repr=False)
class StepsizeCurve(Reported):
    """Steady states of one scenario over stepsizes: arrays (n,), infinite where unstable.

    Attributes
    ----------
    scenario : Scenario
    theory : str
    stepsize : array (n,)
        μ.
    is_stable : array of bool (n,)
    network_mse, server_msd, test_mse : array (n,)
    data, attack, noise, drift, targets : array (n,)
        The terms of the network MSE (:class:`~psofed.theory.metrics.Terms`).
    sampling_error : array (n,)
        Standard error of the network MSE where the clients' offsets were sampled, else 0.
    """

    scenario: Scenario
    theory: str
    stepsize: FloatArray
    is_stable: NDArray[np.bool_]
    network_mse: FloatArray
    server_msd: FloatArray
    test_mse: FloatArray
    data: FloatArray
    attack: FloatArray
    noise: FloatArray
    drift: FloatArray
    targets: FloatArray
    sampling_error: FloatArray

    def report(self) -> Report:
        """Return the steady state over the stepsizes, and the best of them."""
        from psofed.theory.tuning_reports import stepsizes_report

        return stepsizes_report(self)

    def chart(self) -> "Chart":
        """Return the error over the stepsize, as a value."""
        from psofed.theory.tuning_reports import stepsizes_chart

        return stepsizes_chart(self)

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per stepsize."""
        import pandas

        return pandas.DataFrame({name: getattr(self, name) for name in self._columns()})

    def _columns(self) -> list[str]:
        return [field.name for field in fields(self) if field.name not in ("scenario", "theory")]

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and numbers; infinite values become None."""
        columns = {name: finite_or_none(getattr(self, name).tolist()) for name in self._columns()}
        return columns | {"theory": self.theory, "scenario": self.scenario.to_mapping()}


def predict_stepsizes(
    scenario: Scenario | str | Path,
    stepsizes: Sequence[float] | FloatArray,
    theory: str = "exact",
    progress: ProgressCallback | None = None,
) -> StepsizeCurve:
    """Predict the steady state at many stepsizes in one go; the scenario's own is ignored.

    Parameters
    ----------
    scenario : Scenario or path
    stepsizes : sequence of float
        μ, each positive.
    theory : str
        ``"exact"``, ``"paper"`` or ``"independence"`` (inputs taken as independent over time).
    progress : callable, optional
        Called with the number of stepsizes done and their total.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> scenario = Scenario(num_clients=50, dimension=5, attack=Gaussian(num_byzantine=15))
    >>> curve = predict_stepsizes(scenario, [0.05, 0.15, 0.9])
    >>> curve.network_mse.round(5), curve.is_stable
    (array([0.02344, 0.02585,     inf]), array([ True,  True, False]))
    """
    scenario = as_scenario(scenario)
    values = np.array([check_number("stepsizes", mu, 0, open_low=True) for mu in np.atleast_1d(stepsizes).tolist()])
    first = Prediction(scenario, theory)
    for mu in values:
        check_stepsize(first.model, float(mu))
    stable = np.array([first.solver.is_stable(float(mu)) for mu in values], dtype=bool)
    refusal: NotCoveredError | None = None
    columns: dict[str, list[float]] = {name: [] for name in (*_LEVELS, *TERMS, "sampling_error")}
    for done, mu in enumerate(values):
        if progress is not None:
            progress(done, values.size)
        point = first.at(float(mu), is_stable=bool(stable[done]))
        try:
            row = {name: getattr(point, name) for name in _LEVELS} | asdict(point.terms)
            row["sampling_error"] = point.steady_state.sampling_error.excess
        except NotCoveredError as error:  # a link clips values at this stepsize
            row, refusal = dict.fromkeys(columns, math.nan), error
        for name, column in columns.items():
            column.append(row[name])
    if refusal is not None and not np.isfinite(columns["network_mse"]).any():
        raise refusal
    if progress is not None:
        progress(values.size, values.size)
    return StepsizeCurve(scenario, theory, values, stable, **{name: np.array(c) for name, c in columns.items()})
