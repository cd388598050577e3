"""Draw the moving picture of the first page from a real run: `python docs/make_animation.py`.

Left: the participants of each iteration of one trial, and which uploads are attacked. Right (on phones, below): the
network MSE of the same iterations, a mean over all trials, for sharing one parameter and sharing all five. Readers who
ask their system for less motion see the finished curves.
"""

import math
import sys
from pathlib import Path

import numpy as np

import psofed
from psofed.common.numbers import to_decibels

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference.draws import draw_trial

IMAGES = Path(__file__).parent / "images"
ITERATIONS, SECONDS = 60, 12.0
FINISHED = 0.85  # of these seconds; the picture begins with what it shows from then on
FLEET = psofed.Scenario(
    num_clients=50, dimension=5, iterations=ITERATIONS, attack=psofed.attacks.Gaussian(num_byzantine=15)
)
BLUE, ORANGE, RED, GREY = "#0b5a94", "#d55e00", "#c1121f", "#5b6b7a"
WIDTH, HEIGHT = 760, 300
CENTRE, RADIUS = (150.0, 150.0), 118.0
LEFT, RIGHT, TOP, BOTTOM = 380.0, 735.0, 42.0, 258.0
HIGHEST, LOWEST = 2.0, -18.0

STYLE = f"""
text {{ font: 16px system-ui, "DejaVu Sans", sans-serif; fill: #33404c; }}
.links {{ visibility: hidden; }}
.links line {{ stroke: {BLUE}; stroke-width: 1.6; }}
.links .bad {{ stroke: {RED}; stroke-width: 3; }}
.curve {{ fill: none; stroke-width: 2.6; stroke-dasharray: 1; }}
@media (prefers-reduced-motion: no-preference) {{
  .links {{ animation: show {SECONDS}s step-end infinite; }}
  .curve {{ animation: draw {SECONDS}s {-FINISHED * SECONDS:.1f}s linear infinite; }}
}}
@keyframes show {{ 0% {{ visibility: visible; }} {85 / ITERATIONS:.2f}% {{ visibility: hidden; }} }}
@keyframes draw {{ 0% {{ stroke-dashoffset: 1; }} {FINISHED:.0%}, 100% {{ stroke-dashoffset: 0; }} }}
"""


def main() -> None:
    """Write the picture, wide and for phones."""
    draws = draw_trial(FLEET, seed=0, trial=0)
    fleet = []
    for n in range(ITERATIONS):
        fleet += _links(n, np.flatnonzero(draws.participants[n]), draws.shocks.attacking[n])
    fleet += _clients()
    errors = _axes()
    for shared, colour, label in ((5, ORANGE, "sharing all 5"), (1, BLUE, "sharing 1 of 5")):
        errors += _curve(shared, colour, label)
    _write("first_page.svg", WIDTH, HEIGHT, [*fleet, *errors])
    beside, below = '<g transform="translate(50)">', f'<g transform="translate(-338 {HEIGHT + 15})">'
    _write("first_page_narrow.svg", 400, 2 * HEIGHT + 15, [beside, *fleet, "</g>", below, *errors, "</g>"])


def _write(name: str, width: int, height: int, drawn: list[str]) -> None:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Fifty clients learn together while fifteen of them send noise: error over time</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *drawn,
        "</svg>",
    ]
    (IMAGES / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{name}: {(IMAGES / name).stat().st_size:,} bytes")


def _place(k: int) -> tuple[float, float]:
    angle = 2 * math.pi * k / FLEET.num_clients - math.pi / 2
    return CENTRE[0] + RADIUS * math.cos(angle), CENTRE[1] + RADIUS * math.sin(angle)


def _links(n: int, participants: np.ndarray, attacks: np.ndarray) -> list[str]:
    delay = (n / ITERATIONS - 1.0) * FINISHED * SECONDS
    made = [f'<g class="links" style="animation-delay:{delay:.2f}s">']
    for k in participants:
        x, y = _place(int(k))
        kind = ' class="bad"' if attacks[k] else ""
        made.append(f'<line{kind} x1="{CENTRE[0]:.0f}" y1="{CENTRE[1]:.0f}" x2="{x:.0f}" y2="{y:.0f}"/>')
    return [*made, "</g>"]


def _clients() -> list[str]:
    bad = FLEET.attack.num_byzantine if FLEET.attack else 0
    dots = []
    for k in range(FLEET.num_clients):
        x, y = _place(k)
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{RED if k < bad else BLUE}"/>')
    x, y = CENTRE
    dots.append(f'<rect x="{x - 30:.0f}" y="{y - 13:.0f}" width="60" height="26" rx="4" fill="{GREY}"/>')
    dots.append(f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" style="fill:#fff">server</text>')
    dots.append(f'<text x="{x:.0f}" y="291" text-anchor="middle">50 clients, {bad} Byzantine (red)</text>')
    return dots


def _axes() -> list[str]:
    made = [f'<text x="{LEFT:.0f}" y="24">error of the clients (network MSE, dB)</text>']
    for level in range(int(HIGHEST) - 2, int(LOWEST), -5):
        y = _height(level)
        made.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d8dee4"/>')
        made.append(f'<text x="{LEFT - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>'.replace(">-", ">−"))
    middle = 0.5 * (LEFT + RIGHT)
    made.append(f'<text x="{middle:.0f}" y="291" text-anchor="middle">{ITERATIONS} iterations</text>')
    return made


def _curve(shared: int, colour: str, label: str) -> list[str]:
    curve = psofed.simulate(FLEET.replace(num_shared=shared), trials=512).curve["network_mse"]
    levels = [_height(to_decibels(float(value))) for value in curve]
    places = np.linspace(LEFT, RIGHT, len(levels))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, levels, strict=True))
    return [
        f'<polyline class="curve" pathLength="1" stroke="{colour}" points="{points}"/>',
        f'<text x="{RIGHT:.0f}" y="{levels[-1] - 9:.0f}" text-anchor="end" style="fill:{colour}">{label}</text>',
    ]


def _height(decibels: float) -> float:
    return TOP + (HIGHEST - decibels) / (HIGHEST - LOWEST) * (BOTTOM - TOP)


if __name__ == "__main__":
    main()
