"""Learning from a stream: the training that works through all samples since the last call.

Which samples belong before the server's values and which after? A client that was left out for r − 1 rounds
finds, when it is called, all the samples of r rounds. The newest ⌈pending / r⌉ are this round's and are
learned after the download; the older ones arrived while it was left out and are learned before it, on its own
model, as the paper's unselected clients do. With q samples a round these are exactly the q of this round and
the (r − 1) q of those before, so one sample a round gives the paper's recursion exactly.

A long-lived client does not wait to be called: :meth:`OnlineRegression.learn_arrived` learns from each sample as it
arrives, and a call then finds next to nothing pending.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.validation import check_boolean, check_integer, check_number
from psofed.data.standardise import Standardiser
from psofed.federation.client.gateway import CURRENT, MISSED, TrainingRequest, TrainingResult, check_finite
from psofed.federation.client.sources import Position, Samples, SharedTable, Source, TableSource, most_samples
from psofed.federation.client.state import ClientState, MemoryStore
from psofed.federation.protocol.layout import ColumnNames
from psofed.parts.features import FeatureMap

STREAM = "psofed.stream"
BACKLOG = 20  # rows that a file may hold before its run begins without a remark
ALL_AT_ONCE = "each round takes all rows that the file holds (the run's --samples-per-round 1 takes one)"
_NO_ERRORS: NDArray[np.float64] = np.empty(0)
_ERRORS_KEPT = 65_536  # of samples that were learned since the last reply
_ERRORS_REPORTED = 1024  # rounds whose mean squared error is reported in one reply, at most


class OnlineRegression:
    """Linear regression by LMS on a stream, as the training of a gateway that catches up.

    e = y − wᵀz(x), w ← w + μ z(x) e for each sample, once. Reports the mean squared a-priori error ``mse``, and
    ``squared-errors``, the mean of e² in each round since the last call, up to ``last-round``.

    Parameters
    ----------
    source : Source
        The client's samples.
    stepsize : float
        μ.
    samples_per_round : int
        q: how many samples arrive per round; by round n at most n q are read. 0: all available samples.
    scaled : bool, optional
        Standardise online, as :func:`psofed.read_data` does (see :mod:`psofed.data.standardise`); by default if the
        source is a table.
    features : FeatureMap, optional
        z, such as random Fourier features; by default z(x) = x.
    """

    def __init__(
        self,
        source: Source,
        stepsize: float,
        samples_per_round: int = 0,
        *,
        scaled: bool | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        self.source = source
        self.stepsize: float = check_number("stepsize", stepsize, 0, open_low=True)
        self.samples_per_round: int = check_integer("samples_per_round", samples_per_round, 0)
        self.scaled: bool = isinstance(source, TableSource) if scaled is None else check_boolean("scaled", scaled)
        self.features = features
        self.problem: str = ""
        self._chosen: tuple[ColumnNames | None, Source] | None = None

    def learn(self, request: TrainingRequest) -> TrainingResult:
        """Work through all samples since the last call, as far as they belong to the request's phase."""
        model, records, n, phase = request.model, request.records, request.round_number, request.phase
        columns, elapsed = request.layout.columns, request.elapsed
        stream = read_stream(records)
        limit = most_samples(model.size)
        if self.samples_per_round:
            limit = max(0, min(limit, self.samples_per_round * n - stream.position.samples))
        pending = self._read(stream, limit, columns)
        if phase == MISSED:
            pending = self._read(stream, split_pending(len(pending), elapsed)[0], columns)
        stream = self._learn(model.reshape(-1), stream, pending)
        metrics = _report(stream.errors, elapsed - 1 if phase == MISSED else 1, n, phase)
        metrics["samples-read"] = stream.position.samples
        remark, warning = self._remark(stream), self._skipped(stream)
        if limit == 0 and not stream.examples:
            remark = f"no sample is due: this client has read its {self.samples_per_round} a round"
        takes_all = isinstance(self.source, TableSource) and not self.samples_per_round
        if phase == CURRENT and takes_all and stream.position.samples > BACKLOG + 2 * n:
            # Far more than one or two rows a round: those of a file that was there before.
            warning = f"{warning}; {ALL_AT_ONCE}" if warning else ALL_AT_ONCE
        kept = {**records, STREAM: replace(stream, examples=0, errors=_NO_ERRORS)}
        return TrainingResult(model, request.kept, kept, stream.examples, metrics, remark, warning)

    def learn_arrived(self, state: ClientState) -> ClientState | None:
        """Learn from what has arrived since the last call, on the client's own model; None if there was nothing.

        This is what the paper's clients do in the rounds they are not selected for. It does nothing for samples that
        are counted out by round.
        """
        if self.samples_per_round:
            return None
        stream = read_stream(state.records)
        pending = self._read(stream, most_samples(state.model.size), state.layout.columns)
        if pending.end == stream.position:
            return None
        model = state.model.copy()
        stream = self._learn(model, stream, pending)
        stream = replace(stream, errors=stream.errors[-_ERRORS_KEPT:])
        return replace(state, model=check_finite(model), records={**state.records, STREAM: stream})

    def _read(self, stream: "ClientStream", limit: int, columns: ColumnNames | None) -> Samples:
        if self._chosen is None or self._chosen[0] != columns:
            if isinstance(self.source, TableSource):
                self._chosen = columns, self.source.choose(columns)
            elif columns is not None:
                raise PsofedError(f"this node's columns have no names; the run's columns are {columns}")
            else:
                self._chosen = columns, self.source
        pending = self._chosen[1].read(stream.position, limit)
        self.problem = pending.problem or self.problem
        if not self.scaled and np.isnan(pending.inputs).any():
            raise PsofedError("values are missing, which only scaled data may have")
        return pending

    def _learn(self, model: NDArray[Any], stream: "ClientStream", pending: Samples) -> "ClientStream":
        """Learn samples into `model`, and return where the stream is then."""
        inputs, targets = pending.inputs, pending.targets
        scaling = stream.scaling
        if self.scaled:
            scaling = Standardiser(inputs.shape[1]) if scaling is None else copy.copy(scaling)
            pairs = [scaling.take(x, float(y)) for x, y in zip(inputs, targets, strict=True)]
            samples = [pair for pair in pairs if pair is not None]
            inputs = np.array([x for x, _ in samples]).reshape(len(samples), inputs.shape[1])
            targets = np.array([y for _, y in samples])
        if self.features is not None:
            inputs = self.features(inputs)
        errors = lms(model, inputs, targets, self.stepsize)
        examples, errors = stream.examples + len(errors), np.concatenate([stream.errors, errors])
        return ClientStream(pending.end, examples, errors, scaling)

    def _remark(self, stream: "ClientStream") -> str:
        """Return why nothing was learned; empty if something was."""
        position, scaling = stream.position, stream.scaling
        if stream.examples:
            return ""
        skipped = f"; {text}" if (text := self._skipped(stream)) else ""
        if not position.samples:
            return "no sample read" + (skipped or (f" ({self.problem})" if self.problem else ""))
        if scaling is not None and scaling.rows <= scaling.warmup:
            return f"the first {scaling.warmup} rows only feed the running means{skipped}"
        if scaling is not None and not scaling.is_ready:
            return f"the target was {scaling.target_mean:g} in all of {scaling.rows} rows: nothing to learn{skipped}"
        return f"no new sample, {position.samples} were read so far{skipped}"

    def _skipped(self, stream: "ClientStream") -> str:
        """Return how many rows held no sample and why; empty if all rows did."""
        position = stream.position
        if not position.skipped:
            return ""
        reason = f" (the last: {self.problem})" if self.problem else ""
        return f"{position.skipped} of {position.samples + position.skipped} rows were skipped{reason}"


class Learners:
    """The clients of a node, each with its own stream.

    Parameters
    ----------
    source : Source or SharedTable
        The samples of the one client, or the table that holds those of many.
    make : callable
        Given a client's samples, returns its training.
    """

    def __init__(self, source: Source | SharedTable, make: Callable[[Source], OnlineRegression]) -> None:
        self.source = source
        self._make = make
        self._learners: dict[str, OnlineRegression] = {}

    @property
    def names(self) -> Callable[[], Sequence[str]] | None:
        """A function that returns the clients of a gateway; None if the node is not a gateway."""
        return self.source.names if isinstance(self.source, SharedTable) else None

    def learn(self, request: TrainingRequest) -> TrainingResult:
        """Let a client learn."""
        return self._of(request.client).learn(request)

    def learn_arrived(self, store: MemoryStore) -> None:
        """Let every client learn from what has arrived since the last call."""
        memory = store.held
        if memory is None:
            return
        present = memory.clients if self.names is None else set(self.names())
        changed, problems = {}, {}
        for client in [name for name in memory.clients if name in present]:
            try:
                following = self._of(client).learn_arrived(memory.clients[client])
            except PsofedError as error:
                problems[client] = str(error)
                continue
            if following is not None:
                changed[client] = following
        if changed:
            store.commit(memory, changed)
        for client, problem in problems.items():  # one is enough: the others' follow once it is fixed
            raise PsofedError(f"{client}: {problem}" if client else problem)

    def _of(self, client: str) -> OnlineRegression:
        if client not in self._learners:
            source = self.source.source(client) if isinstance(self.source, SharedTable) else self.source
            self._learners[client] = self._make(source)
        return self._learners[client]


@dataclass(frozen=True, eq=False)
class ClientStream:
    """Where a client is in its data, what it has learned since it last told the server, and how it scales."""

    position: Position = field(default_factory=Position)
    examples: int = 0
    errors: NDArray[np.float64] = field(default_factory=lambda: _NO_ERRORS)
    scaling: Standardiser | None = None

    def to_record(self) -> dict[str, Any]:
        """Return this value as a record."""
        scaling = None if self.scaling is None else self.scaling.to_mapping()
        return {**vars(self), "position": vars(self.position), "scaling": scaling}


def split_pending(pending: int, elapsed: int) -> tuple[int, int]:
    """Split pending samples into those of the missed rounds and those of the current one.

    Examples
    --------
    >>> split_pending(3, elapsed=3), split_pending(10, elapsed=3), split_pending(5, elapsed=1)
    ((2, 1), (6, 4), (0, 5))
    """
    current = -(-pending // elapsed)
    return pending - current, current


def lms(
    out: NDArray[Any], inputs: NDArray[np.float64], targets: NDArray[np.float64], stepsize: float
) -> NDArray[np.float64]:
    """Take one LMS step per sample, w ← w + μ x (y − wᵀx), in place, and return the a-priori errors.

    Parameters
    ----------
    out : array (D,)
        w, changed in place.
    inputs, targets : array (count, D), (count,)
        x and y.
    stepsize : float
        μ.

    Examples
    --------
    >>> w = np.zeros(2)
    >>> lms(w, np.array([[1.0, 0.0]]), np.array([2.0]), stepsize=0.5), w
    (array([2.]), array([1., 0.]))
    """
    errors = np.empty(len(targets))
    for i, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        errors[i] = y - out @ x
        out += stepsize * errors[i] * x
    return errors


def read_stream(records: Mapping[str, Any]) -> ClientStream:
    """Return how far the client that keeps `records` has come."""
    record = records.get(STREAM)
    if isinstance(record, ClientStream):
        return record
    if record is None:
        return ClientStream()
    scaling = None if record["scaling"] is None else Standardiser.from_mapping(record["scaling"])
    return ClientStream(Position(**record["position"]), record["examples"], record["errors"], scaling)


def _report(errors: NDArray[np.float64], rounds: int, n: int, phase: str) -> dict[str, Any]:
    """Return the metrics of a phase that has lasted some `rounds`, the last of which is n."""
    if not len(errors):
        return {}
    squared = np.square(errors)
    # As many samples belong to each round, but for one more or less in a stream that does not keep time.
    parts = np.array_split(squared, min(rounds, len(squared)))  # rounds beyond the samples would have none
    report: dict[str, Any] = {"squared-errors": [float(part.mean()) for part in parts][-_ERRORS_REPORTED:]}
    if phase == CURRENT:
        report |= {"mse": float(squared.mean()), "last-round": n}
    return report
