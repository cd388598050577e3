"""What a scenario refuses: wrong values and options, and fields that contradict each other, each by its name."""

import math

import numpy as np
import pytest

from psofed import PsofedError, Scenario
from psofed.parts.attacks import SignFlip
from psofed.scenario.changes import with_values

pytestmark = [pytest.mark.scenario, pytest.mark.parts]

BASE = Scenario(num_clients=7, dimension=5, num_participants=4, num_shared=2, iterations=25)
JUMP = {"drift": "jump", "drift.size": 1.0}
WALK = {"drift": "random-walk", "drift.variance": 0.01}
LATE = {"delay": "fixed", "delay.iterations": 2}

REFUSED = [
    # Attacks, and who is Byzantine.
    ({"attack": "gaussian"}, r"attack.num_byzantine is required.*attack.clients"),
    ({"attack.clients": [3, 3]}, r"attack.clients must be .*distinct"),
    ({"attack.clients": [-1]}, r"attack.clients\[0\] must be at least 0"),
    ({"attack.clients": [3, 8]}, r"attack.clients\[1\] must be .*between 0 and 6"),
    ({"attack.clients": [1.5]}, r"attack.clients\[0\] must be an integer of at least 0"),
    ({"attack.clients": [True]}, r"attack.clients\[0\] must be an integer of at least 0"),
    ({"attack.clients": 3}, "attack.clients must be "),
    ({"attack.clients": "3"}, r"attack.clients must be distinct client numbers or names, for example \[3, 7\]"),
    ({"attack.clients": [1, 2], "attack.num_byzantine": 3}, "attack.num_byzantine must be 2, the number of"),
    ({"attack.clients": [1], "attack.byzantine_set": "redrawn"}, "attack.clients must be .*redrawn"),
    ({"attack.clients": [1], "attack.byzantine_set": "moving"}, 'byzantine_set must be one of "fixed", "redrawn"'),
    ({"attack.clients": [1], "attack.deviations": 1.0}, "attack.deviations"),
    ({"attack.clients": [1], "attack.loudness": 1.0}, "attack.loudness.*byzantine_set, variance"),
    (
        {"attack": "sign-flip", "attack.clients": [1], "attack.variance": 0.5},
        'attack.variance must be .*"sign-flip" has no such option .it has scale',
    ),
    (
        {"attack": [{"clients": [1, 2]}, {"kind": "sign-flip", "clients": [2]}]},
        r"attack\[1\].clients must be clients that no other group has \(client 2 belongs to attack\[0\]\)",
    ),
    # The server.
    ({"aggregation": "median", "aggregation_options.trim": 1}, 'options.trim must be .*"median" has no such option'),
    ({"aggregation": "krum", "aggregation_options.depth": 1}, "aggregation_options.depth"),
    ({"aggregation": "krum", "aggregation_options.tolerated": 1.5}, "tolerated must be an integer of at least 0"),
    ({"aggregation": "centred-clipping", "aggregation_options.radius": 0}, "options.radius must be .*above 0"),
    ({"aggregation": "centred-clipping", "aggregation_options.factor": -1}, "factor"),
    ({"aggregation_options": 3}, r"aggregation_options must be a table, \[aggregation_options\]"),
    ({"pre_aggregation": "nnm", "pre_aggregation.tolerated": -1}, "pre_aggregation.tolerated must be at least 0"),
    ({"pre_aggregation": "mixing"}, 'pre_aggregation.kind .*"arc", "bucketing"'),
    ({"algorithm": "cs-fed", "algorithm_options.rows": 7}, 'options.rows must be .*"cs-fed" has no such option'),
    ({"algorithm": "rosdhb", **LATE}, "delay must be left out .* what is sent here is not a model; got 'fixed'"),
    # The network.
    ({"availability.probability": [0.5, 0.5]}, r"availability.probability must be one number, or 7 numbers \(num_cl"),
    ({"availability.probability": 1.2}, "availability.probability must be between 0 and 1; got 1.2."),
    (
        {"availability": "bernoulli"},
        r"availability.probability is required: one number between 0 and 1, such a number per client, or \{uni",
    ),
    ({"delay": "fixed", "delay.iterations": 25}, "delay.iterations must be at most 24"),
    ({"channel.up": {"kind": "quantised", "bits": 0, "reach": 1}}, "channel.up.bits must be between 1 and 32; got 0."),
    ({"channel.up": "private"}, "channel.up.clip is required"),
    ({"channel.down": {"kind": "private", "clip": 1}}, "channel.down must be absent"),
    # What is learned.
    ({"drift": "earthquake"}, 'drift.kind must be one of "jump"'),
    ({"drift.variance": 1.0}, "drift.kind is required"),
    ({"drift": "random-walk"}, "drift.variance is required: a number of at least 0"),
    ({**WALK, "drift.variance": -1.0}, "drift.variance must be at least 0"),
    ({**WALK, "drift.variance": math.nan}, "drift.variance must be a finite number of at least 0"),
    ({**JUMP, "drift.at": -3}, "drift.at must be at least 0"),
    ({**JUMP, "drift.at": 5, "drift.variance": 1.0}, 'drift.variance must be left out: the drift "jump" has no such'),
    ({"drift": "sinusoid", "drift.amplitude": 1.0, "drift.period": 1}, "drift.period must be at least 2"),
    ({**WALK, "model": "rff", "data.function": "sinc"}, "drift must be .*model.kind"),
    ({"model": "forest"}, 'model.kind must be one of "linear", "rff"'),
    ({"model": "rff", "model.bandwidth": 0.0}, "model.bandwidth must be above 0"),
    ({"model": "rff", "model.features": 0}, "model.features must be at least 1"),
    ({"model": "rff", "model.features": 30}, r"model.features must be 5 \(the dimension\)"),
    ({"model": "rff", "model.seed": -1}, "model.seed must be at least 0"),
    ({"model.features": 5}, 'model.features must be left out: the model "linear" has no such option'),
    ({"data.function": "root-sine", "data.input_dimension": 3}, "data.input_dimension must be 4"),
    ({"data.function": "sine", "data.input_dimension": 2}, r"data.input_dimension must be 5 \(the dimension\)"),
    ({"data.covariances": [np.eye(3)] * 7}, "data.covariances must be 7 matrices"),
    ({"data.stream": "delay-line", "data.stream.pole": 1.0}, "data.stream.pole must be above -1 and below 1"),
    ({"data.stream": "delay-line", "data.input_correlation": 0.3}, "data.input_correlation must be 0"),
    ({"data.stream": "echo"}, "data.stream.kind must be one of"),
    # How it is learned.
    ({"learner": "rls", "learner.forgetting": 0.0}, "learner.forgetting must be above 0 and at most 1"),
    ({"learner": "rls", "learner.initial": 0.0}, "learner.initial must be above 0"),
    ({"learner": "nlms", "learner.regularisation": -1.0}, "learner.regularisation must be at least 0"),
    ({"learner": "lms", "learner.leakage": 0.1}, "learner.leakage must be left out"),
    ({"learner": "rls", "algorithm": "online-fed"}, 'learner.kind must be "lms" with algorithm = "online-fed"'),
    ({"stepsize": 0.0}, "stepsize must be above 0"),
    ({"stepsize": [0.1, 0.2]}, r"stepsize must be one number, or 7 numbers \(num_clients\)"),
    ({"stepsize": [0.1, 0.2, 0.1, -0.1, 0.1, 0.1, 0.1]}, r"stepsize\[3\] must be above 0"),
    ({"stepsize": {"uniform": [0.2, 0.1]}}, r"stepsize.uniform must be \[low, high\] with low at most high"),
    ({"stepsize": "fast"}, "stepsize must be a number above 0, a list"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_is_wrong_is_refused_by_name_when_the_scenario_is_made(changes: dict, message: str) -> None:
    with pytest.raises(PsofedError, match=message):
        with_values(BASE, changes)


def test_an_option_of_another_kind_is_no_argument() -> None:
    with pytest.raises(TypeError, match="variance"):
        SignFlip(num_byzantine=1, variance=0.5)
