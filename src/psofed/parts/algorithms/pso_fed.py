"""PSO-Fed: participants exchange M of D entries with the server; every client learns all the time.

With S_n the participants, S_{k,n} the mask of client k in iteration n (eqs. PSO-Fed, psoagg):

    download   v_k = S_{k,n} w_n + (I − S_{k,n}) w_{k,n}             k ∈ S_n, else v_k = w_{k,n}
    step       ε_{k,n} = y_{k,n} − v_kᵀ x_{k,n},   w_{k,n+1} = v_k + μ x_{k,n} ε_{k,n}       all k
    upload     w_{n+1} = 1/|S_n| Σ_{k∈S_n} [S_{k,n+1} w'_{k,n+1} + (I − S_{k,n+1}) w_n]

where w' is w plus the attack's perturbation.

References
----------
Lari, Arablouei, Gogineni, Werner, "Resilience in Online Federated Learning: Mitigating Model-Poisoning
Attacks via Partial Sharing", IEEE TSIPN.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psofed.results.traffic import BITS_PER_NUMBER, Traffic, spend_budget
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.engine.pso_fed import PsoFedRun
    from psofed.engine.samples import Samples
    from psofed.fleet import Fleet
    from psofed.reference.block_form import ReferenceRun

# Whether it runs on given samples and with a target that moves.
TAKES_SAMPLES = True


@dataclass(frozen=True, kw_only=True)
class Options:
    """PSO-Fed has no options of its own; masks and uplink stand in the scenario itself."""


def check(scenario: Scenario) -> None:
    """Accept every scenario."""


def traffic(scenario: Scenario) -> Traffic:
    """Count M numbers each way for every participant, in every iteration: the budget of all algorithms."""
    bits = BITS_PER_NUMBER * scenario.num_shared
    return spend_budget(scenario, bits_up=bits, bits_down=bits)


def start(
    scenario: Scenario, fleet: "Fleet", seed: int, trials: range, samples: "Samples | None" = None
) -> "PsoFedRun":
    """Set up the given trials of a scenario at iteration 0, all models zero.

    Clients learn from `samples` if they are given, else from the streams that the scenario describes.
    """
    from psofed.engine.pso_fed import PsoFedRun

    return PsoFedRun(scenario, fleet, seed, trials, samples)


def reference(scenario: Scenario, seed: int, trial: int) -> "ReferenceRun":
    """Run one trial in the paper's block form, or where attack or rule are beyond it, client by client."""
    from psofed.parts.registry import load_part
    from psofed.reference.block_form import run_reference
    from psofed.reference.draws import draw_trial
    from psofed.reference.literal import run_literally

    is_sum = scenario.attack is None or hasattr(
        load_part("attacks", scenario.attack.kind), "draw_perturbations"
    )
    if scenario.aggregation != "mean" or not is_sum:
        return run_literally(scenario, seed, trial)
    return run_reference(scenario, draw_trial(scenario, seed, trial))
