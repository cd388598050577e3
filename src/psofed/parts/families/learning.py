"""Base classes of what clients learn, from what, and how: targets, inputs, models and local steps."""

from typing import TYPE_CHECKING, ClassVar

from psofed.parts.part import Part

if TYPE_CHECKING:
    from psofed.common.types import FloatArray
    from psofed.parts import contexts
    from psofed.parts.affine import LinearLearner
    from psofed.parts.features import FeatureMap


class Drift(Part):
    """How the target moves while it is learned."""

    methods: ClassVar[tuple[str, ...]] = ("move",)

    def move(self, step: "contexts.Step") -> "FloatArray":
        """Return w*_n − w*_0, shape (D,)."""
        raise NotImplementedError

    def check(self, iterations: int) -> None:
        """Refuse runs that are too short."""

    def increment_variance(self) -> float | None:
        """Return the variance of each entry's step w*_{n+1} − w*_n, if steps are white; what theory needs."""
        return None

    def mean_square(self) -> float | None:
        """Return the mean of ‖w*_n − w*_0‖² over a period, for periodic drifts."""
        return None

    def jump_iteration(self) -> int | None:
        """Return the iteration of the jump, for jumps."""
        return None


class Learner(Part):
    """The local step of a client: from its model v after the download, with e = y − vᵀx on a sample (x, y).

    A learner has one of two methods. With :meth:`gain` it steps along the input, v ← a v + g x, where a is
    :meth:`keep` and the engine does the rest for many trials at once. With :meth:`learn` it writes any change of v, and
    may keep a memory.
    """

    methods: ClassVar[tuple[str, ...]] = ("gain", "learn")

    def gain(self, residual: "contexts.Residual") -> float:
        """Return g in v ← a v + g x."""
        raise NotImplementedError

    def keep(self, stepsize: float) -> float:
        """Return a in v ← a v + g x, the share of its model that a client with this stepsize keeps."""
        return 1.0

    def learn(self, observation: "contexts.Observation", memory: "FloatArray", out: "FloatArray") -> None:
        """Write the change of v into ``out`` (D,); `memory` is the client's and is to be changed in place."""
        raise NotImplementedError

    def linear(self) -> "LinearLearner | None":
        """State that the step is linear in the model given the sample, for exact theory; None if it is not."""
        return None

    def initial_memory(self, dimension: int) -> "FloatArray":
        """Return what a client's memory holds at first; its length is the memory's."""
        import numpy as np

        return np.zeros(0)

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers a client keeps: the length of :meth:`initial_memory`."""
        return len(self.initial_memory(dimension))

    @classmethod
    def steps_along_input(cls) -> bool:
        """Whether it has :meth:`gain` instead of :meth:`learn`."""
        return cls.gain is not Learner.gain


class InputStream(Part):
    """Where the inputs of the clients come from.

    The engine draws standard normal numbers for every client and iteration, and :meth:`draw` makes an input of them and
    of what it remembers.
    """

    family: ClassVar[str] = "stream"
    table: ClassVar[str] = "data.stream"
    methods: ClassVar[tuple[str, ...]] = ("draw",)

    def draw(self, innovation: "contexts.Innovation", memory: "FloatArray", out: "FloatArray") -> None:
        """Write x_{k,n} into ``out`` (d,); `memory` is the client's, zeros at first, and is to be changed in place."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers it remembers of each client whose inputs have `dimension` entries."""
        return 0

    def input_correlation(self) -> float | None:
        """Return ρ if the inputs have the covariance R_k[i, j] = ς_k² ρ^|i−j|; None if it is another."""
        return None

    @property
    def is_independent(self) -> bool:
        """Whether inputs are drawn independently over time, as `input_correlation` and `covariances` say."""
        return self.kind == "independent"


class Model(Part):
    """Model that the clients fit: ŷ = wᵀz(x), linear in features of the inputs.

    Attributes
    ----------
    features : int or None
        How many there are, where the model says so; it is then the scenario's dimension.
    """

    methods: ClassVar[tuple[str, ...]] = ("make_features",)

    def make_features(self, input_dimension: int, dimension: int) -> "FeatureMap":
        """Return z for inputs of d entries and D weights."""
        raise NotImplementedError

    @property
    def num_features(self) -> int | None:
        """Number of features, where the model determines it."""
        return None


class Function(Part):
    """A function to be learned: a client observes y = f(x) + ν.

    Attributes
    ----------
    num_inputs : int or None
        How many entries x has; any number if None.
    """

    table: ClassVar[str] = "data.function"
    methods: ClassVar[tuple[str, ...]] = ("value",)
    num_inputs: ClassVar[int | None] = None

    def value(self, x: "FloatArray") -> float:
        """Return f(x) for x of shape (d,)."""
        raise NotImplementedError
