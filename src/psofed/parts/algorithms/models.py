"""Algorithms that exchange models."""

from typing import TYPE_CHECKING, ClassVar

from psofed.parts import Algorithm, option
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Traffic, spend_budget

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class PsoFed(Algorithm):
    """PSO-Fed, the paper's algorithm: every client learns by LMS, participants exchange M of D entries.

    With |S_n| participants in iteration n, S_{k,n} their masks and e_k = y_k − w_{k,n}ᵀx_k after the download (eq7):

        download   w_{k,n} ← S_{k,n} w_n + (I − S_{k,n}) w_{k,n}           participants alone
        learn      w_{k,n+1} = w_{k,n} + μ x_k e_k                         every client
        upload     entries S_{k,n+1} of w_{k,n+1}                          participants alone, the *next* mask
        average    w_{n+1} = 1/|S_n| Σ_k [S_{k,n+1} w_{k,n+1} + (I − S_{k,n+1}) w_n]

    Masks and uplink stand in the scenario itself.

    References
    ----------
    Lari, Arablouei, Gogineni, Werner, "Resilience in Online Federated Learning: Mitigating Model-Poisoning
    Attacks via Partial Sharing", IEEE TSIPN.
    """

    holds_models = True
    methods: ClassVar[tuple[str, ...]] = ("traffic",)

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count M numbers each way for every participant, in every iteration: the budget of all algorithms."""
        bits = BITS_PER_NUMBER * scenario.num_shared
        return spend_budget(scenario, bits_up=bits, bits_down=bits)


class OnlineFed(Algorithm):
    """Online-Fed: participants take one LMS step from the server's model and send all of it back.

    In an iteration with an exchange, with u_k = μ x_k e_k and e_k = y_k − w_nᵀx_k:

        w_{n+1} = 1/|S_n| Σ_{k∈S_n} (w_n + u_k + δ_k)

    δ_k being the attack. An exchange costs D numbers each way, so within PSO-Fed's budget of M numbers there is one
    every D/M iterations with all |S_n| participants; ``budget = "fewer-participants"`` has an exchange in every
    iteration with |S_n|·M/D participants instead (where that is not an integer, with the number of whole participants
    as the budget has paid for by then, so sometimes none). With M = D both are PSO-Fed's server.

    Nothing is fitted. The paper says only that all algorithms have the same communication budget; that exchanges
    become rarer, and not participants fewer, is what fits its Fig. 1 under attack.

    References
    ----------
    Kuh, "Real time kernel learning for sensor networks using principles of federated learning", APSIPA ASC 2021.
    """

    adds_mean_update: ClassVar[bool] = True

    budget: str = option(
        default="fewer-exchanges", choices=("fewer-exchanges", "fewer-participants"), text="how the budget is met"
    )

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send the D numbers of u_k; the engine adds w_n."""
        is_alone = self.budget == "fewer-participants"
        return Exchange(numbers=scenario.dimension, sends_model=True, group=1 if is_alone else 0)
