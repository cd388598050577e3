"""Progress messages: lines of text passed to listeners."""

from collections.abc import Callable

_LISTENERS: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Have `listener` called with every line from now on."""
    _LISTENERS.append(listener)


def notify(text: str) -> None:
    """Tell all who listen.

    Examples
    --------
    >>> listen(print)
    >>> notify("compiling")
    compiling
    >>> _LISTENERS.clear()
    """
    for listener in _LISTENERS:
        listener(text)
