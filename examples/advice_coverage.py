"""How often the 95 % interval of `psofed advise` holds, and how often it finds who should federate (docs/own_data.md).

python examples/advice_coverage.py intervals 40
python examples/advice_coverage.py groups 24
"""

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

import psofed
from psofed.studies.advice.judging import Gain


def in_time(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> np.ndarray:
    """Return standard normal values correlated along the first axis: x_n = ρ x_{n−1} + √(1 − ρ²) e_n."""
    values = rng.standard_normal(shape)
    for n in range(1, len(values)):
        values[n] = correlation * values[n - 1] + (1 - correlation**2) ** 0.5 * values[n]
    return values


def make_table(
    rng: np.random.Generator, weights: np.ndarray, rows: int, noise: np.ndarray, correlation: float = 0.0
) -> psofed.OwnData:
    """Make a table of clients with these weights (K, D) and this noise (rows, K)."""
    clients, dimension = weights.shape
    x = in_time(rng, (rows, clients, dimension), correlation)
    y = (x * weights).sum(axis=2) + noise
    names = np.tile([f"S{k:02d}" for k in range(clients)], rows)
    return psofed.from_arrays(x.reshape(-1, dimension), y.reshape(-1), names)


def near(clients: int, spread: float) -> np.ndarray:
    """Return weights that differ by `spread`; the same in every table."""
    return 0.6 + spread * np.random.default_rng(99).standard_normal((clients, 2))


def slow_inputs(rng: np.random.Generator) -> psofed.OwnData:
    """5 clients × 180 rows, inputs correlated in time (0.9)."""
    return make_table(rng, near(5, 0.2), 180, rng.standard_normal((180, 5)), 0.9)


def slow_noise(rng: np.random.Generator) -> psofed.OwnData:
    """6 clients × 200 rows, inputs (0.7) and noise (0.6) correlated in time."""
    return make_table(rng, near(6, 0.2), 200, in_time(rng, (200, 6), 0.6), 0.7)


def storms(rng: np.random.Generator) -> psofed.OwnData:
    """5 clients × 240 rows, inputs correlated in time (0.8), noise four times as large in the middle third."""
    scale = np.where(np.abs(np.arange(240) - 120) < 40, 2.0, 0.5)
    return make_table(rng, near(5, 0.2), 240, scale[:, None] * rng.standard_normal((240, 5)), 0.8)


def heavy_tails(rng: np.random.Generator) -> psofed.OwnData:
    """8 clients × 120 rows, noise with heavy tails (Student's t, 4 degrees), half of it common to all clients."""
    noise = rng.standard_t(4, (120, 8)) + rng.standard_t(4, (120, 1))
    return make_table(rng, near(8, 0.0), 120, noise / 2)


def title(design: Callable[..., object]) -> str:
    """Return a design's first column."""
    return (design.__doc__ or "").rstrip(".")


def check_intervals(tables: int) -> None:
    """Print how often the interval holds the gain over all tables of a design."""
    designs: tuple[Callable[..., psofed.OwnData], ...] = (slow_inputs, slow_noise, storms, heavy_tails)
    for design in designs:
        found = []
        for seed in range(tables):
            data = design(np.random.default_rng((seed, 1)))
            found.append(psofed.advise(data, byzantine=0, trials=8).federation.gain)
        low, high = np.array([gain.interval for gain in found]).T
        expected = float(np.mean([gain.value for gain in found]))
        holds = float(np.mean((low <= expected) & (expected <= high)))
        width = 100 * float(np.median(high - low)) / 2
        print(f"| {title(design)} | {100 * expected:+.1f} % | ± {width:.1f} % | {100 * holds:.1f} % |", flush=True)


def check_groups(tables: int) -> None:
    """Print verdicts and groups, and for the most frequent groups how often the interval holds their mean gain."""
    for kind in ("15 alike", "8 and 7 alike", "12 alike and 3 others", "all different", "15 alike, few rows"):
        answers: Counter[tuple[str, str]] = Counter()
        gains: dict[str, list[Gain]] = {}
        for seed in range(tables):
            rng = np.random.default_rng((seed, 11))
            rows = 60 if kind.endswith("few rows") else 200
            weights = np.tile(rng.choice([-1, 1], 4) * rng.uniform(0.3, 0.8, 4), (15, 1))
            if kind.startswith("8"):
                weights[8:] *= -1
            first_other = {"12 alike and 3 others": 12, "all different": 0}.get(kind, 15)
            others = (15 - first_other, 4)
            weights[first_other:] = rng.choice([-1, 1], others) * rng.uniform(0.3, 0.8, others)
            data = make_table(rng, weights, rows, rng.standard_normal((rows, 15)))
            advice = psofed.advise(data, byzantine=0, trials=8)
            sizes = " + ".join(str(len(group.clients)) for group in advice.groups)
            answers[advice.verdict + (f" ({advice.winner})" if advice.winner else ""), sizes] += 1
            gains.setdefault(sizes, []).append(advice.federation.gain)
        listed = "; ".join(f"{count} × {verdict}: {sizes}" for (verdict, sizes), count in answers.most_common())
        most = max(gains.values(), key=len)
        mean = float(np.mean([gain.value for gain in most]))
        holds = np.mean([gain.interval[0] <= mean <= gain.interval[1] for gain in most])
        print(f"| {kind} | {listed} | {100 * mean:+.1f} % | {100 * holds:.0f} % |", flush=True)


if __name__ == "__main__":
    checks = {"intervals": check_intervals, "groups": check_groups}
    checks[sys.argv[1]](int(sys.argv[2]))
