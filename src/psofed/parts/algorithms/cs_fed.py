"""CS-Fed."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Algorithm, option
from psofed.parts.contexts import Message, Received
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Traffic, spend_budget
from psofed.parts.vectors import clear, inner, length, part_of, scale

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class CSFed(Algorithm):
    """CS-Fed: participants send one-bit compressive measurements of their update, the server reconstructs it.

    In an iteration with an exchange, Φ_n being a fresh q × D standard Gaussian matrix from a shared seed:

        client   b_k = sign(Φ_n u_k) and m_k = ‖u_k‖
        server   receives b_k + δ_k and m_k + δ'_k; g ← g + Φ_nᵀ(b − sign Φ_n g)/q from g = 0, some steps
                 w_{n+1} = w_n + 1/|S_n| Σ_k m_k g_k/‖g_k‖

    which is binary iterative hard thresholding without the thresholding, since an update is not sparse. With
    ``joint = true`` the server joins the received b_k and m_k first and decodes once. With ``magnitude = false``
    m_k is not sent and μ stands in its place. δ is the attack, on every transmitted number. Up go q bits and a
    number, down D numbers, so there is an exchange every D/M iterations (rarer if q > 64(D − 1)).

    *Chosen*: q = 16, fresh Φ_n, 20 steps, decoding per client, and m_k: with them CS-Fed ties PSO-Fed within 0.1 dB,
    nearly as in the paper's Fig. 1 (0.1 to 0.4 dB behind it under attack). The paper does not state these values. The
    attack gets at m_k above all: without it the level is −16.2 dB whatever the number of Byzantine clients.

    References
    ----------
    Fan, Wang, Huo, Tian, "1-bit compressive sensing for efficient federated learning over the air", IEEE Trans.
    Wireless Commun. 2023. Jacques, Laska, Boufounos, Baraniuk, "Robust 1-bit compressive sensing via binary
    stable embeddings of sparse vectors", IEEE Trans. Inf. Theory 2013 (BIHT).
    """

    kind = "cs-fed"

    measurements: int = option(default=16, low=1, text="number of rows of Φ_n (q)")
    decoding_steps: int = option(default=20, low=1, text="number of steps of binary iterative hard thresholding")
    joint: bool = option(default=False, text="decode the averaged measurements once, instead of each client's")
    magnitude: bool = option(default=True, text="also send ‖u_k‖")

    def traffic(self, scenario: "Scenario") -> Traffic:
        """Count q bits (and a number) up, D numbers down."""
        bits_up = self.measurements + BITS_PER_NUMBER * self.magnitude
        return spend_budget(scenario, bits_up=bits_up, bits_down=BITS_PER_NUMBER * scenario.dimension)

    def exchange(self, scenario: "Scenario") -> Exchange:
        """Send q signs and perhaps a length; the shared normals are Φ_nᵀ, column by column of Φ_n."""
        return Exchange(
            numbers=self.measurements + self.magnitude,
            decode_joined=self.joint,
            normals=self.measurements * scenario.dimension,
        )

    def encode(self, message: Message, out: FloatArray) -> None:
        """Send sign(Φ u_k), then ‖u_k‖ if there is a place for it."""
        measurements = self.measurements
        clear(out)
        for i in range(message.update.size):
            for q in range(measurements):
                out[q] += message.normals[i * measurements + q] * message.update[i]
        for q in range(measurements):
            out[q] = 1.0 if out[q] >= 0.0 else -1.0
        if out.size > measurements:
            out[measurements] = length(message.update)

    def decode(self, received: Received, out: FloatArray) -> None:
        """Reconstruct an update from measurements; inner loops run over the q of them."""
        measurements, dimension = self.measurements, out.size
        residual = np.empty(measurements)
        clear(out)
        for _ in range(self.decoding_steps):
            clear(residual)
            for i in range(dimension):
                for q in range(measurements):
                    residual[q] += received.normals[i * measurements + q] * out[i]
            for q in range(measurements):
                sign = (1.0 if residual[q] > 0.0 else 0.0) - (1.0 if residual[q] < 0.0 else 0.0)
                residual[q] = (received.numbers[q] - sign) / measurements
            for i in range(dimension):
                out[i] += inner(part_of(received.normals, i * measurements, (measurements,)), residual)
        magnitude, size = received.stepsize, length(out)
        if received.numbers.size > measurements:
            magnitude = received.numbers[measurements]
        # Measurements that cancel say nothing of the direction; measurements not received make NaN.
        scale(0.0 if size == 0.0 else magnitude / size, out)
