import warnings

import numpy as np
import pytest
from scipy.special import bdtr

from psofed import PsofedError, Scenario, load_result, simulate
from psofed.common.files import atomic_path
from psofed.results.estimates import sign_test_rank

pytestmark = pytest.mark.results


def test_a_saved_result_loads_as_it_was(tmp_path, small_scenario: Scenario) -> None:
    result = simulate(small_scenario, trials=5, seed=3, keep_trials=True)
    result.save(tmp_path / "deep" / "result.nc")
    loaded = load_result(tmp_path / "deep" / "result.nc")
    assert loaded.scenario == result.scenario
    assert (loaded.seed, loaded.version, loaded.tail) == (3, result.version, result.tail)
    assert loaded.to_json() == result.to_json()
    for metric in result.curve:
        assert np.array_equal(loaded.curve[metric], result.curve[metric])
        assert np.array_equal(loaded.trial_curves[metric], result.trial_curves[metric])


def test_a_result_is_saved_while_a_dask_client_is_open(tmp_path, small_scenario: Scenario) -> None:
    distributed = pytest.importorskip("distributed")
    result = simulate(small_scenario, trials=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask's own making, at start and end
        with (
            distributed.LocalCluster(
                n_workers=1, processes=True, dashboard_address=None, silence_logs="ERROR"
            ) as cluster,
            distributed.Client(cluster),
        ):
            result.save(tmp_path / "result.nc")
            assert load_result(tmp_path / "result.nc").to_json() == result.to_json()


def test_a_data_set_is_labelled(small_scenario: Scenario) -> None:
    data = simulate(small_scenario, trials=4).to_dataset()
    assert data["network_mse"].dims == ("trial",)
    assert data["network_mse_curve"].dims == ("iteration",)
    assert data["is_byzantine"].values.tolist() == [True] * 3 + [False] * 4
    assert Scenario.from_toml(data.attrs["scenario"]) == small_scenario


def test_a_file_that_is_no_result_is_refused(tmp_path) -> None:
    (tmp_path / "x.nc").write_bytes(b"no result")
    with pytest.raises(PsofedError, match="not a psofed result"):
        load_result(tmp_path / "x.nc")
    with pytest.raises(PsofedError, match="no such file"):
        load_result(tmp_path / "y.nc")


def test_a_failed_write_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text(str(1 / 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_a_users_mistake(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PsofedError, match="cannot be written"), atomic_path(tmp_path / "file" / "x.nc"):
        pass


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.9999])
def test_ranks_of_the_sign_test_are_the_largest_that_hold_the_confidence(confidence: float) -> None:
    for count in (*range(1, 60), 1000, 9999):
        rank = sign_test_rank(count, confidence)
        assert 2 * bdtr(rank - 1.0, count, 0.5) <= 1 - confidence or rank == 0
        assert 2 * bdtr(float(rank), count, 0.5) > 1 - confidence or rank == count // 2
