"""State of a block of trials, and what every step of the iteration is made from."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.hooks import Hooks
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.streams import Stream, make_stream
from psofed.engine.uploads import Uploads, Work, make_uploads, make_work

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


# What attackers know (`Attack.knows`) who see what others upload.
SEES_OTHERS = ("accomplices", "everyone")


class Layout(NamedTuple):
    """Where columns stand: client k of trial l is lane ``l + (k & mask)`` of vector ``k >> shift``."""

    clients: int
    shift: int
    mask: int

    @property
    def vectors(self) -> int:
        """Number of vectors that the clients of a block take."""
        return ((self.clients - 1) >> self.shift) + 1


def make_layout(clients: int, over_clients: bool) -> Layout:
    """Return the layout with clients as lanes, or with trials as lanes."""
    return Layout(clients, 4, WIDTH - 1) if over_clients else Layout(clients, 0, 0)


class State(NamedTuple):
    """Models of a block of trials, as errors, and scratch.

    Attributes
    ----------
    target, base : array (D,)
        w, and what uploads are counted from: w, or zeros where no models are sent.
    models : array (V, D, 16)
        Errors w − w_{k,n} of all columns.
    server, known : arrays (L, D)
        Errors w − w_n, and what those who see uploads take for them: zeros (L, M) where no models are sent.
    server_lanes : array (1, D, 16)
        Scratch: the server's errors with trials as lanes.
    path, measured : arrays (L, D, 16) and (2, 16)
        Scratch: the server's errors of sixteen iterations, and their metrics.
    learns : uint8 array (V, 16)
        1 for each column that learns in the current iteration.
    """

    target: FloatArray
    base: FloatArray
    models: FloatArray
    server: FloatArray
    known: FloatArray
    server_lanes: FloatArray
    path: FloatArray
    measured: FloatArray
    learns: NDArray[np.uint8]


@dataclass(frozen=True)
class Setup:
    """A block of trials before its first iteration: what the steps of the iteration are made from.

    Attributes
    ----------
    scenario, fleet, seed, trials
        What is simulated.
    layout : Layout
        Where columns stand.
    has_samples : bool
        Whether samples are given, else drawn.
    hooks : Hooks
        Where the parts' methods are collected.
    """

    scenario: "Scenario"
    fleet: "Fleet"
    seed: int
    trials: range
    layout: Layout
    has_samples: bool
    hooks: Hooks

    def stream(self, source: str, index: int = 0) -> Stream:
        """Return the stream of one source of randomness."""
        return make_stream(self.seed, source, self.trials, index)

    @cached_property
    def participants(self) -> int:
        """Largest number of participants in an iteration."""
        return self.scenario.algorithm.most_participants(self.scenario)

    @cached_property
    def numbers(self) -> int:
        """Numbers in an upload."""
        algorithm = self.scenario.algorithm
        return self.scenario.num_shared if algorithm.holds_models else algorithm.exchange(self.scenario).numbers

    @cached_property
    def sends_models(self) -> bool:
        """Whether uploads are models, and not updates of any kind."""
        algorithm = self.scenario.algorithm
        return algorithm.holds_models or algorithm.exchange(self.scenario).sends_model

    @cached_property
    def one_mask(self) -> bool:
        """Whether all clients exchange the same entries in an iteration."""
        scenario = self.scenario
        return (
            not scenario.algorithm.holds_models
            or scenario.selection.coordinated
            or scenario.num_shared == scenario.dimension
        )

    @cached_property
    def state(self) -> State:
        """The state before the first iteration: all models are zero."""
        scenario, target, trials = self.scenario, self.fleet.target, len(self.trials)
        vectors = self.layout.vectors if scenario.algorithm.holds_models else 1
        server = np.repeat(target[None], trials, axis=0)
        return State(
            target=target.copy(),
            base=target.copy() if self.sends_models else np.zeros(self.numbers),
            models=filled(target[:, None], vectors, target.size, WIDTH),
            server=server,
            known=server if self.sends_models else np.zeros((trials, self.numbers)),
            server_lanes=filled(0.0, 1, target.size, WIDTH),
            path=filled(0.0, trials, target.size, WIDTH),
            measured=empty_lanes(2, WIDTH),
            learns=np.ones((self.layout.vectors, WIDTH), np.uint8),
        )

    @cached_property
    def uploads(self) -> Uploads:
        """Uploads of an iteration; with delays also those that arrive in it."""
        delay, most = self.scenario.delay, self.participants
        one_mask = self.one_mask and delay is None
        if delay is not None:
            most = max(most, most * delay.most_at_once())
        return make_uploads(len(self.trials), most, self.numbers, one_mask)

    @cached_property
    def work(self) -> Work:
        """Scratch of those who see uploads as vectors."""
        scenario = self.scenario
        dimension = max(self.most_numbers, scenario.dimension)
        over_vectors = (
            scenario.pre_aggregation is not None
            or scenario.aggregation.over == "vectors"
            or scenario.defence is not None
            or any(attack.crafts_vectors() or attack.knows in SEES_OTHERS for attack in scenario.attacks)
        )
        joined = max(scenario.most_uploads, self.participants)
        return make_work(joined, self.most_numbers, dimension, over_vectors)

    @cached_property
    def most_numbers(self) -> int:
        """Numbers in an upload, as it is sent or after it is decoded."""
        return self.numbers if self.scenario.algorithm.holds_models else max(self.numbers, self.scenario.dimension)
