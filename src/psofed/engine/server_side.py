"""Attack, defence and aggregation as kernels take them: on uploads on their way in, and on clients' data."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.attackers import make_attackers
from psofed.engine.bodies import NO_HOOK, Hook, raise_python_error, release
from psofed.engine.compiling import compiled
from psofed.engine.frames.aggregation import aggregation_hook, make_memory
from psofed.engine.frames.attack import attack_hook
from psofed.engine.frames.defence import defence_hook, make_watching
from psofed.engine.frames.poison import poison_hook
from psofed.engine.hooks import Attackers, RuleMemory, Watching, take_aggregation, take_defence
from psofed.engine.normals import fill_standard_normal
from psofed.engine.streams import Stream
from psofed.parts.aggregations.mean import Mean
from psofed.parts.watching import WatchPlan

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


class AttackSide(NamedTuple):
    """The attack, if there is one.

    Attributes
    ----------
    on_uploads, on_samples : bool
        What it changes; neither without an attack.
    corrupt, poison : int
        Addresses of hooks; 0 for the ones that are not called.
    token : int
        What they are called with.
    attackers : Attackers
        Who attacks when.
    """

    on_uploads: bool
    on_samples: bool
    corrupt: int
    poison: int
    token: int
    attackers: Attackers


class RuleSide(NamedTuple):
    """The aggregation rule.

    Attributes
    ----------
    is_mean : bool
        The engine has the mean itself; the hook is for all other rules.
    combine : int
        Address of the hook.
    token : int
        What it is called with.
    options : array (any,)
        The rule's numbers.
    root : RootSet
        Samples of the server's own, none for most rules.
    memory : RuleMemory
        What the hook works in.
    """

    is_mean: bool
    combine: int
    token: int
    options: FloatArray
    root: "RootSet"
    memory: RuleMemory


class DefenceSide(NamedTuple):
    """The defence; where there is none, kernels take None and are compiled without it.

    Attributes
    ----------
    judge : int
        Address of the hook.
    token : int
        What it is called with.
    options : array (any,)
        The defence's numbers.
    excluded_download : bool
        Whether who is left out still downloads.
    watching : Watching
        What it keeps.
    """

    judge: int
    token: int
    options: FloatArray
    excluded_download: bool
    watching: Watching


class RootSet(NamedTuple):
    """Samples of the server's own, in the form that :func:`own_step` evaluates.

    Attributes
    ----------
    rows : array (R, D + 1, lanes)
        Σ_r x_ri [x_r, ν_r] for i = 0 … D − 1, or, where N ≤ D, the samples [x_r, ν_r] themselves; none if R = 0.
    is_gram : bool
        Which of the two.
    scale : float
        μ/N.
    """

    rows: FloatArray
    is_gram: bool
    scale: float


class ServerSide:
    """Attack, defence and rule of several trials, loaded for a kernel.

    Parameters
    ----------
    scenario : Scenario
        What is simulated.
    fleet : Fleet
        Its clients; their names resolve ``attack.clients``.
    stream, root_stream : Stream
        Randomness of the attack and of the server's root data; None where there can be none.
    numbers : int
        How many numbers a participant's upload comes to, at most.
    plan : WatchPlan, optional
        What the scenario's defence needs to know; without it nobody is watched.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        stream: Stream,
        root_stream: Stream | None,
        numbers: int,
        plan: WatchPlan | None = None,
    ) -> None:
        attack, rule = scenario.attack, scenario.aggregation
        poisons = attack is not None and attack.poisons_samples()
        byzantine = fleet.byzantine_mask(attack)
        idle = attack is None
        corrupt = NO_HOOK if attack is None or poisons else attack_hook(attack)
        poison = poison_hook(attack) if attack is not None and poisons else NO_HOOK
        own = poison if poisons else corrupt
        self.attack = AttackSide(
            on_uploads=not idle and not poisons,
            on_samples=poisons,
            corrupt=corrupt.address,
            poison=poison.address,
            token=own.token,
            attackers=make_attackers(attack, byzantine, stream, own.options),
        )
        combine = NO_HOOK if type(rule) is Mean else aggregation_hook(rule)
        self.rule = RuleSide(
            is_mean=type(rule) is Mean,
            combine=combine.address,
            token=combine.token,
            options=combine.options,
            root=_draw_root(scenario, fleet, root_stream),
            memory=make_memory(scenario.num_participants, numbers, max(numbers, scenario.dimension)),
        )
        judge = NO_HOOK
        self.defence: DefenceSide | None = None
        if scenario.defence is not None and plan is not None:
            judge = defence_hook(scenario.defence)
            watching = make_watching(
                scenario.defence, plan, clients=scenario.num_clients, participants=scenario.num_participants,
                numbers=numbers, dimension=max(numbers, scenario.dimension), lanes=stream.key.size,
            )  # fmt: skip
            download = scenario.defence.excluded_download
            self.defence = DefenceSide(judge.address, judge.token, judge.options, download, watching)
        self._hooks: tuple[Hook, ...] = (own, combine, judge)

    @property
    def watching(self) -> Watching | None:
        """What the defence has kept; None without one."""
        return None if self.defence is None else self.defence.watching

    def check(self) -> None:
        """Raise what went wrong in a part's Python body, if anything."""
        raise_python_error(*self._hooks)

    def __del__(self) -> None:
        release(*getattr(self, "_hooks", ()))


def _draw_root(scenario: "Scenario", fleet: "Fleet", stream: Stream | None) -> RootSet:
    rule: Any = scenario.aggregation
    if not rule.has_root_data:
        return RootSet(np.zeros((0, 0, 0)), False, 0.0)
    if stream is None:
        raise NotCoveredError(
            f'aggregation = "{rule.kind}" has root data that say how a model should change, and algorithm = '
            f'"{scenario.algorithm.kind}" sends no models'
        )
    rows = draw_root_samples(scenario, fleet, stream)
    scale = scenario.stepsize / rule.root_size
    if rule.root_size <= scenario.dimension:
        return RootSet(rows, False, scale)
    return RootSet(np.ascontiguousarray(np.einsum("ril,rjl->ijl", rows[:, :-1], rows)), True, scale)


def draw_root_samples(scenario: "Scenario", fleet: "Fleet", stream: Stream) -> FloatArray:
    """Draw the server's own samples [x_r, ν_r], shape (N, D + 1, lanes), as the test set is drawn."""
    rule: Any = scenario.aggregation
    width, count = scenario.dimension + 1, rule.root_size
    words = (width + 1) // 2
    normals = np.empty((2 * words * count, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    rows = normals.reshape(count, 2 * words, -1)[:, :width].astype(np.float64)
    rows[:, :-1] *= math.sqrt(scenario.data.test_input_variance)
    rows[:, -1] *= math.sqrt(fleet.test_noise_variance)
    return rows


@compiled(allocates=False)
def own_step(root, server, out):
    """Write the change of the server's error by its own step, −μ/N Σ_r x_r (x_rᵀg + ν_r), into ``out`` (D, lanes)."""
    dimension, lanes = server.shape
    for i in range(dimension):
        for lane in range(lanes):
            out[i, lane] = 0.0
    for r in range(root.rows.shape[0]):
        for lane in range(lanes):
            error = root.rows[r, dimension, lane]
            for i in range(dimension):
                error += root.rows[r, i, lane] * server[i, lane]
            error *= root.scale
            if root.is_gram:
                out[r, lane] = -error
            else:
                for i in range(dimension):
                    out[i, lane] -= error * root.rows[r, i, lane]


@compiled(allocates=False)
def leave_out(defence, n, server, uploads):
    """Let the defence look at what was uploaded; what is sent by those it leaves out becomes NaN."""
    take_defence(defence.judge)(defence.token, n, server, uploads, defence.options, defence.watching)


@compiled(allocates=False)
def move_by_mean(uploads, server, change):
    """Move each entry of ``server`` by the mean over all participants of what they sent less its old value.

    ``change`` (D, lanes) is room to work in.
    """
    entries, sent = uploads.entries, uploads.sent
    participants, shared, lanes = sent.shape
    for i in range(server.shape[0]):
        for lane in range(lanes):
            change[i, lane] = 0.0
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                number = sent[p, m, lane]
                if abs(number) <= 1e150:
                    i = entries[p, m, lane]
                    change[i, lane] += number - server[i, lane]
    for i in range(server.shape[0]):
        for lane in range(lanes):
            server[i, lane] += change[i, lane] / participants


@compiled(allocates=False)
def aggregate(rule, target, uploads, room, server):
    """Let the server take in what was uploaded; ``room`` (D, lanes) is to work in."""
    if rule.is_mean:
        move_by_mean(uploads, server, room)
        return
    if rule.root.rows.shape[0]:
        own_step(rule.root, server, room)
    take_aggregation(rule.combine)(rule.token, target, uploads, rule.options, room, rule.memory, server)
