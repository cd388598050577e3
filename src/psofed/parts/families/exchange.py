"""Base classes of what clients and server exchange: which entries, and in which algorithm."""

from typing import TYPE_CHECKING, ClassVar

from psofed.common.errors import InvalidValueError
from psofed.parts.part import Part
from psofed.parts.traffic import BITS_PER_NUMBER

if TYPE_CHECKING:
    from psofed.common.types import FloatArray, IntArray
    from psofed.parts import contexts
    from psofed.parts.traffic import Exchange, Traffic
    from psofed.scenario import Scenario


class Pattern(Part):
    """Which M of the D entries a client shares in an iteration."""

    table: ClassVar[str] = "selection"
    methods: ClassVar[tuple[str, ...]] = ("select",)

    def select(self, mask: "contexts.Mask", out: "IntArray") -> None:
        """Write M different entries from 0 to D − 1 into ``out`` (M,)."""
        raise NotImplementedError

    def mask_moments(self, dimension: int, num_shared: int) -> "tuple[float, float | FloatArray] | None":
        """Return E[S(i)], alike in all entries, and E[S(i) S(j)], of masks independent over time; else None.

        The second is a number where it is the same for all i ≠ j, else a matrix (D, D).
        """
        return None

    def mask_period(self, dimension: int, num_shared: int) -> int | None:
        """Return the period of a moving window of M neighbouring entries, in iterations; None for other patterns."""
        return None


class Algorithm(Part):
    """An algorithm: what clients and server exchange, and what it costs.

    Where clients hold no model (all algorithms but PSO-Fed), only the server has a model w_n. In an iteration with
    an exchange each participant k receives w_n and forms its LMS update u_k = μ x_k e_k, e_k = y_k − w_nᵀx_k. Then

        encode   u_k → the numbers that k sends
        attack   changes them, if k is Byzantine
        decode   what the server reads out of them: from each client's numbers, or once from all clients' joined
        join     the scenario's aggregation rule, the mean unless said otherwise
        apply    what is joined → the change of w_n

    An :class:`Exchange` may ask for momenta: clients then encode theirs in the place of u_k, and the rule joins those
    that the server has of all K clients.

    Attributes
    ----------
    holds_models : bool
        Whether clients hold models; only the engine can run such an algorithm.
    adds_mean_update : bool
        Whether, under the mean, an exchange adds the average of the updates that arrive to w_n; the exact theory covers
        such an algorithm.
    """

    table: ClassVar[str] = "algorithm_options"
    methods: ClassVar[tuple[str, ...]] = ("traffic",)
    also_needs: ClassVar[tuple[str, ...]] = ("exchange", "encode")
    holds_models: ClassVar[bool] = False
    adds_mean_update: ClassVar[bool] = False

    def check(self, scenario: "Scenario") -> None:
        """Refuse settings that have no meaning for the algorithm."""
        if self.holds_models:
            return
        why = f'with algorithm = "{self.kind}", whose clients hold no model'
        if scenario.uplink != "same":
            raise InvalidValueError("uplink", scenario.uplink, f'"same" {why}')
        if scenario.learner.kind != "lms":
            raise InvalidValueError("learner.kind", scenario.learner.kind, f'"lms" {why}')
        if scenario.delay is not None and not self.exchange(scenario).sends_model:
            late = "a late upload u moves the server by u − g, but what is sent here is not a model"
            raise InvalidValueError("delay", scenario.delay.kind, f"left out {why}: {late}")

    def traffic(self, scenario: "Scenario") -> "Traffic":
        """Return the cost and the frequency of exchanges."""
        raise NotImplementedError

    def exchange(self, scenario: "Scenario") -> "Exchange":
        """Return the values and random numbers that an exchange needs."""
        raise NotImplementedError

    def encode(self, message: "contexts.Message", out: "FloatArray") -> None:
        """Write the numbers that a participant sends into ``out`` (N,)."""
        raise NotImplementedError

    def decode(self, received: "contexts.Received", out: "FloatArray") -> None:
        """Write the decoded update into ``out`` (D,); without this method values are combined as they are."""
        raise NotImplementedError

    def apply(self, received: "contexts.Received", memory: "FloatArray", out: "FloatArray") -> None:
        """Write the change of w_n into ``out`` (D,); without this method the combined value is the change."""
        for i in range(out.size):
            out[i] = received.numbers[i]

    def most_participants(self, scenario: "Scenario") -> int:
        """Return the largest number of participants in an iteration."""
        if self.holds_models:
            return scenario.num_participants
        most = self.traffic(scenario).most_in_iteration
        if most > scenario.num_clients:
            allowed = f"at most {scenario.num_clients} per iteration (num_clients; see spend_budget)"
            raise InvalidValueError(f'exchanges of algorithm "{self.kind}"', most, allowed)
        return max(scenario.num_participants, most)

    def sends_numbers(self, scenario: "Scenario") -> bool:
        """Tell whether an upload consists of whole numbers, and not of a few bits of each."""
        bits = self.traffic(scenario).bits_up
        return self.holds_models or bits == BITS_PER_NUMBER * self.exchange(scenario).numbers

    def num_joined(self, scenario: "Scenario") -> int:
        """Return the largest number of uploads or momenta that the aggregation rule combines."""
        most = self.most_participants(scenario)
        if self.holds_models or self.exchange(scenario).server_momentum is None:
            return most
        return scenario.num_clients

    @classmethod
    def decodes(cls) -> bool:
        """Tell whether it decodes updates, before or after they are combined."""
        return cls.decode is not Algorithm.decode
