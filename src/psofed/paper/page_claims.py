"""The claims on the page: tiles that count the verdicts, and a card for each claim."""

import html

from psofed.paper.typeset import typeset
from psofed.paper.verdict import CONDITIONAL, FAILS, HOLDS, UNDECIDED, Claim, describe_case
from psofed.render.numbers import counted

# Of every verdict: its sign, its class in the style sheet, and what is said of one claim and of several.
VERDICTS = {
    HOLDS: ("✓", "holds", "holds", "hold"),
    CONDITIONAL: ("◐", "conditional", "holds under a condition", "hold under a condition"),
    FAILS: ("✗", "fails", "does not hold", "do not hold"),
    UNDECIDED: ("?", "undecided", "is left open by the noise", "are left open by the noise"),
}
_ORDER = (FAILS, CONDITIONAL, UNDECIDED, HOLDS)


def figure_title(name: str) -> str:
    """Write a figure's name for a reader.

    Examples
    --------
    >>> figure_title("fig2")
    'Figure 2'
    """
    return name.replace("fig", "Figure ")


def figure_links(names: tuple[str, ...]) -> str:
    """Return links to figures on the page."""
    return ", ".join(f'<a href="#{name}">{figure_title(name).lower()}</a>' for name in names)


def verdict_tiles(claims: list[Claim]) -> str:
    """Return a tile for every verdict, with the number of its claims; open ones only if there are some."""
    tiles = []
    for verdict, (sign, look, one, many) in VERDICTS.items():
        count = sum(claim.verdict == verdict for claim in claims)
        if verdict == UNDECIDED and not count:
            continue
        inside = (
            f'<span class="sign" aria-hidden="true">{sign}</span><b>{count}</b>'
            f"<span>{one if count == 1 else many}</span>"
        )
        tag = f'a href="#claims-{look}"' if count else "div"
        tiles.append(f'<li><{tag} class="tile {look}">{inside}</{tag.split()[0]}></li>')
    title = f"Verdicts on {counted(len(claims), 'claim')}"
    return f'<ul class="tiles" aria-label="{title}">{"".join(tiles)}</ul>'


def claim_sections(claims: list[Claim]) -> str:
    """Return the cards of all claims, by verdict: what does not simply hold comes first."""
    sections = []
    for verdict in _ORDER:
        chosen = [claim for claim in claims if claim.verdict == verdict]
        if not chosen:
            continue
        _, look, one, many = VERDICTS[verdict]
        title = f"{counted(len(chosen), 'claim')} {one if len(chosen) == 1 else many}"
        cards = "".join(_card(claim) for claim in chosen)
        sections.append(
            f'<h3 id="claims-{look}" class="group">{title}</h3>\n<div class="cards">{cards}</div>'
        )
    return "\n".join(sections)


def _card(claim: Claim) -> str:
    sign, look, _, _ = VERDICTS[claim.verdict]
    condition = f" {typeset(claim.condition)}" if claim.condition else ""
    # How many cases and the worst of them; the rest is folded.
    evidence = [line for line in claim.evidence if len(claim.checks) == 1 or "weakest" not in line]
    shown = "".join(f"<li>{typeset(line)}</li>" for line in evidence)
    return f"""<article class="card {look}">
<h4>{typeset(claim.statement)}</h4>
<p class="verdict {look}"><span class="sign" aria-hidden="true">{sign}</span>{claim.verdict}{condition}</p>
<ul class="evidence">{shown}</ul>
<p class="muted">{html.escape(claim.source)}; {figure_links(claim.figures)}</p>{_details(claim)}
</article>
"""


def _details(claim: Claim) -> str:
    """Return the criterion and all cases, folded; a case that stands alone is the evidence already."""
    signs = {True: VERDICTS[HOLDS][0], False: VERDICTS[FAILS][0], None: VERDICTS[UNDECIDED][0]}
    words = {True: "holds", False: "does not hold", None: "open"}
    cases = "".join(
        f'<li><span role="img" aria-label="{words[check.passed]}">{signs[check.passed]}</span> '
        f"{typeset(describe_case(check.case))}: {typeset(check.finding)}</li>"
        for check in claim.checks
    )
    alone = len(claim.checks) == 1
    title = "criterion" if alone else f"criterion and all {len(claim.checks)} cases"
    weakest = "".join(f"<p>{typeset(line)}</p>" for line in claim.evidence if "weakest" in line and not alone)
    listed = "" if alone else f'<ul class="cases" tabindex="0" aria-label="Cases">{cases}</ul>'
    return f"""
<details><summary>{title}</summary><p>A case counts as holding if {typeset(claim.criterion)}.</p>
{weakest}{listed}</details>"""
