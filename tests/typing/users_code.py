"""What a user's code looks like to type checkers; `make lint` has mypy and pyright check it, and nothing runs it.

``assert_type`` says what a name must be known as. Lines that end in ``type: ignore`` must be wrong: both checkers
complain of one that is not.
"""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import psofed
from psofed.aggregations import Krum
from psofed.attacks import Gaussian
from psofed.parts import Aggregation, Attack, option
from psofed.parts.contexts import Numbers, Upload
from psofed.results import Estimate

# --- the README's five lines -------------------------------------------------------------------------------------

fleet = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.attacks.Gaussian(num_byzantine=15))
assert_type(fleet, psofed.Scenario)
result = psofed.simulate(fleet.replace(num_shared=1))
assert_type(result, psofed.SimulationResult)
assert_type(result.network_mse, Estimate)
assert_type(result.network_mse.decibels, float)
assert_type(result.scenario.aggregation, Aggregation)
assert_type(result.scenario.aggregation.kind, str)
assert_type(result.diverged_trials, NDArray[np.int64])
assert_type(result - psofed.simulate("scenario.toml"), psofed.Difference)
assert_type(psofed.predict(fleet), psofed.Prediction)
assert_type(psofed.predict(fleet).network_mse.decibels, float)
number: float = psofed.predict(fleet).network_mse + 1.0
assert_type(psofed.compare(fleet), psofed.Comparison)
assert_type(psofed.sweep(fleet, {"num_shared": [1, 5]}), psofed.SweepResult)

# --- a scenario: a name stands for the part; a wrong field or value is an error -----------------------------------

named = psofed.Scenario(num_clients=9, dimension=2, aggregation="median", attack=Gaussian(clients=[3, 7]))
assert_type(named.aggregation, psofed.Aggregation)
assert_type(named.num_participants, int)
assert_type(named.attack, psofed.Attack | None)
psofed.Scenario(
    num_clients=9,
    dimension=2,
    selection=psofed.Selection(pattern="round-robin"),
    data=psofed.Data(input_variance=np.ones(9), noise_variance=[0.1] * 9),
)
psofed.Scenario(num_clients=9)  # type: ignore[call-arg]
psofed.Scenario(num_clients=9, dimension=2, step_size=0.1)  # type: ignore[call-arg]
psofed.Scenario(num_clients=9, dimension=2, stepsize="0.1")  # type: ignore[arg-type]
psofed.Scenario(num_clients=9, dimension=2, attack=Krum(tolerated=1))  # type: ignore[arg-type]
named.stepsize = 0.1  # type: ignore[misc]

# --- built-in parts ------------------------------------------------------------------------------------------------

assert_type(Gaussian(num_byzantine=5).variance, float)
assert_type(Gaussian(num_byzantine=5).replace(variance=2.0), Gaussian)
assert_type(psofed.aggregations.Krum(tolerated=2).tolerated, int)
Gaussian(num_byzantine="5")  # type: ignore[arg-type]
Gaussian(num_byzantine=5, varianse=1.0)  # type: ignore[call-arg]
psofed.aggregations.Krum(1)  # type: ignore[call-arg]
psofed.attacks.Gausian(num_byzantine=5)  # type: ignore[attr-defined]
psofed.simulat(fleet)  # type: ignore[attr-defined]

# --- a part of one's own -------------------------------------------------------------------------------------------


class Alternating(Attack):
    """Pushes every number up in even iterations and down in odd ones."""

    size: float = option(default=1.0, low=0.0, text="how far each number is pushed")
    every: int = option(low=1, text="in how many iterations")

    def corrupt(self, upload: Upload) -> float:
        """Push."""
        assert_type(upload.iteration, int)
        assert_type(self.size, float)
        return upload.value + (self.size if upload.iteration % self.every == 0 else -self.size)


class Lowest(Aggregation):
    """Takes the lowest number."""

    def combine(self, numbers: Numbers) -> float:
        """Return it."""
        return float(numbers.values.min())


class Mistaken(Attack):
    """Has options that are wrong."""

    size: float = option(default="large", text="how far")  # type: ignore[assignment]
    words: str = option(default=1, choices=("a", "b"), text="which")  # type: ignore[assignment]


own = Alternating(num_byzantine=5, every=2)
assert_type(own.size, float)
assert_type(own.probability, float)
assert_type(own.replace(size=0.3), Alternating)
psofed.Scenario(num_clients=9, dimension=2, attack=own, aggregation=Lowest())
Alternating(num_byzantine=5)  # type: ignore[call-arg]
Alternating(num_byzantine=5, every=2, sise=0.3)  # type: ignore[call-arg]
Alternating(num_byzantine=5, every=2, size="0.3")  # type: ignore[arg-type]
Alternating(5, every=2)  # type: ignore[call-arg]
own.size = 2.0  # type: ignore[misc]
