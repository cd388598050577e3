"""Decide which HTTP requests the explorer answers, before Tornado, Bokeh or Panel look at them.

The explorer computes with the user's files, so a request must prove that it comes from the user's own page. Panel and
Bokeh guard some of their routes and not others, and new versions add routes. One check in front of all of them cannot
be forgotten for any: a request passes if

1. it is a GET for a path that the page needs (`PATHS`),
2. its ``Host`` is the explorer's own, so that a foreign name that resolves to 127.0.0.1 does not help an attacker,
3. its ``Origin``, if it has one, is the explorer's own, and
4. it shows the token: in the address, or in the cookie that the first page sets. The cookie counts only for requests
   from the explorer's own page, and for opening that page in a window. ``SameSite=Strict`` does not ensure that,
   because browsers treat all ports of 127.0.0.1 as the same site.
"""

import contextlib
import hmac
import re
from dataclasses import dataclass
from http import cookies
from typing import Any
from urllib.parse import parse_qs

from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.web import OutputTransform

PATHS = re.compile(r"/|/ws|/favicon\.ico|/static/.+")  # the page, its websocket and its assets
_OPEN = "open the address that psofed explore printed"
_OWN_PAGE = ("same-origin", "none")  # values of Sec-Fetch-Site; "none": typed, or opened from outside the browser


@dataclass(frozen=True)
class Access:
    """The rule for requests, as a pure function of their headers.

    Attributes
    ----------
    token : str
        Secret that the printed address carries.
    hosts : tuple of str
        Allowed values of the ``Host`` header, with the port.
    """

    token: str
    hosts: tuple[str, ...]

    @property
    def cookie(self) -> str:
        """Name of the cookie; it contains the port, because cookies are shared by all ports of a host."""
        return f"psofed-explorer-{self.hosts[0].rpartition(':')[2]}"

    def refusal(self, method: str, target: str, headers: HTTPHeaders) -> tuple[int, str] | None:
        """Return the HTTP status and the reason why a request is refused, or None if it is answered.

        Examples
        --------
        >>> access = Access("secret", ("127.0.0.1:5006",))
        >>> access.refusal("GET", "/?token=secret", HTTPHeaders({"Host": "127.0.0.1:5006"}))
        >>> access.refusal("GET", "/?token=secret", HTTPHeaders({"Host": "evil.example"}))[0]
        403
        """
        path = target.partition("?")[0]  # as Tornado splits it, which then routes by the path
        # Following a link from elsewhere, or reloading the page after that, opens a document.
        is_document = path == "/" and headers.get("Sec-Fetch-Dest") == "document"
        is_own = is_document or headers.get("Sec-Fetch-Site", "none") in _OWN_PAGE
        origins = [None, *(f"http://{host}" for host in self.hosts)]
        has_token = self.shows_token(target) or (is_own and self._has_cookie(headers))
        checks = (
            (headers.get_list("Host") in [[host] for host in self.hosts], 403, f"wrong Host header: {_OPEN}"),
            (headers.get("Origin") in origins, 403, "requests from other web pages are refused"),
            (has_token, 403, f"token missing or wrong: {_OPEN}"),
            (method == "GET", 405, "only GET is supported"),
            (PATHS.fullmatch(path), 404, "no such page"),
        )
        return next(((status, reason) for is_fine, status, reason in checks if not is_fine), None)

    def shows_token(self, target: str) -> bool:
        """Return whether the query of a request's address has the token."""
        return any(map(self._is_token, parse_qs(target.partition("?")[2]).get("token", ())))

    def _has_cookie(self, headers: HTTPHeaders) -> bool:
        with contextlib.suppress(cookies.CookieError):
            shown = cookies.SimpleCookie(headers.get("Cookie", "")).get(self.cookie)
            return shown is not None and self._is_token(shown.value)
        return False

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(), self.token.encode())


def guard(server: Any, access: Access) -> None:
    """Put the check in front of a Bokeh server, and let its page set the cookie."""
    http_server, application = server._http, server._tornado

    def answer(request: HTTPServerRequest) -> None:
        refusal = access.refusal(request.method or "", request.uri or "", request.headers)
        if refusal is None:
            application(request)
            return
        status, text = refusal[0], f"{refusal[1]}\n".encode()
        about = HTTPHeaders({"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(text))})
        connection: Any = request.connection
        first = ResponseStartLine("HTTP/1.1", status, "Refused")
        connection.write_headers(first, about, None if request.method == "HEAD" else text)
        connection.finish()

    class SetCookie(OutputTransform):
        """Adds the cookie to the answer to a request whose address has the token."""

        def __init__(self, request: HTTPServerRequest) -> None:
            self._request = request

        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            if access.shows_token(self._request.uri or ""):
                headers.add("Set-Cookie", f"{access.cookie}={access.token}; Path=/; HttpOnly; SameSite=Strict")
            return status_code, headers, chunk

    http_server.request_callback = answer
    application.add_transform(SetCookie)
