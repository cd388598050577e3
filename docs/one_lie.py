"""Follow a single lie through a fleet, and draw where it goes: docs/images/one_lie.svg, and a still picture of it.

Two runs on the same draws differ in one upload. The recursion is linear, so the difference of the two runs is what the
lie does, alone. Run as `python docs/one_lie.py`.
"""

import re
import sys
from pathlib import Path

import numpy as np

import psofed
from psofed.common.types import FloatArray
from psofed.parts import Attack, option

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference.draws import draw_trial
from reference.literal import run_literally

IMAGES = Path(__file__).parent / "images"
STILL = 6  # iterations after the lie, where nothing may move
CLIENTS, DIMENSION, PARTICIPANTS, STEPSIZE = 12, 5, 3, 0.1
START, SHOWN, SEED = 30, 40, 3  # when the lie is told, for how many iterations it is followed


class SingleLie(Attack):
    """Adds 1 to every shared parameter, in one iteration."""

    start: int = option(default=START, low=0, text="iteration of the lie")

    def corrupt(self, upload):  # type: ignore[no-untyped-def]
        """Return the upload, changed if now is the time."""
        return upload.value + (1.0 if upload.iteration == self.start else 0.0)


def follow(num_shared: int) -> tuple[FloatArray, FloatArray]:
    """Return |deviation| (N + 1, K + 1, D), the server first, and who takes part (N, K)."""
    honest = psofed.Scenario(
        num_clients=CLIENTS, dimension=DIMENSION, num_participants=PARTICIPANTS, num_shared=num_shared,
        stepsize=STEPSIZE, iterations=START + SHOWN, attack=None,
    )  # fmt: skip
    participants = draw_trial(honest, SEED, trial=0).participants
    byzantine = int(np.flatnonzero(participants[START])[0])
    lying = honest.replace(attack=SingleLie(clients=[byzantine], probability=1.0))
    runs = [run_literally(scenario, SEED, trial=0).models for scenario in (lying, honest)]
    return np.abs(runs[0] - runs[1])[START:], participants[START:]


def main() -> None:
    """Draw the pictures."""
    for name, text in pictures().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
        print(IMAGES / name)


def pictures() -> dict[str, str]:
    """Return the files' contents by name."""
    moving = picture({m: follow(m) for m in (DIMENSION, 1)})
    return {"one_lie.svg": moving, "one_lie_still.svg": still(moving)}


# The picture: two panels of models, five cells each, whose colour is the size of the deviation.

CELL, PANEL = 15, 368
SECONDS = 0.4  # an iteration


def picture(runs: dict[int, tuple[FloatArray, FloatArray]]) -> str:
    """Return the animation as SVG; on white, as all pictures of the site; it needs no script."""
    panels = "".join(
        f'<g transform="translate({16 + i * (PANEL + 72)},0)">{panel(m, *runs[m])}</g>' for i, m in enumerate(runs)
    )
    clock = "".join(
        f'<text x="420" y="330" text-anchor="middle" opacity="{int(n == SHOWN - 1)}">{label(n)}'
        f"{discrete('opacity', ['1' if n == now else '0' for now in range(SHOWN)])}</text>"
        for n in range(SHOWN)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 344" role="img" '
        'aria-label="One lie reaches all clients if everything is shared, and few if one of five parameters is">'
        "<style>text{font:15px system-ui,sans-serif;fill:#222}.t{font-weight:600}.s{font-size:13px}"
        ".c{fill:#e8ebf0}.l{fill:#c62828}.p{fill:none;stroke:#1565c0;stroke-width:2}.k{fill:#c62828;font-weight:600}"
        '</style><rect width="840" height="344" rx="6" fill="#fff"/>'
        f"{panels}{clock}</svg>\n"
    )


def still(moving: str) -> str:
    """Return an animation as it is `STILL` iterations after the lie."""

    def fix(match: re.Match[str]) -> str:
        times, values = ([*part.split(";")] for part in match.group("times", "values"))
        value = [v for t, v in zip(times, values, strict=True) if float(t) <= STILL / SHOWN][-1]
        return f'{match["start"]}{match["name"]}="{value}"{match["rest"]}'

    animated = (
        r'(?P<start><(?:rect|text)[^>]*?)(?P<name>fill-opacity|opacity)="[^"]*"(?P<rest>[^>]*>[^<]*)'
        r'<animate [^>]*keyTimes="(?P<times>[^"]*)" values="(?P<values>[^"]*)"/>'
    )
    return re.sub(animated, fix, moving)


def label(n: int) -> str:
    """Return the line under the picture in iteration n after the lie."""
    return "One client lies about what it shares." if n == 0 else f"{n} iteration{'s' * (n > 1)} later"


def discrete(attribute: str, values: list[str]) -> str:
    """Return an endless animation that jumps from value to value and begins with the last one."""
    if len(set(values)) == 1:
        return ""
    times, kept = [], []
    for n, value in enumerate(values):
        if not kept or kept[-1] != value:
            times.append(f"{n / len(values):.4g}")
            kept.append(value)
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" repeatCount="indefinite" '
        f'dur="{SECONDS * len(values):g}s" begin="-{SECONDS * (len(values) - 1):g}s" '
        f'keyTimes="{";".join(times)}" values="{";".join(kept)}"/>'
    )


def panel(num_shared: int, deviation: FloatArray, participants: FloatArray) -> str:
    """Return one panel: title, server, clients."""
    shared = "Everything is shared" if num_shared == DIMENSION else f"{num_shared} of {DIMENSION} parameters is shared"
    out = [f'<text class="t" x="{PANEL / 2}" y="24" text-anchor="middle">{shared}</text>']
    width = DIMENSION * CELL
    columns, step = 4, (PANEL - 4 * width) / 3 + width
    places = [((PANEL - width) / 2, 58.0)]
    places += [((k % columns) * step, 124.0 + (k // columns) * 62) for k in range(CLIENTS)]
    for k, (x, y) in enumerate(places):
        name = "server" if k == 0 else f"client {k}"
        is_liar = k == 1 + np.flatnonzero(participants[0])[0]
        place = f'x="{x + width / 2:.0f}" y="{y - 7:.0f}" text-anchor="middle"'
        out.append(f'<text class="{"s k" if is_liar else "s"}" {place}>{"Byzantine" if is_liar else name}</text>')
        for i in range(DIMENSION):
            box = f'x="{x + i * CELL:.0f}" y="{y:.0f}" width="{CELL - 1}" height="{CELL + 6}"'
            out.append(f'<rect class="c" {box}/>')
            levels = [strength(deviation[n, k, i]) for n in range(SHOWN)]
            if set(levels) != {"0"}:
                out.append(
                    f'<rect class="l" {box} fill-opacity="{levels[-1]}">{discrete("fill-opacity", levels)}</rect>'
                )
        if k:
            takes_part = ["1" if participants[n, k - 1] else "0" for n in range(SHOWN)]
            frame = f'x="{x - 2:.0f}" y="{y - 2:.0f}" width="{width + 3}" height="{CELL + 10}"'
            out.append(f'<rect class="p" {frame} opacity="{takes_part[-1]}">{discrete("opacity", takes_part)}</rect>')
    return "".join(out)


def strength(deviation: float) -> str:
    """Return the opacity of a cell: the root of the deviation, in tenths."""
    return f"{min(1.0, round(10 * (deviation / 0.34) ** 0.5) / 10):g}"


if __name__ == "__main__":
    main()
