"""What a run of the ready-made app does: one frozen, validated description, also as Flower's config."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from psofed.common.errors import NotCoveredError
from psofed.common.toml import parse_toml
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number
from psofed.federation.protocol.masks import MAX_SEED, PATTERNS
from psofed.federation.server.checks import ReplyLimits
from psofed.parts.aggregations.mean import Mean
from psofed.scenario import Scenario

_SERVER_ONLY = ("aggregation", "aggregation_options", "pre_aggregation", "defence")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A run of online regression with PSO-Fed by real clients.

    Parameters
    ----------
    scenario : Scenario
        D, M, |S_n|, μ, the selection and the number of rounds (its `iterations`). Its data and attack are
        used only if `synthetic`.
    seed : int
        Seed of masks, participants and, if `synthetic`, of data and attack.
    deadline : float
        Seconds after which a round ends with those who have answered.
    interval : float
        Seconds from the beginning of a round to that of the next, at least.
    samples_per_round : int
        q: samples that arrive at each client per round; 0 for whatever arrives.
    synthetic : bool
        The clients draw their data from the scenario, so that the outcome can be compared with theory.
    dtype : str
        Number type of the model, ``"float64"`` or ``"float32"``.
    min_nodes, wait_for_nodes, newcomers, sync_every
        See :class:`psofed.federation.PSOFed`.
    bench_after, rest_rounds, patience, grace, max_magnitude, max_deviation, max_drift, max_examples
        See :class:`psofed.federation.server.checks.ReplyLimits`; a `max_magnitude`, `max_deviation` or `max_drift` of 0
        is no bound. `max_drift` is used with the mean only, and not in `synthetic` runs: theory knows no such
        bound.
    resume : bool
        Go on from the checkpoint.
    """

    scenario: Scenario
    seed: int = 0
    deadline: float = 60.0
    interval: float = 0.0
    samples_per_round: int = 1
    synthetic: bool = False
    dtype: str = "float64"
    min_nodes: int = 1
    wait_for_nodes: float = 120.0
    newcomers: str = "zeros"
    sync_every: int = 0
    bench_after: int = 3
    rest_rounds: int = 2
    patience: float = 3.0
    grace: float = 10.0
    max_magnitude: float = 0.0
    max_deviation: float = 10.0
    max_drift: float = 2.0
    max_examples: int = 1_000_000
    resume: bool = False

    def __post_init__(self) -> None:
        _check_covered(self.scenario, self.synthetic)
        check_integer("seed", self.seed, 0, MAX_SEED)
        check_number("deadline", self.deadline, 0, open_low=True)
        check_number("interval", self.interval, 0)
        check_integer("samples_per_round", self.samples_per_round, 0)
        check_boolean("synthetic", self.synthetic)
        check_choice("dtype", self.dtype, ("float64", "float32"))
        check_boolean("resume", self.resume)
        check_integer("sync_every", self.sync_every, 0)
        check_number("max_magnitude", self.max_magnitude, 0)
        check_number("max_deviation", self.max_deviation, 0)
        check_number("max_drift", self.max_drift, 0)
        self.limits  # noqa: B018 - made to check the rest

    @property
    def _may_drift(self) -> bool:
        """Whether the rule follows a patient node, and the outcome is not to be compared with theory."""
        return isinstance(self.scenario.aggregation, Mean) and not self.synthetic

    @property
    def limits(self) -> ReplyLimits:
        """The limits on replies."""
        return ReplyLimits(
            max_magnitude=self.max_magnitude or None,
            max_deviation=self.max_deviation or None,
            max_drift=self.max_drift or None if self._may_drift else None,
            max_examples=self.max_examples,
            bench_after=self.bench_after,
            rest_rounds=self.rest_rounds,
            patience=self.patience,
            grace=self.grace,
        )

    def to_config(self) -> dict[str, str | int | float | bool]:
        """Return the flat mapping that Flower carries to server and clients."""
        config = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        config["scenario"] = self.scenario.to_toml()
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunSettings":
        """Read what :meth:`to_config` gave; Flower may have turned 60.0 into 60 on the way."""
        return cls._read(config, Scenario.from_toml(str(config["scenario"])))

    @classmethod
    def for_client(cls, config: Mapping[str, Any], *, attack: bool = False) -> "RunSettings":
        """Read what concerns a client, `attack` included or not.

        How the server joins uploads and whom it watches is not a client's affair, nor is the attack an honest one's. So
        a client need not have a plugin with somebody's own rule.
        """
        scenario = parse_toml(str(config["scenario"]))
        for name in (*_SERVER_ONLY, *(() if attack else ("attack",))):
            scenario.pop(name, None)
        return cls._read(config, Scenario.from_mapping(scenario))

    @classmethod
    def _read(cls, config: Mapping[str, Any], scenario: Scenario) -> "RunSettings":
        """Read a mapping; what an older version did not write is as it was then, which is the default."""
        names = {field.name: field.name.replace("_", "-") for field in fields(cls)}
        values = {field: config[name] for field, name in names.items() if name in config}
        return cls(**{**values, "scenario": scenario})


def _check_covered(scenario: Scenario, synthetic: bool) -> None:
    """Refuse what only the simulator can do."""
    given = {"algorithm": scenario.algorithm.kind, "uplink": scenario.uplink}
    for name, value in {"algorithm": "pso-fed", "uplink": "same"}.items():
        if given[name] != value:
            raise NotCoveredError(f'a federation runs {name} = "{value}" only, not "{given[name]}"')
    if scenario.model.kind != "linear":
        raise NotCoveredError(
            f'a federation\'s clients fit linear models, not model.kind = "{scenario.model.kind}"; '
            "let them make features of their inputs before they learn"
        )
    if scenario.drift is not None:
        raise NotCoveredError(
            f'drift.kind = "{scenario.drift.kind}": a federation\'s data move as they do; a drift can only be simulated'
        )
    if synthetic and scenario.data.function is not None:
        raise NotCoveredError(
            f'data.function = "{scenario.data.function.kind}": synthetic clients draw linear streams, y = wᵀx + ν'
        )
    check_choice("selection.pattern", scenario.selection.pattern.kind, PATTERNS)
    if scenario.defence is not None and not scenario.defence.excluded_download:
        raise NotCoveredError(
            "defence.excluded_download = false: in a federation every participant is sent its share"
        )
    if scenario.defence is not None and scenario.defence.variance == "theory":
        raise NotCoveredError(
            'defence.variance = "theory": nodes come and go, so in a federation their variances are estimated'
        )
    if scenario.evasion is not None:
        raise NotCoveredError("[evasion] is measured in a simulation; a federation does not measure it")
    if scenario.aggregation.has_root_data:
        raise NotCoveredError(
            f'aggregation = "{scenario.aggregation.kind}" needs root data of the server, which a federation has not'
        )
