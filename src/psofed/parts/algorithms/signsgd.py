"""SignSGD: participants send the sign of each entry of their gradient; the server moves by the vote.

In an iteration with an exchange, with the gradient's entries x_{k,j} e_k at the server's w_n:

    deterministic   q_{k,j} = sign(x_{k,j} e_k)
    stochastic      q_{k,j} = +1 with probability clip((b + x_{k,j} e_k)/(2b), 0, 1), else −1
    majority        w_{n+1} = w_n + μ sign(Σ_k (q_k + δ_k))
    mean, sum       w_{n+1} = w_n + μ Σ_k (q_k + δ_k) / |S_n|, and without the division

δ_k being the attack on the transmitted numbers (a Byzantine client's channel is not bound to two levels).
Up go D bits, down w_n itself, D numbers, since a client was not there for the steps before; so there is an
exchange every D/M iterations.

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

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psofed.common.validation import check_choice, check_number
from psofed.parts.algorithms._exchange import Exchange, refuse_redrawn_uplink
from psofed.results.traffic import BITS_PER_NUMBER, Traffic, spend_budget
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.common.types import FloatArray
    from psofed.engine.blocks import Run
    from psofed.fleet import Fleet
    from psofed.reference.block_form import ReferenceRun

SIGNS = ("stochastic", "deterministic")
VOTES = ("majority", "mean", "sum")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of SignSGD.

    Parameters
    ----------
    signs : str
        ``"stochastic"`` or ``"deterministic"``.
    bound : float
        b of the stochastic signs; deterministic ones do not use it.
    vote : str
        ``"majority"``, ``"mean"`` or ``"sum"``. All start from what the scenario's aggregation rule makes
        of the numbers, their mean by default.
    """

    signs: str = "stochastic"
    bound: float = 3.0
    vote: str = "majority"

    def __post_init__(self) -> None:
        check_choice("algorithm_options.signs", self.signs, SIGNS)
        bound = check_number("algorithm_options.bound", self.bound, 0, open_low=True)
        object.__setattr__(self, "bound", bound)
        check_choice("algorithm_options.vote", self.vote, VOTES)


def check(scenario: Scenario) -> None:
    """Refuse a redrawn uplink; masks (``[selection]``) play no part."""
    refuse_redrawn_uplink(scenario)


def traffic(scenario: Scenario) -> Traffic:
    """Count D bits up, D numbers down."""
    return spend_budget(scenario, bits_up=scenario.dimension, bits_down=BITS_PER_NUMBER * scenario.dimension)


def make_exchange(scenario: Scenario) -> Exchange:
    """Describe one exchange."""
    options = scenario.algorithm_options
    stochastic = options.signs == "stochastic"
    return Exchange(
        encode=encode,
        apply=apply,
        numbers=scenario.dimension,
        options=(scenario.stepsize, options.bound, VOTES.index(options.vote)),
        client_uniforms=scenario.dimension if stochastic else 0,
    )


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
    """Send the signs of u_k, which are those of x_k e_k."""
    participants, dimension, lanes = sent.shape
    stepsize, bound = options[0], options[1]
    stochastic = client_uniforms.shape[1] > 0
    for p in range(participants):
        for i in range(dimension):
            for lane in range(lanes):
                if stochastic:
                    # A uniform number in [0, 1) falls below the probability as often as it says, clipped or not.
                    probability = (bound + updates[p, i, lane] / stepsize) / (2.0 * bound)
                    positive = client_uniforms[p, i, lane] < probability
                else:
                    positive = updates[p, i, lane] >= 0.0
                sent[p, i, lane] = 1.0 if positive else -1.0


def apply(joined, participants, normals, uniforms, options, memory, change):
    """Move by μ times the vote; ``joined`` is the mean of the received numbers."""
    stepsize, vote = options[0], options[2]
    for i in range(change.shape[0]):
        for lane in range(change.shape[1]):
            value = joined[i, lane]
            if vote == 0.0:
                value = (1.0 if value > 0.0 else 0.0) - (1.0 if value < 0.0 else 0.0)
            elif vote == 2.0:
                value *= participants
            change[i, lane] = stepsize * value


def reference_step(
    scenario: Scenario,
    updates: "FloatArray",
    perturbations: "FloatArray",
    client_uniforms: "FloatArray",
    **_: object,
) -> "FloatArray":
    """Return w_{n+1} − w_n, literally, from u_k and δ_k, both of shape (participants, D)."""
    import numpy as np

    options, gradients = scenario.algorithm_options, updates / scenario.stepsize
    if options.signs == "stochastic":
        probability = np.clip((options.bound + gradients) / (2 * options.bound), 0, 1)
        signs = np.where(client_uniforms < probability, 1.0, -1.0)
    else:
        signs = np.where(gradients >= 0, 1.0, -1.0)
    total = (signs + perturbations).sum(axis=0)
    votes = {"majority": np.sign(total), "mean": total / len(updates), "sum": total}
    change: FloatArray = scenario.stepsize * votes[options.vote]
    return change
