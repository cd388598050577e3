"""What a scenario's tables hold: which entries are shared, the clients' data, and inputs moved to hurt.

They are as strict as the scenario itself: every value is checked when one is made.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.validation import (
    check_boolean,
    check_choice,
    check_integer,
    check_number,
    names_its_arguments,
)
from psofed.parts.base import Function, Pattern
from psofed.parts.part import Part
from psofed.parts.patterns.random import Random
from psofed.parts.registry import FAMILIES, find_part


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
