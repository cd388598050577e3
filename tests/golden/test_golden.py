"""160 random scenarios over the product of parts, with the values they had before the redesign."""

import json
from pathlib import Path
from typing import Any

import pytest

import psofed

pytestmark = [pytest.mark.simulation, pytest.mark.theory, pytest.mark.takes(60)]

SCENARIOS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("scenarios.json").read_text("utf-8"))
SIMULATED = [number for number, case in enumerate(SCENARIOS) if "simulated" in case]
PREDICTED = [number for number, case in enumerate(SCENARIOS) if "predicted" in case]
NOT_SIMULATED = [number for number, case in enumerate(SCENARIOS) if "simulated" not in case]
NOT_PREDICTED = [number for number, case in enumerate(SCENARIOS) if "not_predicted" in case]


def scenario_of(number: int) -> psofed.Scenario:
    return psofed.Scenario.from_mapping(SCENARIOS[number]["scenario"])


@pytest.mark.thinned(1)
@pytest.mark.parametrize("number", SIMULATED)
def test_simulated_values_are_unchanged(number: int) -> None:
    case = SCENARIOS[number]
    result = psofed.simulate(scenario_of(number), trials=case["trials"], seed=case["seed"])
    values = {name: getattr(result, name).mean for name in case["simulated"]}
    assert values == pytest.approx(case["simulated"], rel=1e-9, abs=0, nan_ok=True)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("number", PREDICTED)
def test_predicted_values_are_unchanged(number: int) -> None:
    case = SCENARIOS[number]
    prediction = psofed.predict(scenario_of(number))
    values = {name: float(getattr(prediction, name)) for name in case["predicted"]}
    assert values == pytest.approx(case["predicted"], rel=1e-7, abs=0, nan_ok=True)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("number", NOT_SIMULATED)
def test_scenarios_that_were_refused_still_are(number: int) -> None:
    with pytest.raises(psofed.PsofedError):
        psofed.simulate(scenario_of(number), trials=1)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("number", NOT_PREDICTED)
def test_predictions_that_were_refused_still_are(number: int) -> None:
    with pytest.raises(psofed.PsofedError):
        psofed.predict(scenario_of(number))
