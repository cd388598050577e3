"""DeMoA."""

from typing import TYPE_CHECKING

from psofed.common.types import FloatArray
from psofed.parts import Algorithm, option
from psofed.parts.contexts import Message
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Momentum, Traffic, spend_budget

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class DeMoA(Algorithm):
    """DeMoA: participants send a momentum; the server combines it with the last ones of all absent clients.

    In an iteration with an exchange, with p = |S_n|/K:

        client k ∈ S_n   m_k ← (1 − α p) m_k + α u_k, and sends it
        client k ∉ S_n   m_k ← (1 − α p) m_k
        server           m̃_k = m_k + δ_k as received from k ∈ S_n, m̃_k ← (1 − α p) m̃_k of the others
                         w_{n+1} = w_n + rule(m̃_1, …, m̃_K)

    with the scenario's aggregation rule and δ_k the attack. So the fraction of Byzantine clients among the joined
    momenta is that of the fleet, however many of them are drawn. ``unseen = "kept"`` is the paper's first version,
    D-Byz-SGDM, where momenta of those who do not take part stay as they are, and those who do have m_k ← (1 − α) m_k +
    α u_k. D numbers go up and down, so there is an exchange every D/M iterations.

    *Chosen*: m_k = 0 at first and α = 0.1; what is public of the paper gives neither. There each client is drawn with
    probability p by itself, here |S_n| of them.

    References
    ----------
    Otsuka, Takezawa, Yamada, "Delayed momentum aggregation: communication-efficient Byzantine-robust federated learning
    with partial participation", ICML 2026 (arXiv:2509.02970).
    """

    kind = "demoa"

    alpha: float = option(default=0.1, low=0.0, high=1.0, open_low=True, text="weight of a new update (α)")
    unseen: str = option(default="shrunk", choices=("shrunk", "kept"), text="how momenta of absent clients change")

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count D numbers each way."""
        bits = BITS_PER_NUMBER * scenario.dimension
        return spend_budget(scenario, bits_up=bits, bits_down=bits)

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send D numbers, and remember them."""
        keep, absent = 1.0 - self.alpha, 1.0
        if self.unseen == "shrunk":
            keep = absent = 1.0 - self.alpha * scenario.participation_probability
        return Exchange(
            numbers=scenario.dimension,
            client_momentum=Momentum(keep=keep, take=self.alpha, absent=absent),
            server_momentum=Momentum(keep=0.0, take=1.0, absent=absent),
        )

    def encode(self, message: Message, out: FloatArray) -> None:
        """Send the momentum, which stands in the place of u_k."""
        for i in range(out.size):
            out[i] = message.update[i]
