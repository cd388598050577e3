"""Settings of a run of the ready-made nodes: one frozen, validated value, also as the run description carries it."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.common.options import option
from psofed.common.toml import parse_toml
from psofed.common.validation import check_choice
from psofed.federation.protocol.bounds import MAX_DESCRIPTION, READY_MADE_ENTRIES
from psofed.federation.protocol.corruption import check_rehearsal
from psofed.federation.protocol.layout import ColumnNames, listed
from psofed.federation.protocol.masks import PATTERNS
from psofed.federation.protocol.run_options import RunOptions
from psofed.parts.base import Aggregation, Defence, PreAggregation
from psofed.scenario import Data, Scenario
from psofed.settings.data import StreamSettings

_SERVER_ONLY = ("aggregation", "aggregation_options", "pre_aggregation", "defence")
_MOST_SYNTHETIC = 10**7  # numbers that describe a synthetic fleet


class RunSettings(RunOptions):
    """A run of online regression with PSO-Fed by real clients: a scenario, and the options of the run.

    The scenario gives D, M, |S_n|, μ, the selection, the rule and the number of rounds (its `iterations`). Its streams
    and attack are used only if the run is `synthetic`; a table is not, since each node brings its own rows.
    """

    scenario: Scenario = option(text="the scenario", check=lambda name, value: value, flag=None)
    resume: bool = option(default=False, text="continue from the checkpoint", flag=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_covered(self.scenario, self.synthetic)
        if (rows := self.scenario.data.rows) is not None:  # each node has its own; their columns are the run's
            reading = rows.source.reading
            if not self.leave_out:
                object.__setattr__(self, "leave_out", tuple(reading.leave_out))
            if reading.features and not self.features and self.target_column is None:
                object.__setattr__(self, "features", tuple(reading.features))
                object.__setattr__(self, "target_column", reading.target_column)
            object.__setattr__(self, "scenario", self.scenario.replace(data=Data()))
        if (columns := self.columns) is None:
            if self.scenario.model.kind != "linear" and not self.synthetic:
                problem = f'model.kind = "{self.scenario.model.kind}" makes features of the inputs'
                raise PsofedError(f"{problem}: name the inputs with --features and --target-column")
            return
        if self.synthetic:
            raise NotCoveredError("features name columns of tables; a synthetic run has none")
        if self.scenario.model.kind == "linear" and len(columns.features) != self.scenario.dimension:
            count, dimension = len(columns.features), self.scenario.dimension
            problem = f"{count} features ({listed(columns.features)}) where the run's dimension is {dimension}"
            raise PsofedError(f"{problem}; add --set dimension={count}")

    @classmethod
    def planned(cls, scenario: Scenario, options: Mapping[str, Any], *, fixed_length: bool = True) -> "RunSettings":
        """Make the settings of a run; where `options` leave it open, a scenario with a table runs as it was simulated.

        Nodes learn one row a round, and the run waits for `num_participants` clients. Unless its length is fixed, it is
        longer by the rows that only feed the nodes' means.
        """
        values, rows = dict(options), scenario.data.rows
        if rows is None:
            return cls(scenario=scenario, **values)
        reading = rows.source.reading
        values = {"samples_per_round": 1, "min_nodes": scenario.num_participants, **values}
        settings = cls(scenario=scenario, **values)
        rounds = scenario.iterations + (0 if fixed_length else reading.warmup)
        return settings.replace(scenario=settings.scenario.replace(iterations=rounds))

    @property
    def num_rounds(self) -> int:
        """How many rounds to run; 0 until stopped."""
        return self.scenario.iterations if self.rounds is None else self.rounds

    @property
    def columns(self) -> ColumnNames | None:
        """The names of the columns, None if they have none."""
        return ColumnNames.of_user(self.features, self.target_column)

    @property
    def input_dimension(self) -> int:
        """d, the number of inputs: D, unless the model makes features of them."""
        if self.scenario.model.kind == "linear":
            return self.scenario.dimension
        columns = self.columns
        return self.scenario.data.input_dimension or 1 if columns is None else len(columns.features)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "scenario"}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {**plain, "scenario": self.scenario.to_toml()}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "RunSettings":
        """Read what :meth:`to_mapping` gave."""
        return cls(**{**mapping, "scenario": Scenario.from_mapping(parse_toml(str(mapping["scenario"])))})

    @classmethod
    def for_client(cls, mapping: Mapping[str, Any], *, attack: bool = False) -> "RunSettings":
        """Read what concerns a client, `attack` included or not; a PsofedError refuses what a node cannot hold.

        How the server joins uploads and whom it watches is not a client's affair, nor is the attack an honest one's. So
        a client need not have a plugin with somebody's own rule.
        """
        if len(text := str(mapping.get("scenario", ""))) > MAX_DESCRIPTION:
            raise PsofedError(f"the server's scenario is longer than {MAX_DESCRIPTION:,} characters")
        scenario = parse_toml(text)
        for name in (*_SERVER_ONLY, *(() if attack else ("attack",))):
            scenario.pop(name, None)
        settings = cls(**{**mapping, "scenario": Scenario.from_mapping(scenario)})
        _check_size(settings.scenario)
        return settings


def _check_size(scenario: Scenario) -> None:
    """Raise PsofedError if a scenario from a server describes more than a node can hold."""
    clients, dimension = scenario.num_clients, scenario.dimension
    numbers = clients * dimension * (dimension if scenario.data.input_correlation else 1)
    for count, most, what in (
        (dimension, READY_MADE_ENTRIES, "model has {:,} entries"),
        (numbers, _MOST_SYNTHETIC, "scenario describes its clients by {:,} numbers"),
    ):
        if count > most:
            raise PsofedError(f"the server's {what.format(count)}; a node takes at most {most:,}")


def _check_covered(scenario: Scenario, synthetic: bool) -> None:
    """Refuse what only the simulator can do."""
    for reason in _uncovered(scenario, synthetic):
        raise NotCoveredError(reason)
    _ = scenario.common_stepsize  # refuses stepsizes that differ between clients
    check_choice("selection.pattern", scenario.selection.pattern.kind, PATTERNS)
    if scenario.attack is not None:
        check_rehearsal(scenario.attack)


def _uncovered(scenario: Scenario, synthetic: bool) -> Iterator[str]:
    """Yield the reasons why a federation cannot run a scenario."""
    given = {"algorithm": scenario.algorithm.kind, "uplink": scenario.uplink}
    for name, value in {"algorithm": "pso-fed", "uplink": "same"}.items():
        if given[name] != value:
            yield f'a federation runs {name} = "{value}" only, not "{given[name]}"'
    if scenario.learner.kind != "lms":
        yield (
            f'learner.kind = "{scenario.learner.kind}": a federation\'s clients run LMS; '
            "other learners can only be simulated"
        )
    data = scenario.data
    if not data.stream.is_independent:
        yield (
            f'data.stream.kind = "{data.stream.kind}": a federation\'s inputs are what its clients observe; '
            "a stream can only be simulated"
        )
    if scenario.drift is not None:
        yield f'drift.kind = "{scenario.drift.kind}": a federation\'s data drift by themselves; leave out [drift]'
    if data.rows is not None:
        for name in ("warmup", "clip", "epochs"):
            value, fixed = getattr(data.rows.source.reading, name), StreamSettings.options()[name].default
            if value != fixed:
                yield f"data.{name} = {value}: a federation's nodes have {name} = {fixed}"
    if synthetic and data.rows is not None:
        yield "synthetic clients draw their data; this scenario's come from a table: leave out --synthetic"
    if synthetic and (data.function is not None or scenario.model.kind != "linear"):
        yield "synthetic clients draw linear streams, y = wᵀx + ν: leave out --synthetic, [data.function] and [model]"
    for name in ("availability", "delay"):
        if (part := getattr(scenario, name)) is not None:
            yield f'{name}.kind = "{part.kind}": real nodes come, go and answer late by themselves; leave [{name}] out'
    if scenario.channel is not None:
        if scenario.channel.down:
            kind = scenario.channel.down[0].kind
            yield f'channel.down.kind = "{kind}": a federation has real links; leave [channel.down] out'
        kinds = [channel.kind for channel in scenario.channel.up]
        if kinds not in ([], ["private"]):
            yield f'channel.up = {kinds}: a federation has real links; its clients may be "private", nothing else'
    if len(scenario.attacks) > 1:
        yield "several groups of attackers can only be simulated; a federation rehearses one attack"
    if scenario.defence is not None:
        check_defence(scenario.defence)
    check_rule(scenario.aggregation, scenario.pre_aggregation)


def check_rule(rule: Aggregation, pre: PreAggregation | None) -> None:
    """Refuse a rule that a federation cannot use."""
    if rule.has_root_data:
        raise NotCoveredError(f'aggregation = "{rule.kind}" needs root data on the server; a federation has none')
    rule.check_mixing(pre)


def check_defence(defence: Defence) -> None:
    """Refuse a defence that a federation cannot use."""
    if not defence.excluded_download:
        raise NotCoveredError("defence.excluded_download = false: in a federation every participant is sent its share")
    if defence.variance not in ("auto", "past"):
        raise NotCoveredError(
            f'defence.variance = "{defence.variance}": nodes come and go, so a federation compares each with its past'
        )
