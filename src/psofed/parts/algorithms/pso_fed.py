"""PSO-Fed."""

from typing import TYPE_CHECKING, ClassVar

from psofed.parts import Algorithm
from psofed.parts.traffic import BITS_PER_NUMBER, Traffic, spend_budget

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
    also_needs: ClassVar[tuple[str, ...]] = ()

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count M numbers each way for every participant, in every iteration: the budget of all algorithms."""
        bits = BITS_PER_NUMBER * scenario.num_shared
        return spend_budget(scenario, bits_up=bits, bits_down=bits)
