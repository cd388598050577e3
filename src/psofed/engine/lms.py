"""The arithmetic of an LMS step for all lanes at once: inner products, steps and sums of squares.

Where a model stands in a larger array, `row` is the number of its first row of lanes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.lanes import WIDTH, fma, load, spread, store, to_float64


@kernel_part(inline=True)
def set_product(out: FloatArray, factor: float, x: NDArray[np.floating[Any]], row: int) -> None:
    """Set out = factor · x[row], x float64 or, as normals are drawn, float32."""
    lanes = out.size
    for lane in range(0, lanes, WIDTH):
        store(out, lane, factor * to_float64(load(x, row * lanes + lane)))


@kernel_part(inline=True)
def add_inner_product(out: FloatArray, x: FloatArray, models: FloatArray, row: int, dimension: int) -> None:
    """Do out += Σ_i x_i m_i, m the model that begins at `row`."""
    lanes = out.size
    for lane in range(0, lanes, WIDTH):
        product = spread(0.0)
        first = row * lanes + lane
        for i in range(dimension):
            product = fma(load(x, i * lanes + lane), load(models, first + i * lanes), product)
        store(out, lane, product + load(out, lane))


@kernel_part(inline=True)
def step_against(
    error: FloatArray, rate: float, x: FloatArray, models: FloatArray, row: int, dimension: int
) -> None:
    """Do m_i −= rate · error · x_i, m the model that begins at `row`."""
    lanes = error.size
    for lane in range(0, lanes, WIDTH):
        step = -rate * load(error, lane)
        first = row * lanes + lane
        for i in range(dimension):
            entry = load(models, first + i * lanes)
            store(models, first + i * lanes, fma(load(x, i * lanes + lane), step, entry))


@kernel_part(inline=True)
def add_squares(out: FloatArray, row: int, x: FloatArray, first: int, count: int) -> None:
    """Do out[row] += Σ_i x_i² over `count` rows from `first` on."""
    lanes = x.shape[x.ndim - 1]
    for lane in range(0, lanes, WIDTH):
        total = load(out, row * lanes + lane)
        for i in range(first, first + count):
            value = load(x, i * lanes + lane)
            total = fma(value, value, total)
        store(out, row * lanes + lane, total)


@kernel_part(inline=True)
def fill_row(out: FloatArray, row: int, lanes: int, value: float) -> None:
    """Set out[row] = value, in all lanes."""
    for lane in range(0, lanes, WIDTH):
        store(out, row * lanes + lane, spread(value))


@kernel_part(inline=True)
def scale_row(out: FloatArray, row: int, lanes: int, factor: float) -> None:
    """Do out[row] *= factor, in all lanes."""
    for lane in range(0, lanes, WIDTH):
        store(out, row * lanes + lane, factor * load(out, row * lanes + lane))
