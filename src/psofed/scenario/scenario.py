"""What is simulated and predicted: one frozen, validated description of fleet, algorithm and attack.

Every value is checked when a scenario is made, so whatever reads one may trust it. The TOML form is
read and written by :mod:`psofed.scenario.file`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from psofed.common.errors import InvalidValueError
from psofed.common.validation import (
    check_boolean,
    check_choice,
    check_integer,
    check_number,
    names_its_arguments,
)
from psofed.parts.aggregations.mean import Mean
from psofed.parts.algorithms.pso_fed import PsoFed
from psofed.parts.base import (
    Aggregation,
    Algorithm,
    Attack,
    Defence,
    Drift,
    Function,
    Model,
    Pattern,
    PreAggregation,
)
from psofed.parts.models.linear import Linear
from psofed.parts.part import Part
from psofed.parts.patterns.random import Random
from psofed.parts.registry import FAMILIES, find_part

UPLINKS = ("same", "redrawn")


@dataclass(frozen=True)
class Uniform:
    """A variance drawn per client from the uniform distribution on [low, high].

    Examples
    --------
    >>> Uniform(0.2, 1.2)
    Uniform(low=0.2, high=1.2)
    """

    low: float
    high: float


Variance = float | Uniform | tuple[float, ...]
Covariances = tuple[tuple[tuple[float, ...], ...], ...]


@names_its_arguments
@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which M of the D entries a participant exchanges: the selection matrices S_{k,n}.

    Parameters
    ----------
    pattern : Pattern, or its name
        How masks are chosen: ``psofed.patterns.Random()`` or ``RoundRobin()``, or one of your own.
    coordinated : bool
        One mask for all clients, or one for each client.

    Examples
    --------
    >>> Selection(pattern="round-robin").pattern
    RoundRobin()
    """

    pattern: Pattern = field(default_factory=Random)
    coordinated: bool = True

    if TYPE_CHECKING:  # what may be given; a name stands for the part

        def __init__(self, *, pattern: Pattern | str = ..., coordinated: bool = ...) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", as_part("pattern", self.pattern, "selection.pattern"))
        check_boolean("selection.coordinated", self.coordinated)


@names_its_arguments
@dataclass(frozen=True, kw_only=True)
class Data:
    """The clients' streams y = wᵀx + ν: inputs with covariance R_k, noise with variance σ_νk².

    Parameters
    ----------
    input_variance : float, sequence of float, or Uniform
        ς_k²: one value for all clients, one for each, or the range each is drawn from.
    noise_variance : float, sequence of float, or Uniform
        σ_νk², likewise.
    input_correlation : float
        ρ in R_k[i, j] = ς_k² ρ^|i−j|.
    covariances : nested sequences or array, shape (num_clients, dimension, dimension), optional
        R_k themselves, say as measured; they replace `input_variance` and `input_correlation`.
    fleet_seed : int
        Seed of the uniform draws above (not of the simulation).
    test_instances : int
        Size N_t of the server's test set.
    test_input_variance : float
        Variance of the (white) test inputs.
    function : Function, or its name, optional
        f of the streams y = f(x) + ν, such as ``psofed.functions.Sinc()``; y = wᵀx + ν if absent.
    input_dimension : int, optional
        d, the entries of x, where they are not the model's D: with random features, or as `function` takes.
    target_spread : float
        Clients with targets of their own, y = (w + d_k)ᵀx + ν: variance of each entry of d_k, drawn once from
        `fleet_seed`; 0 if all have the same target.

    Notes
    -----
    The paper does not give its test inputs; unit variance fits its Fig. 1.
    """

    input_variance: Variance = Uniform(0.2, 1.2)
    noise_variance: Variance = Uniform(0.005, 0.025)
    input_correlation: float = 0.0
    covariances: Covariances | None = None
    fleet_seed: int = 0
    test_instances: int = 50
    test_input_variance: float = 1.0
    function: Function | None = None
    input_dimension: int | None = None
    target_spread: float = 0.0

    if TYPE_CHECKING:  # what may be given; arrays and lists become tuples, a name stands for the part

        def __init__(
            self,
            *,
            input_variance: float | Uniform | Iterable[float] = ...,
            noise_variance: float | Uniform | Iterable[float] = ...,
            input_correlation: float = ...,
            covariances: Iterable[Iterable[Iterable[float]]] | None = ...,
            fleet_seed: int = ...,
            test_instances: int = ...,
            test_input_variance: float = ...,
            function: Function | str | None = ...,
            input_dimension: int | None = ...,
            target_spread: float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "target_spread", check_number("data.target_spread", self.target_spread, 0))
        if self.target_spread and self.function is not None:
            raise InvalidValueError("data.target_spread", self.target_spread, "0 with data.function")
        for name in ("input_variance", "noise_variance"):
            set_(self, name, _check_variance(f"data.{name}", getattr(self, name)))
        rho = check_number(
            "data.input_correlation", self.input_correlation, -1, 1, open_low=True, open_high=True
        )
        set_(self, "input_correlation", rho)
        set_(self, "fleet_seed", check_integer("data.fleet_seed", self.fleet_seed, 0))
        set_(self, "test_instances", check_integer("data.test_instances", self.test_instances, 1))
        test_variance = check_number("data.test_input_variance", self.test_input_variance, 0, open_low=True)
        set_(self, "test_input_variance", test_variance)
        if self.function is not None:
            set_(self, "function", as_part("function", self.function, "data.function"))
        if self.input_dimension is not None:
            size = check_integer("data.input_dimension", self.input_dimension, 1)
            set_(self, "input_dimension", size)
        if self.covariances is not None:
            set_(self, "covariances", _check_covariances("data.covariances", self.covariances))
            if self.input_variance != _default(Data, "input_variance") or self.input_correlation:
                raise InvalidValueError(
                    "data.covariances", "given", "either covariances, or input_variance and input_correlation"
                )


@names_its_arguments
@dataclass(frozen=True, kw_only=True)
class Evasion:
    """Inputs that are moved to hurt most when a model is used: what is measured beside the errors on honest ones.

    Parameters
    ----------
    epsilon : float
        ε: how far an input may be moved.
    norm : str
        In what norm: ``"2"``, or ``"inf"``, each entry by at most ε. The numbers 2 and infinity say the same, since
        that is how ``--set evasion.norm=inf`` and TOML without quotes are read.

    Examples
    --------
    >>> Evasion(epsilon=0.1)
    Evasion(epsilon=0.1, norm='2')
    >>> Evasion(epsilon=0.1, norm=float("inf"))
    Evasion(epsilon=0.1, norm='inf')
    """

    epsilon: float
    norm: str = "2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_number("evasion.epsilon", self.epsilon, 0))
        given: object = self.norm  # 2 and inf are numbers in TOML, and after --set
        if isinstance(given, int | float) and not isinstance(given, bool):
            object.__setattr__(self, "norm", f"{given:g}")
        check_choice("evasion.norm", self.norm, ("2", "inf"))


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
        ``QSFed()``.
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

    def to_mapping(self) -> dict[str, Any]:
        """Return plain nested dicts and lists, as TOML and JSON hold them."""
        from psofed.scenario.file import scenario_to_mapping

        return scenario_to_mapping(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Scenario":
        """Make a scenario from nested dicts, checking every key and value."""
        from psofed.scenario.file import scenario_from_mapping

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


def as_part(family: str, value: Any, field_name: str = "") -> Any:
    """Return a part as it is, or with its default options if `value` is its name.

    Examples
    --------
    >>> as_part("aggregation", "krum")
    Krum(tolerated=1)
    """
    name = field_name or family
    if isinstance(value, str):
        return find_part(family, value, name).from_mapping({})
    if not isinstance(value, Part) or value.family != family:
        folder = FAMILIES[family]
        raise InvalidValueError(name, value, f"a part of psofed.{folder}, or its name")
    return value


def _default(kind: type, name: str) -> Any:
    return next(f.default for f in dataclasses.fields(kind) if f.name == name)


def _check_variance(field_name: str, value: Any) -> Variance:
    if isinstance(value, Uniform):
        low = check_number(f"{field_name}.uniform", value.low, 0)
        high = check_number(f"{field_name}.uniform", value.high, low)
        return Uniform(low, high)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(check_number(f"{field_name}[{k}]", v, 0) for k, v in enumerate(value))
    try:
        return check_number(field_name, value, 0)
    except InvalidValueError:
        allowed = "a finite number at least 0, num_clients such numbers, or {uniform = [low, high]}"
        raise InvalidValueError(field_name, value, allowed) from None


def _check_covariances(field_name: str, value: Any) -> Covariances:
    import numpy as np

    allowed = "num_clients symmetric positive semi-definite matrices of finite numbers, dimension × dimension"
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValueError(field_name, value, allowed) from None
    if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0 or not np.isfinite(array).all():
        raise InvalidValueError(field_name, f"an array of shape {array.shape}", allowed)
    for k, matrix in enumerate(array):
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise InvalidValueError(f"{field_name}[{k}]", "an unsymmetric matrix", allowed)
        if np.linalg.eigvalsh(matrix).min() < -1e-10 * scale:
            raise InvalidValueError(f"{field_name}[{k}]", "a matrix with a negative eigenvalue", allowed)
    return tuple(tuple(tuple(row) for row in matrix) for matrix in array.tolist())
