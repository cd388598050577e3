"""Did you mean …? The known name that a mistaken one is most like."""

from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`; None if none is.

    Hyphens, underscores and capitals do not count, and a name may be the end of a dotted one.

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
    found = get_close_matches(wanted, by_form, n=1, cutoff=0.7)
    return by_form[found[0]] if found else None


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for an error's text, or nothing.

    Examples
    --------
    >>> did_you_mean("medain", ["mean", "median"])
    '; did you mean median?'
    """
    found = closest(name, known) if isinstance(name, str) and len(name) < 100 else None
    return f"; did you mean {found}?" if found is not None and found != name else ""


def _form(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
