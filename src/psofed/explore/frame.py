"""The page around the charts, and how the browser receives updates."""

from pathlib import Path
from typing import Any

import param
from panel.custom import JSComponent
from panel.viewable import Children

_HERE = Path(__file__).parent


class Frame(JSComponent):
    """The page around the charts; ``page.js`` draws it."""

    start: Any = param.Dict(default={})
    dark: Any = param.Boolean(default=False)
    charts: Any = Children()
    captions: Any = param.List(default=[])

    _esm = (_HERE / "page.js").read_text(encoding="utf-8")
    _stylesheets = [(_HERE / "page.css").read_text(encoding="utf-8")]  # noqa: RUF012 (Panel's own way)

    def __init__(self, listener: Any, **params: Any) -> None:
        self._listener = listener
        self._shown: dict[str, Any] = dict(params.get("start", {}))
        super().__init__(**params)

    def tell(self, values: dict[str, Any]) -> None:
        """Send what has changed: as a message, since Panel walks through all charts to set a parameter."""
        news = {name: value for name, value in values.items() if self._shown.get(name) != value}
        if news:
            self._shown.update(news)
            self._send_msg({"type": "news", "news": news})

    def forget(self) -> None:
        """Take nothing for shown."""
        self._shown = {}

    def _handle_msg(self, msg: Any) -> None:
        self._listener(msg)
