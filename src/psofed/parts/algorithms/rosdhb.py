"""RoSDHB."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Algorithm, option
from psofed.parts.contexts import Message, Received
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Momentum, Traffic, spend_budget

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class RoSDHB(Algorithm):
    """RoSDHB: all clients send their update on one random mask; the server keeps a momentum of each client.

    In an iteration with an exchange, S_n being a fresh mask of M of the D entries from a shared seed, the same for all:

        client   sends the entries S_n u_k
        server   m_k ← β m_k + (1 − β) (D/M) S_n (u_k + δ_k), from m_k = 0, for every client
                 w_{n+1} = w_n + rule(m_1, …, m_K)

    with the scenario's aggregation rule (the authors' experiments take the trimmed mean) and δ_k the attack. What does
    not arrive counts as zero. Its stepsize γ is μ, which is in u_k already.

    All K clients take part, as in the paper: it says nothing of fewer. M numbers go up and D down, since w_n changes in
    all its entries, so within PSO-Fed's budget of |S_n| M numbers there is an exchange every K D/(|S_n| M) iterations.
    Nothing is fitted.

    References
    ----------
    Gupta, Honsell, Xu, Gupta, Neglia, "Reconciling communication compression and Byzantine-robustness in distributed
    learning", AISTATS 2026 (arXiv:2508.17129).
    """

    kind = "rosdhb"

    momentum: float = option(default=0.9, low=0.0, high=1.0, open_high=True, text="momentum of each client (β)")

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count M numbers up, D down, for all K clients at a time."""
        return spend_budget(
            scenario,
            bits_up=BITS_PER_NUMBER * scenario.num_shared,
            bits_down=BITS_PER_NUMBER * scenario.dimension,
            group=scenario.num_clients,
        )

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send M numbers; the shared uniforms choose the mask."""
        momentum = Momentum(keep=self.momentum, take=1.0 - self.momentum, absent=self.momentum)
        return Exchange(numbers=scenario.num_shared, uniforms=scenario.dimension, server_momentum=momentum)

    def encode(self, message: Message, out: FloatArray) -> None:
        """Send the entries of the mask: those of the M smallest uniforms."""
        mask = np.argsort(message.uniforms)
        for j in range(out.size):
            out[j] = message.update[mask[j]]

    def decode(self, received: Received, out: FloatArray) -> None:
        """Fill up with zeros, and scale so that the mean over masks is the update."""
        mask = np.argsort(received.uniforms)
        scale = out.size / received.numbers.size
        out[:] = 0.0
        for j in range(received.numbers.size):
            out[mask[j]] = scale * received.numbers[j]
