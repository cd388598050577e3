"""Shell completion: fields and values of --set, names of figures, names of parts.

Nothing is imported before the user presses Tab.
"""

from collections.abc import Iterator


def complete_settings(incomplete: str) -> Iterator[str]:
    """Complete ``--set``: fields first, then the values of those that are names.

    Examples
    --------
    >>> list(complete_settings("steps")), list(complete_settings("selection.pattern=r"))
    (['stepsize='], ['selection.pattern=random', 'selection.pattern=round-robin'])
    """
    from psofed.scenario.mapping import families_of_names, field_names
    from psofed.scenario.scenario import UPLINKS

    field, equals, value = incomplete.partition("=")
    if not equals:
        yield from sorted(f"{name}=" for name in field_names() if name.startswith(incomplete))
        return
    words: tuple[str, ...] = {"uplink": UPLINKS, "selection.coordinated": ("true", "false")}.get(field, ())
    family = families_of_names().get(field)
    if family is not None:
        from psofed.parts.registry import part_names

        words = part_names(family)
    yield from (f"{field}={word}" for word in words if word.startswith(value))


def complete_figures(incomplete: str) -> list[str]:
    """Complete the figures of ``psofed reproduce``."""
    from psofed.paper.figures import figure_names

    return [name for name in (*figure_names(), "all") if name.startswith(incomplete)]


def complete_metrics(incomplete: str) -> list[str]:
    """Complete a metric's name."""
    from psofed.results.metrics import LABELS

    return [name for name in LABELS if name.startswith(incomplete)]
