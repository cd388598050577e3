"""Suggest the known name that a misspelt one most resembles."""

from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` most resembles, or None.

    Hyphens, underscores and capitals are ignored, and `name` may be the last part of a dotted name.

    Examples
    --------
    >>> closest("stepsiz", ["stepsize", "iterations"]), closest("Sign_Flip", ["sign-flip"]), closest("x", ["stepsize"])
    ('stepsize', 'sign-flip', None)
    >>> closest("variance", ["attack.variance", "stepsize"])
    'attack.variance'
    """
    from difflib import get_close_matches

    by_form: dict[str, str] = {}
    for candidate in known:
        by_form.setdefault(_form(candidate), candidate)
        by_form.setdefault(_form(candidate.rpartition(".")[2]), candidate)
    wanted = _form(name)
    if wanted in by_form:
        return by_form[wanted]
    matches = get_close_matches(wanted, by_form, n=1, cutoff=0.7)
    return by_form[matches[0]] if matches else None


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a sentence to append to an error message, or nothing.

    Examples
    --------
    >>> did_you_mean("medain", ["mean", "median"])
    ' Did you mean `median`?'
    """
    match = closest(name, known) if isinstance(name, str) and len(name) < 100 else None
    return f" Did you mean `{match}`?" if match is not None and match != name else ""


def _form(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
