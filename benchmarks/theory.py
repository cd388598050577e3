"""How long theory takes: over the number of clients, and against the simulation that reaches the same accuracy."""

import math
import time
from pathlib import Path

import psofed
from psofed import Data, Scenario, Selection
from psofed.parts.attacks import Gaussian

SIZES = (10, 30, 100, 300, 1000, 4000, 10_000)
TARGET = 0.001  # relative standard error of the network MSE asked of the simulation


def scenario_of(clients: int, coordinated: bool = True) -> Scenario:
    byzantine = max(1, clients * 3 // 10)
    return Scenario(
        num_clients=clients,
        dimension=5,
        attack=Gaussian(num_byzantine=byzantine),
        selection=Selection(coordinated=coordinated),
    )


def seconds(work) -> float:
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        if best > 2.0:
            break
    return best


def run() -> str:
    psofed.predict(scenario_of(10))  # imports and compiled code
    rows = []
    lines = ["| clients K | common mask | independent masks |", "|---:|---:|---:|"]
    for clients in SIZES:
        common = seconds(lambda c=clients: psofed.predict(scenario_of(c)))
        independent = seconds(lambda c=clients: psofed.predict(scenario_of(c, coordinated=False)))
        rows.append((clients, common, independent))
        lines.append(f"| {clients} | {common:.3g} s | {independent:.3g} s |")
    draw(rows, Path("out") / "theory_time.png")
    best = seconds(lambda: psofed.optimal_stepsize(scenario_of(100)))
    correlated = Scenario(
        num_clients=50, dimension=5, data=Data(input_correlation=0.5), attack=Gaussian(num_byzantine=15), stepsize=0.1
    )
    one = seconds(lambda: psofed.predict(correlated))
    lines += ["", f"Exact theory, D = 5, white inputs, `psofed.predict`. Best stepsize at K = 100: {best:.2g} s. "
              f"Correlated inputs at K = 50: {one:.2g} s. {compare_with_simulation()}"]  # fmt: skip
    return "\n".join(lines)


def compare_with_simulation() -> str:
    scenario = scenario_of(100)
    pilot = psofed.simulate(scenario, trials=32, seed=0)
    ratio = pilot.network_mse.standard_error / pilot.network_mse.mean
    needed = math.ceil(32 * (ratio / TARGET) ** 2)
    simulated = pilot.seconds * needed / 32
    predicted = seconds(lambda: psofed.predict(scenario))
    return (
        f"Simulating K = 100 to a standard error of {100 * TARGET:g} % takes {needed} trials and {simulated:.2g} s, "
        f"{simulated / predicted:.0f} times what predicting it takes."
    )


def draw(rows: list[tuple[int, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    from psofed.render.figures import finish_axes, save_figure
    from psofed.render.style import COLOURS

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    clients = [row[0] for row in rows]
    for index, label in ((1, "common mask"), (2, "independent masks")):
        axes.loglog(clients, [row[index] for row in rows], "o-", color=COLOURS[index - 1], label=label)
    axes.axhline(30, color="grey", lw=0.8, ls=":")
    finish_axes(axes, "clients K", "seconds per prediction")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)
