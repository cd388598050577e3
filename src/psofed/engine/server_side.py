"""Attack, defence and aggregation in the form that kernels take."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.attackers import make_attackers
from psofed.engine.bodies import NO_HOOK, Hook, raise_python_error, release
from psofed.engine.compiling import compiled
from psofed.engine.frames.aggregation import aggregation_hook, make_memory
from psofed.engine.frames.attack import attack_hook
from psofed.engine.frames.defence import defence_hook, make_watching
from psofed.engine.frames.poison import poison_hook
from psofed.engine.frames.pre_aggregation import make_mix_memory, mix_hook
from psofed.engine.hooks import (
    AttackState,
    MixMemory,
    RuleMemory,
    Uploads,
    Watching,
    take_aggregation,
    take_defence,
    take_mix,
)
from psofed.engine.root_data import RootSet, draw_root, own_step
from psofed.engine.streams import Stream
from psofed.parts.aggregations.mean import Mean
from psofed.parts.plain import check_memory
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
    attackers : AttackState
        Who attacks when.
    """

    on_uploads: bool
    on_samples: bool
    corrupt: int
    poison: int
    token: int
    attackers: AttackState


class SearchSide(NamedTuple):
    """Strengths that attackers try against the rule, and scratch for trying them.

    Attributes
    ----------
    options : array (G, any)
        The attack's options with each strength.
    clean, best : array (P, M, lanes)
        Uploads before the attack, and those that hurt most.
    following, honest : array (D, lanes)
        Where the rule, and where the mean of the clean uploads, would take the server.
    farthest : array (lanes,)
        The largest squared distance between the two so far.
    counts : int array (lanes,)
        How many do not attack.
    """

    options: FloatArray
    clean: FloatArray
    best: FloatArray
    following: FloatArray
    honest: FloatArray
    farthest: FloatArray
    counts: NDArray[np.int64]


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
        Samples that the server holds; none for most rules.
    memory : RuleMemory
        What the hook works in.
    mixing : MixingSide
        What is done with the uploads before.
    """

    is_mean: bool
    combine: int
    token: int
    options: FloatArray
    root: RootSet
    memory: RuleMemory
    mixing: "MixingSide"


class MixingSide(NamedTuple):
    """The pre-aggregation, if there is one.

    Attributes
    ----------
    is_on : bool
        Whether there is one.
    mix, token, options
        The hook.
    num_clients : int
        K.
    stream : Stream
        Its randomness.
    memory : MixMemory
        What the hook works in, and the mixed uploads.
    counts : int array (P + 1,)
        Number of mixed uploads, by number of participants.
    """

    is_on: bool
    mix: int
    token: int
    options: FloatArray
    num_clients: int
    stream: Stream
    memory: MixMemory
    counts: NDArray[np.int64]


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
        Whether excluded clients still download.
    watching : Watching
        What it keeps.
    """

    judge: int
    token: int
    options: FloatArray
    excluded_download: bool
    watching: Watching


class ServerSide:
    """Attack, defence and rule of several trials, loaded for a kernel.

    Parameters
    ----------
    scenario : Scenario
        What is simulated.
    fleet : Fleet
        Its clients; their names resolve ``attack.clients``.
    stream, mix_stream, root_stream : Stream
        Randomness of the attack, of the pre-aggregation and of the server's root data; None where there can be none.
    numbers : int
        Largest number of values in a participant's upload.
    plan : WatchPlan, optional
        What the scenario's defence needs to know; without it nobody is watched.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        stream: Stream,
        mix_stream: Stream,
        root_stream: Stream | None,
        numbers: int,
        plan: WatchPlan | None = None,
    ) -> None:
        participants = scenario.algorithm.most_participants(scenario)
        joined = scenario.algorithm.num_joined(scenario)
        attack, rule = scenario.attack, scenario.aggregation
        check_memory(attack, scenario.num_clients, max(numbers, scenario.dimension))
        poisons = attack is not None and attack.poisons_samples()
        byzantine = fleet.byzantine_mask(attack)
        idle = attack is None
        corrupt = NO_HOOK if attack is None or poisons else attack_hook(attack)
        poison = poison_hook(attack) if attack is not None and poisons else NO_HOOK
        own = poison if poisons else corrupt
        self.attack: AttackSide = AttackSide(
            on_uploads=not idle and not poisons,
            on_samples=poisons,
            corrupt=corrupt.address,
            poison=poison.address,
            token=own.token,
            attackers=make_attackers(
                attack, byzantine, stream, own.options, max(numbers, scenario.dimension)
            ),
        )
        self.search: SearchSide | None = _make_search(scenario, own, participants, numbers, len(stream.key))
        combine = NO_HOOK if type(rule) is Mean else aggregation_hook(rule)
        mix = NO_HOOK if scenario.pre_aggregation is None else mix_hook(scenario.pre_aggregation)
        dimension = max(numbers, scenario.dimension)
        self.rule: RuleSide = RuleSide(
            is_mean=type(rule) is Mean,
            combine=combine.address,
            token=combine.token,
            options=combine.options,
            root=draw_root(scenario, fleet, root_stream),
            memory=make_memory(joined, numbers, dimension),
            mixing=MixingSide(
                is_on=scenario.pre_aggregation is not None,
                mix=mix.address,
                token=mix.token,
                options=mix.options,
                num_clients=scenario.num_clients,
                stream=mix_stream,
                memory=make_mix_memory(
                    scenario.pre_aggregation,
                    joined,
                    _shared_by_all(scenario, numbers),
                    dimension,
                    len(stream.key),
                ),
                counts=np.array([_mixed_uploads(scenario, p) for p in range(joined + 1)]),
            ),
        )
        judge = NO_HOOK
        self.defence: DefenceSide | None = None
        if scenario.defence is not None and plan is not None:
            judge = defence_hook(scenario.defence)
            watching = make_watching(
                scenario.defence, plan, clients=scenario.num_clients, participants=participants,
                numbers=numbers, dimension=max(numbers, scenario.dimension), lanes=stream.key.size,
            )  # fmt: skip
            download = scenario.defence.excluded_download
            self.defence = DefenceSide(judge.address, judge.token, judge.options, download, watching)
        self._hooks: tuple[Hook, ...] = (own, combine, mix, judge)

    @property
    def watching(self) -> Watching | None:
        """Memory of the defence; None without one."""
        return None if self.defence is None else self.defence.watching

    def check(self) -> None:
        """Raise the error of a part's Python body, if there was one."""
        raise_python_error(*self._hooks)

    def __del__(self) -> None:
        release(*getattr(self, "_hooks", ()))


def _make_search(
    scenario: "Scenario", hook: Hook, participants: int, numbers: int, lanes: int
) -> SearchSide | None:
    attack, algorithm = scenario.attack, scenario.algorithm
    strengths = () if attack is None else attack.strengths()
    if attack is None or not strengths:
        return None
    if not (algorithm.holds_models or algorithm.exchange(scenario).sends_model):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" searches its strength against the rule, which needs models to be sent, but '
            f'algorithm = "{algorithm.kind}" sends none'
        )
    if hook.token:
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" cannot be compiled, so it cannot search its strength against the rule'
        )
    place = list(attack.options()).index(attack.strength_field())
    options = np.repeat(hook.options[None], len(strengths), axis=0)
    options[:, place] = strengths
    uploads, model = (participants, numbers, lanes), (scenario.dimension, lanes)
    return SearchSide(
        options, np.empty(uploads), np.empty(uploads), np.empty(model), np.empty(model), np.empty(lanes),
        np.empty(lanes, np.int64),
    )  # fmt: skip


def _mixed_uploads(scenario: "Scenario", participants: int) -> int:
    return 0 if scenario.pre_aggregation is None else scenario.pre_aggregation.uploads_after(participants)


def _shared_by_all(scenario: "Scenario", numbers: int) -> int:
    """Return the largest number of distinct entries that all participants share together."""
    if scenario.selection.coordinated or not scenario.algorithm.holds_models:
        return numbers
    return min(scenario.dimension, scenario.num_participants * numbers)


@compiled(allocates=False)
def leave_out(defence: DefenceSide, n: int, server: FloatArray, uploads: Uploads) -> None:
    """Let the defence inspect the uploads; values of excluded clients become NaN."""
    take_defence(defence.judge)(defence.token, n, server, uploads, defence.options, defence.watching)


@compiled(allocates=False)
def move_by_mean(uploads: Uploads, server: FloatArray, change: FloatArray) -> None:
    """Move each entry of ``server`` by the mean over all participants of what they sent less its old value.

    ``change`` (D, lanes) is scratch.
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
def aggregate(
    rule: RuleSide, n: int, target: FloatArray, uploads: Uploads, scratch: FloatArray, server: FloatArray
) -> None:
    """Update the server with the uploads of iteration n; ``scratch`` has shape (D, lanes)."""
    mixing = rule.mixing
    if mixing.is_on:
        take_mix(mixing.mix)(
            mixing.token,
            n,
            mixing.num_clients,
            target,
            uploads,
            mixing.options,
            mixing.stream,
            mixing.memory,
            server,
        )
        mixed, count = mixing.memory.mixed, mixing.counts[uploads.sent.shape[0]]
        uploads = Uploads(mixed.clients[:count], mixed.entries[:count], mixed.sent[:count])
    if rule.is_mean:
        move_by_mean(uploads, server, scratch)
        return
    if rule.root.rows.shape[0]:
        own_step(rule.root, server, scratch)
    take_aggregation(rule.combine)(rule.token, target, uploads, rule.options, scratch, rule.memory, server)
