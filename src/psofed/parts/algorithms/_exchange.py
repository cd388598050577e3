"""What algorithms whose clients hold no model of their own have in common, without Numba.

The server alone has a model w_n. In an iteration with an exchange each participant k receives w_n and forms
its LMS update u_k = μ x_k e_k, e_k = y_k − w_nᵀx_k. Then

    encode   u_k → the numbers that k sends
    attack   changes them, if k is Byzantine
    decode   what the server reads out of them: from each client's numbers, or once from all clients' joined
    join     the scenario's aggregation rule, the mean unless said otherwise
    apply    what is joined → the change of w_n

and an algorithm is an :class:`Exchange` of such functions. They are compiled when a run starts, as hooks of
the one kernel in :mod:`psofed.engine.server_model`, so they call nothing but NumPy and :mod:`math`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from psofed.common.errors import InvalidValueError
from psofed.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The parts of one exchange.

    Arrays have the trial (*lane*) as last axis; P is the number of participants, N that of numbers each
    sends. Hooks write into their last argument alone (and `apply` into ``memory``).

    Attributes
    ----------
    encode : callable
        ``encode(updates (P, D), normals, uniforms, client_uniforms, options, sent (P, N))``.
    decode : callable, optional
        ``decode(sent (P, N), normals, uniforms, options, decoded (P, D))``; without it, numbers are joined
        as they are.
    decode_joined : bool
        Decode once, after joining (then P = 1 in `decode`).
    apply : callable, optional
        ``apply(joined, participants, normals, uniforms, options, memory, change (D,))``; without it, what
        is joined is the change.
    numbers : int
        N.
    sends_model : bool
        What travels is w_n plus the encoded numbers, so that attacks and aggregation rules see models.
        Otherwise they see the numbers as changes of a model that is zero.
    options : tuple of float
        What hooks are called with.
    normals, uniforms : int
        Random numbers that server and clients draw from a shared seed.
    client_uniforms : int
        Random numbers that each client draws for itself.
    fresh : bool
        Shared random numbers are drawn afresh in each iteration, or once.
    memory : int
        Numbers the server keeps from one exchange to the next.
    """

    encode: Callable[..., None]
    decode: Callable[..., None] | None = None
    decode_joined: bool = False
    apply: Callable[..., None] | None = None
    numbers: int
    sends_model: bool = False
    options: tuple[float, ...] = ()
    normals: int = 0
    uniforms: int = 0
    client_uniforms: int = 0
    fresh: bool = True
    memory: int = 0

    def words_per_iteration(self, num_clients: int) -> int:
        """Words of the algorithm's random stream that one iteration is given."""
        return (self.normals + 1) // 2 + self.uniforms + num_clients * self.client_uniforms


def refuse_redrawn_uplink(scenario: Scenario) -> None:
    """Raise an error if other clients were to upload than those that have received w_n."""
    if scenario.uplink != "same":
        allowed = f'"same" for algorithm = "{scenario.algorithm}", whose clients hold no model to upload from'
        raise InvalidValueError("uplink", scenario.uplink, allowed)
