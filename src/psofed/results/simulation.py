"""What a simulation found: estimates with their uncertainty, learning curves, and all that led to them."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.common.files import atomic_path
from psofed.common.numbers import finite_or_none, student_quantile
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.results.defence import DefenceRecord
from psofed.results.traffic import Communication, measure_communication
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import xarray

    from psofed.results.tracking import Tracking

METRIC_TITLES = {"network_mse": "network MSE", "server_msd": "server MSD", "test_mse": "test MSE"}

# A tail whose second half differs from its first by this much, significantly, is not a steady state.
_DRIFT_RATIO, _DRIFT_SCORE = 0.01, 4.0


@dataclass(frozen=True)
class Estimate:
    """A mean over independent trials.

    Attributes
    ----------
    mean : float
        Infinite if a trial diverged.
    standard_error : float
        Of the mean; NaN if there was but one trial.
    interval : (float, float)
        95 % confidence interval (Student's t).
    """

    mean: float
    standard_error: float
    interval: tuple[float, float]

    @property
    def decibels(self) -> float:
        """The mean in dB."""
        return 10 * math.log10(self.mean) if self.mean > 0 else -math.inf


def estimate(values: FloatArray) -> Estimate:
    """Estimate the mean of independent `values`.

    Examples
    --------
    >>> estimate(np.array([1.0, 2.0, 3.0])).mean
    2.0
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2 or not math.isfinite(mean):
        return Estimate(mean, math.nan, (math.nan, math.nan))
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    reach = student_quantile(0.975, count - 1) * error
    return Estimate(mean, error, (mean - reach, mean + reach))


def find_unsteady(
    steady_state: dict[str, FloatArray], tail_change: dict[str, FloatArray]
) -> dict[str, float]:
    """Return the metrics that still change over the tail, with the relative change between its halves.

    Examples
    --------
    >>> level, change = np.array([1.0, 1.1, 0.9, 1.0]), np.array([0.10, 0.11, 0.09, 0.10])
    >>> {metric: round(ratio, 3) for metric, ratio in find_unsteady({"mse": level}, {"mse": change}).items()}
    {'mse': 0.1}
    """
    found = {}
    for metric, change in tail_change.items():
        change_estimate, level = estimate(change), estimate(steady_state[metric]).mean
        if not (math.isfinite(level) and level > 0 and change_estimate.standard_error > 0):
            continue
        ratio = change_estimate.mean / level
        if (
            abs(ratio) > _DRIFT_RATIO
            and abs(change_estimate.mean) > _DRIFT_SCORE * change_estimate.standard_error
        ):
            found[metric] = ratio
    return found


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """The outcome of :func:`psofed.simulate`.

    Metrics are ``network_mse`` (1/K Σ_k ε²_{k,n} over all clients), ``server_msd`` (‖w_n − w‖²) and
    ``test_mse`` (at the server, over its test set), all linear.

    Attributes
    ----------
    scenario, fleet, seed
        What was simulated.
    tail : int
        The steady state is the mean over the last `tail` iterations.
    bin_width : int
        Iterations averaged into one point of the learning curve.
    steady_state : dict of arrays (trials,)
        Steady state of each trial, by metric; infinite where it diverged.
    tail_change : dict of arrays (trials,)
        Second half of the tail less its first.
    curve, curve_standard_error : dict of arrays (bins,)
        Mean learning curve and its standard error.
    diverged_at : array (trials,)
        Iteration in which a trial was seen to diverge, or −1.
    trial_curves : dict of arrays (trials, bins), or None
        Each trial's learning curve, if asked for.
    seconds : float
        How long it took.
    details : dict
        What else there is to say, as plain values: ``"data"`` for data of your own.
    notes : tuple of str
        What should be known of how it was computed, such as a part that Numba could not compile.
    defence : DefenceRecord or None
        Who was left out when; None without a defence.
    """

    scenario: Scenario
    fleet: Fleet
    seed: int
    tail: int
    bin_width: int
    steady_state: dict[str, FloatArray]
    tail_change: dict[str, FloatArray]
    curve: dict[str, FloatArray]
    curve_standard_error: dict[str, FloatArray]
    diverged_at: NDArray[np.int64]
    trial_curves: dict[str, FloatArray] | None
    seconds: float
    version: str = __version__
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    defence: DefenceRecord | None = None

    @property
    def network_mse(self) -> Estimate:
        """Steady-state MSE over all clients, 1/K Σ ε²."""
        return estimate(self.steady_state["network_mse"])

    @property
    def server_msd(self) -> Estimate:
        """Steady-state ‖w_n − w‖² at the server."""
        return estimate(self.steady_state["server_msd"])

    @property
    def test_mse(self) -> Estimate:
        """Steady-state test MSE at the server."""
        return estimate(self.steady_state["test_mse"])

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.diverged_at)

    @property
    def iterations(self) -> NDArray[np.int64]:
        """First iteration of each point of the learning curve."""
        return np.arange(len(self.curve["network_mse"])) * self.bin_width

    @property
    def diverged_trials(self) -> NDArray[np.int64]:
        """Numbers of the trials that diverged."""
        return np.flatnonzero(self.diverged_at >= 0)

    @property
    def unsteady_metrics(self) -> dict[str, float]:
        """Metrics that still change over the tail, with the relative change from its first to its second half."""
        return find_unsteady(self.steady_state, self.tail_change)

    @property
    def tracking(self) -> "Tracking | None":
        """How well a moving target was followed; None if it did not move."""
        from psofed.results.tracking import measure_tracking

        return None if self.scenario.drift is None else measure_tracking(self)

    @property
    def communication(self) -> Communication:
        """Numbers and bytes sent."""
        return measure_communication(self.scenario)

    @property
    def client_updates_per_second(self) -> float:
        """Clients' LMS steps simulated per second of wall time."""
        return self.scenario.num_clients * self.scenario.iterations * self.trials / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON: what is not finite is None."""
        diverged = self.diverged_trials
        plain = {
            **{metric: _estimate_to_json(getattr(self, metric)) for metric in METRIC_TITLES},
            "tail": self.tail,
            "trials": self.trials,
            "diverged": {
                "trials": diverged.tolist(),
                "iterations": self.diverged_at[diverged].tolist(),
            },
            "unsteady": self.unsteady_metrics,
            **({"notes": list(self.notes)} if self.notes else {}),
            **self.details,
            **({} if self.tracking is None else {"tracking": self.tracking.to_json()}),
            **({} if self.defence is None else {"defence": self.defence.to_json()}),
            "communication": self.communication.to_json(),
            "fleet": {
                "input_variance": self.fleet.input_variance.tolist(),
                "noise_variance": self.fleet.noise_variance.tolist(),
            },
            "scenario": self.scenario.to_mapping(),
            "seed": self.seed,
            "version": self.version,
            "seconds": self.seconds,
            "client_updates_per_second": self.client_updates_per_second,
        }
        cleaned: dict[str, Any] = finite_or_none(plain)
        return cleaned

    def to_dataset(self) -> "xarray.Dataset":
        """Return a labelled data set, with all that is needed to make the result again in its attributes."""
        import xarray

        variables: dict[str, Any] = {}
        for metric in METRIC_TITLES:
            variables[metric] = ("trial", self.steady_state[metric])
            variables[f"{metric}_tail_change"] = ("trial", self.tail_change[metric])
            variables[f"{metric}_curve"] = ("iteration", self.curve[metric])
            variables[f"{metric}_curve_standard_error"] = ("iteration", self.curve_standard_error[metric])
            if self.trial_curves is not None:
                variables[f"{metric}_trial_curves"] = (("trial", "iteration"), self.trial_curves[metric])
        variables["diverged_at"] = ("trial", self.diverged_at)
        variables["input_variance"] = ("client", self.fleet.input_variance)
        variables["noise_variance"] = ("client", self.fleet.noise_variance)
        if "data" in self.details:
            variables["target"] = ("entry", self.fleet.target)
            variables["covariances"] = (("client", "entry", "other_entry"), self.fleet.covariances())
            variables["client_name"] = ("client", np.array(self.fleet.names, dtype=object))
        clients = np.arange(self.scenario.num_clients)
        watched: dict[str, Any] = {}
        if self.defence is not None:
            variables |= self.defence.to_variables()
            watched = {
                "defence_threshold": self.defence.threshold,
                "defence_variance": self.defence.variance,
            }
        variables["is_byzantine"] = ("client", self.fleet.byzantine_mask(self.scenario.attack))
        return xarray.Dataset(
            variables,
            coords={"trial": np.arange(self.trials), "iteration": self.iterations, "client": clients},
            attrs={
                "title": "psofed simulation",
                "scenario": self.scenario.to_toml(),
                "seed": self.seed,
                "version": self.version,
                "tail": self.tail,
                "bin_width": self.bin_width,
                "seconds": self.seconds,
                "communication": json.dumps(self.communication.to_json()),
                "details": json.dumps(self.details),
                "notes": json.dumps(self.notes),
                **watched,
            },
        )

    def save(self, path: str | Path) -> None:
        """Write the result as NetCDF; :func:`load_result` reads it back."""
        with atomic_path(path) as temporary:
            self.to_dataset().to_netcdf(temporary, engine="h5netcdf")


def load_result(path: str | Path) -> SimulationResult:
    """Read a result that :meth:`SimulationResult.save` wrote."""
    import xarray

    try:
        with xarray.open_dataset(path, engine="h5netcdf") as opened:
            data = opened.load()
        scenario = Scenario.from_toml(data.attrs["scenario"])

        def by_metric(suffix: str) -> dict[str, FloatArray]:
            return {metric: data[f"{metric}{suffix}"].values for metric in METRIC_TITLES}

        details = json.loads(data.attrs.get("details", "{}"))
        fleet = _measured_fleet(data) if "data" in details else draw_fleet(scenario)
        return SimulationResult(
            scenario=scenario,
            fleet=fleet,
            seed=int(data.attrs["seed"]),
            tail=int(data.attrs["tail"]),
            bin_width=int(data.attrs["bin_width"]),
            steady_state=by_metric(""),
            tail_change=by_metric("_tail_change"),
            curve=by_metric("_curve"),
            curve_standard_error=by_metric("_curve_standard_error"),
            diverged_at=data["diverged_at"].values,
            trial_curves=by_metric("_trial_curves") if "network_mse_trial_curves" in data else None,
            seconds=float(data.attrs["seconds"]),
            version=str(data.attrs["version"]),
            details=details,
            notes=tuple(json.loads(data.attrs.get("notes", "[]"))),
            defence=_defence_record(data, scenario, fleet) if "first_excluded_at" in data else None,
        )
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except PsofedError as error:  # such as a part of one's own that is not loaded
        raise PsofedError(f"{path}: {error}") from None
    except (OSError, KeyError, ValueError) as error:
        raise PsofedError(f"{path}: not a psofed result ({error})") from None


def _defence_record(data: "xarray.Dataset", scenario: Scenario, fleet: Fleet) -> DefenceRecord:
    return DefenceRecord(
        threshold=float(data.attrs["defence_threshold"]),
        variance=str(data.attrs["defence_variance"]),
        iterations=scenario.iterations,
        is_byzantine=DefenceRecord.who_lies(scenario, fleet),
        first=data["first_excluded_at"].values,
        exclusions=data["exclusions"].values,
        time_out=data["iterations_excluded"].values,
    )


def _measured_fleet(data: "xarray.Dataset") -> Fleet:
    # Data of one's own are not in the file; their statistics are.
    return Fleet(
        target=data["target"].values,
        input_variance=data["input_variance"].values,
        noise_variance=data["noise_variance"].values,
        correlation=0.0,
        explicit_covariances=data["covariances"].values,
        names=tuple(str(name) for name in data["client_name"].values) if "client_name" in data else (),
    )


def _estimate_to_json(value: Estimate) -> dict[str, Any]:
    return {
        "mean": value.mean,
        "standard_error": value.standard_error,
        "interval_95": list(value.interval),
        "mean_db": value.decibels,
    }
