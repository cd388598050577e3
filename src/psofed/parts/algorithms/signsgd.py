"""SignSGD."""

from typing import TYPE_CHECKING

from psofed.common.types import FloatArray
from psofed.parts import Algorithm, option
from psofed.parts.contexts import Message, Received
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Traffic, spend_budget

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class SignSGD(Algorithm):
    """SignSGD: participants send the sign of each entry of their gradient; the server moves by the vote.

    In an iteration with an exchange, with the gradient's entries x_{k,j} e_k at the server's w_n:

        deterministic   q_{k,j} = sign(x_{k,j} e_k)
        stochastic      q_{k,j} = +1 with probability clip((b + x_{k,j} e_k)/(2b), 0, 1), else −1
        majority        w_{n+1} = w_n + μ sign(Σ_k (q_k + δ_k))
        mean, sum       w_{n+1} = w_n + μ Σ_k (q_k + δ_k) / |S_n|, and without the division

    δ_k being the attack on the transmitted numbers (a Byzantine client's channel is not bound to two levels). All votes
    start from what the scenario's aggregation rule makes of the numbers, their mean by default. Up go D bits, down w_n
    itself, D numbers, since a client was not there for the steps before; so there is an exchange every D/M iterations.

    *Fitted*: stochastic signs, b = 3 and the majority come near the level of the paper's Fig. 1 (printed −2.5 to
    −2.8 dB with μ = 0.08; here −2.7 to −3.3 dB depending on the fleet). The paper says neither which signs nor
    which vote, and it matters: deterministic signs with the same μ give about −12 dB whatever the number of
    Byzantine clients, and their mean −15.6 dB, which under attack is better than PSO-Fed.

    References
    ----------
    Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed optimisation for non-convex problems",
    ICML 2018. Jin, Huang, He, Dai, Wu, "Stochastic-sign SGD for federated learning with theoretical guarantees",
    2020.
    """

    kind = "signsgd"

    signs: str = option(
        default="stochastic", choices=("stochastic", "deterministic"), text="how values are reduced to signs"
    )
    bound: float = option(default=3.0, low=0.0, open_low=True, text="bound of the stochastic signs (b)")
    vote: str = option(
        default="majority", choices=("majority", "mean", "sum"), text="how the server combines the signs"
    )

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count D bits up, D numbers down."""
        return spend_budget(scenario, bits_up=scenario.dimension, bits_down=BITS_PER_NUMBER * scenario.dimension)

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send D signs; stochastic ones take a random number each."""
        stochastic = self.signs == "stochastic"
        return Exchange(numbers=scenario.dimension, client_uniforms=scenario.dimension if stochastic else 0)

    def encode(self, message: Message, out: FloatArray) -> None:
        """Send the signs of u_k, which are those of x_k e_k."""
        stochastic = message.client_uniforms.size > 0
        for i in range(out.size):
            if stochastic:
                # A uniform number in [0, 1) falls below the probability as often as it says, clipped or not.
                probability = (self.bound + message.update[i] / message.stepsize) / (2.0 * self.bound)
                positive = message.client_uniforms[i] < probability
            else:
                positive = message.update[i] >= 0.0
            out[i] = 1.0 if positive else -1.0

    def apply(self, received: Received, memory: FloatArray, out: FloatArray) -> None:
        """Move by μ times the vote; what is joined is the mean of the received numbers."""
        majority, factor = self.vote == "majority", 1.0
        if self.vote == "sum":
            factor = 1.0 * received.participants
        for i in range(out.size):
            value = factor * received.numbers[i]
            if majority:
                value = (1.0 if value > 0.0 else 0.0) - (1.0 if value < 0.0 else 0.0)
            out[i] = received.stepsize * value
