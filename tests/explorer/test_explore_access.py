"""Requests to the explorer: every route of its server needs the token and the right Host, or does not exist."""

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("panel", reason="the explorer's extra is not installed")

pytestmark = [pytest.mark.explore, pytest.mark.takes(16)]
MODULE = "psofed_test_imported_by_a_request"


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An explorer served from a thread of this process, and a module that a request could make it import."""
    import asyncio

    from psofed.explore.server import Explorer

    folder = tmp_path_factory.mktemp("modules")
    (folder / f"{MODULE}.py").write_text("")
    sys.path.insert(0, str(folder))
    made: list[Any] = []
    ready = threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        made.append(Explorer())
        made[0]._server.start()
        made[0]._server.io_loop.add_callback(ready.set)
        made[0]._server.io_loop.start()
        made[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(60)
    yield made[0]
    made[0]._server.io_loop.add_callback(made[0]._server.io_loop.stop)
    thread.join(60)
    sys.path.remove(str(folder))


def routes(explorer: Any) -> list[str]:
    """Return an address for every handler that the running Tornado application has."""
    found: list[str] = []

    def walk(rules: list[Any]) -> None:
        for rule in rules:
            if hasattr(rule.target, "rules"):
                walk(rule.target.rules)
                continue
            pattern = rule.matcher.regex.pattern
            path = re.sub(r"\(\?!.*?\)", "", pattern).rstrip("$").replace("/?", "/").replace("\\", "")
            path = path.replace("(.*)", f"{MODULE}/x/css/y")
            assert rule.matcher.regex.match(path), f"no address is known for the route {pattern}"
            found.append(path)

    application = explorer._server._tornado
    walk(application.default_router.rules)
    walk(application.wildcard_router.rules)
    return sorted(set(found))


def ask(explorer: Any, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=30)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, text


def test_every_route_of_the_application_needs_token_and_host(explorer: Any) -> None:
    paths = routes(explorer)
    assert {"/", "/ws", "/static/" + f"{MODULE}/x/css/y"} <= set(paths)
    assert any(path.startswith("/components/") for path in paths)  # Panel still has it, so it must be shut out
    cookie = f"psofed-explorer-{explorer.port}={explorer.token}"
    for path in [*paths, "/no-such-route", "/static/js/bokeh.min.js"]:
        withheld: list[dict[str, str]] = [
            {},
            {"Cookie": cookie.replace(explorer.token, "guessed")},
            {"Cookie": cookie, "Host": f"elsewhere.example:{explorer.port}"},
            {"Cookie": cookie, "Host": "127.0.0.1"},
            {"Cookie": cookie, "Origin": "http://elsewhere.example"},
            {"Cookie": cookie, "Origin": f"http://127.0.0.1:{explorer.port + 1}"},
            {"Cookie": cookie, "Sec-Fetch-Site": "same-site"},
            {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"},
        ]
        for headers in withheld:
            for method in ("GET", "POST", "HEAD", "OPTIONS"):
                assert ask(explorer, path, method, **headers)[0] == 403, (method, path, headers)
        assert ask(explorer, f"{path}?token=guessed")[0] == 403
        assert ask(explorer, path, "POST", Cookie=cookie)[0] == 405
    assert MODULE not in sys.modules


def test_with_the_token_only_the_page_its_assets_and_its_websocket_are_served(explorer: Any) -> None:
    cookie = f"psofed-explorer-{explorer.port}={explorer.token}"
    status = {path: ask(explorer, path, Cookie=cookie)[0] for path in routes(explorer)}
    assert status["/"] == 200
    assert status["/ws"] == 400  # not a websocket handshake
    assert ask(explorer, "/static/js/bokeh.min.js", Cookie=cookie)[0] == 200
    others = {path for path in status if not path.startswith("/static/")} - {"/", "/ws", "/favicon.ico"}
    assert others
    assert {status[path] for path in others} == {404}
    assert MODULE not in sys.modules


def test_an_address_is_read_as_tornado_reads_it(explorer: Any) -> None:
    """Read otherwise, the first is an error within the server, and the second an asset."""
    cookie = f"psofed-explorer-{explorer.port}={explorer.token}"
    for path in ("//[", "//elsewhere.example/static/js/bokeh.min.js"):
        assert ask(explorer, path)[0] == 403
        assert ask(explorer, path, Cookie=cookie) == (404, "no such page\n")


def test_a_refusal_says_what_to_do(explorer: Any) -> None:
    assert ask(explorer, "/") == (403, "token missing or wrong: open the address that psofed explore printed\n")


@pytest.mark.slow
def test_a_signal_ends_the_explorer_even_inside_a_weakref_callback() -> None:
    """An exception raised by a signal handler inside a weakref callback would be printed and forgotten."""
    code = f"""
import os, signal, sys, weakref
from psofed.explore.server import Explorer
class Thing: pass
if __name__ == "__main__":
    explorer = Explorer()
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), {int(signal.SIGINT)}))
    def ready():
        global thing
        del thing
    explorer.run(ready)
    print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
