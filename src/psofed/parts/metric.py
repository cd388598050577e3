"""A user's own metric: a number computed from the state of one trial, in every iteration."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from psofed.parts.part import Part

if TYPE_CHECKING:
    from psofed.common.types import BoolArray, FloatArray


class TrialState(NamedTuple):
    """One trial in one iteration, after its clients have learned and before they upload.

    Attributes
    ----------
    iteration : int
        n, from 0 on.
    target : array (D,)
        w, the weights to be learned; with a drift those of this iteration.
    server : array (D,)
        The server's model w_n at the beginning of the iteration.
    models : array (K, D)
        The clients' models after learning; (1, D) with the initial model if the algorithm's clients hold none.
    errors : array (K,)
        Prediction errors y − wᵀx that the clients made before learning; NaN where a client has no sample.
    is_byzantine : bool array (K,)
        Which clients are Byzantine in this iteration.
    """

    iteration: int
    target: "FloatArray"
    server: "FloatArray"
    models: "FloatArray"
    errors: "FloatArray"
    is_byzantine: "BoolArray"


class Metric(Part):
    """Base of your own metrics. Lower must be better.

    Results, files, tables, charts and sweeps call it by :attr:`name`.

    Attributes
    ----------
    title : str
        What tables and charts call it; the name in words by default.
    unit : str
        "1" for a number without unit.
    in_decibels : bool
        Whether tables and charts show 10 log₁₀ of it; it must not be negative then.

    Examples
    --------
    >>> import numpy as np
    >>> class WorstHonest(Metric):
    ...     def measure(self, state):
    ...         return np.max(state.errors[~state.is_byzantine] ** 2)
    >>> WorstHonest().name
    'worst_honest'
    """

    title: ClassVar[str] = ""
    unit: ClassVar[str] = "1"
    in_decibels: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("measure",)

    @property
    def name(self) -> str:
        """Its name in results: the kind with underscores."""
        return self.kind.replace("-", "_")

    def measure(self, state: TrialState) -> float:
        """Return the metric of one trial in one iteration; the steady state is its mean over the tail."""
        raise NotImplementedError
