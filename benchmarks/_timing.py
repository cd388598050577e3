"""Times several contenders in turns, so that all of them see the same noise, and keeps each one's best."""

import time
from collections.abc import Callable


def best_seconds(
    contenders: dict[str, Callable[[], object]], rounds: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the shortest time of each contender over some rounds, after one round to warm up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            start = clock()
            work()
            if turn:
                best[name] = min(best[name], clock() - start)
    return best


def markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
