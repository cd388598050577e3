import math
import pickle
from dataclasses import dataclass, fields

import numpy as np
import pytest

import psofed
from psofed import Data, InvalidValueError, PsofedError, Scenario, Selection, Uniform, UnknownFieldError
from psofed.common.errors import MissingValueError
from psofed.common.options import check_option, option
from psofed.parts.attacks import Gaussian
from psofed.scenario.changes import parse_setting, with_values
from psofed.scenario.file import EXAMPLE, read_scenario

pytestmark = [pytest.mark.scenario, pytest.mark.parts]

SIZES = {"num_clients": 10, "dimension": 4}


def test_defaults_are_the_papers() -> None:
    scenario = Scenario(**SIZES)
    assert (scenario.num_participants, scenario.num_shared, scenario.stepsize) == (5, 1, 0.15)
    assert scenario.data.input_variance == Uniform(0.2, 1.2)
    assert scenario.data.noise_variance == Uniform(0.005, 0.025)
    assert scenario.attack is None
    assert scenario.selection == Selection(pattern="random", coordinated=True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_clients": 0}, "num_clients"),
        ({"num_clients": 10.0}, "num_clients"),
        ({"num_clients": True}, "num_clients"),
        ({"dimension": "5"}, "dimension"),
        ({"num_shared": 5}, "num_shared"),
        ({"num_shared": 0}, "num_shared"),
        ({"num_participants": 11}, "num_participants"),
        ({"stepsize": 0.0}, "stepsize"),
        ({"stepsize": math.nan}, "stepsize"),
        ({"stepsize": math.inf}, "stepsize"),
        ({"stepsize": -0.1}, "stepsize"),
        ({"iterations": -1}, "iterations"),
        ({"algorithm": "fedavg"}, "algorithm"),
        ({"uplink": "both"}, "uplink"),
        ({"aggregation": "sum"}, "aggregation"),
        ({"selection.pattern": "spiral"}, "selection.pattern"),
        ({"selection.coordinated": 1}, "selection.coordinated"),
        ({"selection": "random"}, "selection"),
        ({"data.input_variance": -1.0}, "data.input_variance"),
        ({"data.input_variance": [1.0, 2.0]}, "data.input_variance"),
        ({"data.input_variance": [1.0] * 9 + [-1.0]}, "data.input_variance[9]"),
        ({"data.input_variance": {"normal": [0, 1]}}, "data.input_variance"),
        ({"data.noise_variance": {"uniform": [0.5, 0.1]}}, "data.noise_variance.uniform"),
        ({"data.noise_variance": math.nan}, "data.noise_variance"),
        ({"data.input_correlation": 1.0}, "data.input_correlation"),
        ({"data.fleet_seed": -1}, "data.fleet_seed"),
        ({"data.test_instances": 0}, "data.test_instances"),
        ({"data.covariances": [[[1.0, 2.0], [0.0, 1.0]]]}, "data.covariances[0]"),
        ({"data.covariances": [[[1.0, 2.0], [2.0, 1.0]]]}, "data.covariances[0]"),
        ({"data.covariances": [[[1.0]]]}, "data.covariances"),
        ({"data.covariances": "white"}, "data.covariances"),
        ({"attack.num_byzantine": 11}, "attack.num_byzantine"),
        ({"attack.num_byzantine": 1, "attack.probability": 1.5}, "attack.probability"),
        ({"attack.num_byzantine": 1, "attack.variance": -1}, "attack.variance"),
        ({"attack.num_byzantine": 1, "attack.kind": "loud"}, "attack.kind"),
        ({"attack.probability": 0.5}, "attack.num_byzantine"),
    ],
)
def test_a_bad_value_is_refused_by_name(changes: dict, field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        with_values(Scenario(**SIZES), changes)
    assert caught.value.field == field
    is_missing = isinstance(caught.value, MissingValueError)
    assert str(caught.value).startswith(f"{field} is required: " if is_missing else f"{field} must be ")
    assert is_missing or f"; got {caught.value.value!r}"[:80] in str(caught.value)


@pytest.mark.parametrize("key", ["stepsiz", "attack.loudness", "data.rho", "grid.x", "selection.pattern.deep"])
def test_an_unknown_key_is_refused_with_a_suggestion_or_the_known_keys(key: str) -> None:
    with pytest.raises(UnknownFieldError, match=r"Unknown field `.*(Did you mean|Known: )"):
        with_values(Scenario(**SIZES, attack=Gaussian(num_byzantine=1)), {key: 1})


def test_a_missing_size_is_named() -> None:
    with pytest.raises(InvalidValueError, match="num_clients is required"):
        Scenario.from_mapping({"dimension": 5})


def test_the_example_is_a_valid_scenario() -> None:
    scenario = Scenario.from_toml(EXAMPLE)
    assert scenario == Scenario(
        num_clients=50, dimension=5, stepsize=0.077,
        attack=Gaussian(num_byzantine=15, probability=0.2, variance=0.5),
    )  # fmt: skip


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("num_clients = 9\ndimension = 5\n", encoding="utf-8-sig")
    assert read_scenario(file).num_clients == 9


def test_explicit_covariances_survive_toml() -> None:
    covariances = np.array([[[2.0, 0.3], [0.3, 1.0]], [[1.0, 0.1], [0.1, 0.5]]])
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, data=Data(covariances=covariances))
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert hash(scenario) == hash(Scenario.from_toml(scenario.to_toml()))


def test_covariances_exclude_variances() -> None:
    with pytest.raises(InvalidValueError, match="instead of input_variance"):
        Data(covariances=[[[1.0]]], input_variance=2.0)


def test_numpy_numbers_are_taken_as_numbers() -> None:
    scenario = Scenario(num_clients=np.int64(10), dimension=np.int32(4), stepsize=np.float32(0.5))
    assert type(scenario.num_clients) is int
    assert type(scenario.stepsize) is float
    assert Scenario(**SIZES, data=Data(input_variance=np.linspace(0.1, 1, 10))).data.input_variance[9] == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stepsize=0.03", ("stepsize", 0.03)),
        ("uplink=redrawn", ("uplink", "redrawn")),
        ("data.input_variance={uniform = [0.1, 1]}", ("data.input_variance", {"uniform": [0.1, 1]})),
        ("selection.coordinated=false", ("selection.coordinated", False)),
    ],
)
def test_settings_are_read_as_toml_or_as_a_word(text: str, expected: tuple) -> None:
    assert parse_setting(text) == expected


@pytest.mark.parametrize("text", ["stepsize", "=3", ""])
def test_a_setting_without_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="key=value"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"num_clients = ", "not valid TOML"), (b"\xff\xfe", "not UTF-8"), (b"dimension = 3", "num_clients")],
)
def test_a_bad_file_is_named(tmp_path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(PsofedError, match=message) as caught:
        read_scenario(path)
    assert str(caught.value).startswith(str(path))


def test_errors_survive_the_way_between_processes() -> None:
    error = InvalidValueError("stepsize", -1, "above 0")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    unknown = UnknownFieldError("x", ("a", "b"))
    assert str(pickle.loads(pickle.dumps(unknown))) == str(unknown)


def test_an_option_that_may_be_none_is_checked_when_it_is_not() -> None:
    @dataclass
    class Held:
        size: int | None = option(default=None, low=0)
        plain: int = option(default=1, low=0)

    size, plain = fields(Held)
    assert check_option("size", size, None) is None
    assert check_option("size", size, 3) == 3
    for field, wrong in ((size, -1), (plain, None), (plain, -1)):
        with pytest.raises(InvalidValueError):
            check_option("size", field, wrong)


def test_a_name_stands_for_a_part_and_none_for_no_part_in_files_and_settings() -> None:
    from psofed.scenario.changes import with_values

    text = 'num_clients = 8\ndimension = 4\npre_aggregation = "nnm"\nattack = "none"\ndefence = "none"\n'
    read = psofed.Scenario.from_toml(text)
    assert (read.pre_aggregation, read.attack) == (psofed.pre_aggregations.NNM(), None)
    attacked = read.replace(attack=psofed.attacks.Gaussian(num_byzantine=3, variance=2.0))
    changed = with_values(attacked, {"attack": "sign-flip", "attack.scale": 4.0, "pre_aggregation": "none"})
    assert changed.attack == psofed.attacks.SignFlip(num_byzantine=3, scale=4.0)
    assert changed.pre_aggregation is None
    assert with_values(attacked, {"attack": "none"}).attack is None


def test_fields_are_set_also_where_a_name_stands_for_the_table() -> None:
    from psofed.scenario.changes import set_values

    written = {"num_clients": 8, "dimension": 4, "pre_aggregation": "nnm", "attack": "none"}
    changed = set_values(written, {"pre_aggregation.tolerated": 2, "attack.num_byzantine": 3})
    assert changed["pre_aggregation"] == {"kind": "nnm", "tolerated": 2}
    assert changed["attack"] == {"num_byzantine": 3}
    with pytest.raises(psofed.PsofedError, match=r"selection must be a table, \[selection\]; got 5"):
        set_values({"selection": 5}, {"selection.pattern": "random"})


def test_parts_and_tables_may_be_mappings_as_in_toml() -> None:
    tables = {
        "attack": [{"kind": "sign-flip", "clients": [0]}, {"clients": [1, 2], "strength": 2.0}],
        "selection": {"pattern": "round-robin", "coordinated": False},
        "channel": {"up": {"kind": "lossy", "probability": 0.1}},
        "data": {"stream": {"kind": "delay-line", "pole": 0.3}},
    }
    scenario = Scenario(**SIZES, **tables)
    assert scenario == Scenario.from_mapping({**SIZES, **tables})
    assert Scenario.from_mapping(scenario.to_mapping()) == scenario
    with pytest.raises(UnknownFieldError, match=r"channel\.sideways`. Name the direction"):
        Scenario(**SIZES, channel={"sideways": "lossy"})
    with pytest.raises(InvalidValueError, match="mapping must be nested dicts"):
        Scenario.from_mapping(3)
