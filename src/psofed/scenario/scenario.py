"""What is simulated and predicted: one frozen, validated description of fleet, algorithm and attack.

Every value is checked when a scenario is made, so whatever reads one may trust it. The TOML form is
read and written by :mod:`psofed.scenario.file`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_choice, check_integer, check_number, names_its_arguments
from psofed.parts.aggregations.mean import Mean
from psofed.parts.algorithms.pso_fed import PsoFed
from psofed.parts.base import Aggregation, Algorithm, Attack, Defence, Drift, Model, PreAggregation
from psofed.parts.models.linear import Linear
from psofed.parts.part import Part
from psofed.scenario.tables import Data, Evasion, Selection, as_part

UPLINKS = ("same", "redrawn")


@names_its_arguments
@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fleet, the algorithm it runs and the attack on it.

    Parameters
    ----------
    num_clients, dimension : int
        K and D.
    num_participants : int
        |S_n|: clients drawn by the server in each iteration; by default 5, or all where there are fewer.
    num_shared : int
        M: entries a participant exchanges each way.
    stepsize : float
        μ of the clients' LMS steps.
    iterations : int
        Length of the run.
    algorithm : Algorithm, or its name
        ``psofed.algorithms.PsoFed()``, or one it is compared with: ``OnlineFed()``, ``SignSGD()``, ``CSFed()``,
        ``QSFed()``, ``RoSDHB()``, ``DeMoA()``.
    uplink : str
        ``"same"``: those who downloaded upload (the paper's equations). ``"redrawn"``: the uploading
        participants are drawn afresh, which is what the paper's analysis describes.
    aggregation : Aggregation, or its name
        How the server puts uploads together: ``psofed.aggregations.Mean()``, ``Median()``, ``Krum(tolerated=1)``, ….
    pre_aggregation : PreAggregation, or its name, optional
        What is done with the uploads before that: ``psofed.pre_aggregations.NNM(tolerated=1)``, ….
    selection, data
        See :class:`Selection` and :class:`Data`.
    model : Model, or its name
        What the clients fit: ``psofed.models.Linear()`` or ``Rff(features=100)``.
    drift : Drift, optional
        How the target moves: ``psofed.drifts.RandomWalk(variance=1e-5)``, ….
    attack : Attack, optional
        What Byzantine clients do: ``psofed.attacks.Gaussian(num_byzantine=15)``, ….
    defence : Defence, optional
        Who is watched and left out: ``psofed.defences.Cusum()``. ``"none"`` is the same as no defence.

    evasion : Evasion, optional
        Measure errors on inputs that are moved to hurt most as well.

    Where a part stands, its name stands for the part with its default options.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> scenario = Scenario(num_clients=50, dimension=5, attack=Gaussian(num_byzantine=15))
    >>> scenario.share_probability, scenario.participation_probability
    (0.2, 0.1)
    >>> Scenario(num_clients=50, dimension=5, num_shared=7)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared = 7 is not allowed; allowed: an integer from 1 to dimension = 5
    """

    num_clients: int
    dimension: int
    num_participants: int = None  # type: ignore[assignment]  # 5, or num_clients if that is less
    num_shared: int = 1
    stepsize: float = 0.15
    iterations: int = 3000
    algorithm: Algorithm = field(default_factory=PsoFed)
    uplink: str = "same"
    aggregation: Aggregation = field(default_factory=Mean)
    selection: Selection = field(default_factory=Selection)
    model: Model = field(default_factory=Linear)
    data: Data = field(default_factory=Data)
    drift: Drift | None = None
    pre_aggregation: PreAggregation | None = None
    attack: Attack | None = None
    defence: Defence | None = None
    evasion: Evasion | None = None

    if TYPE_CHECKING:  # what may be given; a name stands for the part

        def __init__(
            self,
            *,
            num_clients: int,
            dimension: int,
            num_participants: int | None = ...,
            num_shared: int = ...,
            stepsize: float = ...,
            iterations: int = ...,
            algorithm: Algorithm | str = ...,
            uplink: str = ...,
            aggregation: Aggregation | str = ...,
            selection: Selection = ...,
            model: Model | str = ...,
            data: Data = ...,
            drift: Drift | str | None = ...,
            pre_aggregation: PreAggregation | str | None = ...,
            attack: Attack | str | None = ...,
            defence: Defence | str | None = ...,
            evasion: Evasion | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        clients = check_integer("num_clients", self.num_clients, 1)
        dimension = check_integer("dimension", self.dimension, 1)
        set_(self, "num_clients", clients)
        set_(self, "dimension", dimension)
        if self.num_participants is None:
            set_(self, "num_participants", min(5, clients))  # type: ignore[unreachable]
        set_(
            self,
            "num_participants",
            check_integer("num_participants", self.num_participants, 1, clients, "num_clients"),
        )
        set_(self, "num_shared", check_integer("num_shared", self.num_shared, 1, dimension, "dimension"))
        set_(self, "stepsize", check_number("stepsize", self.stepsize, 0, open_low=True))
        set_(self, "iterations", check_integer("iterations", self.iterations, 1))
        check_choice("uplink", self.uplink, UPLINKS)
        for family in ("algorithm", "aggregation", "model"):
            set_(self, family, as_part(family, getattr(self, family)))
        for family in ("drift", "pre_aggregation", "attack", "defence"):
            if getattr(self, family) is not None:
                set_(self, family, as_part(family, getattr(self, family)))
        if self.defence is not None and self.defence.kind == "none":
            set_(self, "defence", None)  # one scenario, however it is said
        for name, kind in (("selection", Selection), ("data", Data)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidValueError(name, getattr(self, name), f"a psofed.{kind.__name__}")
        if self.evasion is not None and not isinstance(self.evasion, Evasion):
            raise InvalidValueError("evasion", self.evasion, "a psofed.Evasion")
        self._check_input_dimension()
        self._check_data_sizes()
        self._check_drift()
        self._check_attack()
        uploads = self.algorithm.num_joined(self)
        if self.pre_aggregation is not None:
            uploads = self.pre_aggregation.uploads_after(uploads)
        self.aggregation.check_participants(uploads)
        self.algorithm.check(self)

    @property
    def share_probability(self) -> float:
        """p_e = M / D, the probability that an entry is shared."""
        return self.num_shared / self.dimension

    @property
    def participation_probability(self) -> float:
        """p_c = |S_n| / K, the probability that a client participates."""
        return self.num_participants / self.num_clients

    @property
    def num_byzantine(self) -> int:
        """|S_B|, 0 without an attack."""
        return 0 if self.attack is None else self.attack.num_byzantine

    @property
    def input_dimension(self) -> int:
        """d, the entries of a client's input x: D unless the model makes features of x."""
        if self.data.input_dimension is not None:
            return self.data.input_dimension
        fixed = None if self.data.function is None else self.data.function.num_inputs
        return self.dimension if fixed is None else fixed

    @property
    def is_linear(self) -> bool:
        """Whether streams are the paper's, y = wᵀx + ν, and the model ŷ = wᵀx."""
        return isinstance(self.model, Linear) and self.data.function is None

    def parts(self) -> tuple[Part, ...]:
        """Return all parts it holds."""
        held = (
            self.algorithm, self.aggregation, self.pre_aggregation, self.selection.pattern, self.model,
            self.data.function, self.drift, self.attack, self.defence,
        )  # fmt: skip
        return tuple(part for part in held if part is not None)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked anew.

        Examples
        --------
        >>> Scenario(num_clients=50, dimension=5).replace(stepsize=0.03).stepsize
        0.03
        """
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        from psofed.scenario.describe import short_repr

        return short_repr(self)

    def _repr_html_(self) -> str:
        from psofed.scenario.describe import scenario_report

        return scenario_report(self).to_html()

    def to_mapping(self) -> dict[str, Any]:
        """Return plain nested dicts and lists, as TOML and JSON hold them."""
        from psofed.scenario.mapping import scenario_to_mapping

        return scenario_to_mapping(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Scenario":
        """Make a scenario from nested dicts, checking every key and value."""
        from psofed.scenario.mapping import scenario_from_mapping

        return scenario_from_mapping(mapping)

    def to_toml(self) -> str:
        """Return the scenario as TOML text; :meth:`from_toml` gives an equal scenario back."""
        from psofed.scenario.file import scenario_to_toml

        return scenario_to_toml(self)

    @classmethod
    def from_toml(cls, text: str, plugins: Sequence[str | Path] = ()) -> "Scenario":
        """Make a scenario from TOML text; `plugins` are modules or files with parts of one's own that it names."""
        from psofed.scenario.file import scenario_from_toml

        return scenario_from_toml(text, plugins)

    def _check_input_dimension(self) -> None:
        features, function = self.model.num_features, self.data.function
        if features is not None and features != self.dimension:
            allowed = f"dimension = {self.dimension}, since the model's entries are the features' weights"
            raise InvalidValueError("model.features", features, allowed)
        if function is not None and function.num_inputs not in (None, self.input_dimension):
            allowed = f'{function.num_inputs} with "{function.kind}"'
            raise InvalidValueError("data.input_dimension", self.input_dimension, allowed)
        if isinstance(self.model, Linear) and self.input_dimension != self.dimension:
            allowed = f'dimension = {self.dimension} with model.kind = "linear"'
            raise InvalidValueError("data.input_dimension", self.input_dimension, allowed)

    def _check_drift(self) -> None:
        if self.drift is None:
            return
        if not self.is_linear:
            allowed = (
                'only with model.kind = "linear" and no data.function, where there is a target vector to move'
            )
            raise InvalidValueError("drift", self.drift.kind, allowed)

    def _check_attack(self) -> None:
        if self.attack is None:
            return
        check_integer("attack.num_byzantine", self.attack.num_byzantine, 0, self.num_clients, "num_clients")
        for place, client in enumerate(self.attack.clients):
            if not isinstance(client, str):  # names are known where the data are
                field_name = f"attack.clients[{place}]"
                check_integer(field_name, client, 0, self.num_clients - 1, "num_clients - 1")

    def _check_data_sizes(self) -> None:
        for name in ("input_variance", "noise_variance"):
            value = getattr(self.data, name)
            if isinstance(value, tuple) and len(value) != self.num_clients:
                raise InvalidValueError(
                    f"data.{name}",
                    f"{len(value)} numbers",
                    f"a number, or num_clients = {self.num_clients} numbers",
                )
        covariances = self.data.covariances
        if covariances is not None:
            shape = (len(covariances), len(covariances[0]))
            if shape != (self.num_clients, self.input_dimension):
                raise InvalidValueError(
                    "data.covariances",
                    f"{shape[0]} matrices of {shape[1]} rows",
                    f"num_clients = {self.num_clients} matrices of {self.input_dimension} rows",
                )
