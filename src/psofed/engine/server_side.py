"""Attack, defence and aggregation in the form that kernels take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray
from psofed.engine.attackers import draw_byzantine, make_attackers, set_byzantine
from psofed.engine.bodies import NO_HOOK, Hook, raise_python_error, release
from psofed.engine.compiling import kernel_part
from psofed.engine.frames.aggregation import aggregation_hook, make_memory
from psofed.engine.frames.attack import attack_hook, remember_hook
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
    take_attack,
    take_defence,
    take_mix,
    take_poison,
    take_remember,
)
from psofed.engine.root_data import RootSet, draw_root, own_step
from psofed.engine.streams import Stream, make_stream
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Attack
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
    remember, remember_token : int
        Likewise, of what attackers remember of their models.
    attackers : AttackState
        Who attacks when.
    sets : int array (T, |S_B|, lanes)
        The Byzantine set of each iteration, where it is redrawn; else empty.
    """

    on_uploads: bool
    on_samples: bool
    corrupt: int
    poison: int
    token: int
    remember: int
    remember_token: int
    attackers: AttackState
    sets: IndexArray


class GroupSide(NamedTuple):
    """Several groups of attackers; where there is one, kernels take None.

    Attributes
    ----------
    sides : tuple of AttackSide
        The groups.
    clean, changed : array (P, M, lanes)
        Scratch: uploads before all attacks, and after those of some groups.
    """

    sides: tuple[AttackSide, ...]
    clean: FloatArray
    changed: FloatArray


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
    """

    is_on: bool
    mix: int
    token: int
    options: FloatArray
    num_clients: int
    stream: Stream
    memory: MixMemory


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
    streams : sequence of Stream
        Randomness of each group of attackers; one is enough where nobody attacks.
    mix_stream, root_stream : Stream
        Randomness of the pre-aggregation and of the server's root data; None where there can be none.
    numbers : int
        Largest number of values in a participant's upload.
    plan : WatchPlan, optional
        What the scenario's defence needs to know; without it nobody is watched.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        streams: Sequence[Stream],
        mix_stream: Stream,
        root_stream: Stream | None,
        numbers: int,
        plan: WatchPlan | None = None,
    ) -> None:
        participants = scenario.algorithm.most_participants(scenario)
        joined = scenario.most_uploads
        rule, dimension = scenario.aggregation, max(numbers, scenario.dimension)
        made = [
            _make_attack(attack, scenario, fleet, stream)
            for attack, stream in zip(scenario.attacks, streams, strict=False)
        ] or [_make_attack(None, scenario, fleet, streams[0])]
        own = tuple(hook for _, hooks in made for hook in hooks)
        self._scenario = scenario
        self.attack: AttackSide = made[0][0]
        uploads, lanes = (participants, numbers, streams[0].key.size), streams[0].key.size
        self.groups: GroupSide | None = None
        if len(made) > 1:
            self.groups = GroupSide(tuple(side for side, _ in made), np.empty(uploads), np.empty(uploads))
        self.search: SearchSide | None = _make_search(scenario, own[0], participants, numbers, lanes)
        combine = NO_HOOK if type(rule) is Mean else aggregation_hook(rule)
        mix = NO_HOOK if scenario.pre_aggregation is None else mix_hook(scenario.pre_aggregation)
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
                    lanes,
                ),
            ),
        )
        judge = NO_HOOK
        self.defence: DefenceSide | None = None
        if scenario.defence is not None and plan is not None:
            judge = defence_hook(scenario.defence)
            watching = make_watching(
                scenario.defence, plan, clients=scenario.num_clients, participants=max(participants, joined),
                numbers=numbers, dimension=dimension, lanes=lanes,
            )  # fmt: skip
            download = scenario.defence.excluded_download
            self.defence = DefenceSide(judge.address, judge.token, judge.options, download, watching)
        self._hooks: tuple[Hook, ...] = (*own, combine, mix, judge)

    def attack_in(self, first: int, count: int) -> AttackSide:
        """Return the attack of `count` iterations from number `first` on; the first of several groups."""
        state = self.attack.attackers
        if not state.is_redrawn:
            return self.attack
        attack, clients = self._scenario.attacks[0], self._scenario.num_clients
        return self.attack._replace(sets=draw_byzantine(attack, state.stream, first, count, clients))

    @property
    def watching(self) -> Watching | None:
        """Memory of the defence; None without one."""
        return None if self.defence is None else self.defence.watching

    def check(self) -> None:
        """Raise the error of a part's Python body, if there was one."""
        raise_python_error(*self._hooks)

    def __del__(self) -> None:
        release(*getattr(self, "_hooks", ()))


def attack_streams(scenario: "Scenario", seed: int, trials: Any) -> list[Stream]:
    """Return the randomness of each group of attackers; of one where nobody attacks."""
    return [make_stream(seed, "attack", trials, group) for group in range(max(len(scenario.attacks), 1))]


def _make_attack(
    attack: Attack | None, scenario: "Scenario", fleet: "Fleet", stream: Stream
) -> tuple[AttackSide, tuple[Hook, Hook]]:
    """Return one group of attackers, or nobody, and its hooks: of the attack, and of what it remembers."""
    poisons = attack is not None and attack.poisons_samples()
    dimension = scenario.dimension
    if not (poisons or scenario.algorithm.holds_models):
        dimension = scenario.algorithm.exchange(scenario).numbers
    check_memory(attack, scenario.num_clients, dimension)
    corrupt = NO_HOOK if attack is None or poisons else attack_hook(attack)
    poison = poison_hook(attack) if attack is not None and poisons else NO_HOOK
    own = poison if poisons else corrupt
    remembers = attack is not None and attack.remembers_models()
    if attack is not None and remembers and not scenario.algorithm.holds_models:
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" remembers the models of its clients, which hold none with algorithm = '
            f'"{scenario.algorithm.kind}"; use algorithm = "pso-fed"'
        )
    remember = remember_hook(attack) if attack is not None and remembers else NO_HOOK
    # The set is fixed wherever there are several groups.
    everyone = fleet.byzantine_mask(scenario.attack) if len(scenario.attacks) > 1 else None
    side = AttackSide(
        on_uploads=attack is not None and not poisons,
        on_samples=poisons,
        corrupt=corrupt.address,
        poison=poison.address,
        token=own.token,
        remember=remember.address,
        remember_token=remember.token,
        attackers=make_attackers(
            attack, fleet.byzantine_mask(attack), stream, own.options, dimension, everyone
        ),
        sets=draw_byzantine(None, stream, 0, 0, scenario.num_clients),
    )
    return side, (own, remember)


def _make_search(
    scenario: "Scenario", hook: Hook, participants: int, numbers: int, lanes: int
) -> SearchSide | None:
    algorithm = scenario.algorithm
    attack = next((attack for attack in scenario.attacks if attack.strengths()), None)
    if attack is None:
        return None
    strengths = attack.strengths()
    if scenario.channel is not None or scenario.delay is not None or scenario.availability is not None:
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" searches its strength against the rule, which cannot be combined with '
            "[availability], [channel] or [delay]"
        )
    if attack.memory_size(scenario.dimension):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" searches its strength against the rule, so it cannot keep a memory '
            "for each client"
        )
    if len(scenario.attacks) > 1:
        raise NotCoveredError(
            "attackers that search their strength against the rule cannot be combined with other groups"
        )
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


def _shared_by_all(scenario: "Scenario", numbers: int) -> int:
    """Return the largest number of distinct entries that all participants share together."""
    if (scenario.selection.coordinated and scenario.delay is None) or not scenario.algorithm.holds_models:
        return numbers
    return min(scenario.dimension, scenario.most_uploads * numbers)


@kernel_part
def redraw_byzantine(attack: AttackSide, t: int) -> None:
    """Set the Byzantine set of iteration number `t` of a chunk, if it is redrawn."""
    if attack.sets.size:
        set_byzantine(attack.sets[t], attack.attackers)


@kernel_part
def poison_samples(
    n: int,
    k: int,
    attack: AttackSide,
    groups: GroupSide | None,
    target: FloatArray,
    sample: FloatArray,
    error: FloatArray,
) -> None:
    """Let the attackers among client k's trials change its sample; no client belongs to two groups."""
    if groups is None:
        take_poison(attack.poison)(attack.token, n, k, attack.attackers, target, sample, error)
    else:
        for side in groups.sides:
            if side.on_samples:
                take_poison(side.poison)(side.token, n, k, side.attackers, target, sample, error)


@kernel_part
def corrupt_by_groups(
    attack: AttackSide, groups: GroupSide, n: int, target: FloatArray, server: FloatArray, uploads: Uploads
) -> None:
    """Corrupt uploads in place: each group sees those that nobody has changed yet."""
    sent, clean, changed = uploads.sent, groups.clean, groups.changed
    participants, shared, lanes = sent.shape
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                clean[p, m, lane] = changed[p, m, lane] = sent[p, m, lane]
    for side in groups.sides:
        if not side.on_uploads:
            continue
        take_attack(side.corrupt)(side.token, n, side.attackers, target, server, uploads)
        for p in range(participants):
            for m in range(shared):
                for lane in range(lanes):
                    if side.attackers.is_byzantine[uploads.clients[p, lane], lane]:
                        changed[p, m, lane] = sent[p, m, lane]
                    sent[p, m, lane] = clean[p, m, lane]
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                sent[p, m, lane] = changed[p, m, lane]


@kernel_part
def remember_models(
    attack: AttackSide, groups: GroupSide | None, n: int, target: FloatArray, clients: FloatArray
) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    if groups is not None:
        for side in groups.sides:
            if side.remember != 0:
                take_remember(side.remember)(side.remember_token, n, side.attackers, target, clients)
    elif attack.remember != 0:
        take_remember(attack.remember)(attack.remember_token, n, attack.attackers, target, clients)


@kernel_part
def leave_out(defence: DefenceSide, n: int, server: FloatArray, uploads: Uploads) -> None:
    """Let the defence inspect the uploads; values of excluded clients become NaN."""
    take_defence(defence.judge)(defence.token, n, server, uploads, defence.options, defence.watching)


@kernel_part
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
                i, number = entries[p, m, lane], sent[p, m, lane]
                update = number - server[i, lane]
                change[i, lane] += update if abs(number) <= 1e150 else 0.0
    for i in range(server.shape[0]):
        for lane in range(lanes):
            server[i, lane] += change[i, lane] / max(uploads.counts[lane], 1)


@kernel_part
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
        uploads = mixing.memory.mixed
    if rule.is_mean:
        move_by_mean(uploads, server, scratch)
        return
    if rule.root.rows.shape[0]:
        own_step(rule.root, server, scratch)
    take_aggregation(rule.combine)(rule.token, target, uploads, rule.options, scratch, rule.memory, server)
