"""Requirements of each family of parts: results of its methods, and moments that the part states of itself."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import contexts
from psofed.parts.affine import Affine
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.part import call_with_memory, takes_memory
from psofed.parts.plain import LARGEST, combine_uploads, corrupt_uploads, mix_uploads

Problems = Iterator[str]

_SIZE = 3


def check_family(part: Any) -> Problems:
    """Check that the part's methods keep the rules of its family, and that its statements are true."""
    rng = np.random.default_rng(6)
    yield from check_memory(part)
    yield from _check_results(part, rng)
    yield from _STATEMENTS.get(part.family, lambda part, rng: ())(part, rng)


def check_memory(part: Any) -> Problems:
    """Check that it has one method of several, which takes the memory that the part says it keeps."""
    own = [name for name in part.methods if part.defines(name)]
    if len(own) > 1:
        yield f"it must have one of {', '.join(part.methods)}; it has {' and '.join(own)}"
    if part.family not in ("attack", "availability", "channel", "delay"):
        return
    for method in own:
        takes, size = takes_memory(getattr(type(part), method)), part.memory_size(_SIZE)
        if takes and not size:
            yield f"{method} takes a memory, but memory_size is 0"
        elif size and not takes and method != "craft":
            yield f"memory_size is {size}, but {method} has no argument `memory` (after the first)"


def _check_results(part: Any, rng: np.random.Generator) -> Problems:
    """Call a method twice from the same memory: its results must be the same finite numbers of the right shape."""
    memory = _first_memory(part)
    for n in range(20):
        method, seen, shape = _argument(part, n, rng)
        if not method:
            return
        results = []
        for out, state in ((np.full(_SIZE, 1.0), memory.copy()), (np.full(_SIZE, 2.0), memory)):
            bound = getattr(part, method)
            if method in ("learn", "draw"):
                bound(seen, state, out)
                results.append(out)
            else:
                remembers = method == "suspicion"  # others where they take it
                result = bound(seen, state) if remembers else call_with_memory(bound, seen, state)
                results.append(np.asarray(result))
        problem: str = ""
        value: Any = results[0].tolist()
        if results[0].shape != shape or not np.isfinite(results[0]).all():
            problem = f"gives {value} instead of {shape[0] if shape else 'a'} finite number(s)"
        elif not np.array_equal(results[0], results[1]):
            problem = "leaves entries of `out` unwritten, or keeps something outside of its memory"
        elif part.family == "delay" and (value != int(value) or value > part.longest_delay()):
            problem = f"returns {value:g} instead of an integer up to longest_delay() = {part.longest_delay()}"
        elif part.family == "defence" and value < 0.0:
            problem = f"returns {value:g} instead of at least 0"
        if problem:
            yield f"{method} {problem}"
            return


def _argument(part: Any, n: int, rng: np.random.Generator) -> tuple[str, Any, tuple[int, ...]]:
    """Return a method, an argument for it, and the shape of its result; no method where another check calls it."""
    normals, x = rng.normal(size=(2, _SIZE))
    match part.family:
        case "drift":
            return "move", contexts.Step(n, x, normals, np.eye(_SIZE)[0]), (_SIZE,)
        case "learner" if part.defines("gain"):
            return "gain", contexts.Residual(float(n % 3 - 1), float(n % 2), 0.1, 0, n), ()
        case "learner":
            return "learn", contexts.Observation(x, float(n % 3 - 1), normals, 0.1, 0, n), (_SIZE,)
        case "stream" if not part.is_independent:
            return "draw", contexts.Innovation(normals, 1.0, 0, n), (_SIZE,)
        case "function":
            return "value", min(n, 1) * rng.normal(size=part.num_inputs or _SIZE), ()
        case "delay":
            return "duration", contexts.Departure(0, n, float(rng.random())), ()
        case "defence":
            scores = rng.standard_t(3, 1 + n % 5) * (1.0 if n < 15 else 1000.0)
            return "suspicion", contexts.Evidence(np.clip(scores, -1000.0, 1000.0), 0, n), ()
    return "", None, ()


def _first_memory(part: Any) -> FloatArray:
    if part.family == "learner":
        return np.array(part.initial_memory(_SIZE), np.float64)
    size = getattr(part, "memory_size", 0)
    return np.zeros(size if isinstance(size, int) else size(_SIZE) if part.family in ("stream", "delay") else 0)


# --- statements ------------------------------------------------------------------------------------------------------


def _check_attack(attack: Any, rng: np.random.Generator) -> Problems:
    """Check that it copes with few uploads, and states the right moments."""
    if attack.knows not in contexts.KNOWLEDGE:
        yield f"knows = {attack.knows!r} is not one of {', '.join(contexts.KNOWLEDGE)}"
    elif not isinstance(attack.strength, int | float):
        yield f"its strength, {type(attack).strength_field()}, is not a number"
    elif not attack.defines("poison"):
        yield from _check_few_uploads(attack)
        yield from _check_affine(attack, attack.affine(), rng)


def _check_few_uploads(attack: Any) -> Problems:
    """Try corner cases: no honest client, a single client, an entry shared by one client only."""
    for participants, attackers in ((1, 1), (2, 1), (2, 2), (5, 1), (5, 5)):
        uploads = np.where(np.eye(participants, 5) > 0, 1.5, np.nan)
        try:
            _corrupt(attack, uploads, np.arange(participants) < attackers, *np.zeros((3, 5)))
        except Exception as error:
            who = f"{participants} participant(s), {participants - attackers} of them honest"
            yield f"it fails with {type(error).__name__}: {error} on uploads of {who}, who share no entry"
            return


def _check_affine(attack: Any, statement: Any, rng: np.random.Generator) -> Problems:
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


def _corrupt(attack: Any, uploads: Any, attacking: Any, server: Any, normals: Any, common: Any) -> Any:
    return corrupt_uploads(
        attack, uploads, attacking, server=server, clients=np.arange(len(uploads)), iteration=0,
        normals=np.broadcast_to(normals, uploads.shape), common_normals=common,
    )  # fmt: skip


def _check_rule(rule: Any, rng: np.random.Generator) -> Problems:
    """Check that only finite values that were sent move the model, and that their order does not matter.

    Of a pre-aggregation the mean of the mixed uploads is checked.
    """
    server, over = rng.normal(size=6), getattr(rule, "over", "entries")
    if over not in ("entries", "vectors"):
        yield f'over = {over!r} is neither "entries" nor "vectors"'
        return
    for participants in (1, 2, 3, 7):
        uniforms, shape = rng.random(participants), (participants, 6)
        count = rule.uploads_after(participants) if rule.family == "pre_aggregation" else 1
        if not 1 <= count <= participants:
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
        if not np.allclose(moved, _combine(rule, uploads[::-1], server, uniforms[::-1]), rtol=1e-9, atol=1e-12):
            yield "its result depends on the order of the participants"
        spoilt = np.where(rng.random(shape) < 0.5, np.inf, uploads)
        if not np.isfinite(_combine(rule, spoilt, server, uniforms)).all():
            yield "infinite uploads reach the model"
    if not np.array_equal(_combine(rule, np.full((3, 6), np.nan), server, rng.random(3)), server):
        yield "the model moves although nobody sent anything"


def _combine(rule: Any, uploads: FloatArray, server: FloatArray, uniforms: FloatArray) -> FloatArray:
    if rule.family == "aggregation":
        return combine_uploads(rule, uploads, server, np.linspace(-0.01, 0.01, server.size))
    mixed = mix_uploads(rule, uploads, server, uniforms=uniforms)
    return np.where(np.isinf(mixed).any(axis=0), np.inf, combine_uploads(Mean(), mixed, server))


def _check_pattern(pattern: Any, rng: np.random.Generator) -> Problems:
    for shared in range(1, 6):
        stated, out = pattern.mask_moments(5, shared), np.zeros(shared, np.int64)
        masks = np.zeros((50 if stated is None else 4000, 5))
        for n in range(len(masks)):
            pattern.select(contexts.Mask(n, 1, 5, shared, rng.random(shared), float(rng.random())), out)
            if len(set(out.tolist())) != shared or out.min() < 0 or out.max() >= 5:
                yield f"select writes {out.tolist()} instead of {shared} distinct entries between 0 and 4"
                return
            masks[n, out] = 1.0
        if stated is None:
            continue
        if np.shape(stated[1]) not in ((), (5, 5)):
            yield "mask_moments states second moments that are neither a number nor a matrix (D, D)"
            return
        error, pairs = 2.25 / len(masks) ** 0.5, masks.T @ masks / len(masks) - stated[1]
        if np.abs(masks.mean(axis=0) - stated[0]).max() > error:
            yield f"mask_moments states E[S(i)] = {stated[0]:g}, but the masks drawn have another mean"
        elif np.abs(pairs[~np.eye(5, dtype=bool)]).max() > error:
            yield "mask_moments states other second moments than the masks drawn have"


def _check_stream(stream: Any, rng: np.random.Generator) -> Problems:
    correlation, chains = stream.input_correlation(), 400
    if stream.is_independent or correlation is None:
        return
    inputs, entries = np.zeros((chains, _SIZE)), np.arange(_SIZE)
    for out in inputs:
        memory = _first_memory(stream)
        for n in range(6):
            stream.draw(_argument(stream, n, rng)[1], memory, out)
    stated = correlation ** np.abs(entries[:, None] - entries)
    if np.abs(inputs.T @ inputs / chains - stated).max() > 4.5 * (2.0 / chains) ** 0.5:
        yield f"input_correlation states {correlation:g}, but the inputs have another covariance"


def _check_availability(availability: Any, rng: np.random.Generator) -> Problems:
    shares, clients, iterations = availability.shares(4, 0), 4, 4000
    if shares.shape != (clients,) or (shares < 0).any() or (shares > 1).any():
        yield f"time_share gives {shares!r} instead of a share between 0 and 1 for each client"
        return
    memory, once = np.zeros((clients, availability.memory_size(_SIZE))), rng.random(clients)
    is_present = np.zeros((iterations + 1, clients), bool)
    for n, k in np.ndindex(iterations, clients):
        chances = float(shares[k]), float(rng.random()), float(once[k])
        seen = contexts.Presence(n, k, clients, *chances, bool(is_present[n, k]))
        answer = call_with_memory(availability.is_available, seen, memory[k])
        if answer not in (True, False):
            yield f"is_available returns {answer!r} instead of true or false"
            return
        is_present[n + 1, k] = answer
    means = is_present[1:].mean(axis=0)
    if np.abs(means - shares).max() > 0.25:  # spells may last long, so that only gross mistakes show
        yield f"clients are available for {means} of the time instead of {shares}"


def _check_channel(channel: Any, rng: np.random.Generator) -> Problems:
    if channel.draws not in ("normals", "uniforms", "none"):
        yield f'draws = {channel.draws!r} is not "normals", "uniforms" or "none"'
        return
    size, variance = 4000, channel.added_variance()
    normals = rng.normal(size=size if channel.draws == "normals" else 0)
    uniforms = rng.random(size if channel.draws == "uniforms" else 0)
    values, out = 0.1 * rng.normal(size=size), np.full(size, np.pi)
    message = contexts.Transmission(values, np.zeros(size), np.arange(size), 0, 0, normals, uniforms, 0.999999)
    call_with_memory(channel.transmit, message, np.zeros(channel.memory_size(size)), out)
    error = out - values
    if (out == np.pi).any():
        yield "transmit does not write every value into `out`"
    elif variance is not None and abs(error.mean()) > 5.0 * (variance / size) ** 0.5 + 1e-12:
        yield "added_variance states noise of mean zero, but transmit shifts the values"
    elif variance is not None and abs(np.mean(error**2) - variance) > 5.0 * variance * (2.0 / size) ** 0.5 + 1e-12:
        yield f"added_variance states {variance:g}, but transmit adds noise of another variance"
    if not isinstance(channel.bits_after(64), int) or channel.bits_after(64) < 1:
        yield f"bits_after(64) is {channel.bits_after(64)!r} instead of a number of bits"


def _check_delay(delay: Any, rng: np.random.Generator) -> Problems:
    for client, n in ((0, 0), (1, 0), (0, 1)) if delay.chances() is not None else ():
        departures = [contexts.Departure(client, n, (place + 0.5) / 500) for place in range(500)]
        memory = _first_memory(delay)
        durations = np.array([call_with_memory(delay.duration, seen, memory) for seen in departures])
        for duration, chance in enumerate(delay.chances()):
            if abs(np.mean(durations == duration) - chance) > 0.01:
                yield f"chances() states {chance:g} for a delay of {duration}, which duration does not follow"
                return


def _check_defence(defence: Any, rng: np.random.Generator) -> Problems:
    ahead, back = np.zeros((2, defence.memory_size))
    for n in range(20):
        seen = _argument(defence, n, rng)[1]
        turned = seen._replace(scores=seen.scores[::-1].copy())
        if not np.isclose(defence.suspicion(seen, ahead), defence.suspicion(turned, back), rtol=1e-9):
            yield "its suspicion depends on the order of the values in an upload"
            return


def _check_algorithm(algorithm: Any, rng: np.random.Generator) -> Problems:
    from psofed.testing.check import scenario_with

    traffic = algorithm.traffic(scenario_with(algorithm))
    if min(traffic.bits_up, traffic.bits_down) < 0:
        yield "traffic() counts no bits"
    if traffic.exchanges_before(1000) * max(traffic.bits_up, traffic.bits_down) > 1000 * traffic.budget:
        yield "traffic() spends more than the budget of PSO-Fed"


def _check_model(model: Any, rng: np.random.Generator) -> Problems:
    z = model.make_features(4, 4)(np.zeros((2, 4)))
    if z.shape != (2, 4):
        yield f"make_features(4, 4) makes {z.shape[1]} features instead of 4"


_STATEMENTS: dict[str, Callable[[Any, np.random.Generator], Problems]] = {
    "attack": _check_attack, "aggregation": _check_rule, "pre_aggregation": _check_rule, "pattern": _check_pattern,
    "stream": _check_stream, "availability": _check_availability, "channel": _check_channel, "delay": _check_delay,
    "defence": _check_defence, "algorithm": _check_algorithm, "model": _check_model,
}  # fmt: skip
