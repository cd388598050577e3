"""Every part of the open iteration is predicted, with an effect, or refused by name, by every question to theory."""

import json
import math

import pytest

import psofed
from psofed import Data, Links, NotCoveredError, Scenario
from psofed.parts.registry import find_part, part_names

pytestmark = [pytest.mark.theory, pytest.mark.parts, pytest.mark.takes(12)]

ATTACK = psofed.attacks.ScaledUpdate(num_byzantine=1, probability=0.5, scale=1.5)
PLAIN = Scenario(
    num_clients=3, dimension=2, num_participants=2, num_shared=1, stepsize=0.1, iterations=60, attack=ATTACK
)
OPTIONS = {
    "bernoulli": {"probability": 0.6}, "markov": {"probability": 0.6, "mean_time": 5.0},
    "schedule": {"period": 4, "share": 0.5}, "lossy": {"probability": 0.3}, "noisy": {"variance": 0.1},
    "private": {"clip": 1.0}, "quantised": {"bits": 4, "reach": 12.0}, "fixed": {"iterations": 2},
    "geometric": {"ratio": 0.3, "longest": 3},
}  # fmt: skip


def changes() -> dict[str, dict]:
    """Return a change of the scenario for every part there is, and for what is no part."""
    found: dict[str, dict] = {
        "two groups": {"attack": [psofed.attacks.SignFlip(clients=[0]), psofed.attacks.Gaussian(clients=[1])]},
        "stepsizes per client": {"stepsize": (0.05, 0.1, 0.2)},
    }
    for family in ("availability", "delay", "learner", "algorithm"):
        for kind in part_names(family):
            found[kind] = {family: find_part(family, kind)(**OPTIONS.get(kind, {}))}
    for kind in part_names("channel"):
        part = find_part("channel", kind)(**OPTIONS[kind])
        found[f"{kind} up"] = {"channel": Links(up=part)}
        if kind != "private":
            found[f"{kind} down"] = {"channel": Links(down=part)}
    for kind in part_names("stream"):
        found[kind] = {"data": Data(stream=find_part("stream", kind)())}
    return found


CHANGES = changes()
NO_CHANGE = {"lms", "pso-fed", "independent"}
QUESTIONS = {
    "steady state": lambda s: psofed.predict(s).network_mse,
    "curve": lambda s: float(psofed.predict(s).learning_curve(20).network_mse[-1]),
    "largest stepsize": lambda s: psofed.predict(s).max_stepsize,
    "best stepsize": psofed.optimal_stepsize,
    "another stepsize": lambda s: psofed.predict(s).at(0.05).network_mse,
    "tune": lambda s: psofed.tune(s, shared=[1], horizon=20).recommended.network_mse,
}


def ask(question: str, scenario: Scenario) -> tuple[float, str]:
    """Return the answer, or why there is none."""
    try:
        return QUESTIONS[question](scenario), ""
    except NotCoveredError as error:
        return math.nan, str(error)


@pytest.mark.parametrize("name", CHANGES)
def test_an_open_part_is_predicted_or_refused_by_name(name: str) -> None:
    scenario = PLAIN.replace(**CHANGES[name])
    said = [name.split()[0], "groups", "stepsize", "channel", "availability", "learner", "delay"]
    _, refusal = ask("steady state", scenario)
    for question in QUESTIONS:
        if question == "best stepsize" and name not in (*NO_CHANGE, "noisy up", "stepsizes per client"):
            continue  # it takes a second
        answer, why = ask(question, scenario)
        assert math.isnan(answer) == bool(why), question
        assert not why or any(word in why for word in said), (question, why)
        assert not refusal or why, "what is not covered is refused by every question"
        assert refusal or not why or question in ("tune", "limits"), (question, why)
    if refusal:
        return
    prediction = psofed.predict(scenario)
    json.dumps(prediction.to_json(), allow_nan=False)
    assert prediction.report(stepsizes=False).to_text()
    same = prediction.network_mse == pytest.approx(psofed.predict(PLAIN).network_mse, rel=1e-6)
    assert same == (name in NO_CHANGE), "a part without effect is not what was predicted"
    if name not in NO_CHANGE:
        with pytest.raises(NotCoveredError, match="paper's theory"):
            psofed.predict(scenario, theory="paper")
