"""Online-Fed: participants take one LMS step from the server's model and send all of it back.

In an iteration with an exchange, with u_k = μ x_k e_k and e_k = y_k − w_nᵀx_k:

    w_{n+1} = 1/|S_n| Σ_{k∈S_n} (w_n + u_k + δ_k)

δ_k being the attack. An exchange costs D numbers each way, so within PSO-Fed's budget of M numbers there is
one every D/M iterations with all |S_n| participants; ``budget = "fewer-participants"`` has an exchange in
every iteration with |S_n|·M/D participants instead (where that is no integer, with as many whole participants
as the budget has paid for by then, so sometimes none). With M = D both are PSO-Fed's server.

Nothing is fitted. The paper says only that all algorithms have the same communication budget; that exchanges
become rarer, and not participants fewer, is what fits its Fig. 1 under attack.

References
----------
Kuh, "Real time kernel learning for sensor networks using principles of federated learning", APSIPA ASC 2021.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psofed.common.validation import check_choice
from psofed.parts.algorithms._exchange import Exchange, refuse_redrawn_uplink
from psofed.results.traffic import BITS_PER_NUMBER, Traffic, spend_budget
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.common.types import FloatArray
    from psofed.engine.blocks import Run
    from psofed.fleet import Fleet
    from psofed.reference.block_form import ReferenceRun

BUDGETS = ("fewer-exchanges", "fewer-participants")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of Online-Fed.

    Parameters
    ----------
    budget : str
        How the communication budget is kept: ``"fewer-exchanges"`` or ``"fewer-participants"``.
    """

    budget: str = "fewer-exchanges"

    def __post_init__(self) -> None:
        check_choice("algorithm_options.budget", self.budget, BUDGETS)


def check(scenario: Scenario) -> None:
    """Refuse a redrawn uplink; masks (``[selection]``) play no part."""
    refuse_redrawn_uplink(scenario)


def traffic(scenario: Scenario) -> Traffic:
    """Count D numbers each way."""
    bits = BITS_PER_NUMBER * scenario.dimension
    alone = scenario.algorithm_options.budget == "fewer-participants"
    return spend_budget(scenario, bits_up=bits, bits_down=bits, group=1 if alone else None)


def make_exchange(scenario: Scenario) -> Exchange:
    """Describe one exchange."""
    return Exchange(encode=encode, numbers=scenario.dimension, sends_model=True)


def start(scenario: Scenario, fleet: "Fleet", seed: int, trials: range) -> "Run":
    """Set up the given trials of a scenario at iteration 0, the server's model zero."""
    from psofed.engine.server_model import ServerModelRun

    return ServerModelRun(scenario, fleet, seed, trials, make_exchange(scenario), traffic(scenario))


def reference(scenario: Scenario, seed: int, trial: int) -> "ReferenceRun":
    """Run one trial literally."""
    from psofed.reference.server_model import run_server_model_reference

    return run_server_model_reference(
        scenario, seed, trial, make_exchange(scenario), traffic(scenario), reference_step
    )


def encode(updates, normals, uniforms, client_uniforms, options, sent):
    """Send the model w_n + u_k."""
    sent[:] = updates


def reference_step(
    scenario: Scenario, updates: "FloatArray", perturbations: "FloatArray", **_: object
) -> "FloatArray":
    """Return w_{n+1} − w_n, literally, from u_k and δ_k, both of shape (participants, D)."""
    change: FloatArray = (updates + perturbations).mean(axis=0)
    return change
