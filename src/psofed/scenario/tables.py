"""The tables of a scenario: which parameters are shared, the clients' data, and the links."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from psofed.common.errors import InvalidValueError, UnknownFieldError
from psofed.common.options import default_of, option
from psofed.common.per_client import PerClient, Uniform, per_client
from psofed.common.settings import Settings
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.base import Function, InputStream, Pattern
from psofed.parts.network import Channel
from psofed.parts.patterns.built_in import Random
from psofed.parts.registry import find_part
from psofed.parts.streams.built_in import Independent
from psofed.parts.traffic import BITS_PER_NUMBER
from psofed.scenario.accepted import Covariances, PartCheck, as_channels, as_covariances, as_rows, plain_value

Variance = PerClient


class Selection(Settings):
    """Which M of the D parameters a participant exchanges: the selection matrices S_{k,n}.

    Parameters
    ----------
    pattern : Pattern, or its name
        How masks are chosen: ``psofed.patterns.Random()``, ``RoundRobin()``, or a custom one.
    coordinated : bool
        One mask for all clients, or one per client.

    Examples
    --------
    >>> Selection(pattern="round-robin").pattern
    RoundRobin()
    """

    table = "selection"

    pattern: Pattern = option(
        default_factory=Random,
        check=PartCheck("pattern"),
        text="how the shared parameters are chosen",
        label="mask pattern",
    )
    coordinated: bool = option(
        default=True,
        text="one mask for all clients, or one per client",
        label="masks are drawn",
        words=("for all clients", "for each client"),
    )

    if TYPE_CHECKING:  # accepted types; a name stands for the part

        def __init__(self, *, pattern: Pattern | str = ..., coordinated: bool = ...) -> None: ...

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make it from the fields of ``[selection]``, in which the pattern's options stand, too."""
        options = {name: value for name, value in values.items() if name not in cls.options()}
        plain = {name: value for name, value in values.items() if name in cls.options()}
        pattern = plain.get("pattern", "random")
        if isinstance(pattern, Pattern) and not options:
            return cls(**plain)
        part = find_part("pattern", pattern, "selection.pattern")
        for name in options:
            if name not in part.options():
                raise UnknownFieldError(f"selection.{name}", (*cls.options(), *part.options()))
        return cls(**{**plain, "pattern": part.from_mapping(options)})

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields of ``[selection]``."""
        return {"pattern": self.pattern.kind, "coordinated": self.coordinated, **self.pattern.to_mapping()}


class Data(Settings):
    """The clients' streams y = wᵀx + ν: inputs with covariance R_k, noise with variance σ_νk².

    Parameters
    ----------
    input_variance : float, sequence of float, or Uniform
        ς_k²: one value for all clients, one per client, or the range from which each is drawn.
    noise_variance : float, sequence of float, or Uniform
        σ_νk², likewise.
    input_correlation : float
        ρ in R_k[i, j] = ς_k² ρ^|i−j|.
    covariances : nested sequences or array, shape (num_clients, dimension, dimension), optional
        R_k themselves, such as measured ones; they replace `input_variance` and `input_correlation`.
    fleet_seed : int
        Seed of the uniform draws above (not of the simulation).
    test_instances : int
        Size N_t of the server's test set.
    test_input_variance : float
        Variance of the (white) test inputs.
    stream : InputStream, or its name
        Where the inputs come from: ``psofed.streams.Independent()``, or ``DelayLine(pole=0.5)``.
    function : Function, or its name, optional
        f in the streams y = f(x) + ν, such as ``psofed.functions.Sinc()``; y = wᵀx + ν if absent.
    input_dimension : int, optional
        d, entries of x, where that is not the model's D: with random features, or as `function` requires.
    target_spread : float
        Gives each client its own target, y = (w + d_k)ᵀx + ν: the variance of the entries of d_k, drawn once with
        `fleet_seed`; 0 if all clients have the same target.
    rows : OwnData, optional
        Your own data, in place of all of the above (:meth:`psofed.Scenario.from_data`). In TOML, ``file`` and the
        settings of :func:`psofed.read_data` stand here instead.

    Notes
    -----
    The paper does not give its test inputs; unit variance fits its Fig. 1.
    """

    table = "data"

    input_variance: Variance = option(
        default=Uniform(0.2, 1.2),
        check=per_client(0.0, math.inf),
        text="variance of the inputs (ς_k²)",
        slider=(0.0, 2.0),
    )
    noise_variance: Variance = option(
        default=Uniform(0.005, 0.025),
        check=per_client(0.0, math.inf),
        text="variance of the noise (σ_νk²)",
        slider=(0.0, 0.1),
    )
    input_correlation: float = option(
        default=0.0,
        low=-1,
        high=1,
        open_low=True,
        open_high=True,
        text="correlation of neighbouring inputs: ρ in R_k[i, j] = ς_k² ρ^|i−j|",
        label="input correlation ρ",
        slider=(-0.95, 0.95),
    )
    covariances: Covariances | None = option(
        default=None,
        check=as_covariances,
        text="covariances R_k of the inputs, such as measured ones",
        label="input covariances",
    )
    fleet_seed: int = option(default=0, low=0, text="seed of the fleet's uniform draws", slider=(0, 100))
    test_instances: int = option(
        default=50, low=1, text="size of the server's test set (N_t)", label="test set size", slider=(1, 200)
    )
    test_input_variance: float = option(
        default=1.0, low=0, open_low=True, text="variance of the white test inputs", slider=(0.05, 2.0)
    )
    stream: InputStream = option(
        default_factory=Independent,
        check=PartCheck("stream"),
        text="where the inputs come from",
        label="inputs over time",
    )
    function: Function | None = option(
        default=None,
        check=PartCheck("function"),
        text="f in y = f(x) + ν; y = wᵀx + ν without it",
        absent="linear, y = wᵀx",
    )
    input_dimension: int | None = option(
        default=None,
        low=1,
        text="number of entries of an input x (d), if not D",
        label="dimension of x",
        slider=(1, 20),
    )
    target_spread: float = option(
        default=0.0,
        low=0,
        text="variance of the entries of each client's deviation d_k from the common target",
        label="spread of client targets",
        slider=(0.0, 0.5),
    )
    rows: "OwnData | DataSource | None" = option(
        default=None, check=as_rows, text="your own data, instead of drawn streams"
    )

    if TYPE_CHECKING:  # accepted types; arrays and lists become tuples, a name stands for the part

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
            stream: InputStream | str = ...,
            function: Function | str | None = ...,
            input_dimension: int | None = ...,
            target_spread: float = ...,
            rows: OwnData | DataSource | None = ...,
        ) -> None: ...

    def __repr__(self) -> str:
        from psofed.scenario.describe import short_repr

        return short_repr(self)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None:
            self._check_only_rows()
        if self.target_spread and self.function is not None:
            raise InvalidValueError("data.target_spread", self.target_spread, "0 with data.function")
        has_variance = self.input_variance != self.options()["input_variance"].default
        if self.covariances is not None and (has_variance or self.input_correlation):
            raise InvalidValueError("data.covariances", "both", "given instead of input_variance and input_correlation")
        self._check_stream()

    def _check_stream(self) -> None:
        if self.stream.is_independent:
            return
        reason = f'with data.stream.kind = "{self.stream.kind}", which correlates the inputs itself'
        if self.input_correlation:
            raise InvalidValueError("data.input_correlation", self.input_correlation, f"0 {reason}")
        if self.covariances is not None:
            raise InvalidValueError("data.covariances", "matrices", f"left out {reason}")

    @property
    def correlation(self) -> float:
        """ρ in R_k[i, j] = ς_k² ρ^|i−j|, of the stream or as given."""
        of_stream = self.stream.input_correlation()
        return self.input_correlation if of_stream is None else of_stream

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields of ``[data]``, of your own data where it was read from and what it holds."""
        if self.rows is not None:
            return self.rows.source.to_mapping() | self.rows.source.content
        plain = {name: plain_value(getattr(self, name)) for name in self.options()}
        return {name: value for name, value in plain.items() if value is not None}

    def _check_only_rows(self) -> None:
        for name, field in self.options().items():
            value = getattr(self, name)
            if name != "rows" and value != default_of(field):
                allowed = "left out where clients learn from a table"
                raise InvalidValueError(f"data.{name}", getattr(value, "kind", value), allowed)


class Links(Settings):
    """The links between clients and server: channels on the way up and on the way down.

    Parameters
    ----------
    up, down : Channel, its name, or a sequence of them
        What happens to the values on the way; several channels act in series, in the order given.

    Examples
    --------
    >>> from psofed.parts.channels import Lossy, Quantised
    >>> Links(up=(Quantised(bits=4, reach=2.0), Lossy(probability=0.1))).bits_up
    4
    """

    table = "channel"
    advice = "Name the direction: [channel.up] or [channel.down]."

    up: tuple[Channel, ...] = option(
        default=(),
        check=PartCheck("channel", as_channels),
        text="channels from a client to the server",
        label="channel up",
        absent="perfect",
    )
    down: tuple[Channel, ...] = option(
        default=(),
        check=PartCheck("channel", as_channels),
        text="channels from the server to a client",
        label="channel down",
        absent="perfect",
    )

    if TYPE_CHECKING:  # accepted types; one part stands for a series, a name for the part

        def __init__(
            self,
            *,
            up: Channel | str | Sequence[Channel | str] | None = ...,
            down: Channel | str | Sequence[Channel | str] | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        for direction in ("up", "down"):
            for channel in getattr(self, direction):
                channel.check(direction)

    @property
    def bits_up(self) -> int:
        """Bits per value on the way up."""
        return _bits(self.up)

    @property
    def bits_down(self) -> int:
        """Bits per value on the way down."""
        return _bits(self.down)

    def to_mapping(self) -> dict[str, Any]:
        """Return a table for each direction, or a list of tables where several channels act in series."""
        plain = {}
        for direction in ("up", "down"):
            series = [channel.to_mapping() for channel in getattr(self, direction)]
            if series:
                plain[direction] = series[0] if len(series) == 1 else series
        return plain


def _bits(channels: tuple[Channel, ...]) -> int:
    bits = BITS_PER_NUMBER
    for channel in channels:
        bits = channel.bits_after(bits)
    return bits
