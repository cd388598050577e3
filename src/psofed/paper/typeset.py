"""Text with the paper's symbols, as HTML: subscripts are subscripts, and numbers stay with their units."""

import html
import re

from psofed.render.numbers import fixed

_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_PATTERNS = (
    # σ_B², with one above the other, in one line with the number it is compared with
    (
        re.compile(r"(\w)_(\w)²((?:\u00a0[=≤≥]\u00a0[\d.+−-]*\d)?)"),
        r'<span class="whole"><i>\1</i><span class="both"><sup>2</sup><sub>\2</sub></span>\3</span>',
    ),
    # S_B, p_a, E_ω
    (re.compile(r"\b(\w)_(\w)\b"), r"<i>\1</i><sub>\2</sub>"),
    # one letter that stands for a number
    (re.compile(r"(?<![\w<&/])(M|K|D|μ)(?![\w>])"), r"<i>\1</i>"),
)
_TOGETHER = re.compile(r" [=≤≥] (?=[\d+−-])|(?<=\d) (?:± \d|dB)")
_SUBSCRIPTS = re.compile(r"(\w)([₀-₉]+)")


def typeset(text: str) -> str:
    r"""Return text as HTML, with subscripts, superscripts, letters in italics and numbers that stay in one line.

    Examples
    --------
    >>> typeset("|S_B| = 5 & M = 1")
    '|<i>S</i><sub>B</sub>|\xa0=\xa05 &amp; <i>M</i>\xa0=\xa01'
    """
    # A number stays with its sign, its error and its unit.
    found = _TOGETHER.sub(lambda match: match[0].replace(" ", "\u00a0"), text.replace("'", "’"))
    found = html.escape(found, quote=False)
    for pattern, written in _PATTERNS:
        found = pattern.sub(written, found)
    return _SUBSCRIPTS.sub(lambda m: f"<i>{m[1]}</i><sub>{m[2].translate(_DIGITS)}</sub>", found)


def decibels(value: float, digits: int = 1) -> str:
    """Write a level that is in dB already.

    Examples
    --------
    >>> decibels(-11.27)
    '−11.3 dB'
    """
    return f"{fixed(value, digits)} dB"
