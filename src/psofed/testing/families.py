"""Requirements of each family of parts: results of its method, and moments that the part states of itself."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import contexts
from psofed.parts.base import Learner
from psofed.parts.part import call_with_memory, takes_memory
from psofed.testing.uploads import check_attack, check_rule

_SIZE = 3


def check_family(part: Any) -> Iterator[str]:
    """Check that the part's methods keep the rules of its family, and that its statements are true."""
    rng = np.random.default_rng(6)
    yield from check_memory(part)
    yield from _check_results(part, rng)
    yield from _STATEMENTS.get(part.family, lambda part, rng: ())(part, rng)


def check_memory(part: Any) -> Iterator[str]:
    """Check that a method takes the memory that its part says it keeps, where that is a choice."""
    if part.family not in ("attack", "availability", "channel", "delay"):
        return
    base, size = part._family_base(), part.memory_size(_SIZE)
    for method in (name for name in part.methods if getattr(type(part), name) is not getattr(base, name)):
        takes = takes_memory(getattr(type(part), method))
        if takes and not size:
            yield f"{method} takes a memory, but memory_size is 0"
        elif size and not takes and method != "craft":
            yield f"memory_size is {size}, but {method} has no argument `memory` (after the first)"


def _check_results(part: Any, rng: np.random.Generator) -> Iterator[str]:
    """Call a method twice from the same memory: its results must be the same finite numbers of the right shape."""
    memory = _first_memory(part)
    for n in range(20):
        method, seen, shape = _argument(part, n, rng)
        if not method:
            return
        before, results = memory.copy(), []
        for fill, state in ((1.0, memory), (2.0, before)):
            out = [np.full(_SIZE, fill)] if method in ("learn", "draw") else []
            bound = getattr(part, method)
            always_remembers = method in ("learn", "draw", "suspicion")  # else where the method takes it
            result = bound(seen, state, *out) if always_remembers else call_with_memory(bound, seen, state)
            results.append(np.asarray(out[0] if out else result))
        if results[0].shape != shape or not np.isfinite(results[0]).all():
            yield f"{method} gives {results[0].tolist()} instead of {shape[0] if shape else 'a'} finite number(s)"
            return
        if not np.array_equal(results[0], results[1]):
            yield f"{method} leaves entries of `out` unwritten, or keeps something outside of its memory"
            return
        value = float(results[0].flat[0])
        if part.family == "delay" and (value != int(value) or value > part.longest_delay()):
            yield f"duration returns {value:g} instead of an integer up to longest_delay() = {part.longest_delay()}"
            return
        if part.family == "defence" and value < 0.0:
            yield f"suspicion returns {value:g} instead of at least 0"
            return


def _argument(part: Any, n: int, rng: np.random.Generator) -> tuple[str, Any, tuple[int, ...]]:
    """Return a method, an argument for it, and the shape of its result; no method where another check calls it."""
    normals, x = rng.normal(size=(2, _SIZE))
    match part.family:
        case "drift":
            return "move", contexts.Step(n, x, normals, np.eye(_SIZE)[0]), (_SIZE,)
        case "learner" if part.steps_along_input():
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


def _check_learner(learner: Any, rng: np.random.Generator) -> Iterator[str]:
    if learner.steps_along_input() and type(learner).learn is not Learner.learn:
        yield "it has both gain and learn; it must have one of them"


def _check_pattern(pattern: Any, rng: np.random.Generator) -> Iterator[str]:
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


def _check_stream(stream: Any, rng: np.random.Generator) -> Iterator[str]:
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


def _check_availability(availability: Any, rng: np.random.Generator) -> Iterator[str]:
    shares, clients, iterations = availability.shares(4, 0), 4, 4000
    if shares.shape != (clients,) or (shares < 0).any() or (shares > 1).any():
        yield f"time_share gives {shares!r} instead of a share between 0 and 1 for each client"
        return
    memory, once = np.zeros((clients, availability.memory_size(_SIZE))), rng.random(clients)
    is_present = np.zeros((iterations + 1, clients), bool)
    for n, k in np.ndindex(iterations, clients):
        seen = contexts.Presence(
            n, k, clients, float(shares[k]), float(rng.random()), float(once[k]), bool(is_present[n, k])
        )
        answer = call_with_memory(availability.is_available, seen, memory[k])
        if answer not in (True, False):
            yield f"is_available returns {answer!r} instead of true or false"
            return
        is_present[n + 1, k] = answer
    means = is_present[1:].mean(axis=0)
    if np.abs(means - shares).max() > 0.25:  # spells may last long, so that only gross mistakes show
        yield f"clients are available for {means} of the time instead of {shares}"


def _check_channel(channel: Any, rng: np.random.Generator) -> Iterator[str]:
    if channel.draws not in ("normals", "uniforms", "none"):
        yield f'draws = {channel.draws!r} is not "normals", "uniforms" or "none"'
        return
    size, variance = 4000, channel.added_variance()
    normals = rng.normal(size=size if channel.draws == "normals" else 0)
    uniforms = rng.random(size if channel.draws == "uniforms" else 0)
    values, out = 0.1 * rng.normal(size=size), np.full(size, np.pi)
    message = contexts.Transmission(values, np.zeros(size), np.arange(size), 0, 0, normals, uniforms, 0.999999)
    call_with_memory(channel.transmit, message, np.zeros(channel.memory_size(size)), out)
    if (out == np.pi).any():
        yield "transmit does not write every value into `out`"
    elif variance is not None:
        error = out - values
        if abs(error.mean()) > 5.0 * (variance / size) ** 0.5 + 1e-12:
            yield "added_variance states noise of mean zero, but transmit shifts the values"
        elif abs(np.mean(error**2) - variance) > 5.0 * variance * (2.0 / size) ** 0.5 + 1e-12:
            yield f"added_variance states {variance:g}, but transmit adds noise of another variance"
    if not isinstance(channel.bits_after(64), int) or channel.bits_after(64) < 1:
        yield f"bits_after(64) is {channel.bits_after(64)!r} instead of a number of bits"


def _check_delay(delay: Any, rng: np.random.Generator) -> Iterator[str]:
    for client, n in ((0, 0), (1, 0), (0, 1)) if delay.chances() is not None else ():
        departures = [contexts.Departure(client, n, (place + 0.5) / 500) for place in range(500)]
        memory = _first_memory(delay)
        durations = np.array([call_with_memory(delay.duration, seen, memory) for seen in departures])
        for duration, chance in enumerate(delay.chances()):
            if abs(np.mean(durations == duration) - chance) > 0.01:
                yield f"chances() states {chance:g} for a delay of {duration}, which duration does not follow"
                return


def _check_defence(defence: Any, rng: np.random.Generator) -> Iterator[str]:
    ahead, back = np.zeros((2, defence.memory_size))
    for n in range(20):
        seen = _argument(defence, n, rng)[1]
        turned = seen._replace(scores=seen.scores[::-1].copy())
        if not np.isclose(defence.suspicion(seen, ahead), defence.suspicion(turned, back), rtol=1e-9):
            yield "its suspicion depends on the order of the values in an upload"
            return


def _check_algorithm(algorithm: Any, rng: np.random.Generator) -> Iterator[str]:
    from psofed.testing.check import scenario_with

    traffic = algorithm.traffic(scenario_with(algorithm))
    most = max(traffic.bits_up, traffic.bits_down)
    if min(traffic.bits_up, traffic.bits_down) < 0:
        yield "traffic() counts no bits"
    if traffic.exchanges_before(1000) * most > 1000 * traffic.budget:
        yield "traffic() spends more than the budget of PSO-Fed"


def _check_model(model: Any, rng: np.random.Generator) -> Iterator[str]:
    z = model.make_features(4, 4)(np.zeros((2, 4)))
    if z.shape != (2, 4):
        yield f"make_features(4, 4) makes {z.shape[1]} features instead of 4"


_STATEMENTS: dict[str, Callable[[Any, np.random.Generator], Iterator[str]]] = {
    "attack": check_attack, "aggregation": check_rule, "pre_aggregation": check_rule, "learner": _check_learner,
    "pattern": _check_pattern, "stream": _check_stream, "availability": _check_availability,
    "channel": _check_channel, "delay": _check_delay, "defence": _check_defence, "algorithm": _check_algorithm,
    "model": _check_model,
}  # fmt: skip
