"""Attack, defence and aggregation in the form that kernels take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray
from psofed.engine.attackers import draw_byzantine, make_attackers
from psofed.engine.bodies import NO_HOOK, Hook, HookHolder
from psofed.engine.frames.aggregation import aggregation_hook, make_memory
from psofed.engine.frames.attack import attack_hook
from psofed.engine.frames.crafting import remember_hook
from psofed.engine.frames.defence import defence_hook, make_watching
from psofed.engine.frames.poison import poison_hook
from psofed.engine.frames.pre_aggregation import make_mix_memory, mix_hook
from psofed.engine.hooks import AttackState, MixMemory, RuleMemory, Watching
from psofed.engine.root_data import RootSet, draw_root
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
    hook : Hook
        The attack on uploads or on samples.
    remember : Hook
        What attackers remember of their models; its address is 0 where they remember none.
    attackers : AttackState
        Who attacks when.
    sets : int array (T, |S_B|, lanes)
        The Byzantine set of each iteration, where it is redrawn; else empty.
    """

    on_uploads: bool
    on_samples: bool
    hook: Hook
    remember: Hook
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


class RuleSide(NamedTuple):
    """The aggregation rule.

    Attributes
    ----------
    is_mean : bool
        The engine has the mean itself; the hook is for all other rules.
    hook : Hook
        The rule.
    root : RootSet
        Samples that the server holds; none for most rules.
    memory : RuleMemory
        What the hook works in.
    mixing : MixingSide
        What is done with the uploads before.
    """

    is_mean: bool
    hook: Hook
    root: RootSet
    memory: RuleMemory
    mixing: "MixingSide"


class MixingSide(NamedTuple):
    """The pre-aggregation, if there is one.

    Attributes
    ----------
    is_on : bool
        Whether there is one.
    hook : Hook
        The pre-aggregation.
    num_clients : int
        K.
    stream : Stream
        Its randomness.
    memory : MixMemory
        What the hook works in, and the mixed uploads.
    """

    is_on: bool
    hook: Hook
    num_clients: int
    stream: Stream
    memory: MixMemory


class DefenceSide(NamedTuple):
    """The defence; where there is none, kernels take None and are compiled without it.

    Attributes
    ----------
    hook : Hook
        The defence.
    excluded_download : bool
        Whether excluded clients still download.
    watching : Watching
        What it keeps.
    """

    hook: Hook
    excluded_download: bool
    watching: Watching


class ServerSide(HookHolder):
    """Attack, defence and rule of several trials, loaded for a kernel.

    Parameters
    ----------
    scenario : Scenario
        What is simulated.
    fleet : Fleet
        Its clients; their names resolve ``attack.clients``.
    streams : sequence of Stream
        Randomness of each group of attackers (:func:`attack_streams`).
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
        sides = tuple(
            _make_attack(attack, scenario, fleet, stream)
            for attack, stream in zip(scenario.attacks or (None,), streams, strict=True)
        )
        self._scenario = scenario
        self.attack: AttackSide = sides[0]
        uploads, lanes = (participants, numbers, streams[0].key.size), streams[0].key.size
        self.groups: GroupSide | None = None
        if len(sides) > 1:
            self.groups = GroupSide(sides, np.empty(uploads), np.empty(uploads))
        combine = NO_HOOK if type(rule) is Mean else aggregation_hook(rule)
        mix = NO_HOOK if scenario.pre_aggregation is None else mix_hook(scenario.pre_aggregation)
        self.rule: RuleSide = RuleSide(
            is_mean=type(rule) is Mean,
            hook=combine,
            root=draw_root(scenario, fleet, root_stream),
            memory=make_memory(joined, numbers, dimension),
            mixing=MixingSide(
                is_on=scenario.pre_aggregation is not None,
                hook=mix,
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
        assert (plan is None) == (scenario.defence is None), "a defence needs its plan"
        if scenario.defence is not None and plan is not None:
            judge = defence_hook(scenario.defence)
            watching = make_watching(
                scenario.defence, plan, clients=scenario.num_clients, participants=max(participants, joined),
                numbers=numbers, dimension=dimension, lanes=lanes,
            )  # fmt: skip
            self.defence = DefenceSide(judge, scenario.defence.excluded_download, watching)
        attacks = (hook for side in sides for hook in (side.hook, side.remember))
        self._hooks = (*attacks, combine, mix, judge)

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


def attack_streams(scenario: "Scenario", seed: int, trials: Any) -> list[Stream]:
    """Return the randomness of each group of attackers; of one where nobody attacks."""
    return [make_stream(seed, "attack", trials, group) for group in range(max(len(scenario.attacks), 1))]


def _make_attack(attack: Attack | None, scenario: "Scenario", fleet: "Fleet", stream: Stream) -> AttackSide:
    """Return one group of attackers, or nobody."""
    poisons = attack is not None and attack.poisons_samples()
    dimension = scenario.dimension
    if not (poisons or scenario.algorithm.holds_models):
        dimension = scenario.algorithm.exchange(scenario).numbers
    check_memory(attack, scenario.num_clients, dimension)
    hook = remember = NO_HOOK
    if attack is not None:
        hook = poison_hook(attack) if poisons else attack_hook(attack)
        if attack.remembers_models():
            if not scenario.algorithm.holds_models:
                raise NotCoveredError(
                    f'attack.kind = "{attack.kind}" remembers the models of its clients, which hold none with '
                    f'algorithm = "{scenario.algorithm.kind}"; use algorithm = "pso-fed"'
                )
            remember = remember_hook(attack)
    byzantine = fleet.byzantine_mask(attack)
    # The set is fixed wherever there are several groups.
    everyone = fleet.byzantine_mask(scenario.attack) if len(scenario.attacks) > 1 else None
    return AttackSide(
        on_uploads=attack is not None and not poisons,
        on_samples=poisons,
        hook=hook,
        remember=remember,
        attackers=make_attackers(attack, byzantine, stream, hook.options, dimension, everyone),
        sets=draw_byzantine(None, stream, 0, 0, scenario.num_clients),
    )


def _shared_by_all(scenario: "Scenario", numbers: int) -> int:
    """Return the largest number of distinct entries that all participants share together."""
    if (scenario.selection.coordinated and scenario.delay is None) or not scenario.algorithm.holds_models:
        return numbers
    return min(scenario.dimension, scenario.most_uploads * numbers)
