"""Requirements of parts that see the uploads of several clients: attacks, rules and pre-aggregations."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import contexts
from psofed.parts.affine import Affine
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Attack, PreAggregation
from psofed.parts.plain import LARGEST, combine_uploads, corrupt_uploads, mix_uploads


def check_attack(attack: Any, rng: np.random.Generator) -> Iterator[str]:
    """Check that it has one method of attack, copes with few uploads, and states the right moments."""
    methods = [name for name in Attack.methods if getattr(type(attack), name) is not getattr(Attack, name)]
    if len(methods) != 1:
        yield "it must have one of corrupt(self, upload), craft(self, conspiracy, out) and poison(self, sample)"
    elif attack.knows not in contexts.KNOWLEDGE:
        yield f"knows = {attack.knows!r} is not one of {', '.join(contexts.KNOWLEDGE)}"
    elif not isinstance(attack.strength, int | float):
        yield f"its strength, {type(attack).strength_field()}, is not a number"
    elif not attack.poisons_samples():
        yield from _check_few_uploads(attack)
        yield from _check_statement(attack, attack.affine(), rng)


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


def _check_statement(attack: Any, statement: Any, rng: np.random.Generator) -> Iterator[str]:
    if not isinstance(statement, Affine) or attack.knows not in ("upload", "server"):
        return
    if np.ndim(statement.variance) or np.ndim(statement.common_variance):
        return  # noise that depends between entries is not a multiple of one normal per entry
    upload, server, normals, common = rng.normal(size=(4, 200))
    received = _corrupt(attack, upload[None], np.array([True]), server, normals, common)[0]
    received = np.where(np.abs(received) <= LARGEST, received, server)  # under the mean, what is not sent
    expected = statement.own * upload + statement.server * server + statement.offset
    noise = statement.variance**0.5 * normals + statement.common_variance**0.5 * common
    if not np.allclose(received, expected + noise, rtol=1e-9, atol=1e-9):
        yield f"affine() states {statement}, but corrupt does something else"


def _corrupt(attack: Any, uploads: Any, attacking: Any, server: Any, normals: Any, common: Any = None) -> Any:
    shape = uploads.shape
    return corrupt_uploads(
        attack, uploads, attacking, server=server, clients=np.arange(shape[0]), iteration=0,
        normals=np.broadcast_to(normals, shape), common_normals=np.zeros(shape[1]) if common is None else common,
    )  # fmt: skip


def check_rule(rule: Any, rng: np.random.Generator) -> Iterator[str]:
    """Check that only finite values that were sent move the model, and that their order does not matter.

    Of a pre-aggregation the mean of the mixed uploads is checked.
    """
    if getattr(rule, "over", "entries") not in ("entries", "vectors"):
        yield f'over = {rule.over!r} is neither "entries" nor "vectors"'
        return
    server = rng.normal(size=6)
    for participants in (1, 2, 3, 7):
        uniforms, shape = rng.random(participants), (participants, 6)
        if isinstance(rule, PreAggregation) and not 1 <= rule.uploads_after(participants) <= participants:
            count = rule.uploads_after(participants)
            yield f"uploads_after({participants}) is {count}; it must be between 1 and {participants}"
            return
        uploads = np.where(rng.random(shape) < 0.6, rng.standard_t(2, shape), np.nan)
        moved = _combine(rule, uploads, server, uniforms)
        if moved.shape != server.shape or not np.isfinite(moved).all():
            yield f"with {participants} participants its result is not a finite model"
            return
        untouched = ~np.isfinite(uploads).any(axis=0)
        if not np.array_equal(moved[untouched], server[untouched]):
            yield "an entry that nobody sent is moved"
        turned = _combine(rule, uploads[::-1], server, uniforms[::-1])
        if not np.allclose(moved, turned, rtol=1e-9, atol=1e-12):
            yield "its result depends on the order of the participants"
        spoilt = np.where(rng.random(shape) < 0.5, np.inf, uploads)
        if not np.isfinite(_combine(rule, spoilt, server, uniforms)).all():
            yield "infinite uploads reach the model"
    if not np.array_equal(_combine(rule, np.full((3, 6), np.nan), server, rng.random(3)), server):
        yield "the model moves although nobody sent anything"


def _combine(rule: Any, uploads: FloatArray, server: FloatArray, uniforms: FloatArray) -> FloatArray:
    if not isinstance(rule, PreAggregation):
        return combine_uploads(rule, uploads, server, np.linspace(-0.01, 0.01, server.size))
    mixed = mix_uploads(rule, uploads, server, uniforms=uniforms)
    moved = combine_uploads(Mean(), mixed, server)
    return np.where(np.isinf(mixed).any(axis=0), np.inf, moved)
