"""No stepsize that is found for a fleet is unstable, whatever the metric, and no error there is impossible."""

import functools
import math

import numpy as np
import pytest

import psofed
from psofed import Data, NotCoveredError, Scenario, Selection, attacks, drifts
from psofed.theory.metrics import METRICS
from psofed.theory.prediction import Prediction
from psofed.theory.stepsize import EDGE, best_stepsize

pytestmark = [pytest.mark.theory, pytest.mark.takes(10)]

# The server never hears those who diverge, so that its MSD falls up to the largest stable stepsize.
EDGY = Scenario(num_clients=20, dimension=4, num_participants=4, num_shared=4, attack=attacks.Gaussian(num_byzantine=3))


def draw(seed: int) -> Scenario:
    """Draw a small fleet; in every other one client sets the limit, and the MSD often falls up to it."""
    rng, is_edgy = np.random.default_rng(seed), seed % 2 == 0
    clients, dimension = int(rng.integers(2, 6)) + 5 * is_edgy, int(rng.integers(1, 5))
    who = {
        "num_byzantine": int(rng.integers(1, clients + 1)),
        "probability": float(rng.choice([0.2, 0.6, 1.0])),
        "byzantine_set": str(rng.choice(["fixed", "redrawn"])),
    }
    attack = (
        None,
        attacks.Gaussian(variance=float(rng.choice([0.25, 4.0])), **who),
        attacks.ColludingGaussian(**who),
        attacks.ConstantBias(bias=0.3, **who),
        attacks.SignFlip(scale=0.3, of=str(rng.choice(["update", "model"])), **who),
        attacks.ScaledUpdate(scale=1.5, **who),
        attacks.LabelPoisoning(**who),
    )[1 if is_edgy else rng.integers(7)]
    walks = attack is None or (isinstance(attack, attacks.Gaussian) and rng.random() < 0.2)
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=4 if is_edgy else int(rng.integers(1, clients + 1)),
        num_shared=dimension if is_edgy else int(rng.integers(1, dimension + 1)),
        uplink="same" if is_edgy else str(rng.choice(["same", "redrawn"])),
        iterations=40,
        selection=Selection(pattern=str(rng.choice(["random", "round-robin"])), coordinated=True),
        data=Data(
            input_variance=[0.1] * (clients - 1) + [1.5] if is_edgy else rng.uniform(0.2, 1.5, clients).tolist(),
            noise_variance=float(rng.choice([1e-3, 0.1])),
        ),
        attack=attack,
        drift=drifts.RandomWalk(variance=float(rng.choice([1e-4, 1e-2]))) if walks else None,
    )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_best_stepsize_is_stable_for_every_metric(first: int) -> None:
    for seed in range(first, first + 20):
        scenario = draw(seed)
        try:
            prediction = Prediction(scenario)
            limit = prediction.max_stepsize
            levels = functools.cache(prediction.solver.level)  # all metrics are searched alike at first
            object.__setattr__(prediction.solver, "level", levels)
            best = {metric: best_stepsize(prediction.solver, metric) for metric in METRICS}
            if seed % 5 == 0:
                metric = tuple(METRICS)[seed % 3]
                [point] = psofed.tune(scenario, metric=metric, shared=[scenario.num_shared]).points
                best["tuned"] = point.stepsize
                assert point.stepsize < point.max_stepsize <= limit, seed
        except NotCoveredError:
            continue
        for stepsize in best.values():
            assert 0.0 <= stepsize <= EDGE * limit * (1 + 1e-12), seed
            if stepsize > 0.0:
                at_best = prediction.at(stepsize)
                assert at_best.is_stable, seed
                assert at_best.network_mse >= at_best.terms.noise, seed
                assert at_best.server_msd >= 0.0, seed


def test_an_error_that_falls_up_to_the_limit_is_said_to() -> None:
    limit = psofed.predict(EDGY).max_stepsize
    for metric in ("msd", "test"):
        assert psofed.optimal_stepsize(EDGY, metric=metric) == pytest.approx(EDGE * limit, rel=1e-3)
    tuning = psofed.tune(EDGY, metric="msd", shared=[4])
    assert tuning.recommended.network_mse > 0.0
    assert tuning.recommended.stepsize < tuning.recommended.max_stepsize <= limit
    assert tuning.to_json()["points"][0]["at_edge"]
    assert "M = 4: the error falls up to the largest stable stepsize" in repr(tuning)
    inside = psofed.tune(EDGY, metric="network", shared=[4])
    assert not inside.recommended.at_edge
    assert "falls up to" not in repr(inside)


def test_a_prediction_that_cannot_be_right_is_an_error(monkeypatch) -> None:
    from psofed.common.errors import ImpossibleResultError
    from psofed.theory.solve import Solver

    def solutions(excess: float, server: float) -> None:
        levels = np.zeros((1, 4, 3))
        levels[0, 0, :2] = excess, server
        monkeypatch.setattr(Solver, "_by_source", lambda self, stepsize, offsets: levels)

    for excess, server in ((-0.1, 1.0), (1.0, -0.1)):
        solutions(excess, server)
        with pytest.raises(ImpossibleResultError, match=r"internal error.*4 of 20 clients.*report"):
            psofed.predict(EDGY)
    solutions(-1e-18, -1e-18)  # rounding
    assert math.isfinite(psofed.predict(EDGY).network_mse)
