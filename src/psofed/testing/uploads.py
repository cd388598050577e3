"""Requirements of the families that see uploads: attacks, aggregations, pre-aggregations and defences."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import contexts
from psofed.parts.affine import Affine
from psofed.parts.base import Attack
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, combine_uploads, corrupt_uploads, mix_uploads


def check_attack(attack: Any) -> Iterator[str]:
    """Check that it has one method of attack, copes with few uploads, and states the right moments."""
    own = type(attack)
    has = (own.corrupt is not Attack.corrupt, own.craft is not Attack.craft, own.poison is not Attack.poison)
    if sum(has) != 1:
        yield "it must have one of corrupt(self, upload), craft(self, conspiracy, out) and poison(self, sample)"
        return
    if attack.knows not in contexts.KNOWLEDGE:
        yield f"knows = {attack.knows!r} is not one of {', '.join(contexts.KNOWLEDGE)}"
        return
    if not isinstance(attack.strength, int | float):
        yield f"its strength, {type(attack).strength_field()}, is not a number"
    method = "poison" if has[2] else "craft" if has[1] else "corrupt"
    if not has[1]:
        yield from check_takes_memory(attack, method)
    if takes_memory(getattr(own, method)) and not attack.memory_size(3):
        yield f"{method} takes a memory, but memory_size is 0"
    if not attack.poisons_samples():
        yield from _check_few_uploads(attack)
        yield from _check_statement(attack, attack.affine())


def _check_few_uploads(attack: Any) -> Iterator[str]:
    """Try corner cases: no honest client, a single client, an entry shared by one client only."""
    for participants in (1, 2, 5):
        for attacking in (np.ones(participants, bool), np.arange(participants) < 1):
            uploads = np.where(np.eye(participants, 5) > 0, 1.5, np.nan)
            try:
                _corrupt(attack, uploads, attacking, np.zeros(5), np.zeros(5))
            except Exception as error:
                honest = participants - int(attacking.sum())
                yield (
                    f"it fails with {type(error).__name__}: {error} on uploads of {participants} participant(s), "
                    f"{honest} of them honest, who share no entry"
                )
                return


def _check_statement(attack: Any, statement: Any) -> Iterator[str]:
    if not isinstance(statement, Affine) or attack.knows not in ("upload", "server"):
        return
    if np.ndim(statement.variance) or np.ndim(statement.common_variance):
        return  # noise that depends between entries is not a multiple of one normal per entry
    rng = np.random.default_rng(0)
    uploads, server = rng.normal(size=(1, 200)), rng.normal(size=200)
    normals, common = rng.normal(size=200), rng.normal(size=200)
    received = _corrupt(attack, uploads, np.array([True]), server, normals, common)[0]
    received = np.where(np.abs(received) <= LARGEST, received, server)  # under the mean, what is not sent
    expected = statement.own * uploads[0] + statement.server * server + statement.offset
    noise = statement.variance**0.5 * normals + statement.common_variance**0.5 * common
    if not np.allclose(received, expected + noise, rtol=1e-9, atol=1e-9):
        yield f"affine() states {statement}, but corrupt does something else"


def _corrupt(attack: Any, uploads: Any, attacking: Any, server: Any, normals: Any, common: Any = None) -> Any:
    shape = uploads.shape
    return corrupt_uploads(
        attack, uploads, attacking, server=server, clients=np.arange(shape[0]), iteration=0,
        normals=np.broadcast_to(normals, shape), common_normals=np.zeros(shape[1]) if common is None else common,
    )  # fmt: skip


def check_aggregation(rule: Any) -> Iterator[str]:
    """Check that only finite values that were sent move the model, and that their order does not matter."""
    if rule.over not in ("entries", "vectors"):
        yield f'over = {rule.over!r} is neither "entries" nor "vectors"'
        return
    rng = np.random.default_rng(1)
    server, step = rng.normal(size=6), 0.01 * rng.normal(size=6)
    for participants in (1, 2, 3, 7):
        uploads = _draw_uploads(rng, participants)
        moved = combine_uploads(rule, uploads, server, step)
        if moved.shape != server.shape or not np.isfinite(moved).all():
            yield f"with {participants} participants its result is not a finite model"
            return
        untouched = ~np.isfinite(uploads).any(axis=0)
        if not np.array_equal(moved[untouched], server[untouched]):
            yield "an entry that nobody sent is moved"
        turned = combine_uploads(rule, uploads[::-1], server, step)
        if not np.allclose(moved, turned, rtol=1e-9, atol=1e-12):
            yield "its result depends on the order of the participants"
        if not np.isfinite(combine_uploads(rule, _with_infinities(rng, uploads), server, step)).all():
            yield "infinite uploads reach the model"
    silent = np.full((3, 6), np.nan)
    if not np.array_equal(combine_uploads(rule, silent, server, step), server):
        yield "the model moves although nobody sent anything"


def check_defence(defence: Any) -> Iterator[str]:
    """Check that its suspicion is a finite number that does not depend on the order of the values."""
    rng = np.random.default_rng(5)
    if not isinstance(defence.memory_size, int) or defence.memory_size < 1:
        yield f"memory_size = {defence.memory_size!r} is not an integer of at least 1"
        return
    for count in (1, 2, 5):
        ahead, back = np.zeros(defence.memory_size), np.zeros(defence.memory_size)
        for n in range(30):
            scores = rng.standard_t(3, count) * (1.0 if n < 20 else 1000.0)
            given = np.clip(scores, -1000.0, 1000.0)
            one = defence.suspicion(contexts.Evidence(given, 0, n), ahead)
            other = defence.suspicion(contexts.Evidence(given[::-1].copy(), 0, n), back)
            if not is_number(one) or one < 0 or not np.isfinite(ahead).all():
                yield f"suspicion returns {one!r} instead of a finite number of at least 0"
                return
            if not np.isclose(one, other, rtol=1e-9):
                yield "its suspicion depends on the order of the values in an upload"
                return


def check_pre_aggregation(pre: Any) -> Iterator[str]:
    """Check that only finite values that were sent are mixed, and that their order does not matter."""
    from psofed.parts.aggregations.mean import Mean

    rng, mean = np.random.default_rng(5), Mean()
    server = rng.normal(size=6)
    for participants in (1, 2, 3, 7):
        uploads = _draw_uploads(rng, participants)
        uniforms = rng.random(participants)
        count = pre.uploads_after(participants)
        if not 1 <= count <= participants:
            yield f"uploads_after({participants}) is {count}; it must be between 1 and {participants}"
            return
        mixed = mix_uploads(pre, uploads, server, uniforms=uniforms)
        if np.isinf(mixed).any():
            yield f"with {participants} participants a mixed upload is not finite"
        untouched = ~np.isfinite(uploads).any(axis=0)
        if np.isfinite(mixed[:, untouched]).any():
            yield "a mixed upload has an entry that nobody sent"
        turned = mix_uploads(pre, uploads[::-1], server, uniforms=uniforms[::-1])
        first, second = (combine_uploads(mean, each, server) for each in (mixed, turned))
        if not np.allclose(first, second, rtol=1e-9, atol=1e-12):
            yield "the mean of the mixed uploads depends on the order of the participants"
        if np.isinf(mix_uploads(pre, _with_infinities(rng, uploads), server, uniforms=uniforms)).any():
            yield "infinite uploads reach a mixed upload"
    if np.isfinite(mix_uploads(pre, np.full((3, 6), np.nan), server, uniforms=rng.random(3))).any():
        yield "mixed uploads are not empty although nobody sent anything"


def check_takes_memory(part: Any, method: str) -> Iterator[str]:
    """Check that a method takes the memory that its part says it keeps."""
    size = part.memory_size(3)
    if size and not takes_memory(getattr(type(part), method)):
        yield f"memory_size is {size}, but {method} has no argument `memory` (after the first)"


def is_number(value: Any) -> bool:
    """Tell whether a value is one finite number."""
    return np.ndim(value) == 0 and bool(np.isfinite(value))


def _draw_uploads(rng: np.random.Generator, participants: int) -> FloatArray:
    """Return uploads (participants, 6) with far-off values; NaN where an entry is not shared."""
    shape = (participants, 6)
    return np.where(rng.random(shape) < 0.6, rng.standard_t(2, shape), np.nan)


def _with_infinities(rng: np.random.Generator, uploads: FloatArray) -> FloatArray:
    return np.where(rng.random(uploads.shape) < 0.5, np.inf, uploads)
