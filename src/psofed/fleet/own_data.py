"""A table as the clients see it: standardised samples in order, and the statistics that theory needs of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer, check_number
from psofed.fleet import Fleet
from psofed.fleet.nonlinear import StreamMoments
from psofed.fleet.table import Table, read_table
from psofed.parts.features import FeatureMap, identity

# A client needs at least this many samples after its warm-up.
_FEWEST_SAMPLES = 10


@dataclass(frozen=True, eq=False)
class OwnData:
    """Samples of every client.

    Attributes
    ----------
    table : Table
        Where they come from.
    inputs, targets : tuple of arrays (samples_k, d), tuple of arrays (samples_k,)
        Standardised (see :mod:`psofed.fleet.standardise`).
    warmup : int
        Rows at each client's start that only fed its running means.
    clip : float
        Inputs were limited to this many standard deviations.
    clipped : int
        How many of them were.
    epochs : int
        How many times each client goes through its samples.
    """

    table: Table
    inputs: tuple[FloatArray, ...]
    targets: tuple[FloatArray, ...]
    warmup: int
    clip: float
    clipped: int
    epochs: int

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.inputs)

    @property
    def num_columns(self) -> int:
        """d, the number of input columns."""
        return len(self.table.features)

    @property
    def samples(self) -> tuple[int, ...]:
        """Samples of each client."""
        return tuple(len(targets) for targets in self.targets)

    @property
    def iterations(self) -> int:
        """Iterations until the client with the most samples has gone through them `epochs` times."""
        return max(self.samples) * self.epochs

    def samples_from(self, iteration: int) -> FloatArray:
        """Return how many samples each client still has from an iteration on, shape (K,)."""
        left = np.array(self.samples, dtype=np.float64) * self.epochs - iteration
        return np.asarray(np.maximum(left, 0.0))

    def moments(self, features: FeatureMap | None = None) -> StreamMoments:
        """Estimate second moments of every client's features and labels from all its samples."""
        features = identity(self.num_columns) if features is None else features
        parts = []
        for inputs, targets in zip(self.inputs, self.targets, strict=True):
            z, count = features(inputs), len(targets)
            parts.append((z.T @ z / count, targets @ z / count, float(targets @ targets) / count))
        covariances, products, power = zip(*parts, strict=True)
        return StreamMoments(np.array(covariances), np.array(products), np.array(power))

    def best_weights(self, features: FeatureMap | None = None) -> FloatArray:
        """Return w°, the least-squares solution on all samples of all clients, each sample counting once."""
        features = identity(self.num_columns) if features is None else features
        weights = np.array(self.samples, dtype=np.float64)[:, None, None]
        moments = self.moments(features)
        pooled = StreamMoments(
            moments.covariances * weights, moments.products * weights[:, 0], moments.power * weights[:, 0, 0]
        )
        return pooled.best_weights()

    def fleet(self, features: FeatureMap | None = None) -> Fleet:
        """Return the fleet as measured: w° for the target, the residuals' variances for the noise."""
        features = identity(self.num_columns) if features is None else features
        weights, moments = self.best_weights(features), self.moments(features)
        return Fleet(
            target=weights,
            input_variance=np.trace(moments.covariances, axis1=1, axis2=2) / weights.size,
            noise_variance=np.maximum(moments.residual_variance(weights), 0.0),
            correlation=0.0,
            explicit_covariances=moments.covariances,
            names=tuple(self.table.clients),
            fourth_moments=self.fourth_moments(features),
            weighted_noise=self.weighted_noise(weights, features),
        )

    def weighted_noise(self, weights: FloatArray, features: FeatureMap | None = None) -> FloatArray:
        """Return E[ν² xxᵀ] of every client, (K, D, D), with ν = y − wᵀx what the given weights leave."""
        features = identity(self.num_columns) if features is None else features
        parts = []
        for inputs, targets in zip(self.inputs, self.targets, strict=True):
            z = features(inputs)
            scaled = z * (targets - z @ weights)[:, None]
            parts.append(scaled.T @ scaled / len(z))
        return np.array(parts)

    def fourth_moments(self, features: FeatureMap | None = None) -> FloatArray:
        """Return E[xxᵀ ⊗ xxᵀ] of every client's features, (K, D², D²): A → E[xxᵀ A xxᵀ] as a matrix."""
        features = identity(self.num_columns) if features is None else features
        parts = []
        for inputs in self.inputs:
            z = features(inputs)
            squares = (z[:, :, None] * z[:, None, :]).reshape(len(z), -1)
            parts.append(squares.T @ squares / len(z))
        return np.array(parts)

    def describe(self) -> dict[str, Any]:
        """Return what was read and what was done to it, as plain values."""
        table = self.table
        return {
            "file": Path(table.path).name,
            "client_column": table.client_column,
            "target_column": table.target_column,
            "features": list(table.features),
            "epochs": self.epochs,
            "warmup_rows": self.warmup,
            "clip": self.clip,
            "clipped_values": self.clipped,
            "missing_values": table.missing,
            "rows_without_target": sum(table.dropped),
            "constant_columns": {name: list(clients) for name, clients in table.constant.items()},
            "samples": dict(zip(table.clients, self.samples, strict=True)),
        }

    def notes(self) -> list[str]:
        """Return sentences on what a reader of the results should know of the data."""
        table, lines = self.table, []
        if table.missing:
            listed = ", ".join(f"{name} ({count})" for name, count in table.missing.items())
            lines.append(f"missing values count as the client's running mean: {listed}.")
        if sum(table.dropped):
            lines.append(f"{sum(table.dropped)} rows without {table.target_column} were left out.")
        for name, clients in table.constant.items():
            where = "all clients" if len(clients) == self.num_clients else _few(clients)
            lines.append(f"column {name} never changes in {where} and is 0 there.")
        if self.clipped:
            lines.append(f"{self.clipped} inputs beyond {self.clip:g} standard deviations were set to that.")
        if min(self.samples) < max(self.samples):
            lines.append(
                f"clients have {min(self.samples)} to {max(self.samples)} samples; one that has used up its own takes "
                "no more steps, does not count in the MSE, and still exchanges its model."
            )
        return lines


def read_data(
    path: str | Path,
    client_column: str,
    target_column: str,
    features: Sequence[str] | None = None,
    *,
    epochs: int = 1,
    warmup: int = 20,
    clip: float = 5.0,
) -> OwnData:
    r"""Read a table and make it a fleet: one client for each value of `client_column`, streaming its rows in order.

    Parameters
    ----------
    path, client_column, target_column, features
        See :func:`psofed.fleet.table.read_table`.
    epochs : int
        How many times each client goes through its rows.
    warmup : int
        Rows of each client that only feed its running means and deviations.
    clip : float
        Inputs are limited to this many standard deviations.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "data.csv"
    >>> lines = [f"{'ab'[n % 2]},{n % 7},{(n % 7) + n % 3}" for n in range(100)]
    >>> _ = path.write_text("station,x,y\n" + "\n".join(lines))
    >>> data = read_data(path, "station", "y")
    >>> data.num_clients, data.num_columns, data.samples
    (2, 1, (30, 30))
    """
    epochs = check_integer("epochs", epochs, 1)
    warmup = check_integer("warmup", warmup, 2)
    clip = check_number("clip", clip, 0, open_low=True)
    table = read_table(path, client_column, target_column, features)
    return stream_table(table, epochs=epochs, warmup=warmup, clip=clip)


def stream_table(table: Table, *, epochs: int = 1, warmup: int = 20, clip: float = 5.0) -> OwnData:
    """Standardise every client's rows."""
    from psofed.fleet.standardise import standardise

    inputs, targets, clipped = [], [], 0
    for client, x, y in zip(table.clients, table.inputs, table.targets, strict=True):
        if np.all(y == y[0]) and len(y) > warmup:
            raise PsofedError(f"{table.path}: {table.target_column} never changes for client {client}")
        samples = standardise(x, y, warmup, clip)
        if len(samples[1]) < _FEWEST_SAMPLES:
            raise PsofedError(
                f"{table.path}: client {client} has {len(y)} rows with {table.target_column}, of which "
                f"{len(samples[1])} are left after the warm-up of {warmup}; at least {_FEWEST_SAMPLES} are needed"
            )
        inputs.append(samples[0])
        targets.append(samples[1])
        clipped += samples[2]
    return OwnData(table, tuple(inputs), tuple(targets), warmup, clip, clipped, epochs)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} clients ({', '.join(names[:2])}, …)"
