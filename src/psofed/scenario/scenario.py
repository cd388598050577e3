"""The scenario: one frozen, validated description of fleet, algorithm and attack.

Every field is checked when a scenario is made, so code that receives one can rely on it. The TOML form is read and
written by :mod:`psofed.scenario.file`.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.common.options import option
from psofed.common.per_client import PerClient, Uniform, draw_per_client, per_client
from psofed.common.settings import Settings
from psofed.common.toml import parse_toml
from psofed.common.validation import check_integer
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.algorithms.models import PsoFed
from psofed.parts.attack import AttackGroups
from psofed.parts.base import Aggregation, Algorithm, Attack, Defence, Drift, Learner, Model, PreAggregation
from psofed.parts.learners.built_in import LMS
from psofed.parts.models.built_in import Linear
from psofed.parts.network import Availability, Delay
from psofed.parts.part import Part
from psofed.parts.registry import load_plugin
from psofed.scenario.accepted import PartCheck, TableCheck, as_attacks, as_rows
from psofed.scenario.fitting import check_fit, fitted_to
from psofed.scenario.tables import Data, Links, Selection

if TYPE_CHECKING:
    from psofed.common.types import FloatArray

UPLINKS = ("same", "redrawn")


class Scenario(Settings):
    """A fleet, the algorithm it runs and the attack on it.

    Parameters
    ----------
    num_clients, dimension : int
        K and D.
    num_participants : int
        |S_n|: clients that the server draws in each iteration; by default 5, or all if there are fewer.
    num_shared : int
        M: parameters that a participant exchanges each way.
    stepsize : float, sequence of float, or Uniform
        μ_k of the clients' steps: one for all clients, one per client, or the range from which each is drawn with
        ``data.fleet_seed``.
    iterations : int
        Length of the run.
    algorithm : Algorithm, or its name
        ``psofed.algorithms.PsoFed()``, or one of its competitors: ``OnlineFed()``, ``SignSGD()``, ``CSFed()``,
        ``QSFed()``, ``RoSDHB()``, ``DeMoA()``.
    uplink : str
        ``"same"``: the clients that downloaded upload (the paper's equations). ``"redrawn"``: the uploading
        participants are drawn again, which is what the paper's analysis describes.
    aggregation : Aggregation, or its name
        How the server combines uploads: ``psofed.aggregations.Mean()``, ``Median()``, ``Krum(tolerated=1)``, ….
    pre_aggregation : PreAggregation, or its name, optional
        A step before the aggregation: ``psofed.pre_aggregations.NNM(tolerated=1)``, ….
    selection, data
        See :class:`Selection` and :class:`Data`.
    learner : Learner, or its name
        How a client learns from a sample: ``psofed.learners.LMS()``, ``NLMS()``, ``LeakyLMS(leakage=0.01)``, ….
    model : Model, or its name
        The model that clients fit: ``psofed.models.Linear()`` or ``Rff(features=100)``.
    drift : Drift, optional
        How the target moves: ``psofed.drifts.RandomWalk(variance=1e-5)``, ….
    availability : Availability, optional
        Which clients are available when: ``psofed.availabilities.Bernoulli(probability=0.5)``, …; all without it.
    channel : Links, optional
        What the links up and down do to the values: ``Links(up=psofed.channels.Quantised(bits=4, reach=2.0))``.
    delay : Delay, optional
        When uploads arrive: ``psofed.delays.Geometric(ratio=0.2, longest=10)``, …; at once without it.
    attack : Attack or a list of attacks, optional
        What Byzantine clients do: ``psofed.attacks.Gaussian(num_byzantine=15)``, …. A list has one attack for each
        group of Byzantine clients.
    defence : Defence, optional
        Which clients are watched and excluded: ``psofed.defences.Cusum()``. ``"none"`` means no defence.

    The name of a part stands for the part with its default options.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> scenario = Scenario(num_clients=50, dimension=5, attack=Gaussian(num_byzantine=15))
    >>> scenario.share_probability, scenario.participation_probability
    (0.2, 0.1)
    >>> Scenario(num_clients=50, dimension=5, num_shared=7)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared must be between 1 and 5 (the dimension); got 7.
    """

    num_clients: int = option(
        low=1,
        text="number of clients: sensors, phones, gateways (K)",
        group="Fleet",
        label="clients K",
        slider=(1, 200),
    )
    dimension: int = option(
        low=1, text="number of parameters of the model (D)", group="Fleet", label="parameters D", slider=(1, 20)
    )
    num_participants: int = option(  # type: ignore[assignment]  # __post_init__ replaces None
        default=None,
        low=1,
        high="num_clients",
        text="number of clients that the server draws per iteration (|S_n|)",
        group="Fleet",
        label="participants",
    )
    num_shared: int = option(
        default=1,
        low=1,
        high="dimension",
        text="number of parameters that a participant exchanges each way (M)",
        group="Sharing",
        label="shared parameters M",
    )
    stepsize: PerClient = option(
        default=0.15,
        low=0,
        open_low=True,
        check=per_client(0.0, math.inf, open_low=True),
        text="the clients' stepsize, or learning rate (μ)",
        group="Sharing",
        label="stepsize μ",
        slider=(1e-3, 2.0),
        log=True,
    )
    iterations: int = option(
        default=3000, low=1, text="length of the run", group="Fleet", slider=(100, 10_000), log=True
    )
    algorithm: Algorithm = option(
        default_factory=PsoFed,
        check=PartCheck("algorithm"),
        text="the federated algorithm",
        group="Defence and algorithm",
    )
    uplink: str = option(
        default="same",
        choices=UPLINKS,
        text="who uploads: the clients that downloaded, or newly drawn ones",
        group="Sharing",
        label="uploads come from",
        words=("the same clients", "other clients"),
    )
    aggregation: Aggregation = option(
        default_factory=Mean,
        check=PartCheck("aggregation"),
        text="how the server combines uploads",
        group="Defence and algorithm",
        label="aggregation rule",
    )
    selection: Selection = option(
        default_factory=Selection, check=TableCheck(Selection), text="which parameters are shared", group="Sharing"
    )
    learner: Learner = option(
        default_factory=LMS, check=PartCheck("learner"), text="how a client learns from a sample", group="Sharing"
    )
    model: Model = option(
        default_factory=Linear, check=PartCheck("model"), text="the model that clients fit", group="Data"
    )
    data: Data = option(default_factory=Data, check=TableCheck(Data), text="the clients' streams", group="Data")
    drift: Drift | None = option(
        default=None,
        check=PartCheck("drift"),
        text="how the target moves",
        group="Drift",
        label="target",
        absent="constant",
    )
    pre_aggregation: PreAggregation | None = option(
        default=None,
        check=PartCheck("pre_aggregation"),
        text="a step before the aggregation",
        group="Defence and algorithm",
        label="pre-aggregation",
    )
    availability: Availability | None = option(
        default=None,
        check=PartCheck("availability"),
        text="which clients are available when",
        group="Network",
        absent="always",
    )
    channel: Links | None = option(
        default=None, check=TableCheck(Links), text="what the links do to the values", group="Network"
    )
    delay: Delay | None = option(
        default=None,
        check=PartCheck("delay"),
        text="when uploads arrive",
        group="Network",
        label="uploads arrive",
        absent="at once",
    )
    attack: Attack | None = option(
        default=None,
        check=PartCheck("attack", as_attacks),
        text="what Byzantine clients do",
        group="Attack",
        absent="no attack",
    )
    defence: Defence | None = option(
        default=None,
        check=PartCheck("defence"),
        text="how Byzantine clients are detected and excluded",
        group="Defence and algorithm",
    )

    if TYPE_CHECKING:  # accepted types; a name stands for the part

        def __init__(
            self,
            *,
            num_clients: int,
            dimension: int,
            num_participants: int | None = ...,
            num_shared: int = ...,
            stepsize: float | Uniform | Sequence[float] = ...,
            iterations: int = ...,
            algorithm: Algorithm | str = ...,
            uplink: str = ...,
            aggregation: Aggregation | str = ...,
            selection: Selection = ...,
            learner: Learner | str = ...,
            model: Model | str = ...,
            data: Data = ...,
            drift: Drift | str | None = ...,
            pre_aggregation: PreAggregation | str | None = ...,
            availability: Availability | str | None = ...,
            channel: Links | None = ...,
            delay: Delay | str | None = ...,
            attack: Attack | str | Sequence[Attack | str] | None = ...,
            defence: Defence | str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.num_participants is None:
            clients = check_integer("num_clients", self.num_clients, 1)  # type: ignore[unreachable]
            object.__setattr__(self, "num_participants", min(5, clients))
        super().__post_init__()
        if self.defence is not None and self.defence.kind == "none":
            object.__setattr__(self, "defence", None)  # both spellings are the same scenario
        if self.channel is not None and not (self.channel.up or self.channel.down):
            object.__setattr__(self, "channel", None)
        check_fit(self)

    @property
    def share_probability(self) -> float:
        """p_e = M / D, the probability that an entry is shared."""
        return self.num_shared / self.dimension

    @property
    def participation_probability(self) -> float:
        """p_c = |S_n| / K, the probability that a client participates."""
        return self.num_participants / self.num_clients

    @property
    def common_stepsize(self) -> float:
        """μ, where all clients have the same.

        Raises
        ------
        NotCoveredError
            If they have different stepsizes.
        """
        if not isinstance(self.stepsize, float | int):
            raise NotCoveredError("stepsize differs between clients; here it must be one number.")
        return self.stepsize

    @property
    def mean_stepsize(self) -> float:
        """μ, or the mean of the clients' stepsizes: what the server takes where it needs one."""
        one = isinstance(self.stepsize, float | int)
        return self.common_stepsize if one else float(self.draw_stepsizes().mean())

    def draw_stepsizes(self) -> "FloatArray":
        """Return every client's stepsize μ_k, shape (K,); drawn ones depend on ``data.fleet_seed`` alone.

        Examples
        --------
        >>> Scenario(num_clients=3, dimension=2, stepsize=[0.1, 0.2, 0.3]).draw_stepsizes()
        array([0.1, 0.2, 0.3])
        """
        import numpy as np

        # The fleet takes the first three seeds.
        seed = np.random.SeedSequence(self.data.fleet_seed).spawn(4)[3]
        return draw_per_client(self.stepsize, self.num_clients, seed)

    @property
    def num_byzantine(self) -> int:
        """|S_B|, 0 without an attack."""
        return 0 if self.attack is None else self.attack.num_byzantine

    @property
    def input_dimension(self) -> int:
        """d, entries of a client's input x: D unless the model derives features from x."""
        if self.data.rows is not None and self.data.rows.num_columns:
            return self.data.rows.num_columns
        if self.data.input_dimension is not None:
            return self.data.input_dimension
        fixed = None if self.data.function is None else self.data.function.num_inputs
        return self.dimension if fixed is None else fixed

    @property
    def own_data(self) -> OwnData | None:
        """The rows that clients learn from; None where streams are drawn.

        Raises
        ------
        PsofedError
            If the scenario only says where they are, as one that was read from a result does.
        """
        rows = self.data.rows
        if isinstance(rows, DataSource):
            raise PsofedError(
                f"The scenario's rows ({rows.name}) are not loaded. Read them with psofed.read_data, and make the "
                "scenario with psofed.Scenario.from_data."
            )
        return rows

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients' names, where your own data give them some."""
        return () if self.data.rows is None else self.data.rows.clients

    @property
    def is_linear(self) -> bool:
        """Whether streams are the paper's, y = wᵀx + ν, and the model ŷ = wᵀx."""
        return isinstance(self.model, Linear) and self.data.function is None

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """The attacks of all groups of Byzantine clients; empty without an attack."""
        if isinstance(self.attack, AttackGroups):
            return self.attack.groups
        return () if self.attack is None else (self.attack,)

    @property
    def most_uploads(self) -> int:
        """Largest number of uploads that the server combines in an iteration, before a pre-aggregation."""
        joined = self.algorithm.num_joined(self)
        return joined if self.delay is None else joined * self.delay.most_at_once()

    def parts(self) -> tuple[Part, ...]:
        """Return all parts of the scenario."""
        links = () if self.channel is None else (*self.channel.up, *self.channel.down)
        parts = (
            self.algorithm, self.aggregation, self.pre_aggregation, self.selection.pattern, self.learner, self.model,
            self.data.stream, self.data.function, self.drift, *self.attacks, self.defence, self.availability,
            self.delay, *links,
        )  # fmt: skip
        return tuple(part for part in parts if part is not None)

    def __repr__(self) -> str:
        from psofed.scenario.describe import short_repr

        return short_repr(self, num_participants=min(5, self.num_clients))

    def _repr_html_(self) -> str:
        from psofed.scenario.describe import scenario_report

        return scenario_report(self).to_html()

    def to_mapping(self) -> dict[str, Any]:
        """Return nested dicts and lists, as in TOML and JSON."""
        from psofed.scenario.mapping import scenario_to_mapping

        return scenario_to_mapping(self)

    @classmethod
    def from_data(cls, data: OwnData, /, **fields: Any) -> "Scenario":
        """Make a scenario whose clients learn from your own data.

        Parameters
        ----------
        data : OwnData
            What :func:`psofed.read_data` or :func:`psofed.from_arrays` returned. It determines ``num_clients``,
            ``dimension`` (unless the model has features of its own) and ``iterations``. Given, they must agree; fewer
            iterations end the run early.
        **fields
            All other fields, as in ``Scenario(...)``.

        Examples
        --------
        >>> import numpy as np
        >>> from psofed import from_arrays
        >>> X = np.random.default_rng(0).standard_normal((200, 2))
        >>> data = from_arrays(X, X @ [1.0, -1.0], ["north", "south"] * 100)
        >>> Scenario.from_data(data, num_shared=2)
        Scenario(num_clients=2, dimension=2, num_shared=2, iterations=80, data=Data(rows=2 clients of data in memory))
        """
        if "data" in fields:
            raise InvalidValueError("data", fields["data"], "given once, as the first argument")
        values = fitted_to(as_rows("data", data), {**fields, "data": Data(rows=data)})
        return cls(**values)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Scenario":
        """Make a scenario from nested dicts, checking every key and value.

        A table that it names is not opened: pass the scenario's file to :func:`psofed.read_scenario` for that.
        """
        from psofed.scenario.mapping import scenario_from_mapping

        return scenario_from_mapping(mapping)

    def to_toml(self) -> str:
        """Return the scenario as TOML text; :meth:`from_toml` gives an equal scenario back.

        Of your own data it holds the file's name and columns. Data that do not come from a file are refused.
        """
        from psofed.scenario.file import scenario_to_toml

        return scenario_to_toml(self)

    @classmethod
    def from_toml(cls, text: str, plugins: Sequence[str | Path] = ()) -> "Scenario":
        """Make a scenario from TOML text; `plugins` are modules or files with custom parts that it names.

        A table that it names is read, relative to the current folder.
        """
        from psofed.scenario.mapping import scenario_from_mapping

        for plugin in plugins:
            load_plugin(plugin)
        return scenario_from_mapping(parse_toml(text), opening=True)
