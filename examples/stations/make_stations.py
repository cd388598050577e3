"""Makes a table as an engineer might have it: 20 air-quality stations, 10 days of hourly means, some of it messy.

Everything is made up and drawn from one seed, so the file is the same every time:

    python examples/stations/make_stations.py stations.csv

Each station predicts the ozone of the next hour from temperature, wind and pressure. There are time stamps, a category,
gaps, a few rows that were sent twice, one station that was set up last week, and one whose sensor is faulty.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

STATIONS, HOURS, SEED = 20, 240, 12
FAULTY, NEW = 7, 19


def make_rows() -> list[str]:
    """Return the lines of the table, header first."""
    rng = np.random.default_rng(SEED)
    names = [f"S{k + 1:02d}" for k in range(STATIONS)]
    sites = rng.choice(["urban", "suburban", "rural"], STATIONS)
    height = rng.uniform(0, 800, STATIONS)
    # All stations follow the same physics, nearly: their weights differ a little.
    weights = np.array([0.55, -0.35, 0.25]) + 0.03 * rng.standard_normal((STATIONS, 3))
    weather = correlated(rng, (HOURS, 1, 3), 0.9)  # the same everywhere
    local = correlated(rng, (HOURS, STATIONS, 3), 0.6)
    inputs = np.sqrt(0.5) * weather + np.sqrt(0.5) * local
    noise = correlated(rng, (HOURS, STATIONS), 0.3)
    target = (inputs * weights).sum(axis=2) + 0.8 * noise
    # Reads mostly nonsense, and more so as it ages.
    target[:, FAULTY] = 0.15 * target[:, FAULTY] + np.linspace(0.5, 1.8, HOURS) * rng.standard_normal(HOURS)
    temperature = 14 - 0.0065 * height + 7 * inputs[..., 0]
    wind = 12 * np.exp(0.45 * inputs[..., 1])
    pressure = 1013 - 0.12 * height + 8 * inputs[..., 2]
    ozone = 62 + 19 * target
    gaps = rng.random((HOURS, STATIONS, 4)) < [0.01, 0.04, 0.004, 0.01]
    gaps[100:130, 3, 2] = True  # a barometer that was out of order
    start, lines = datetime(2024, 5, 1), ["time,station,site,temperature_c,wind_kmh,pressure_hpa,ozone_ugm3"]
    for n in range(HOURS):
        time = (start + timedelta(hours=n)).isoformat(sep=" ", timespec="minutes")
        for k in range(STATIONS):
            if k == NEW and n < HOURS - 25:
                continue
            values = (temperature[n, k], wind[n, k], pressure[n, k], ozone[n, k])
            fields = ["" if gap else f"{v:.1f}" for gap, v in zip(gaps[n, k], values, strict=True)]
            lines.append(",".join([time, names[k], sites[k], *fields]))
            if rng.random() < 0.001:
                lines.append(lines[-1])  # sent twice
    return lines


def correlated(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> np.ndarray:
    """Draw series of variance 1 along the first axis, each value so correlated with the one before."""
    values = rng.standard_normal(shape)
    for n in range(1, len(values)):
        values[n] = correlation * values[n - 1] + np.sqrt(1 - correlation**2) * values[n]
    return values


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(make_rows()) + "\n", encoding="utf-8")
