"""The frames of algorithms whose clients hold no model: one call of each body per participant and trial."""

import numpy as np

from psofed.common.types import FloatArray, IndexArray
from psofed.engine.bodies import NO_HOOK, Body, Frame, Hook, Unpack, make_hook
from psofed.engine.hooks import APPLY, DECODE, ENCODE
from psofed.parts.base import Algorithm
from psofed.parts.contexts import Message, Received


def exchange_hooks(algorithm: Algorithm) -> tuple[Hook, Hook, Hook]:
    """Return the hooks that encode, decode and apply."""
    encode = make_hook(algorithm, "encode", ENCODE, _make_encode)
    decode = make_hook(algorithm, "decode", DECODE, _make_decode) if algorithm.decodes() else NO_HOOK
    return encode, decode, make_hook(algorithm, "apply", APPLY, _make_apply)


def _make_encode(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        stepsizes: FloatArray,
        options: FloatArray,
        clients: IndexArray,
        updates: FloatArray,
        normals: FloatArray,
        uniforms: FloatArray,
        client_uniforms: FloatArray,
        sent: FloatArray,
    ) -> None:
        self = unpack(options)
        participants, numbers, lanes = sent.shape
        out = np.empty(numbers)
        for lane in range(lanes):
            shared_normals, shared_uniforms = normals[:, lane].copy(), uniforms[:, lane].copy()
            for p in range(participants):
                update, own = updates[p, :, lane].copy(), client_uniforms[p, :, lane].copy()
                stepsize = stepsizes[clients[p, lane]]
                body(self, Message(update, stepsize, shared_normals, shared_uniforms, own), out)
                for j in range(numbers):
                    sent[p, j, lane] = out[j]

    return frame


def _make_decode(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        participants: int,
        stepsize: float,
        options: FloatArray,
        sent: FloatArray,
        normals: FloatArray,
        uniforms: FloatArray,
        decoded: FloatArray,
    ) -> None:
        self = unpack(options)
        rows, dimension, lanes = decoded.shape
        out = np.empty(dimension)
        for lane in range(lanes):
            shared_normals, shared_uniforms = normals[:, lane].copy(), uniforms[:, lane].copy()
            for p in range(rows):
                numbers = sent[p, :, lane].copy()
                body(self, Received(numbers, participants, stepsize, shared_normals, shared_uniforms), out)
                for i in range(dimension):
                    decoded[p, i, lane] = out[i]

    return frame


def _make_apply(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        participants: int,
        stepsize: float,
        options: FloatArray,
        joined: FloatArray,
        normals: FloatArray,
        uniforms: FloatArray,
        memory: FloatArray,
        change: FloatArray,
    ) -> None:
        self = unpack(options)
        dimension, lanes = change.shape
        out = np.empty(dimension)
        for lane in range(lanes):
            kept = memory[:, lane].copy()
            received = Received(
                joined[:, lane].copy(),
                participants,
                stepsize,
                normals[:, lane].copy(),
                uniforms[:, lane].copy(),
            )
            body(self, received, kept, out)
            for j in range(kept.size):
                memory[j, lane] = kept[j]
            for i in range(dimension):
                change[i, lane] = out[i]

    return frame
