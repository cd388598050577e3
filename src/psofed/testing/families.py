"""Requirements of each family of parts, as checks that yield problems."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from psofed.parts import contexts
from psofed.parts.base import Learner
from psofed.parts.part import call_with_memory
from psofed.testing.uploads import (
    check_aggregation,
    check_attack,
    check_defence,
    check_pre_aggregation,
    check_takes_memory,
    is_number,
)


def check_pattern(pattern: Any) -> Iterator[str]:
    """Check that masks have M distinct entries and the stated moments."""
    rng, dimension = np.random.default_rng(2), 5
    for shared in range(1, dimension + 1):
        stated = pattern.mask_moments(dimension, shared)
        masks = np.zeros((4000 if stated is not None else 50, dimension))
        for n in range(len(masks)):
            out = np.zeros(shared, np.int64)
            pattern.select(
                contexts.Mask(n, 1, dimension, shared, rng.random(shared), float(rng.random())), out
            )
            if len(set(out.tolist())) != shared or out.min() < 0 or out.max() >= dimension:
                wanted = f"{shared} distinct entries between 0 and {dimension - 1}"
                yield f"select writes {out.tolist()} instead of {wanted}"
                return
            masks[n, out] = 1.0
        if stated is not None:
            first, second = stated
            error = 4.5 * 0.5 / len(masks) ** 0.5
            if np.abs(masks.mean(axis=0) - first).max() > error:
                yield f"mask_moments states E[S(i)] = {first:g}, but the masks drawn have another mean"
            elif np.shape(second) not in ((), (dimension, dimension)):
                yield "mask_moments states second moments that are neither a number nor a matrix (D, D)"
            elif (
                np.abs((masks.T @ masks / len(masks) - second)[~np.eye(dimension, dtype=bool)]).max() > error
            ):
                yield "mask_moments states other second moments than the masks drawn have"


def check_drift(drift: Any) -> Iterator[str]:
    """Check that it returns a finite vector of the right size."""
    rng = np.random.default_rng(3)
    for n in (0, 1, 50):
        after = np.asarray(
            drift.move(contexts.Step(n, np.zeros(3), rng.normal(size=3), np.array([1.0, 0.0, 0.0])))
        )
        if after.shape != (3,) or not np.isfinite(after).all():
            yield f"move returns {after!r} at iteration {n}, instead of 3 finite numbers"
            return


def check_learner(learner: Any) -> Iterator[str]:
    """Check that its step is finite and the same whenever it is taken from the same state."""
    rng, size = np.random.default_rng(6), 3
    if learner.steps_along_input():
        if type(learner).learn is not Learner.learn:
            yield "it has both gain and learn; it must have one of them"
        for error in (0.0, 1.0, -2.5):
            for power in (0.0, 1.0):
                gain = learner.gain(contexts.Residual(error, power, 0.1, 0, 0))
                if not is_number(gain):
                    yield f"gain returns {gain!r} for error {error} and power {power}, instead of a finite number"
                    return
        return
    first = np.asarray(learner.initial_memory(size), np.float64)
    if first.ndim != 1 or not np.isfinite(first).all():
        yield "initial_memory must return finite numbers in one dimension"
        return
    for n in range(3):
        x, model = rng.normal(size=size), rng.normal(size=size)
        changes = np.zeros((2, size))
        for change in changes:
            learner.learn(contexts.Observation(x.copy(), 0.5, model.copy(), 0.1, 0, n), first.copy(), change)
        if not np.isfinite(changes).all():
            yield f"learn writes {changes[0].tolist()} instead of {size} finite numbers"
            return
        if not np.array_equal(changes[0], changes[1]):
            yield "learn keeps something outside of its memory"
            return


def check_stream(stream: Any) -> Iterator[str]:
    """Check that its inputs are finite, depend on its memory alone, and have the stated covariance."""
    if stream.is_independent:
        return
    rng, size, chains = np.random.default_rng(7), 3, 400
    inputs = np.zeros((2, chains, size))
    for chain in range(chains):
        memories = np.zeros((2, stream.memory_size(size)))
        for n in range(6):
            normals = rng.normal(size=size)
            for memory, out in zip(memories, inputs[:, chain], strict=True):
                out[:] = 0.0
                stream.draw(contexts.Innovation(normals.copy(), 1.0, 0, n), memory, out)
    if not np.isfinite(inputs).all():
        yield "draw writes numbers that are not finite"
    elif not np.array_equal(inputs[0], inputs[1]):
        yield "draw keeps something outside of its memory"
    elif (correlation := stream.input_correlation()) is not None:
        entries = np.arange(size)
        stated = correlation ** np.abs(entries[:, None] - entries)
        if np.abs(inputs[0].T @ inputs[0] / chains - stated).max() > 4.5 * (2.0 / chains) ** 0.5:
            yield f"input_correlation states {correlation:g}, but the inputs have another covariance"


def check_function(function: Any) -> Iterator[str]:
    """Check that its values are finite."""
    rng, size = np.random.default_rng(4), function.num_inputs or 3
    for x in (np.zeros(size), *rng.normal(size=(20, size))):
        value = function.value(x)
        if not is_number(value):
            yield f"value({x.tolist()}) is {value!r} instead of a finite number"
            return


def check_algorithm(algorithm: Any) -> Iterator[str]:
    """Check that its exchange keeps within the budget."""
    from psofed.testing.check import scenario_with

    scenario = scenario_with(algorithm)
    traffic = algorithm.traffic(scenario)
    if min(traffic.bits_up, traffic.bits_down) < 0 or max(traffic.bits_up, traffic.bits_down) <= 0:
        yield "traffic() counts no bits"
    if traffic.exchanges_before(1000) * max(traffic.bits_up, traffic.bits_down) > 1000 * traffic.budget:
        yield "traffic() spends more than the budget of PSO-Fed"


def check_model(model: Any) -> Iterator[str]:
    """Check that its features have the promised shape."""
    z = model.make_features(4, 4)(np.zeros((2, 4)))
    if z.shape != (2, 4):
        yield f"make_features(4, 4) makes {z.shape[1]} features instead of 4"


def check_availability(availability: Any) -> Iterator[str]:
    """Check that it answers true or false, and that clients are available for the stated share of the time."""
    rng, clients, iterations = np.random.default_rng(6), 4, 4000
    shares = availability.shares(clients, 0)
    if shares.shape != (clients,) or (shares < 0).any() or (shares > 1).any():
        yield f"time_share gives {shares!r} instead of a share between 0 and 1 for each client"
        return
    yield from check_takes_memory(availability, "is_available")
    memory = np.zeros((clients, availability.memory_size(3)))
    there, once = np.zeros((iterations, clients), bool), rng.random(clients)
    for n in range(iterations):
        for k in range(clients):
            before = bool(there[n - 1, k]) if n else False
            presence = contexts.Presence(
                n, k, clients, float(shares[k]), float(rng.random()), float(once[k]), before
            )
            here = call_with_memory(availability.is_available, presence, memory[k])
            if here not in (True, False):
                yield f"is_available returns {here!r} instead of true or false"
                return
            there[n, k] = here
    # Spells may last long, so that only gross mistakes show.
    if np.abs(there.mean(axis=0) - shares).max() > 0.25:
        yield f"clients are available for {there.mean(axis=0)} of the time instead of {shares}"


def check_channel(channel: Any) -> Iterator[str]:
    """Check that it fills its output, keeps the stated moments, and counts bits."""
    if channel.draws not in ("normals", "uniforms", "none"):
        yield f'draws = {channel.draws!r} is not "normals", "uniforms" or "none"'
        return
    rng, size, nothing = np.random.default_rng(7), 4000, np.zeros(0)
    values, out = 0.1 * rng.normal(size=size), np.full(size, np.pi)
    message = contexts.Transmission(
        values, np.zeros(size), np.arange(size), 0, 0,
        rng.normal(size=size) if channel.draws == "normals" else nothing,
        rng.random(size) if channel.draws == "uniforms" else nothing, 0.999999,
    )  # fmt: skip
    yield from check_takes_memory(channel, "transmit")
    call_with_memory(channel.transmit, message, np.zeros(channel.memory_size(size)), out)
    if (out == np.pi).any():
        yield "transmit does not write every value into `out`"
        return
    variance = channel.added_variance()
    if variance is not None:
        error = out - values
        if abs(error.mean()) > 5.0 * (variance / size) ** 0.5 + 1e-12:
            yield "added_variance states noise of mean zero, but transmit shifts the values"
        elif abs(np.mean(error**2) - variance) > 5.0 * variance * (2.0 / size) ** 0.5 + 1e-12:
            yield f"added_variance states {variance:g}, but transmit adds noise of another variance"
    if not isinstance(channel.bits_after(64), int) or channel.bits_after(64) < 1:
        yield f"bits_after(64) is {channel.bits_after(64)!r} instead of a number of bits"


def check_delay(delay: Any) -> Iterator[str]:
    """Check that delays are integers up to the longest, with the stated chances."""
    rng, longest = np.random.default_rng(8), delay.longest_delay()
    if not isinstance(longest, int) or longest < 0:
        yield f"longest_delay() is {longest!r} instead of an integer of at least 0"
        return
    yield from check_takes_memory(delay, "duration")
    memory = np.zeros((5, delay.memory_size(3)))
    for n in range(200):
        given = call_with_memory(
            delay.duration, contexts.Departure(n % 5, n, float(rng.random())), memory[n % 5]
        )
        if int(given) != given or given > longest:
            yield f"duration returns {given!r} instead of an integer up to longest_delay() = {longest}"
            return
    chances, uniforms = delay.chances(), (np.arange(500) + 0.5) / 500
    for client, n in ((0, 0), (1, 0), (0, 1)) if chances is not None else ():
        departures = (contexts.Departure(client, n, float(u)) for u in uniforms)
        given = np.array([call_with_memory(delay.duration, seen, memory[client]) for seen in departures])
        for duration, chance in enumerate(chances):
            if abs(np.mean(given == duration) - chance) > 0.01:
                yield f"chances() states {chance:g} for a delay of {duration}, which duration does not follow"
                return


_ALL = (
    check_attack, check_aggregation, check_defence, check_pre_aggregation, check_pattern, check_drift, check_learner,
    check_stream, check_function, check_algorithm, check_model, check_availability, check_channel, check_delay,
)  # fmt: skip
CHECKS: dict[str, Callable[[Any], Iterator[str]]] = {
    check.__name__.removeprefix("check_"): check for check in _ALL
}
