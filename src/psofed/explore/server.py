"""Serve the page on loopback; :mod:`psofed.explore.access` decides which requests are answered."""

import errno
import logging
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import panel as pn
from panel.io.resources import LOCAL_DIST
from panel.io.server import get_server

from psofed.common.errors import PsofedError
from psofed.explore.access import Access, guard
from psofed.explore.drafts import LIMITS, limits_with
from psofed.explore.page import Explored, Session
from psofed.explore.presets import make_presets
from psofed.explore.workers import process_context
from psofed.scenario import Scenario

ADDRESS = "127.0.0.1"
_MOST_SESSIONS = 16
_STYLE = (Path(__file__).parent / "root.css").read_text(encoding="utf-8")
_HEAD = """{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
{% endblock %}"""


class Explorer:
    """The explorer's server.

    Parameters
    ----------
    scenario : Scenario, optional
        The page opens with it; your own data must come from a file.
    plugins : tuple of str
        The user's modules, for commands that do the same.
    port : int
        Port to listen on; 0 for any free one.
    """

    def __init__(self, scenario: Scenario | None = None, plugins: tuple[str, ...] = (), port: int = 0) -> None:
        data = None if scenario is None else scenario.own_data
        if data is not None and not data.source.file:
            raise PsofedError("The explorer shows data from a CSV or Parquet file; these are in memory.")
        self.token: str = secrets.token_urlsafe(24)
        self._sessions: set[Session] = set()
        try:
            with socket.create_server((ADDRESS, port)) as probe:
                self.port: int = probe.getsockname()[1]
            hosts = (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")
            self._server = self._make_server(hosts)
        except OSError as error:
            reason = "is already in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise PsofedError(f"port {port} {reason}; choose another or omit --port") from None
        guard(self._server, Access(self.token, hosts))
        limits = LIMITS if scenario is None else limits_with(scenario)
        process_context()  # begins to load what processes need
        self._explored = Explored(make_presets(scenario), limits, plugins, data)

    @property
    def url(self) -> str:
        """The address to open, with its token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until interrupted; `ready` is called when the page can be opened."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        # Bokeh warns about every message to a window that has been closed.
        logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)
        try:
            self._server.start()
            self._server.io_loop.asyncio_loop.set_exception_handler(_quietly)
            self._server.io_loop.add_callback(ready)
            self._server.io_loop.start()
        finally:
            self.close()

    def close(self) -> None:
        """End the server and its processes."""
        self._server.stop()
        for session in list(self._sessions):
            session.close()

    def _stop(self, number: int, _: Any) -> None:
        """Leave the loop after a signal; a second one ends the process at once.

        Raising KeyboardInterrupt instead would be lost whenever the signal arrives inside a weakref callback or a
        ``__del__``: Python prints such exceptions and continues.
        """
        signal.signal(number, signal.SIG_DFL)
        self._server.io_loop.add_callback_from_signal(self._server.io_loop.stop)

    def _make_server(self, hosts: tuple[str, ...]) -> Any:
        pn.config.raw_css = [_STYLE]
        return get_server(
            self._page,
            port=self.port,
            address=ADDRESS,
            websocket_origin=list(hosts),
            title="psofed explorer",
            show=False,
            start=False,
            sign_sessions=True,
            secret_key=secrets.token_urlsafe(32),
            session_token_expiration=3600,
            check_unused_sessions_milliseconds=2000,
            unused_session_lifetime_milliseconds=5000,
        )

    def _page(self) -> Any:
        if len(self._sessions) >= _MOST_SESSIONS:
            return pn.pane.HTML(
                f"<p>The explorer is already open in {_MOST_SESSIONS} windows. Close one of them first.</p>"
            )
        # Panel's style sheets come from this server, not from a content delivery network.
        document: Any = pn.state.curdoc
        document.template_variables["dist_url"] = LOCAL_DIST
        document.template = _HEAD
        session = Session(self._explored, pn.state.session_args)
        self._sessions.add(session)

        def closed(context: Any) -> None:
            session.close()
            self._sessions.discard(session)

        pn.state.on_session_destroyed(closed)
        return session.view.root


def _quietly(loop: Any, context: dict[str, Any]) -> None:
    """Ignore messages to a window that has been closed."""
    from tornado.iostream import StreamClosedError
    from tornado.websocket import WebSocketClosedError

    if not isinstance(context.get("exception"), StreamClosedError | WebSocketClosedError):
        loop.default_exception_handler(context)
