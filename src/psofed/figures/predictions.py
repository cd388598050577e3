"""Theory for the figures: every scenario predicted once, however many figures show it."""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from psofed.figures.model import Series
from psofed.scenario import Scenario
from psofed.sweep import Cell

if TYPE_CHECKING:
    from psofed.theory import Prediction


def predict_point(scenario: Scenario, theory: str, small_stepsize: bool = False) -> "Prediction":
    """Return a prediction, made once per scenario (iterations and harmless attacks do not matter)."""
    # The paper's theory takes no notice of the uplink, so one prediction serves both.
    same = {"uplink": "same"} if theory == "paper" else {}
    return _predict(Cell(scenario.replace(iterations=1, **same), 1).scenario, theory, small_stepsize)


def predicted_series(
    scenarios: Iterable[Scenario],
    x: Iterable[float],
    *,
    theory: str,
    label: str,
    uplink: str,
    curve: int,
    metric: str,
    small_stepsize: bool = False,
) -> Series:
    """Return one theory's steady state at some scenarios as a series."""
    y = [getattr(predict_point(scenario, theory, small_stepsize), metric) for scenario in scenarios]
    return Series(
        label=label, kind=f"{theory}-theory", uplink=uplink, x=np.array(list(x), dtype=float),
        y=np.array(y, dtype=float), metric=metric, curve=curve,
    )  # fmt: skip


@cache
def _predict(scenario: Scenario, theory: str, small_stepsize: bool) -> "Prediction":
    from psofed import predict

    return predict(scenario, theory=theory, small_stepsize=small_stepsize)
