"""Result of a simulation: estimates with their uncertainty, learning curves, and their origin."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed._version import __version__
from psofed.common.numbers import json_object
from psofed.common.toml import parse_toml
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.fleet import Fleet, draw_fleet
from psofed.render import Report, Reported
from psofed.results.dataset import Stored, check_size, read_arrays, read_metrics, to_variables, variable
from psofed.results.defence import DEFENCE_ARRAYS, DefenceRecord
from psofed.results.estimates import CONFIDENCE, Estimate, estimate, find_unsteady
from psofed.results.metrics import HONEST
from psofed.results.traffic import Communication, measure_communication
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.render.charts import Chart
    from psofed.results.reports.difference import Difference
    from psofed.results.tracking import Tracking


SIMULATION_TITLE = "psofed simulation"
TABLES = ("trials", "curve", "clients")
_TRIAL, _POINT, _CLIENT = ("trial",), ("iteration",), ("client",)
ARRAYS = (
    Stored("steady_state", "{}", _TRIAL, "steady-state {}, by trial"),
    Stored("tail_change", "{}_tail_change", _TRIAL, "second half of the tail less its first: {}"),
    Stored("curve", "{}_curve", _POINT, "{}, mean over trials"),
    Stored("curve_standard_error", "{}_curve_standard_error", _POINT, "standard error over trials: {}"),
    Stored("trial_curves", "{}_trial_curves", _TRIAL + _POINT, "{}, of each trial", is_optional=True),
    Stored("client_mse", "client_mse", _TRIAL + _CLIENT, "steady-state MSE of the client", is_optional=True),
    Stored("diverged_at", "diverged_at", _TRIAL, "iteration of the divergence, or -1", "iterations", "i"),
)
FLEET_ARRAYS = (
    Stored("input_variance", "input_variance", _CLIENT, "variance of the client's inputs"),
    Stored("noise_variance", "noise_variance", _CLIENT, "variance of the client's observation noise"),
)
# Of a table, which is not in the file itself.
MEASURED_ARRAYS = (
    Stored("target", "target", ("entry",), "weights fitted to all rows"),
    Stored(
        "explicit_covariances", "covariances", (*_CLIENT, "entry", "other_entry"), "covariance of the client's inputs"
    ),
)
_PLAIN: dict[str, Any] = {"seed": int, "tail": int, "bin_width": int, "seconds": float, "version": str}


@dataclass(frozen=True)
class Stopping:
    """The rule by which a run with a precision stopped.

    A run that stops once its interval is narrow stops too often when the interval is too narrow by chance. So every one
    of the `stages` after which it may stop has intervals of confidence 1 − 0.05/stages: with 95 % all of them hold,
    the one that the run stopped at among them. It does not stop before about five trials had an attack in their tail:
    a sample without the rare trials that decide the mean looks precise, and misses it.

    Attributes
    ----------
    metric : str
        The metric whose interval decides.
    precision : float
        How far its interval may reach to each side, in dB.
    trials : int
        The most trials.
    stages : int
        How many stages there are up to then.
    """

    metric: str
    precision: float
    trials: int
    stages: int

    @property
    def confidence(self) -> float:
        """Confidence of the intervals of one stage."""
        return 1 - (1 - CONFIDENCE) / self.stages


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult(Reported):
    """The outcome of :func:`psofed.simulate`.

    Metrics are linear: ``network_mse`` (1/K Σ_k ε²_{k,n} over all clients), ``honest_mse`` (over those that are not
    Byzantine), ``server_msd`` (‖w_n − w‖²), ``test_mse`` (at the server) and your own.

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
        Further plain values: ``"data"`` for data of your own, ``"privacy"`` with a private channel.
    notes : tuple of str
        Remarks such as a part that Numba could not compile.
    defence : DefenceRecord or None
        Who was excluded when; None without a defence.
    client_mse : array (trials, K), or None
        Each client's MSE over the tail; None if it was not measured.
    stopping : Stopping or None
        How the number of trials was chosen; None if it was given.
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
    seconds: float = field(compare=False)
    version: str = __version__
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    defence: DefenceRecord | None = None
    client_mse: FloatArray | None = None
    stopping: Stopping | None = None

    def __getitem__(self, metric: str) -> Estimate:
        """Return the steady state of a metric by its name, such as that of your own."""
        values = self.steady_state[check_choice("metric", metric, self.steady_state)]
        return estimate(values, CONFIDENCE if self.stopping is None else self.stopping.confidence)

    @property
    def network_mse(self) -> Estimate:
        """Steady-state MSE over all clients, 1/K Σ ε²."""
        return self["network_mse"]

    @property
    def server_msd(self) -> Estimate:
        """Steady-state ‖w_n − w‖² at the server."""
        return self["server_msd"]

    @property
    def test_mse(self) -> Estimate:
        """Steady-state test MSE at the server."""
        return self["test_mse"]

    @property
    def honest_mse(self) -> Estimate:
        """Steady-state MSE over the clients that are not Byzantine."""
        if self.scenario.num_byzantine == 0:
            return self.network_mse
        return self[HONEST]

    def estimates(self) -> dict[str, Estimate]:
        """Return the steady state of everything that was measured, by metric."""
        return {metric: self[metric] for metric in self.steady_state}

    @property
    def margin(self) -> float:
        """How far the interval that decides when to stop reaches to each side, in dB."""
        return self["network_mse" if self.stopping is None else self.stopping.metric].margin

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
        """Return plain dicts and lists, ready for JSON; values that are not finite become None."""
        diverged, stopping = self.diverged_trials, self.stopping
        optional = {
            "notes": list(self.notes),
            "stopping": None if stopping is None else asdict(stopping) | {"margin_db": self.margin},
            "tracking": None if self.tracking is None else self.tracking.to_json(),
            "defence": None if self.defence is None else self.defence.to_json(),
        }
        return json_object(
            {
                **{metric: value.to_json() for metric, value in self.estimates().items()},
                "diverged": {"trials": diverged.tolist(), "iterations": self.diverged_at[diverged].tolist()},
                "unsteady": self.unsteady_metrics,
                **{name: value for name, value in optional.items() if value},
                **self.details,
                "communication": self.communication.to_json(),
                "fleet": {name: getattr(self.fleet, name).tolist() for name in ("input_variance", "noise_variance")},
                "scenario": self.scenario.to_mapping(),
                **{name: getattr(self, name) for name in (*_PLAIN, "trials", "client_updates_per_second")},
            }
        )

    def to_dataset(self) -> "xarray.Dataset":
        """Return a labelled data set, with everything needed to reproduce the result in its attributes."""
        import xarray

        fleet = self.fleet
        variables = to_variables(self, ARRAYS) | to_variables(fleet, FLEET_ARRAYS)
        is_byzantine = fleet.byzantine_mask(self.scenario.attack)
        variables["is_byzantine"] = variable("client", is_byzantine, "whether the client is Byzantine")
        if "data" in self.details:
            variables |= to_variables(fleet, MEASURED_ARRAYS)
        coordinates = {
            "trial": variable("trial", np.arange(self.trials), "number of the trial"),
            "iteration": variable("iteration", self.iterations, "first iteration of the point", "iterations"),
            "client": variable("client", np.arange(fleet.num_clients), "number of the client"),
        }
        if fleet.names:
            names = np.array(fleet.names, dtype=object)
            coordinates["client_number"] = coordinates["client"]
            coordinates["client"] = variable("client", names, "name of the client", None)
        attributes = {name: getattr(self, name) for name in _PLAIN} | {
            "title": SIMULATION_TITLE,
            "scenario": self.scenario.to_toml(),
            "communication": json.dumps(self.communication.to_json()),
            "details": json.dumps(self.details),
            "notes": json.dumps(self.notes),
            "metrics": json.dumps(list(self.steady_state)),
        }
        if self.stopping is not None:
            attributes["stopping"] = json.dumps(asdict(self.stopping))
        if self.defence is not None:
            variables |= to_variables(self.defence, DEFENCE_ARRAYS)
            attributes |= {f"defence_{name}": getattr(self.defence, name) for name in ("threshold", "variance")}
        return xarray.Dataset(variables, coordinates, attributes)

    @classmethod
    def from_dataset(cls, data: "xarray.Dataset") -> "SimulationResult":
        """Return the result that a data set of :meth:`to_dataset` describes; refuse other shapes."""
        scenario = Scenario.from_mapping(parse_toml(data.attrs["scenario"]))
        about = {name: kind(data.attrs[name]) for name, kind in _PLAIN.items()}
        check_size(data, "client", scenario.num_clients)
        check_size(data, "iteration", math.ceil(scenario.iterations / about["bin_width"]))
        metrics = read_metrics(data)
        details = json.loads(data.attrs.get("details", "{}"))
        if "data" in details:
            check_size(data, "entry", scenario.dimension)
            arrays = read_arrays(data, (*FLEET_ARRAYS, *MEASURED_ARRAYS), metrics)
            names = tuple(map(str, data["client"].values)) if "client_number" in data.coords else ()
            fleet = Fleet(correlation=0.0, names=names, **arrays)
        else:
            fleet = draw_fleet(scenario)
        defence = None
        if "first_excluded_at" in data:
            defence = DefenceRecord(
                threshold=float(data.attrs["defence_threshold"]),
                variance=str(data.attrs["defence_variance"]),
                iterations=scenario.iterations,
                is_byzantine=DefenceRecord.who_attacks(scenario, fleet),
                **read_arrays(data, DEFENCE_ARRAYS, metrics),
            )
        return cls(
            scenario=scenario,
            fleet=fleet,
            **about,
            details=details,
            notes=tuple(json.loads(data.attrs.get("notes", "[]"))),
            defence=defence,
            stopping=Stopping(**json.loads(data.attrs["stopping"])) if "stopping" in data.attrs else None,
            **read_arrays(data, ARRAYS, metrics),
        )

    def to_dataframe(self, table: str = "trials") -> "pandas.DataFrame":
        """Return one table, as its name says.

        Parameters
        ----------
        table : str
            ``"trials"``: a row per trial with its steady state. ``"curve"``: a row per metric and point of the learning
            curve. ``"clients"``: a row per client, by name where it has one, with its error where it was measured.
        """
        from pandas import DataFrame, concat

        check_choice("table", table, TABLES)
        if table == "trials":
            return DataFrame({"trial": np.arange(self.trials), **self.steady_state, "diverged_at": self.diverged_at})
        if table == "curve":
            curves, errors = self.curve, self.curve_standard_error
            columns = (
                {"metric": metric, "mean": curves[metric], "standard_error": errors[metric]} for metric in curves
            )
            return concat([DataFrame({"iteration": self.iterations} | one) for one in columns], ignore_index=True)
        names = ["input_variance", "noise_variance", "is_byzantine"]
        frame = self.to_dataset()[names].reset_coords(drop=True).to_dataframe().reset_index()
        if self.client_mse is not None:
            values = [estimate(column) for column in self.client_mse.T]
            frame["mse"] = [value.mean for value in values]
            frame["mse_standard_error"] = [value.standard_error for value in values]
        if measured := self.details.get("data", {}).get("clients"):
            more = DataFrame(measured).drop(columns=["name", *frame.columns], errors="ignore")
            frame = concat([frame, more], axis=1)
        return frame

    def save(self, path: str | Path) -> None:
        """Write the result as NetCDF (``.nc``); :func:`psofed.load_result` reads it back."""
        from psofed.results.netcdf import save_dataset

        save_dataset(self.to_dataset(), path)

    def report(self) -> Report:
        """Return what was found: a headline, tables, notes, a chart and what to try next."""
        from psofed.results.reports.simulation import simulation_report

        return simulation_report(self)

    def chart(self) -> "Chart":
        """Return the mean learning curves with 95 % bands, as a value."""
        from psofed.results.reports.simulation import learning_curves

        return learning_curves(self)

    def __sub__(self, other: "SimulationResult") -> "Difference":
        """Compare with another result, trial by trial (:func:`psofed.difference`)."""
        if not isinstance(other, SimulationResult):
            return NotImplemented
        from psofed.results.reports.difference import difference

        return difference(self, other)
