"""Which replies count: every check on a reply, client by client, and the record of bad replies."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.messages import FAILED, LEARNED, LEFT, LOST, PART, BadReplyError, Reply, decode_reply
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.exchange import Questions
from psofed.render.numbers import listed


def sort_replies(
    questions: Questions, frames: Mapping[int, bytes], state: ServerState, n: int, length: int, limits: ReplyLimits
) -> tuple[dict[str, Reply], dict[str, BadReplyError]]:
    """Return the valid replies of a round, and what was wrong with the others, both by client name.

    A frame that cannot be read is the fault of its node, and so of all its clients that were asked. `frames` are the
    replies by sequence number, `length` is M.
    """
    valid: dict[str, Reply] = {}
    bad: dict[str, BadReplyError] = {}
    for question in questions:
        try:
            if question.sequence not in frames:
                raise BadReplyError("no-reply")
            frame, count = frames[question.sequence], len(question.clients)
            answer = decode_reply(frame, count, length, state.layout.dtype)
            if (answer.session, answer.round_number) != (state.session, n):
                raise BadReplyError("stale-round", f"round {answer.round_number} of {answer.session}")
            if answer.error:
                raise BadReplyError("error", answer.error)
            parts = {part.client: part for part in answer.replies}
            if not parts.keys() | answer.refused.keys() <= question.clients.keys():
                raise BadReplyError("malformed", "answers for a client that was not asked")
        except BadReplyError as error:
            bad |= dict.fromkeys((client.name for client in question.clients.values()), error)
            continue
        for local, client in question.clients.items():
            try:
                if local in answer.refused:
                    raise answer.refused[local]
                if local not in parts:
                    raise BadReplyError("no-reply")
                _check(parts[local], question.tasks[local].kind, answer.digest, state.layout, limits)
                valid[client.name] = parts[local]
            except BadReplyError as error:
                bad[client.name] = error
    return valid, bad


def _check(part: Reply, kind: str, digest: str, layout: ModelLayout, limits: ReplyLimits) -> None:
    """Raise BadReplyError if one client's part of a well-formed reply cannot count."""
    if part.status == FAILED:
        raise BadReplyError("error", part.remark)
    if part.status == LOST and kind != PART:
        raise BadReplyError("malformed", "says that it needs the full model, which it was given")
    if part.status != LEARNED or part.values is None:
        return
    if not 0 <= part.num_examples <= limits.max_examples:
        raise BadReplyError("inflated-examples", f"{part.num_examples} of at most {limits.max_examples}")
    if count := int(np.isnan(part.values).sum()):
        raise BadReplyError("nan", f"{count} values")
    if count := int(np.isinf(part.values).sum()):
        raise BadReplyError("infinite", f"{count} values")
    # Clients that know no names of columns may say nothing about them.
    if (digest or layout.columns is not None) and digest != layout.digest:
        raise BadReplyError("wrong-columns", f"the run's columns are {layout.columns or 'without names'}")


_MOST_AVERAGES = 100
_METRIC_BYTES = 1000  # of each client, for each round since its last reply, that the history keeps
_VALUE_BYTES = 20  # of a number as JSON


def round_entry(
    state: ServerState, n: int, asked: Questions, valid: Mapping[str, Reply], dropped: Mapping[str, BadReplyError]
) -> dict[str, Any]:
    """Return the entry of round `n` in the history, as JSON holds it; clients go by their names.

    Values and bytes are those of the models' entries alone, as sent and as accepted. The metrics that are kept of a
    client are bounded by the rounds since its last reply, so that no client can fill the server's memory or disk.
    """
    valid, dropped = dict(sorted(valid.items())), dict(sorted(dropped.items()))
    clients = sorted(client.name for question in asked for client in question.clients.values())
    tasks = [task for question in asked for task in question.tasks.values()]
    down = sum(len(task.values) for task in tasks)
    up = sum(len(reply.values) for reply in valid.values() if reply.values is not None)
    left = [name for name, reply in valid.items() if reply.status == LEFT]
    remarks = {name: reply.remark for name, reply in valid.items() if reply.remark}
    learned = {name: reply for name, reply in valid.items() if reply.status == LEARNED}
    metrics: dict[str, dict[str, Any]] = {}
    for name, reply in valid.items():
        size, most = _size_of(reply.metrics), _METRIC_BYTES * max(1, n - max(0, state.seen.get(name, 0)))
        metrics[name] = finite_metrics(reply.metrics) if size <= most else {}
        if size > most:
            remarks[name] = f"about {size:,} bytes of metrics are left out; the history keeps {most:,}"
    return {
        "round": n,
        "participants": clients,
        "accepted": list(learned),
        "lost_state": [name for name, reply in valid.items() if reply.status == LOST],
        **({"left": left} if left else {}),
        "dropped": {name: error.kind for name, error in dropped.items()},
        "reasons": {name: error.detail for name, error in dropped.items() if error.detail},
        "remarks": remarks,
        "values_down": down,
        "values_up": up,
        "bytes_down": down * state.layout.dtype.itemsize,
        "bytes_up": up * state.layout.dtype.itemsize,
        "examples": sum(reply.num_examples for reply in learned.values()),
        "examples_by_node": {name: reply.num_examples for name, reply in learned.items()},
        "metrics": metrics,
    }


def mean_of(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Average each scalar over the clients that report it; lists and values that are not finite are left out.

    Only the 100 names that most clients report are averaged.

    Examples
    --------
    >>> mean_of([{"loss": 1.0}, {"loss": 3.0, "other": math.nan}])
    {'loss': 2.0}
    """
    means: dict[str, float] = {}
    for name, _ in Counter(name for report in reports for name in report).most_common(_MOST_AVERAGES):
        numbers = [report[name] for report in reports if isinstance(report.get(name), int | float)]
        finite = [value for value in numbers if math.isfinite(value)]
        if finite:
            means[name] = mean_without_overflow(finite)
    return means


def mean_without_overflow(values: Sequence[float]) -> float:
    """Return the mean of finite values, however large a Byzantine client may have made them.

    Examples
    --------
    >>> mean_without_overflow([1.5e308, 1.5e308]), mean_without_overflow([1.7976931348623157e308] * 3)
    (1.5e+308, 1.7976931348623157e+308)
    """
    try:
        return math.fsum(value / len(values) for value in values)
    except OverflowError:  # all are near the largest float, and their rounded parts add up to more than that
        return max(values, key=abs)


def finite_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as strict JSON holds them, None for what is not finite."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(entry) for entry in value]
        return value if math.isfinite(value) else None

    return {name: clean(value) for name, value in metrics.items()}


def _size_of(metrics: Mapping[str, Any]) -> int:
    """Return about how many bytes metrics take as JSON."""
    lengths = (len(value) if isinstance(value, list) else 1 for value in metrics.values())
    return sum(map(len, metrics)) + _VALUE_BYTES * sum(lengths)


def dropped_lines(dropped: Iterable[tuple[str, BadReplyError]]) -> Iterator[str]:
    """Yield a line for each kind of bad replies, so that a gateway's hundred clients cannot flood the log.

    Examples
    --------
    >>> error = BadReplyError("nan", "3 values")
    >>> list(dropped_lines([("a", error)])), list(dropped_lines([("a", error), ("b", error)]))
    (['dropped the reply of a: nan: 3 values'], ['dropped the replies of a and b: nan: 3 values'])
    """
    kinds: dict[str, list[tuple[str, BadReplyError]]] = {}
    for name, error in dropped:
        kinds.setdefault(error.kind, []).append((name, error))
    for bad in kinds.values():
        names = listed([name for name, _ in bad])
        yield f"dropped the {'reply' if len(bad) == 1 else 'replies'} of {names}: {bad[0][1]}"
