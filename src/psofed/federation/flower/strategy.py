"""PSO-Fed as a Flower strategy: the federation's server on Flower's Grid."""

import logging
from collections.abc import Callable
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.federation.flower.hub import GridHub
from psofed.federation.flower.models import arrays_of, numpy_of
from psofed.federation.protocol.layout import Arrays
from psofed.federation.server.checks import mean_of
from psofed.federation.server.loop import Server

_log = logging.getLogger("psofed.federation")


class PSOFed(Server, Strategy):
    """Partial sharing of any model's parameters, resilient to model poisoning, in a Flower ServerApp.

    It has the parameters of :class:`psofed.federation.server.loop.Server`. ClientApps must use the mod
    :func:`psofed.federation.flower.sharing.partial_sharing`.

    Examples
    --------
    >>> strategy = PSOFed(num_shared=0.1, num_participants=5, seed=1)
    >>> strategy.sharing.pattern
    'random'

    In a ServerApp: ``strategy.start(grid, initial_arrays=model.state_dict(), num_rounds=100)``.
    """

    def start(
        self,
        grid: Grid,
        initial_arrays: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds up to `num_rounds`, each for at most `timeout` seconds, and return Flower's result.

        With ``num_rounds=0`` it runs until Flower ends the run. The result has the metrics of the latest 1,000 rounds,
        those of ClientApps averaged over clients. See :meth:`psofed.federation.server.loop.Server.run`.

        Parameters
        ----------
        initial_arrays : ArrayRecord or model
            Anything that :func:`psofed.federation.flower.models.arrays_of` takes.
        train_config : ConfigRecord, optional
            Passed on to the training functions: texts, numbers and flags.
        evaluate_fn : callable, optional
            Given a round and the model, returns metrics or None.
        """
        if evaluate_config is not None:
            raise NotCoveredError(
                "evaluate_config: PSOFed does not evaluate on clients; let training report metrics, or use evaluate_fn"
            )
        if self.settings:
            raise NotCoveredError("settings: Flower's nodes get no description of the run; use train_config")
        result = Result()

        def evaluate(round_number: int, arrays: Arrays) -> MetricRecord | None:
            metrics = evaluate_fn(round_number, arrays_of(arrays)) if evaluate_fn else None
            if metrics is not None:
                result.evaluate_metrics_serverapp[round_number] = metrics
            return metrics

        initial = numpy_of(arrays_of(initial_arrays))
        if not self.resume:
            evaluate(0, initial)
        state = self.run(GridHub(grid), initial, num_rounds, timeout, config=_plain(train_config), evaluate=evaluate)
        for entry in state.history:
            averages = MetricRecord({**mean_of(list(entry["metrics"].values()))})
            result.train_metrics_clientapp[entry["round"]] = averages
        result.arrays = arrays_of(state.layout.restore(state.model, state.kept))
        return result

    def summary(self) -> None:
        """Log the settings."""
        _log.info("PSO-Fed: %s", ", ".join(f"{name} {value}" for name, value in self._fixed().items()))

    def configure_train(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the server's loop asks clients itself."""
        raise NotCoveredError(
            "PSOFed runs its own rounds (start), so it cannot be wrapped in another strategy; for private uploads use "
            "partial_sharing(privacy=…)"
        )

    configure_evaluate: Any = configure_train
    aggregate_train: Any = configure_train
    aggregate_evaluate: Any = configure_train


def _plain(config: ConfigRecord | None) -> dict[str, str | int | float | bool]:
    plain: dict[str, str | int | float | bool] = {}
    for name, value in (config or {}).items():
        if not isinstance(value, str | int | float | bool):
            raise InvalidValueError(f"train_config[{name!r}]", value, "a text, a number or a flag")
        plain[name] = value
    return plain
