"""When charts are drawn: after the numbers, so that they do not keep the browser from painting those."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from psofed.explore.charts import Charts
from psofed.explore.settings import SIDES
from psofed.explore.sides import Side

_AFTER_NUMBERS = 40  # milliseconds for the browser to paint numbers before charts keep it busy
_AT_ONCE = 0.25  # seconds that charts wait at most, for a number to come and to be painted


class Painter:
    """Draws the charts of a page.

    Parameters
    ----------
    document : Bokeh document
        The page.

    Attributes
    ----------
    charts : Charts
        What is drawn.
    """

    def __init__(self, document: Any) -> None:
        self.charts: Charts = Charts(SIDES)
        self._document = document
        self._is_drawing = False
        self._unpainted_since: float | None = None  # when numbers were sent that are not painted yet

    def numbers_sent(self) -> None:
        """Note that the browser has numbers to paint."""
        if self._unpainted_since is None:
            self._unpainted_since = time.monotonic()

    def numbers_painted(self) -> None:
        """Note that the browser has painted them."""
        self._unpainted_since = None

    def draw_when_free(self, draw: Callable[[], object], sides: Callable[[], Iterable[Side]]) -> None:
        """Draw, but not while a number of the `sides` is about to come or to be painted: it would have to wait."""

        def draw_or_wait() -> None:
            since = self._unpainted_since
            is_painting = since is not None and time.monotonic() - since < _AT_ONCE
            if is_painting or any(side.is_expected(within=_AT_ONCE) for side in sides()):
                self._soon(draw_or_wait)
            else:
                self._is_drawing = False
                draw()

        if not self._is_drawing:
            self._is_drawing = True
            self._soon(draw_or_wait)

    def recolour(self, is_dark: bool) -> None:
        """Draw in the colours of a dark or a light page."""
        self._soon(lambda: self.charts.recolour("dark" if is_dark else "light"))

    def _soon(self, draw: Callable[[], None]) -> None:
        """Change charts while the document is locked, and send all changes as one message, after the numbers.

        Panel delivers messages and parameters without the lock.
        """

        def drawing() -> None:
            self._document.hold("combine")
            try:
                draw()
            finally:
                self._document.unhold()

        self._document.add_timeout_callback(drawing, _AFTER_NUMBERS)
