"""All random numbers of one trial as plain arrays: the same draws as those of the fast engine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.draws import TargetMoves, draw_masks, draw_participants
from psofed.engine.learning import InputModel
from psofed.engine.normals import fill_standard_normal
from psofed.engine.samples import draw_test_instances
from psofed.engine.streams import Stream, make_stream
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.measured import table_samples
from psofed.parts.contexts import Innovation
from psofed.parts.watching import Watch
from psofed.scenario import Scenario
from reference.shocks import Shocks, draw_shocks


@dataclass(frozen=True, eq=False)
class Draws:
    """The draws of one trial over N iterations.

    Attributes
    ----------
    inputs : array (N, K, D)
        x_{k,n}, or its features.
    noise : array (N, K)
        ν_{k,n}: the label less wᵀx, so for non-linear streams also what the best weights leave.
    participants, uploaders : bool array (N, K)
        a_{k,n} of the download and of the upload; the same unless the uplink is redrawn.
    download_masks, upload_masks : bool array (N, K, D)
        Diagonals of S_{k,n} and of S_{k,n+1}.
    shocks : Shocks
        Who attacks when, and the random numbers of the attack.
    test_inputs, test_noise : array (N_t, D), array (N_t,)
        The server's test set.
    moves : array (N, D)
        w*_n − w*_0, 0 unless the target drifts.
    """

    inputs: FloatArray
    noise: FloatArray
    participants: NDArray[np.bool_]
    uploaders: NDArray[np.bool_]
    download_masks: NDArray[np.bool_]
    upload_masks: NDArray[np.bool_]
    shocks: Shocks
    test_inputs: FloatArray
    test_noise: FloatArray
    moves: FloatArray


@dataclass(frozen=True, eq=False)
class ReferenceRun:
    """Models and errors of the recursion, iteration by iteration.

    Attributes
    ----------
    models : array (N + 1, K + 1, D)
        w_n (row 0) and w_{k,n} (rows 1 … K) at the start of each iteration, and after the last.
    network_mse, server_msd, test_mse, honest_mse : array (N,)
        The metrics of each iteration; the last where it is asked for.
    watch : Watch or None
        What a defence has kept; None without one.
    """

    models: FloatArray
    network_mse: FloatArray
    server_msd: FloatArray
    test_mse: FloatArray
    watch: Watch | None = None
    honest_mse: FloatArray | None = None


def draw_trial(scenario: Scenario, seed: int, trial: int) -> Draws:
    """Make all draws of a trial at once; memory grows with iterations × clients × dimension.

    Examples
    --------
    >>> draws = draw_trial(Scenario(num_clients=6, dimension=3, num_shared=2, iterations=4), seed=1, trial=0)
    >>> draws.inputs.shape, draws.participants.sum(axis=1).tolist()
    ((4, 6, 3), [5, 5, 5, 5])
    >>> bool((draws.upload_masks[:-1] == draws.download_masks[1:]).all())
    True
    """
    streams = {
        source: make_stream(seed, source, [trial])
        for source in ("data", "participation", "uplink", "masks", "attack", "test")
    }
    fleet = draw_fleet(scenario)
    inputs, noise = _draw_data(scenario, fleet, streams["data"])
    participants = _draw_participants(scenario, streams["participation"])
    redrawn = scenario.uplink == "redrawn"
    masks = _draw_masks(scenario, streams["masks"])
    instances = draw_test_instances(scenario, fleet, streams["test"])[:, :, 0]
    return Draws(
        inputs=inputs,
        noise=noise,
        participants=participants,
        uploaders=_draw_participants(scenario, streams["uplink"]) if redrawn else participants,
        download_masks=masks[:-1],
        upload_masks=masks[1:],
        shocks=draw_shocks(
            scenario.attack if len(scenario.attacks) < 2 else None,  # groups have their own
            streams["attack"],
            fleet.byzantine_mask(scenario.attack),
            scenario.iterations,
            scenario.dimension,
        ),
        test_inputs=instances[:, :-1],
        test_noise=instances[:, -1],
        moves=_draw_moves(scenario, seed, trial),
    )


def draw_mix_uniforms(scenario: Scenario, seed: int, trial: int, n: int, clients: NDArray[np.int64]) -> FloatArray:
    """Return the random numbers in [0, 1) of the pre-aggregation for the `clients` in iteration n."""
    stream, count = make_stream(seed, "pre_aggregation", [trial]), scenario.num_clients
    return np.asarray(draw_uniforms(stream, n * count, count)[clients])


def draw_uniforms(stream: Stream, first: int, count: int) -> FloatArray:
    """Return the numbers in [0, 1) of words `first` … `first + count − 1` of a stream of one trial, shape (count,)."""
    words = stream.words(first, count)[:, 0]
    return np.asarray(2.0**-53 * (words >> np.uint64(11)).astype(np.float64))


def _draw_moves(scenario: Scenario, seed: int, trial: int) -> FloatArray:
    if scenario.drift is None:
        return np.zeros((scenario.iterations, scenario.dimension))
    moves = TargetMoves(scenario.drift, scenario.dimension, make_stream(seed, "drift", [trial]))
    return moves.draw(0, scenario.iterations)[:, :, 0]


def _draw_data(scenario: Scenario, fleet: Fleet, stream: Stream) -> tuple[FloatArray, FloatArray]:
    count, clients, dimension = scenario.iterations, scenario.num_clients, scenario.input_dimension
    if scenario.data.rows is not None:
        rows = table_samples(scenario)[1].chunk(0, count)
        return rows.inputs[..., 0], rows.residuals[..., 0]
    words = (dimension + 2) // 2
    column = np.empty((2 * words * clients * count, 1), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, column)
    normals = column.reshape(count, clients, 2 * words).astype(np.float64)
    model = InputModel(fleet)
    if not scenario.data.stream.is_independent:
        inputs = _draw_over_time(scenario, model.scale, normals[..., :dimension])
    elif model.factors.size:
        inputs = np.einsum("kij,nkj->nki", model.factors, normals[..., :dimension])
    else:
        inputs = model.scale[:, None] * normals[..., :dimension]
        for i in range(1, dimension if model.correlation else 0):
            fresh = (1 - model.correlation**2) ** 0.5
            inputs[..., i] = model.correlation * inputs[..., i - 1] + fresh * inputs[..., i]
    noise = np.sqrt(fleet.noise_variance) * normals[..., dimension]
    if fleet.target_offsets is not None:
        # Seen from the common target, what a client's own adds to its labels is noise.
        noise = noise + np.einsum("nki,ki->nk", inputs, fleet.target_offsets)
    return (inputs, noise) if scenario.is_linear else _features_of(scenario, fleet, inputs, noise)


def _draw_over_time(scenario: Scenario, deviation: FloatArray, normals: FloatArray) -> FloatArray:
    """Return the inputs (N, K, d) that the stream makes of standard normals, as its Python source says."""
    stream, inputs = scenario.data.stream, np.zeros_like(normals)
    count, clients, dimension = normals.shape
    for k in range(clients):
        memory = np.zeros(stream.memory_size(dimension))
        for n in range(count):
            stream.draw(Innovation(normals[n, k], float(deviation[k]), k, n), memory, inputs[n, k])
    return inputs


def _features_of(
    scenario: Scenario, fleet: Fleet, inputs: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the features of inputs and f(x) + ν − w°ᵀz, with f as its Python source says."""
    assert scenario.data.function is not None
    labels = np.apply_along_axis(scenario.data.function.value, -1, inputs)
    z = scenario.model.make_features(fleet.input_dimension, scenario.dimension)(inputs)
    return z, labels + noise - z @ fleet.target


def _draw_participants(scenario: Scenario, stream: Stream) -> NDArray[np.bool_]:
    chosen = draw_participants(stream, 0, scenario.iterations, scenario.num_clients, scenario.num_participants)
    return _indicator(chosen[:, 0], scenario.num_clients)


def _draw_masks(scenario: Scenario, stream: Stream) -> NDArray[np.bool_]:
    # One more than there are iterations: the last upload already uses the mask of the next.
    shape = (scenario.iterations + 1, scenario.num_clients)
    everyone = np.broadcast_to(np.arange(scenario.num_clients, dtype=np.int32), shape)[:, None].copy()
    entries = draw_masks(scenario, np.array(stream), 0, len(everyone), everyone)[:, 0]
    return _indicator(np.broadcast_to(entries, (*shape, scenario.num_shared)), scenario.dimension)


def _indicator(indices: NDArray[np.int32], size: int) -> NDArray[np.bool_]:
    out = np.zeros((*indices.shape[:-1], size), np.bool_)
    np.put_along_axis(out, indices.astype(np.int64), True, axis=-1)
    return out
