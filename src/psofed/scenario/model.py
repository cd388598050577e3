"""What the clients fit: the ``[model]`` table of a scenario."""

from dataclasses import dataclass

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_choice, check_integer, check_number
from psofed.parts.registry import part_names


@dataclass(frozen=True, kw_only=True)
class Model:
    """The regression model: linear in the inputs, or linear in random Fourier features of them.

    Parameters
    ----------
    kind : str
        ``"linear"``: ŷ = wᵀx, the paper's. ``"rff"``: ŷ = wᵀz(x) with D random features
        z_i(x) = √(2/D) cos(ω_iᵀx + b_i), which approximates regression with a Gaussian kernel.
    features : int, optional
        Number of random features. It *is* the scenario's ``dimension``: masks, traffic and attack act on
        the features' weights. Give either, or both if they agree; in a file with ``features``,
        ``dimension`` may be left out.
    bandwidth : float
        b of the kernel exp(−‖x − x'‖²/(2b²)): ω_i ~ N(0, I/b²).
    seed : int
        Of ω_i and b_i, which server and clients share.

    References
    ----------
    Rahimi, Recht, "Random features for large-scale kernel machines", NIPS 2007.

    Examples
    --------
    >>> Model(kind="rff", features=64, bandwidth=2.0).features
    64
    """

    kind: str = "linear"
    features: int | None = None
    bandwidth: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        check_choice("model.kind", self.kind, part_names("models"))
        if self.features is not None:
            if self.kind == "linear":
                raise InvalidValueError("model.features", self.features, 'given only with model.kind = "rff"')
            set_(self, "features", check_integer("model.features", self.features, 1))
        set_(self, "bandwidth", check_number("model.bandwidth", self.bandwidth, 0, open_low=True))
        set_(self, "seed", check_integer("model.seed", self.seed, 0))
