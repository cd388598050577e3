"""Log lines with a time, as text or JSON, and each message once until it changes."""

import json
import logging
import time
from typing import Any

log: logging.Logger = logging.getLogger("psofed.federation")
"""The log of the servers and nodes of a federation."""


class _Lines(logging.Formatter):
    """One line per message: its time (UTC), then the text.

    Servers, nodes and brokers may have put words into a message, so what could move a terminal's cursor is escaped.
    """

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in record.getMessage())
        if not self._as_json:
            record = logging.makeLogRecord({**vars(record), "msg": text, "args": ()})
            return super().format(record)
        line = {"time": self.formatTime(record, self.datefmt), "level": record.levelname.lower()}
        return json.dumps({**line, "message": text}, ensure_ascii=False)


def write_log_lines(name: str, *, as_json: bool) -> None:
    """Let the logger `name` write to stderr, from INFO on, whatever else there is."""
    handler: logging.StreamHandler[Any] = logging.StreamHandler()
    handler.setFormatter(_Lines(as_json))
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


class OncePerChange:
    """Remembers the last message about each subject.

    Examples
    --------
    >>> is_news = OncePerChange()
    >>> is_news("north", "no reply"), is_news("north", "no reply"), is_news("north", ""), is_news("north", "no reply")
    (True, False, True, True)
    """

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __call__(self, subject: str, message: str) -> bool:
        """Return whether the message differs from the last one about the subject; at first that is empty."""
        before = self._last.get(subject, "")
        self._last[subject] = message
        return message != before
