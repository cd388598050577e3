"""The simulator against NumPy's bare drawing of normals, and against what one would write oneself."""

import numba
import numpy as np

from benchmarks._timing import best_seconds, markdown_table
from psofed import Scenario, draw_fleet, simulate
from psofed.parts.attacks import Gaussian

K, D, M, PARTICIPANTS = 100, 5, 1, 5
SCENARIO = Scenario(
    num_clients=K, dimension=D, num_shared=M, num_participants=PARTICIPANTS, iterations=1000,
    attack=Gaussian(num_byzantine=15),
)  # fmt: skip
LONG = SCENARIO.replace(iterations=10_000)  # what a call takes besides its iterations no longer counts
FLEET = draw_fleet(SCENARIO)
SCALE, NOISE = np.sqrt(FLEET.input_variance), np.sqrt(FLEET.noise_variance)


def run() -> str:
    """Return a table of client updates per second; one client update is an LMS step with its D + 1 normals."""
    trials = 32
    generator = np.random.default_rng(0)
    buffer = np.empty((D + 1) * K)

    def draw_only() -> None:
        for _ in range(2000):
            generator.standard_normal(out=buffer)

    # What is done, and how many client updates that is.
    contenders = {
        "psofed, 2 threads": (lambda: simulate(SCENARIO, trials, threads=2), K * 1000 * trials),
        "psofed, 1 thread": (lambda: simulate(SCENARIO, trials, threads=1), K * 1000 * trials),
        "the same, 10,000 iterations": (lambda: simulate(LONG, trials, threads=1), K * 10_000 * trials),
        "NumPy, only drawing the normals": (draw_only, K * 2000),
        "NumPy, over clients and 50 trials": (lambda: numpy_over_trials(100, 50), K * 100 * 50),
        "Numba, scalar, NumPy's generator": (lambda: scalar_numba(500, SCALE, NOISE, 0), K * 500),
        "NumPy, over clients": (lambda: numpy_over_trials(300, 1), K * 300),
        "Python, a loop over clients": (lambda: client_loop(20), K * 20),
    }
    seconds = best_seconds({name: work for name, (work, _) in contenders.items()})
    rates = {name: updates / seconds[name] for name, (_, updates) in contenders.items()}
    drawing = rates["NumPy, only drawing the normals"]
    rows = [
        [name, f"{rate / 1e6:.3g} M", f"{drawing / rate:.2f}", relative_speed(rates["psofed, 1 thread"] / rate)]
        for name, rate in rates.items()
    ]
    return markdown_table(["", "client updates per second", "time, drawing = 1", "psofed on one thread is"], rows)


def relative_speed(ratio: float) -> str:
    """Return a ratio of speeds in words.

    Examples
    --------
    >>> relative_speed(62.04), relative_speed(1247.0), relative_speed(0.612), relative_speed(1.0)
    ('62 times faster', '1,250 times faster', '1.6 times slower', '')
    """
    if ratio == 1.0:
        return ""
    number = float(f"{max(ratio, 1 / ratio):.{3 if ratio > 100 else 2}g}")
    return f"{number:,g} times {'faster' if ratio > 1 else 'slower'}"


def client_loop(iterations: int) -> None:
    """PSO-Fed with a coordinated random mask, a client at a time."""
    rng = np.random.default_rng(0)
    target = np.full(D, D**-0.5)
    server, clients = np.zeros(D), np.zeros((K, D))
    mask = rng.permutation(D)[:M]
    for _ in range(iterations):
        chosen = rng.permutation(K)[:PARTICIPANTS]
        for k in range(K):
            if k in chosen:
                clients[k, mask] = server[mask]
            x = SCALE[k] * rng.standard_normal(D)
            error = target @ x + NOISE[k] * rng.standard_normal() - clients[k] @ x
            clients[k] += 0.15 * error * x
        mask = rng.permutation(D)[:M]
        server[mask] = clients[np.ix_(chosen, mask)].mean(axis=0)


def numpy_over_trials(iterations: int, trials: int) -> None:
    """The same, vectorised over clients and trials."""
    rng = np.random.default_rng(0)
    target = np.full(D, D**-0.5)
    rows = np.arange(trials)[:, None]
    server, clients = np.zeros((trials, D)), np.zeros((trials, K, D))
    mask = rng.integers(D, size=(trials, 1))
    for _ in range(iterations):
        chosen = rng.random((trials, K)).argpartition(PARTICIPANTS, axis=1)[:, :PARTICIPANTS]
        clients[rows, chosen, mask] = server[rows, mask]
        x = SCALE[:, None] * rng.standard_normal((trials, K, D))
        error = x @ target + NOISE * rng.standard_normal((trials, K)) - np.einsum("tkd,tkd->tk", clients, x)
        clients += 0.15 * error[..., None] * x
        mask = rng.integers(D, size=(trials, 1))
        server[rows, mask] = clients[rows, chosen, mask].mean(axis=1, keepdims=True)


@numba.njit
def scalar_numba(iterations, scale, noise, seed):  # type: ignore[no-untyped-def]
    """The same, as a plain Numba kernel."""
    np.random.seed(seed)  # noqa: NPY002 (what one finds in such kernels)
    server, clients = np.zeros(D), np.zeros((K, D))
    x = np.empty(D)
    entry = 0
    for _ in range(iterations):
        chosen = np.random.permutation(K)[:PARTICIPANTS]  # noqa: NPY002
        for k in chosen:
            clients[k, entry] = server[entry]
        for k in range(K):
            error = noise[k] * np.random.standard_normal()  # noqa: NPY002
            for i in range(D):
                x[i] = scale[k] * np.random.standard_normal()  # noqa: NPY002
                error += (D**-0.5 - clients[k, i]) * x[i]
            for i in range(D):
                clients[k, i] += 0.15 * error * x[i]
        entry = np.random.randint(D)  # noqa: NPY002
        total = 0.0
        for k in chosen:
            total += clients[k, entry]
        server[entry] = total / PARTICIPANTS
    return server
