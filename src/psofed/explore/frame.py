"""The page around the charts: ``page.js`` draws it, :class:`Frame` sends it what changed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import param
from panel.custom import JSComponent
from panel.viewable import Children

from psofed.explore.fields import Group

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Form:
    """The form of the active side, and the two menus above it; `summary` is the scenario in words."""

    side: str
    sides: tuple[str, ...]
    groups: tuple[Group, ...]
    presets: tuple[tuple[str, str], ...]
    preset: str
    metrics: tuple[tuple[str, str], ...]
    metric: str
    summary: str


class Frame(JSComponent):
    """The page around the charts.

    Parameters
    ----------
    listener : callable
        Receives the browser's messages.
    start : dict
        The parts of the page at first (form, errors, headline, address, words), as plain values.
    """

    start: Any = param.Dict(default={})
    dark: Any = param.Boolean(default=False)
    charts: Any = Children()

    _esm = (_HERE / "page.js").read_text(encoding="utf-8")
    _stylesheets = [(_HERE / "page.css").read_text(encoding="utf-8")]  # noqa: RUF012 (Panel's own way)

    def __init__(self, listener: Callable[[Any], None], **params: Any) -> None:
        self._listener = listener
        self._sent: dict[str, Any] = {}
        super().__init__(**params)

    def tell(self, part: str, value: Any) -> bool:
        """Send one part of the page, a frozen value, unless it is what was sent last; return whether it was sent.

        It is a message, because Panel walks through all charts to set a parameter.
        """
        is_news = bool(self._sent.get(part) != value)
        if is_news:
            self._sent[part] = value
            self._send_msg({"type": "news", "part": part, "value": plain(value)})
        return is_news

    def has_sent(self, part: str) -> bool:
        """Return whether a part of the page was sent to this window."""
        return part in self._sent

    def send_file(self, name: str, mime: str, text: str) -> None:
        """Let the browser save a file."""
        self._send_msg({"type": "file", "name": name, "mime": mime, "text": text})

    def forget(self) -> None:
        """Forget what was sent."""
        self._sent = {}

    def _handle_msg(self, msg: Any) -> None:
        self._listener(msg)


def plain(value: Any) -> Any:
    """Return a message as JSON holds it."""
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
