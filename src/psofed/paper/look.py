"""Which colour and marker a curve has: the same thing looks the same in every figure, in print and on the page.

Algorithms have one family of colours, attacks another (from none, slate, to the strongest, crimson). Sharing one
entry is PSO-Fed's blue and sharing all is Online-Fed's orange, because that is what they are. Every colour has a
contrast of at least 3 to 1 against the page, light and dark; a test computes it.
"""

from dataclasses import dataclass

from psofed.render.style import COLOURS, MARKERS


@dataclass(frozen=True)
class Look:
    """A colour, and a marker in Matplotlib's letters."""

    colour: str
    marker: str


_PARTIAL, _FULL = Look("#0072b2", "o"), Look("#d55e00", "s")
_QUIET, _FEW, _MANY = Look("#64788c", "o"), Look("#8a63d2", "s"), Look("#d02f5f", "^")

LOOKS: dict[str, Look] = {
    "PSO-Fed": _PARTIAL,
    "Online-Fed": _FULL,
    "CS-Fed": Look("#009e73", "D"),
    "QS-Fed": Look("#a87b00", "v"),
    "SignSGD": Look("#737b85", "^"),
    "SignSGD, plain signs, majority": Look("#9a6b3f", "P"),
    "SignSGD, plain signs, mean": Look("#b0709a", "*"),
    "M = 1": _PARTIAL,
    "M = 5": _FULL,
    "|S_B| = 0": _QUIET,
    "|S_B| = 5": _FEW,
    "|S_B| = 10": Look("#b04a9c", "D"),
    "|S_B| = 15": _MANY,
    # Figure 7 has five Byzantine clients; of variance 0.25 they are those of figure 6.
    "σ_B² = 0.0": _QUIET,
    "σ_B² = 0.25": _FEW,
    "σ_B² = 1.0": Look("#a0522d", "v"),
    # What is left without an attack, and what an attack adds.
    "E_φ (data)": _QUIET,
    "E_ω (attack), |S_B| = 5": _FEW,
    "E_ω (attack), |S_B| = 15": _MANY,
}


def look_of(label: str, curve: int) -> Look:
    """Return the look of a curve, by its label; one that has none of its own gets the palette's, by number.

    Examples
    --------
    >>> look_of("M = 1", 0) == look_of("PSO-Fed", 3)
    True
    """
    fallback = Look(COLOURS[curve % len(COLOURS)], MARKERS[curve % len(MARKERS)])
    return LOOKS.get(label, fallback)
